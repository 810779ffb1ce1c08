// Rounds in which nodes without labels teach: which epochs they took, and their marks.

/** The round of an epoch; null where a run has none, or too many to know all of them. */
function roundAt(run, epoch) {
  if (!run.rounds) return null;
  const { round, first, last } = run.rounds,
    i = before(first, epoch);
  return first[i] <= epoch && epoch <= last[i] ? round[i] : null;
}

/** On an axis of rounds, between the last round before a stage and its first one. */
const betweenRounds = (run, epoch) => (roundAt(run, epoch) ?? 0) - 0.5;

function roundTitle(run, number) {
  const { round, first, last } = run.rounds,
    i = before(round, number);
  return `round ${number}, ${first[i] === last[i] ? "epoch" : "epochs"} ${epochSpan(first[i], last[i])}`;
}

/** Short marks on the axis below where rounds begin: too many for lines. */
function drawRounds(svg, selected, x, box) {
  const places = new Set();
  for (const run of selected.filter((each) => each.rounds))
    for (const epoch of run.rounds.first.slice(1)) places.add(Math.round(x(along(run, epoch - 0.5)) * 2) / 2);
  for (const at of places) svg.append(line(at, box.bottom - 5, at, box.bottom, "round"));
}
