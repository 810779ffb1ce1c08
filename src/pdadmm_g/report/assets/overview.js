// How the runs ended, at the top: tiles for one run, a table for several.

/** What people look at first: the accuracy, or what takes its place where nodes have several labels or numbers. */
const FIRST = { accuracy: "accuracy", f1_micro: "F1, micro", r2: "R\u00b2" };
const named = new Set(runs.map((run) => run.facts.figure));

const COLUMNS = [
  [named.size > 1 ? "test" : `test ${FIRST[runs[0].facts.figure]}`, (facts) => share(facts.test_accuracy)],
  ["validation", (facts) => share(facts.val_accuracy)],
  ["training", (facts) => share(facts.train_accuracy)],
  ["layers", (facts) => whole(facts.layers)],
  ["parameters", (facts) => whole(facts.parameters)],
  ["epochs", (facts) => whole(facts.epochs)],
  ["kept epoch", (facts) => whole(facts.kept)],
  ["time", (facts) => seconds(facts.seconds)],
  ["sent", (facts) => bytes(facts.bytes_sent)],
];

function overview() {
  byId("overview").append(h("div", { class: "card" }, ...(several ? tableOfRuns() : tilesOf(runs[0]))));
}

function statusOf(run) {
  const kind = run.failed ? "bad" : ["UNFINISHED", "INTERRUPTED"].includes(run.status) ? "" : "good";
  return h("span", { class: `status ${kind}` }, run.status);
}

function tilesOf(run) {
  const { dataset, seed } = run.facts;
  const tiles = COLUMNS.map(([name, value]) =>
    h("div", { class: "tile" }, h("b", {}, value(run.facts)), h("span", {}, name)),
  );
  return [
    h("div", { class: "bar" }, h("h2", {}, `${dataset ? `${dataset}, ` : ""}seed ${seed}`), statusOf(run)),
    h("p", { class: "note" }, run.advice),
    h("div", { class: "tiles" }, ...tiles),
  ];
}

function tableOfRuns() {
  const heads = [
    h("th", { scope: "col" }, "run"),
    ...COLUMNS.map(([name]) => h("th", { scope: "col", class: "number" }, name)),
    ...["status", "data set"].map((name) => h("th", { scope: "col" }, name)),
  ];
  const rows = runs.map((run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, swatch(run.colour), ` ${run.name}`),
      ...COLUMNS.map(([, value]) => h("td", { class: "number" }, value(run.facts))),
      h("td", { title: run.advice }, statusOf(run)),
      h("td", {}, String(run.facts.dataset)),
    ),
  );
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows));
  const notes = runs
    .filter((run) => run.failed || run.status === "UNFINISHED")
    .map((run) => h("p", { class: "note" }, `${run.name}: ${run.advice}`));
  return [scrolling("Table of runs", table), ...notes];
}
