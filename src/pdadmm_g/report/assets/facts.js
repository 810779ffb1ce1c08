// Beside the overview: all metrics on each kind of nodes, and what is known of the data.

const METRICS = {
  accuracy: "accuracy",
  balanced_accuracy: "balanced accuracy",
  f1_macro: "F1, macro",
  f1_micro: "F1, micro",
  roc_auc_ovr: "AUROC",
  average_precision: "average precision",
  log_loss: "log loss",
  calibration_error: "calibration error",
};
const PARTS = { train: "training", val: "validation", test: "test" };

function facts() {
  const cards = [metricsCard(), ...dataCards()].filter(Boolean);
  byId("facts").append(...cards);
  byId("facts").hidden = !cards.length;
  byId("facts").classList.toggle("several", several);
}

/** Of one run a row for each metric, of several a row for each run, on its test nodes or else those that validate. */
function metricsCard() {
  const judged = runs.filter((run) => Object.keys(run.metrics).length);
  if (!judged.length) return null;
  const cell = (value) => h("td", { class: "number" }, share(value));
  let heads, rows;
  if (several) {
    heads = Object.values(METRICS);
    rows = judged.map((run) => {
      const found = run.metrics.test || run.metrics.val || run.metrics.train;
      return [[swatch(run.colour), ` ${run.name}`], Object.keys(METRICS).map((name) => cell(found[name]))];
    });
  } else {
    const parts = Object.keys(PARTS).filter((part) => judged[0].metrics[part]);
    heads = parts.map((part) => PARTS[part]);
    rows = Object.entries(METRICS).map(([name, title]) => [
      [title],
      parts.map((part) => cell(judged[0].metrics[part][name])),
    ]);
  }
  const head = [h("th", { scope: "col" }, several ? "run" : ""), ...heads.map(numberHead)];
  const body = rows.map(([title, cells]) => h("tr", {}, h("th", { scope: "row" }, ...title), ...cells));
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...body));
  const note = several
    ? "On the test nodes, or on those that validate where there are none. Of log loss and calibration error, less is better."
    : "Of log loss and calibration error, less is better.";
  return h(
    "div",
    { class: "card", id: "metrics" },
    h("h2", {}, "Metrics"),
    h("p", { class: "note" }, note),
    scrolling("Table of metrics", table),
  );
}

const numberHead = (name) => h("th", { scope: "col", class: "number" }, name);

/** One for each graph that runs were on. */
function dataCards() {
  const seen = new Map();
  for (const run of runs.filter((each) => each.data)) seen.set(JSON.stringify(run.data), run);
  return [...seen.values()].map((run) => {
    const { degrees, ...known } = run.data;
    const figures = [
      ["nodes", whole(known.nodes)],
      ["edges", whole(known.edges)],
      ["features", whole(known.features)],
      ["classes", whole(known.classes)],
      ["training", whole(known.train)],
      ["validation", whole(known.val)],
      ["test", whole(known.test)],
      ["edges in a class", share(known.homophily)],
      ["beyond chance", share(known.homophily_beyond_chance)],
      ["mean degree", known.mean_degree == null ? DASH : short(known.mean_degree)],
      ["isolated nodes", whole(known.isolated)],
    ].filter(([, value]) => value !== DASH);
    const tiles = figures.map(([name, value]) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name)));
    const spread = degrees
      ? `Degrees: ${degrees.map((degree) => whole(degree)).join(", ")} (least, quartiles, most).`
      : "";
    return h(
      "div",
      { class: "card data" },
      h("h2", {}, `Data: ${run.facts.dataset}`),
      h("p", { class: "note" }, spread),
      h("div", { class: "tiles" }, ...tiles),
    );
  });
}
