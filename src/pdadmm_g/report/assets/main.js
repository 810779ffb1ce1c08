// The page from top to bottom: which figures it has, and when they are drawn again.

const CURVES = [
  {
    id: "accuracy",
    title: "Accuracy",
    note: "Solid: validation nodes; dashed: training nodes; ringed: the epoch that is kept.",
    zooms: true,
    marks: true,
    series: { val_accuracy: "validation", train_accuracy: "training" },
    least: 0,
    most: 1,
  },
  {
    id: "score",
    title: "Validation score",
    note: "What the setting 'scoring' names, by which validation chooses; ringed: the epoch that is kept.",
    zooms: true,
    marks: true,
    series: { val_score: "validation" },
  },
  {
    id: "loss",
    title: "Loss",
    note: "Mean per node. Solid: validation nodes; dashed: training nodes; ringed: the epoch that is kept.",
    marks: true,
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
  { id: "rho", title: "Penalty \u03c1", note: "The weight on p = q.", folds: isConstant, series: { rho: "\u03c1" } },
];

/** Is a series one number in every run? */
function isConstant({ keys }) {
  const values = runs.flatMap((run) => keys.flatMap(([key]) => (run.series[key] ? run.series[key].value : [])));
  return new Set(values).size < 2;
}

function curveFigures() {
  for (const { series, zooms, folds, ...rest } of CURVES) {
    const figure = { ...rest, keys: Object.entries(series), label: rest.note, paint: drawCurves };
    if (!runs.some((run) => figure.keys.some(([key]) => run.series[key]))) continue;
    if (zooms) Object.assign(figure, { modes: { all: "all", zoom: "zoom" }, mode: isFlat(figure) ? "zoom" : "all" });
    addFigure({ ...figure, folded: folds && folds(figure) });
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
  const isTeam = (run) => run.stages.some((stage) => stage.workers.length > 1),
    together = runs.some(isTeam);
  // Where some runs had several workers, those with one have nothing to add.
  const timed = runs.filter((run) => run.timeline && (isTeam(run) || !together)),
    staged = runs.filter((run) => run.stages.length && (isTeam(run) || !together));
  if (timed.length)
    addFigure({
      id: "workers",
      title: together ? "Workers" : "Workers (one)",
      candidates: timed,
      modes: { share: "share", seconds: "seconds", bytes: "bytes" },
      mode: "share",
      folded: !together,
      paint: drawTimeline,
    });
  if (staged.length)
    addFigure({
      id: "plan",
      folded: !together,
      title: "Layer plan",
      note: "Who owns which layers, from the first stage of growth to the last.",
      candidates: staged,
      paint: drawPlan,
    });
}

function timesFigure() {
  if (!runs.some((run) => Object.keys(run.times).length)) return;
  addFigure({ id: "times", title: "Wall time", note: "What the run spent its time on.", paint: drawTimes });
}

function estimateFigure() {
  if (!estimated) return;
  addFigure({ id: "estimate", place: "facts", title: "What to expect", note: estimateNote(), paint: drawEstimate });
}

function importanceFigure() {
  const asked = runs.filter((run) => run.importance);
  if (!asked.length) return;
  addFigure({ id: "importance", place: "facts", title: "What columns are worth", candidates: asked, paint: drawImportance });
}

/** Where accuracy is above the diagonal, the model is better than it says. */
function reliabilityFigure() {
  if (!runs.some((run) => run.reliability)) return;
  addFigure({
    id: "reliability",
    place: "facts",
    title: "Calibration",
    note: "Accuracy by confidence; above the dashed line the model is better than it says, below it is worse.",
    paint: drawReliability,
  });
}

function classFigures() {
  const judged = runs.filter((run) => run.confusion);
  if (!judged.length) return;
  const nodes = [...new Set(judged.map((run) => run.confusion.nodes))]
    .map(nodesCalled)
    .join(" or ");
  addFigure({
    id: "classes",
    place: "facts",
    title: "Per class",
    note: `On the ${nodes}; in brackets how many of them are of the class.`,
    modes: { recall: "recall", precision: "precision", f1: "F1" },
    mode: "recall",
    paint: drawClasses,
  });
  addFigure({
    id: "confusion",
    place: "facts",
    title: "Confusion matrix",
    note: `Counts of ${nodes}; the shade is the share of the true class.`,
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

/** The details are drawn once they are seen, also on paper. */
function drawWhenOpened() {
  const details = byId("training");
  details.addEventListener("toggle", drawAll);
  addEventListener("beforeprint", () => {
    details.open = true;
    drawAll();
  });
}

legend();
controls();
overview();
estimateFigure();
addCards(metricsCard(), ...runs.map(outputsCard));
classFigures();
reliabilityFigure();
importanceFigure();
addCards(...looksCards(), ...dataCards());
choices();
const judgedFigures = figures.length;
curveFigures();
roundFigure();
workerFigures();
timesFigure();
if (figures.length === judgedFigures)
  byId("figures").append(h("p", { class: "card" }, "No epoch has ended yet: nothing to draw."));
configuration();
footer();
drawAll();
drawWhenResized();
drawWhenOpened();
