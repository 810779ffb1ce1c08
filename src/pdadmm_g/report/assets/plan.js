// The layer plan: a row for each stage of growth, a box for each worker and its layers.

function drawPlan(figure, svg, width) {
  const row = 30,
    box = { left: width < 480 ? 66 : 84, right: width - 18, top: 6 };
  const { stages } = figure.run;
  const spots = stages.flatMap((stage, number) => drawStage(svg, stage, box, box.top + number * row, row));
  figure.show = (px, py) => spot(spots, px, py);
  return box.top + stages.length * row;
}

function drawStage(svg, stage, box, y, row) {
  const unit = (box.right - box.left) / Math.max(1, stage.depth);
  const depth = `${stage.depth} layer${stage.depth === 1 ? "" : "s"}`;
  svg.append(text(box.left - 7, y + 17, depth, { "text-anchor": "end" }));
  const spots = [];
  let first = 0;
  (stage.workers.length ? stage.workers : [stage.depth]).forEach((count, rank) => {
    if (!count) return;
    const left = box.left + first * unit,
      wide = count * unit;
    const style = { fill: `var(--plan-${rank % 2})` };
    svg.append(s("rect", { x: left, y, width: wide, height: row - 6, class: "layer", style }));
    if (unit > 6)
      for (let k = 1; k < count; k++) svg.append(line(left + k * unit, y + 3, left + k * unit, y + row - 9, "layer"));
    const range = count > 1 ? `layers ${first + 1}\u2013${first + count}` : `layer ${first + 1}`;
    const who = stage.workers.length ? `worker ${rank}` : "one process";
    const labels = [`${who}: ${range}`, who, stage.workers.length ? String(rank) : ""];
    const label = labels.find((words) => words.length * 6.6 < wide - 6);
    if (label) svg.append(text(left + wide / 2, y + 16.5, label, { "text-anchor": "middle", class: "strong" }));
    const title = `${who}, ${stage.depth} layers in all`,
      rows = [{ name: range, value: `${count}` }];
    spots.push({ left, right: left + wide, top: y, bottom: y + row, title, rows });
    first += count;
  });
  return spots;
}
