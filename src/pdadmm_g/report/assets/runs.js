// The runs of the page, which of them are shown, and what the horizontal axis counts.

const data = JSON.parse(byId("data").textContent);

/** More runs than colours: those beyond get the same ones, muted. */
const colourOf = (place) =>
  place < data.colours
    ? `var(--run-${place})`
    : `color-mix(in srgb, var(--run-${place % data.colours}) 50%, var(--soft))`;
const runs = data.runs.map((run, place) => ({ ...run, colour: colourOf(place) }));
const several = runs.length > 1;

/** What nodes are called in a sentence. */
const NODES = { val: "validation nodes", "out of fold": "labelled nodes out of fold" };
const nodesCalled = (kind) => NODES[kind] || `${kind} nodes`;

const hidden = new Set();
const shown = () => runs.filter((run) => !hidden.has(run.name));

let axis = "epoch";
const axisTitle = () => (axis === "epoch" ? "epoch" : "seconds of training");

/** The epoch as it is, or the seconds of training at its end. */
function along(run, epoch) {
  if (axis === "epoch") return epoch;
  const { epoch: at, seconds: value } = run.clock;
  if (!at.length || epoch <= 0) return 0;
  if (epoch <= at[0]) return (value[0] * epoch) / at[0];
  const i = before(at, epoch),
    j = Math.min(i + 1, at.length - 1);
  return i === j ? value[i] : value[i] + ((value[j] - value[i]) * (epoch - at[i])) / (at[j] - at[i]);
}
