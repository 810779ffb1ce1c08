// Below the overview: all metrics on each kind of nodes, and what is known of the data.

const METRICS = {
  accuracy: "accuracy",
  balanced_accuracy: "balanced accuracy",
  f1_macro: "F1, macro",
  f1_micro: "F1, micro",
  roc_auc_ovr: "AUROC",
  average_precision: "average precision",
  log_loss: "log loss",
  calibration_error: "calibration error",
  r2: "R\u00b2",
  mean_absolute_error: "mean absolute error",
  root_mean_squared_error: "root mean squared error",
};
/** Errors are in the units of the data, all others shares. */
const figureText = (name, value) =>
  value != null && ["mean_absolute_error", "root_mean_squared_error"].includes(name) ? short(value, 4) : share(value);
const PARTS = { train: "training", val: "validation", test: "test" };

function addCards(...cards) {
  byId("facts").append(...cards.filter(Boolean));
  byId("facts").classList.toggle("several", several);
}

/** Of one run a row for each metric, of several a row for each run, on its test nodes or else those that validate. */
function metricsCard() {
  const judged = runs.filter((run) => Object.keys(run.metrics).length);
  if (!judged.length) return null;
  const cell = (value, name) => h("td", { class: "number" }, figureText(name, value));
  const names = Object.keys(METRICS).filter((name) =>
    judged.some((run) => Object.values(run.metrics).some((figures) => name in figures)),
  );
  let heads, rows;
  if (several) {
    heads = names.map((name) => METRICS[name]);
    rows = judged.map((run) => {
      const found = run.metrics.test || run.metrics.val || run.metrics.train;
      return [[swatch(run.colour), ` ${run.name}`], names.map((name) => cell(found[name], name))];
    });
  } else {
    const parts = Object.keys(PARTS).filter((part) => judged[0].metrics[part]);
    heads = parts.map((part) => PARTS[part]);
    rows = names.map((name) => [[METRICS[name]], parts.map((part) => cell(judged[0].metrics[part][name], name))]);
  }
  const head = [h("th", { scope: "col" }, several ? "run" : ""), ...heads.map(numberHead)];
  const body = rows.map(([title, cells]) => h("tr", {}, h("th", { scope: "row" }, ...title), ...cells));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body));
  const less = "Of log loss and errors, less is better.";
  const note = several ? `On the test nodes, else on those that validate, else on those that trained. ${less}` : less;
  return h(
    "div",
    { class: "card", id: "metrics" },
    h("h2", {}, "Metrics"),
    h("p", { class: "note" }, note),
    scrolling("Table of metrics", table),
  );
}

/** Where nodes have several labels or numbers: a row for each. */
function outputsCard(run) {
  if (!run.outputs || (run.facts.figure === "r2" && run.outputs.names.length === 1)) return null;
  const { nodes, names, figures } = run.outputs;
  const keys = Object.keys(figures[0]);
  const title = (key) => METRICS[key] || (key === "f1" ? "F1" : key);
  const head = [h("th", { scope: "col" }, ""), ...keys.map((key) => numberHead(title(key)))];
  const body = names.map((name, place) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      ...keys.map((key) => h("td", { class: "number" }, figureText(key, figures[place][key]))),
    ),
  );
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body));
  return h(
    "div",
    { class: "card outputs" },
    h("h2", {}, several ? `Each by itself: ${run.name}` : "Each by itself"),
    h("p", { class: "note" }, `On the ${nodesCalled(nodes)}.`),
    scrolling("Table of labels or numbers", table),
  );
}

/** The nodes of which the model is least certain, and those whose label it contradicts most surely. */
function looksCards() {
  if (several || !runs[0].looks) return [];
  const { among, uncertain, nodes, contradicted } = runs[0].looks;
  const kinds = [
    ["uncertain", "Least certain", `Of the ${nodesCalled(among)}: those of which the model is least sure.`, uncertain],
    ["contradicted", "Surest of another label", `Of the ${nodesCalled(nodes)}: is their label right?`, contradicted],
  ];
  return kinds
    .filter(([, , , rows]) => rows.length)
    .map(([id, title, why, rows]) => {
      const known = rows.some(({ label }) => label != null);
      const head = ["node", ...(known ? ["label"] : []), "predicted"].map((name) => h("th", { scope: "col" }, name));
      const body = rows.map(({ node, label, predicted, probability }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, String(node)),
          known ? h("td", {}, String(label)) : null,
          h("td", {}, String(predicted)),
          h("td", { class: "number" }, share(probability)),
        ),
      );
      const table = h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...head, numberHead("probability"))),
        h("tbody", {}, ...body),
      );
      return h(
        "div",
        { class: "card looks", id },
        h("h2", {}, title),
        h("p", { class: "note" }, why),
        scrolling(`Table of nodes: ${title}`, table),
      );
    });
}

const numberHead = (name) => h("th", { scope: "col", class: "number" }, name);

/** One for each graph that runs were on. */
function dataCards() {
  const seen = new Map();
  for (const run of runs.filter((each) => each.data)) seen.set(JSON.stringify(run.data), run);
  return [...seen.values()].map((run) => {
    const { degrees, ...known } = run.data;
    const learned = run.facts.figure === "r2" ? "number" : "label";
    const figures = [
      ["nodes", whole(known.nodes)],
      ["edges", whole(known.edges)],
      ["features", whole(known.features)],
      ["classes", whole(known.classes)],
      [`${learned}${known.outputs === 1 ? "" : "s"} a node`, whole(known.outputs)],
      ["training", whole(known.train)],
      ["validation", whole(known.val)],
      ["test", whole(known.test)],
      ["edges in a class", share(known.homophily)],
      ["the same, beyond chance", share(known.homophily_beyond_chance)],
      ["mean degree", known.mean_degree == null ? DASH : short(known.mean_degree)],
      ["isolated nodes", whole(known.isolated)],
    ].filter(([, value]) => value !== DASH);
    const tiles = figures.map(([name, value]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name)));
    const spread = degrees ? `Degrees: ${degrees.map(whole).join(", ")} (least, quartiles, most).` : "";
    const counted = known.homophily == null ? "" : " Edges in a class: between all nodes with a label.";
    return h(
      "div",
      { class: "card data" },
      h("h2", {}, run.facts.dataset ? `Data: ${fileOf(run)}` : "Data"),
      h("p", { class: "note" }, spread + counted),
      h("div", { class: "tiles" }, ...tiles),
    );
  });
}
