// The page from top to bottom: which figures it has, and when they are drawn again.

const CURVES = [
  {
    id: "accuracy",
    title: "Accuracy",
    note: "Solid: validation nodes; dashed: training nodes.",
    series: { val_accuracy: "validation", train_accuracy: "training" },
    least: 0,
    most: 1,
  },
  {
    id: "loss",
    title: "Loss",
    note: "Mean per node. Solid: validation nodes; dashed: training nodes.",
    series: { val_loss: "validation", train_loss: "training" },
    scale: "linear",
    least: 0,
  },
  {
    id: "objective",
    title: "Objective",
    note: "Solid: objective, with pdADMM-G the Lagrangian, else the loss; dashed: risk alone.",
    series: { objective: "objective", risk: "risk" },
    scale: "log",
  },
  {
    id: "residuals",
    title: "Residuals",
    note: "Solid: primal, |p \u2212 q|; dashed: dual, \u03c1 |change of q|.",
    series: { primal_residual: "primal", dual_residual: "dual" },
    scale: "log",
  },
  { id: "rho", title: "Penalty \u03c1", note: "The weight on p = q.", series: { rho: "\u03c1" } },
];

function curveFigures() {
  for (const { series, ...figure } of CURVES) {
    const keys = Object.entries(series);
    if (runs.some((run) => keys.some(([key]) => run.series[key])))
      addFigure({ ...figure, keys, label: figure.note, paint: drawCurves });
  }
}

function roundFigure() {
  if (!runs.some((run) => run.rounds)) return;
  const asked = several ? null : runs[0].facts.unlabelled;
  const note = "Solid: best validation accuracy; dashed: nodes whose copies agree; dotted: whose class changed.";
  addFigure({
    id: "rounds",
    title: "Rounds",
    note,
    more: `Shares of the nodes asked${asked > 0 ? `, up to ${whole(asked)} in each round` : ""}.`,
    label: note,
    keys: Object.entries({ val_accuracy: "validation", agreement: "copies agree", changed: "class changed" }),
    rounds: true,
    least: 0,
    most: 1,
    paint: drawCurves,
  });
}

function workerFigures() {
  const timed = runs.filter((run) => run.timeline),
    staged = runs.filter((run) => run.stages.length);
  if (timed.length)
    addFigure({ id: "workers", title: "Workers", candidates: timed, mode: "share", paint: drawTimeline });
  if (staged.length)
    addFigure({
      id: "plan",
      title: "Layer plan",
      note: "Who owns which layers, from the first stage of growth to the last.",
      candidates: staged,
      paint: drawPlan,
    });
}

function classFigures() {
  const judged = runs.filter((run) => run.confusion);
  if (!judged.length) return;
  const nodes = [...new Set(judged.map((run) => run.confusion.nodes))]
    .map((name) => ({ test: "test", val: "validation" })[name] || name)
    .join(" or ");
  addFigure({
    id: "classes",
    title: "Accuracy per class",
    note: `On the ${nodes} nodes; in brackets how many of them are of the class.`,
    paint: drawClasses,
  });
  addFigure({
    id: "confusion",
    title: "Confusion matrix",
    note: `Counts of ${nodes} nodes; the shade is the share of the true class.`,
    candidates: judged,
    paint: drawConfusion,
  });
}

function footer() {
  const versions = [...new Set(runs.map((run) => run.facts.versions).filter(Boolean))].join("; ");
  byId("footer").textContent =
    `Written ${data.written} by pdadmm-g ${data.version}.${versions ? ` Trained with ${versions}.` : ""}`;
}

function drawWhenResized() {
  let width = innerWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) {
      width = document.body.clientWidth;
      drawAll();
    }
  }).observe(document.body);
}

legend();
controls();
overview();
curveFigures();
roundFigure();
workerFigures();
classFigures();
if (!figures.length) byId("figures").append(h("p", { class: "card" }, "No epoch has ended yet: nothing to draw."));
configuration();
footer();
drawAll();
drawWhenResized();
