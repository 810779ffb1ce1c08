// What to expect on new nodes: a line for each figure and run with its 90% interval, and what the largest class gets.

const EXPECTED = { accuracy: "accuracy", balanced_accuracy: "balanced accuracy", roc_auc_ovr: "AUROC" };
const between = ([value, low, high]) => `${share(value)}, ${share(low)} to ${share(high)}`;

function drawEstimate(figure, svg, width) {
  const selected = shown().filter((run) => run.estimate);
  const row = 15,
    box = { left: 14, right: width - 18, top: 4 };
  const names = Object.keys(EXPECTED).filter((name) => selected.some((run) => run.estimate.figures[name]));
  if (!names.length) {
    svg.append(text(width / 2, 60, "all runs with this figure are hidden", { "text-anchor": "middle" }));
    return 120;
  }
  const low = Math.min(0.5, ...selected.flatMap(({ estimate }) => [estimate.largest_class, ...lowest(estimate)]));
  const first = Math.max(0, Math.floor(10 * low - 0.2) / 10),
    x = scale(first, 1, box.left, box.right);
  const spots = [];
  let y = box.top;
  const frame = s("g");
  svg.append(frame);
  for (const name of names) {
    const drawn = selected.filter((each) => each.estimate.figures[name]),
      [alone] = drawn;
    const words = several ? "" : ` ${between(alone.estimate.figures[name])}`;
    svg.append(text(box.left, y + 14, EXPECTED[name] + words, { class: "strong" }));
    y += 26;
    for (const run of drawn) {
      const [value, from, to] = run.estimate.figures[name];
      const style = { stroke: run.colour, "stroke-width": "6", "stroke-opacity": "0.4", "stroke-linecap": "round" };
      svg.append(s("line", { x1: x(from), x2: x(to), y1: y, y2: y, style }));
      const dot = { cx: x(value), cy: y, r: 5, class: "dot", "data-run": run.name, style: { fill: run.colour } };
      svg.append(s("circle", dot));
      const chance = { accuracy: run.estimate.largest_class, roc_auc_ovr: 0.5 }[name];
      if (chance != null) svg.append(line(x(chance), y - 8, x(chance), y + 8, "chance"));
      const rows = [{ colour: run.colour, name: "90% interval", value: `${share(from)} to ${share(to)}` }];
      if (chance != null) rows.push({ name: name === "accuracy" ? "largest class" : "by chance", value: share(chance) });
      const title = `${several ? `${run.name}: ` : ""}${EXPECTED[name]} ${share(value)}`;
      spots.push({ left: 0, right: width, top: y - row, bottom: y + row, title, rows });
      y += row + 5;
    }
    y += 4;
  }
  box.bottom = y;
  for (const tick of acrossTicks(first, 1, box)) frame.append(line(x(tick), box.top, x(tick), box.bottom, "grid"));
  bottomAxis(svg, x, first, 1, box, "");
  figure.key = [["var(--ink)", "dashed: the largest class alone, or chance"]];
  figure.show = (px, py) => spot(spots, px, py);
  return box.bottom + 24;
}

const lowest = (estimate) => Object.values(estimate.figures).map(([, low]) => low);
