// Curves along epochs or seconds: accuracy, loss, objective, residuals, penalty; and along rounds.

function drawCurves(figure, svg, width) {
  const height = 300,
    box = { left: 54, right: width - 18, top: 22, bottom: height - 42 };
  const selected = shown().filter((run) => figure.keys.some(([key]) => pointsOf(figure, run, key).length));
  const { curves, dropped } = curvesOf(figure, selected);
  const zoomed = figure.mode === "zoom" ? "Zoomed: the first epochs are out of sight." : "";
  figure.hint([figure.note, figure.more, zoomed, dropped ? "Gaps: zero or less." : ""].filter(Boolean).join(" "));
  if (!curves.length) {
    const why = selected.length ? "no positive values to show on a log scale" : "all runs with this figure are hidden";
    svg.append(text(width / 2, height / 2, why, { "text-anchor": "middle" }));
    return height;
  }
  const log = figure.scale === "log";
  const [low, high] = figure.mode === "zoom" ? settledRange(figure, curves) : valueRange(figure, curves);
  const end = curves.reduce((most, { points }) => Math.max(most, points[points.length - 1].at), 0) || 1;
  const x = scale(0, end, box.left, box.right),
    y = scale(low, high, box.bottom, box.top, log);
  for (const tick of (log ? logTicks : linearTicks)(low, high, 5)) {
    svg.append(line(box.left, y(tick), box.right, y(tick), "grid"));
    svg.append(text(box.left - 7, y(tick) + 4, short(tick), { "text-anchor": "end" }));
  }
  drawBelow(figure, svg, selected, x, end, box);
  const inside = s("g", { "clip-path": `url(#inside-${figure.id})` });
  svg.append(clipTo(figure, box), inside);
  for (const curve of [...curves].reverse()) {
    inside.append(drawCurve(curve, x, y));
    if (figure.rounds) drawDots(inside, curve, x, y, box);
  }
  for (const curve of curves) if (figure.marks && !curve.rank) markKept(inside, curve, x, y);
  const cursor = line(0, box.top, 0, box.bottom, "cursor");
  cursor.style.display = "none";
  svg.append(cursor);
  figure.show = (px) => {
    if (px == null) {
      cursor.style.display = "none";
      return null;
    }
    const at = Math.min(end, Math.max(0, ((px - box.left) / (box.right - box.left)) * end));
    return readCurves(figure, curves, cursor, x, at);
  };
  // Rounds start at 0, at the left end of the axis, epochs at 1.
  figure.steps = Math.max(...curves.map((curve) => curve.points.length)) - (figure.rounds ? 1 : 0);
  figure.range = [box.left, box.right];
  return height;
}

/** The axis, where the network grew, and where rounds began. */
function drawBelow(figure, svg, selected, x, end, box) {
  if (figure.rounds) {
    drawStages(svg, selected, x, box, betweenRounds);
    const most = Math.min(end, (box.right - box.left) / 50);
    bottomAxis(svg, x, 0, end, box, "round", linearTicks(0, end, Math.floor(most)));
  } else {
    drawStages(svg, selected, x, box);
    drawRounds(svg, selected, x, box);
    bottomAxis(svg, x, 0, end, box, axisTitle());
  }
}

/** The points of a curve; number: their epochs or rounds. */
function pointsOf(figure, run, key) {
  if (figure.rounds) {
    if (!run.rounds) return [];
    const all = run.rounds.round.map((number, i) => ({ at: number, value: run.rounds[key][i], number }));
    return all.filter((point) => point.value != null);
  }
  const series = run.series[key];
  if (!series) return [];
  return series.epoch.map((number, i) => ({ at: along(run, number), value: series.value[i], number }));
}

/** The points of every curve, and whether some cannot be drawn: a log scale has no place for zero or less. */
function curvesOf(figure, selected) {
  const curves = [];
  let dropped = false;
  for (const run of selected) {
    figure.keys.forEach(([key, name], rank) => {
      const all = pointsOf(figure, run, key).map((point, place) => ({ ...point, place }));
      const points = figure.scale === "log" ? all.filter((point) => point.value > 0) : all;
      dropped ||= points.length < all.length;
      if (points.length) curves.push({ run, name, rank, points });
    });
  }
  return { curves, dropped };
}

/** The values from lowest to highest and some air, but not where no value can be. */
function valueRange(figure, curves) {
  const values = curves.flatMap(valuesOf);
  let low = values.reduce((a, b) => Math.min(a, b)),
    high = values.reduce((a, b) => Math.max(a, b));
  if (figure.scale === "log") {
    const factor = Math.max((high / low) ** 0.04, 1.05);
    return [low / factor, high * factor];
  }
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  low -= margin;
  high += margin;
  if (figure.least != null && values.every((value) => value >= figure.least)) low = Math.max(low, figure.least);
  if (figure.most != null && values.every((value) => value <= figure.most))
    high = Math.min(Math.max(high, low + 0.02), figure.most + (figure.most - low) * 0.02);
  return [low, high];
}

