// How good the runs are, at the top: tiles for one run, a table for several; and how they were trained, further down.

/** What people look at first: the accuracy, or what takes its place where nodes have several labels or numbers. */
const FIRST = { accuracy: "accuracy", f1_micro: "F1, micro", r2: "R\u00b2" };
const named = new Set(runs.map((run) => run.facts.figure));
const firstOf = named.size > 1 ? "" : ` ${FIRST[runs[0].facts.figure]}`;
const estimated = runs.some((run) => run.estimate);

const GOOD = [
  ...(estimated
    ? [
        ["expected accuracy", ({ estimate }) => (estimate ? share(estimate.figures.accuracy[0]) : DASH)],
        ["90% interval", ({ estimate }) => (estimate ? estimate.figures.accuracy.slice(1).map(share).join("\u2013") : DASH)],
        ["largest class", ({ estimate }) => share(estimate && estimate.largest_class)],
      ]
    : []),
  [`test${firstOf}`, ({ facts }) => share(facts.test_accuracy)],
  ...(estimated ? [] : [[`validation${firstOf}`, ({ facts }) => share(facts.val_accuracy)]]),
  [`training${firstOf}`, ({ facts }) => share(facts.train_accuracy)],
];
const TRAINED = [
  ["layers", ({ facts }) => whole(facts.layers)],
  ["parameters", ({ facts }) => whole(facts.parameters)],
  ["epochs", ({ facts }) => whole(facts.epochs)],
  ["kept epoch", ({ facts }) => whole(facts.kept)],
  ["time", ({ facts }) => seconds(facts.seconds)],
  ["sent", ({ facts }) => bytes(facts.bytes_sent)],
];

function overview() {
  byId("overview").append(h("div", { class: "card" }, ...(several ? overviewOfRuns() : overviewOf(runs[0]))));
  const trained = several ? tableOfRuns("How the runs were trained", TRAINED) : tilesOf(runs[0], TRAINED);
  byId("trained").append(h("div", { class: "card" }, trained));
}

function statusOf(run) {
  const kind = run.failed ? "bad" : ["UNFINISHED", "INTERRUPTED"].includes(run.status) ? "" : "good";
  return h("span", { class: `status ${kind}` }, run.status);
}

/** The name of the data set, of a file without its folders. */
const fileOf = (run) => run.facts.dataset.split("/").pop();
const tile = (value, name) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name));
const tilesOf = (run, columns) => h("div", { class: "tiles" }, ...columns.map(([name, value]) => tile(value(run), name)));

/** Which nodes the expected figures are from, and how far to believe them. */
function estimateNote() {
  const [{ on, nodes }] = runs.map((run) => run.estimate).filter(Boolean);
  const which = several ? nodesCalled(on) : `${whole(nodes)} ${nodesCalled(on)}`;
  const chose = " Corrected for having been used to choose the model.";
  return `Expected on new nodes, by ${which}.${chose} Always naming the largest class is right as often as its share.`;
}

function overviewOf(run) {
  const { dataset, seed } = run.facts;
  const known = GOOD.filter(([, value]) => value(run) !== DASH);
  return [
    h("div", { class: "bar" }, h("h2", {}, `${dataset ? `${fileOf(run)}, ` : ""}seed ${seed}`), statusOf(run)),
    h("p", { class: "note" }, run.advice),
    tilesOf(run, known),
  ];
}

function overviewOfRuns() {
  const last = [
    ["status", (run) => h("td", { title: run.advice }, statusOf(run))],
    ["data set", (run) => h("td", {}, run.facts.dataset ? fileOf(run) : "")],
  ];
  const notes = runs
    .filter((run) => run.failed || run.status === "UNFINISHED")
    .map((run) => h("p", { class: "note" }, `${run.name}: ${run.advice}`));
  return [tableOfRuns("Table of runs", GOOD, last), ...notes];
}

function tableOfRuns(label, columns, last = []) {
  const heads = [
    h("th", { scope: "col" }, "run"),
    ...columns.map(([name]) => h("th", { scope: "col", class: "number" }, name)),
    ...last.map(([name]) => h("th", { scope: "col" }, name)),
  ];
  const rows = runs.map((run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, swatch(run.colour), ` ${run.name}`),
      ...columns.map(([, value]) => h("td", { class: "number" }, value(run))),
      ...last.map(([, cell]) => cell(run)),
    ),
  );
  return scrolling(label, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows)));
}
