// What each worker did with its time, and what it sent: a lane for each, a bar for each stretch of epochs.

const TIMES = [
  ["compute_seconds", "computing", "--compute"],
  ["pack_seconds", "packing", "--pack"],
  ["wait_seconds", "waiting", "--wait"],
];
const SENT = [
  ["bytes_p", "p to the left", "--compute"],
  ["bytes_q", "q to the right", "--pack"],
];
const sumOf = (parts, worker, i) => parts.reduce((sum, [key]) => sum + Math.max(0, worker[key][i]), 0);

function drawTimeline(figure, svg, width) {
  const run = figure.run,
    { edges, workers } = run.timeline;
  const parts = figure.mode === "bytes" ? SENT : TIMES;
  const narrow = width < 480,
    lane = Math.max(14, Math.min(44, 380 / workers.length)),
    gap = lane > 20 ? 5 : 2,
    tall = lane - gap;
  const box = { left: narrow ? 34 : 74, right: width - 18, top: 22, bottom: 22 + workers.length * lane };
  const sums = workers.flatMap((worker) => edges.slice(1).map((_, i) => sumOf(parts, worker, i)));
  sums.sort((a, b) => a - b);
  const largest = sums[sums.length - 1];
  // One slow stretch, such as the first epochs, must not flatten all others.
  const full = Math.min(largest, 2 * sums[Math.floor(0.9 * (sums.length - 1))]) || largest || 1;
  const start = along(run, edges[0]),
    end = along(run, edges[edges.length - 1]) || 1;
  const x = scale(start, end, box.left, box.right);
  const places = edges.map((epoch) => x(along(run, epoch)));
  workers.forEach((worker, rank) => {
    const floor = box.top + (rank + 1) * lane - gap;
    svg.append(s("rect", { x: box.left, y: floor - tall, width: box.right - box.left, height: tall, class: "lane" }));
    const name = narrow ? `w${rank}` : `worker ${rank}`;
    svg.append(text(box.left - 7, floor - tall / 2 + 4, name, { "text-anchor": "end" }));
    drawBars(svg, worker, parts, places, floor, tall, figure.mode === "share" ? null : full);
  });
  drawStages(svg, [run], x, box);
  drawRounds(svg, [run], x, box);
  bottomAxis(svg, x, start, end, box, axisTitle());
  figure.hint(timelineNote(figure.mode, full, largest));
  figure.key = parts.map(([, name, colour]) => [`var(${colour})`, name]);
  const mark = s("rect", { fill: "none", class: "cursor", style: { display: "none" } });
  svg.append(mark);
  figure.show = (px, py) => {
    if (px == null || px < box.left) {
      mark.style.display = "none";
      return null;
    }
    const i = before(places.slice(0, -1), px),
      rank = Math.max(0, Math.min(workers.length - 1, Math.floor((py - box.top) / lane)));
    const wide = (i + 2 < places.length ? places[i + 1] : box.right) - places[i];
    setAttributes(mark, { x: places[i], y: box.top + rank * lane, width: wide, height: tall });
    mark.style.display = "";
    return { x: places[i] + wide / 2, ...readTimeline(run.timeline, rank, i) };
  };
  figure.steps = edges.length - 1;
  figure.range = [box.left, box.right];
  return box.bottom + 42;
}

/** The bars of one worker, stacked from the floor of its lane; without a full height each bar fills the lane. */
function drawBars(svg, worker, parts, places, floor, tall, full) {
  const paths = parts.map(() => "");
  for (let i = 0; i + 1 < places.length; i++) {
    const highest = full ?? sumOf(parts, worker, i),
      left = places[i],
      wide = places[i + 1] - left;
    let used = 0;
    parts.forEach(([key], part) => {
      const size = highest > 0 ? Math.min(tall - used, (tall * Math.max(0, worker[key][i])) / highest) : 0;
      if (size > 0.05) {
        const corner = `M${left.toFixed(1)} ${(floor - used).toFixed(1)}`;
        paths[part] += `${corner}h${wide.toFixed(1)}v${(-size).toFixed(1)}h${(-wide).toFixed(1)}z`;
      }
      used += size;
    });
  }
  parts.forEach(([, name, colour], part) => {
    if (paths[part]) svg.append(s("path", { d: paths[part], "data-part": name, style: { fill: `var(${colour})` } }));
  });
}

function timelineNote(mode, full, largest) {
  if (mode === "share") return "Share of each epoch that a worker spent on what, averaged over neighbouring epochs.";
  if (largest === 0) return "Nothing was sent: a single worker has no neighbours.";
  const unit = mode === "bytes" ? bytes : seconds;
  return `Per epoch; a full lane is ${unit(full)}${largest > full * 1.001 ? ", more is cut off" : ""}.`;
}

/** All that is known of a worker in one stretch of epochs, whatever the bars show. */
function readTimeline({ edges, workers }, rank, i) {
  const rows = [...TIMES.map((part) => [part, seconds]), ...SENT.map((part) => [part, bytes])].map(
    ([[key, name, colour], format]) => ({ colour: `var(${colour})`, name, value: format(workers[rank][key][i]) }),
  );
  const [first, last] = [edges[i] + 1, edges[i + 1]];
  const span = `${first === last ? "epoch" : "epochs"} ${epochSpan(first, last)}`;
  return { title: `worker ${rank}, ${span}, per epoch`, rows };
}