/** What is outside of the axes is not drawn. */
function clipTo(figure, { left, right, top, bottom }) {
  const frame = { x: left - 6, y: top - 6, width: right - left + 12, height: bottom - top + 6 };
  return s("defs", {}, s("clipPath", { id: `inside-${figure.id}` }, s("rect", frame)));
}

/** The values of the first curve of each run without their lowest tenth, where training begins. */
function settled(curves) {
  const values = curves.filter((curve) => !curve.rank).flatMap(valuesOf);
  values.sort((a, b) => a - b);
  return values.slice(Math.floor(values.length / 10));
}

function settledRange(figure, curves) {
  const values = settled(curves).map((value) => ({ value }));
  return valueRange(figure, values.length ? [{ points: values }] : curves);
}

/** Does most of what the first curves show happen in a small part of their range, so that they look flat? */
function isFlat(figure) {
  const { curves } = curvesOf(figure, runs);
  const range = (values) => values.reduce((a, b) => Math.max(a, b)) - values.reduce((a, b) => Math.min(a, b));
  const late = settled(curves);
  return late.length > 10 && range(late) > 0 && range(late) < range(curves.flatMap(valuesOf)) / 3;
}

const valuesOf = (curve) => curve.points.map((point) => point.value);

/** A ring around the epoch whose weights are kept; thinning may have left a neighbour of it. */
function markKept(svg, { run, points }, x, y) {
  if (run.facts.kept == null || points.length < 2) return;
  const numbers = points.map((point) => point.number);
  const { at, value } = points[before(numbers, run.facts.kept)];
  const style = { stroke: run.colour };
  svg.append(s("circle", { cx: x(at), cy: y(value), r: 4.5, class: "kept", "data-run": run.name, style }));
}

/** A path with gaps where points are left out; a dot, where there is but one. */
function drawCurve({ run, rank, points }, x, y) {
  if (points.length === 1) {
    const [{ at, value }] = points;
    return s("circle", {
      cx: x(at),
      cy: y(value),
      r: 3.5,
      class: "dot",
      "data-run": run.name,
      style: { fill: run.colour },
    });
  }
  const joined = (i) => i > 0 && points[i].place === points[i - 1].place + 1;
  const path = points
    .map(({ at, value }, i) => `${joined(i) ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const kind = ["curve", "curve second", "curve third"][rank];
  return s("path", { d: path, class: kind, "data-run": run.name, style: { stroke: run.colour } });
}

/** A dot for each point, hollow on all but the first curve, unless they would touch. */
function drawDots(svg, { run, rank, points }, x, y, box) {
  if (points.length < 2 || points.length > (box.right - box.left) / 12) return;
  const style = { fill: rank ? "var(--card)" : run.colour, stroke: run.colour };
  for (const { at, value } of points) svg.append(s("circle", { cx: x(at), cy: y(value), r: 2.8, class: "dot", style }));
}

/** The point of each curve that is nearest to a place on the axis. */
function readCurves(figure, curves, cursor, x, at) {
  const rows = [];
  let nearest = null;
  for (const { run, name, points } of curves) {
    const places = points.map((point) => point.at);
    const i = before(places, at),
      j = Math.min(i + 1, points.length - 1);
    const point = Math.abs(places[j] - at) < Math.abs(places[i] - at) ? points[j] : points[i];
    if (!nearest || Math.abs(point.at - at) < Math.abs(nearest.at - at)) nearest = { ...point, run };
    rows.push({
      colour: run.colour,
      name: figure.keys.length > 1 ? (several ? `${run.name}, ${name}` : name) : run.name,
      value: short(point.value, 4),
      number: point.number,
    });
  }
  setAttributes(cursor, { x1: x(nearest.at), x2: x(nearest.at) });
  cursor.style.display = "";
  const alone = curves.every(({ run }) => run === nearest.run),
    title = readTitle(figure, nearest, alone);
  if (figure.rounds) return { x: x(nearest.at), title, rows: rows.filter((row) => row.number === nearest.number) };
  // Each run has its own clock, and a thinned curve its own epochs: say which one a value is from.
  for (const row of rows) if (axis !== "epoch" || row.number !== nearest.number) row.name += ` (epoch ${row.number})`;
  return { x: x(nearest.at), title, rows };
}

/** Where a value was read; if it is all of one run, also which round it was or which epochs the round had. */
function readTitle(figure, { run, number, at }, alone) {
  if (figure.rounds) return alone ? roundTitle(run, number) : `round ${number}`;
  const kept = alone && run.facts.kept === number ? " (kept)" : "";
  const title = (axis === "epoch" ? `epoch ${number}` : `${seconds(at)} of training`) + kept;
  const round = alone ? roundAt(run, number) : null;
  return round == null ? title : `${title}, round ${round}`;
}
