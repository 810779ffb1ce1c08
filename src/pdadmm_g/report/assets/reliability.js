// The calibration curve: accuracy of the nodes that were predicted with a certain confidence.

function drawReliability(figure, svg, width) {
  const height = 300,
    box = { left: 54, right: width - 18, top: 14, bottom: height - 42 };
  const selected = shown().filter((run) => run.reliability);
  if (!selected.length) {
    svg.append(text(width / 2, height / 2, "all runs with this figure are hidden", { "text-anchor": "middle" }));
    return height;
  }
  const x = scale(0, 1, box.left, box.right),
    y = scale(0, 1, box.bottom, box.top);
  for (const tick of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    svg.append(line(box.left, y(tick), box.right, y(tick), "grid"));
    svg.append(text(box.left - 7, y(tick) + 4, short(tick), { "text-anchor": "end" }));
  }
  svg.append(line(x(0), y(0), x(1), y(1), "diagonal"));
  bottomAxis(svg, x, 0, 1, box, "confidence");
  const spots = selected.flatMap((run) => drawBins(svg, run, x, y));
  figure.show = (px, py) => {
    if (px == null) return null;
    const far = ({ at }) => Math.hypot(at[0] - px, at[1] - py);
    const nearest = spots.reduce((a, b) => (far(b) < far(a) ? b : a));
    return { x: nearest.at[0], title: nearest.title, rows: nearest.rows };
  };
  return height;
}

/** The curve of a run; the area of a dot goes with the number of nodes. */
function drawBins(svg, run, x, y) {
  const { bins, nodes } = run.reliability;
  const most = Math.max(...bins.map((bin) => bin.rows));
  const path = bins.map((bin, i) => `${i ? "L" : "M"}${x(bin.confidence).toFixed(1)} ${y(bin.accuracy).toFixed(1)}`);
  svg.append(s("path", { d: path.join(""), class: "curve", "data-run": run.name, style: { stroke: run.colour } }));
  return bins.map((bin) => {
    const at = [x(bin.confidence), y(bin.accuracy)],
      style = { fill: run.colour, "fill-opacity": "0.75" };
    svg.append(s("circle", { cx: at[0], cy: at[1], r: 2.5 + 6 * Math.sqrt(bin.rows / most), class: "dot", style }));
    const rows = [
      { colour: run.colour, name: "accuracy", value: share(bin.accuracy) },
      { name: "mean confidence", value: share(bin.confidence) },
    ];
    return { at, title: `${several ? `${run.name}, ` : ""}${whole(bin.rows)} ${nodesCalled(nodes)}`, rows };
  });
}
