// What several figures draw with: text, lines, the axis below, stages of growth, spots that can be read.

const text = (x, y, content, attributes = {}) => s("text", { x, y, ...attributes }, content);
const line = (x1, y1, x2, y2, kind) => s("line", { x1, y1, x2, y2, class: kind });
const clip = (name, length) => (name.length > length ? `${name.slice(0, length - 1)}\u2026` : name);
const total = (row) => row.reduce((sum, count) => sum + count, 0);

const acrossTicks = (low, high, box) => linearTicks(low, high, Math.max(2, Math.floor((box.right - box.left) / 70)));

function bottomAxis(svg, x, low, high, box, title, ticks = acrossTicks(low, high, box)) {
  for (const tick of ticks) {
    svg.append(line(x(tick), box.bottom, x(tick), box.bottom + 4, "axis"));
    svg.append(text(x(tick), box.bottom + 17, short(tick), { "text-anchor": "middle" }));
  }
  svg.append(line(box.left, box.bottom, box.right, box.bottom, "axis"));
  svg.append(text((box.left + box.right) / 2, box.bottom + 33, title, { "text-anchor": "middle" }));
}

const betweenEpochs = (run, epoch) => along(run, epoch - 0.5);

/** Thin lines where the network grew; where runs share one, it is drawn once, with a text if they agree on it. */
function drawStages(svg, selected, x, box, place = betweenEpochs) {
  const labels = new Map();
  for (const run of selected) {
    for (const stage of run.stages.slice(1)) {
      const at = Math.round(x(place(run, stage.epoch)) * 2) / 2;
      const label = `${stage.depth} layers`,
        known = labels.get(at);
      labels.set(at, known != null && known !== label ? "" : label);
    }
  }
  let free = -Infinity;
  for (const [at, label] of [...labels].sort((a, b) => a[0] - b[0])) {
    svg.append(line(at, box.top, at, box.bottom, "stage"));
    if (label && at >= free && at + 52 < box.right) {
      svg.append(text(at + 3, box.top - 4, label, { class: "small" }));
      free = at + 62;
    }
  }
}

/** What the spot under the pointer says. */
function spot(spots, px, py) {
  const found =
    px != null && spots.find((item) => px >= item.left && px < item.right && py >= item.top && py < item.bottom);
  return found ? { x: (found.left + found.right) / 2, title: found.title, rows: found.rows } : null;
}
