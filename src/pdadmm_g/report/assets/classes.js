// Precision, recall and F1 per class: a row for each class, a dot for each run.

function drawClasses(figure, svg, width) {
  const selected = shown().filter((run) => run.confusion);
  const names = [...new Set(selected.flatMap((run) => run.confusion.classes))];
  if (!names.length) {
    svg.append(text(width / 2, 60, "all runs with this figure are hidden", { "text-anchor": "middle" }));
    return 120;
  }
  const longest = Math.min(14, Math.max(...names.map((name) => name.length)));
  const row = names.length > 24 ? 15 : 24,
    box = { left: 58 + 7 * longest, right: width - 18, top: 6, bottom: 6 + names.length * row };
  const judged = selected.map((run) => [run, classFiguresOf(run.confusion)]);
  const values = judged.flatMap(([, all]) => [...all.values()].filter(Boolean).map((found) => found[figure.mode]));
  const low = Math.max(0, Math.floor(10 * Math.min(1, ...values) - 0.5) / 10),
    x = scale(low, 1, box.left, box.right);
  for (const tick of acrossTicks(low, 1, box)) svg.append(line(x(tick), box.top, x(tick), box.bottom, "grid"));
  /** The runs that met the class, and how they did. */
  const met = (name) =>
    judged
      .map(([run, all]) => [run, all.get(name)])
      .filter(([, found]) => found)
      .map(([run, found]) => [run, { ...found, value: found[figure.mode] }]);
  names.forEach((name, i) => drawClass(svg, name, met(name), box, box.top + (i + 0.5) * row, x, row > 20 ? 5.5 : 4));
  bottomAxis(svg, x, low, 1, box, figure.modes[figure.mode]);
  figure.show = (px, py) => {
    const i = Math.floor((py - box.top) / row);
    if (px == null || i < 0 || i >= names.length) return null;
    const rows = met(names[i]).map(([run, { right, all, precision, recall, f1 }]) => ({
      colour: run.colour,
      name: `${run.name}: ${right} of ${all}`,
      value: `P ${share(precision)}  R ${share(recall)}  F1 ${share(f1)}`,
    }));
    return { x: px, title: `class ${names[i]}`, rows };
  };
  return box.bottom + 42;
}

/** Precision, recall and F1 of each class; nothing is said of a class without nodes. Without a prediction, precision is 0. */
function classFiguresOf({ classes, counts }) {
  return new Map(
    classes.map((name, i) => {
      const right = counts[i][i],
        all = total(counts[i]),
        taken = total(counts.map((row) => row[i]));
      const found = { right, all, recall: right / all, precision: right / (taken || 1), f1: (2 * right) / (all + taken) };
      return [name, all ? found : null];
    }),
  );
}

function drawClass(svg, name, found, box, y, x, radius) {
  const label = found.length ? `${clip(name, 14)} (${whole(found[0][1].all)})` : clip(name, 14);
  svg.append(text(box.left - 10, y + 4, label, { "text-anchor": "end" }));
  if (found.length) {
    const places = found.map(([, recall]) => x(recall.value));
    svg.append(line(found.length > 1 ? Math.min(...places) : box.left, y, Math.max(...places), y, "axis"));
  }
  for (const [run, recall] of found.reverse()) {
    svg.append(
      s("circle", {
        cx: x(recall.value),
        cy: y,
        r: radius,
        class: "dot",
        "data-run": run.name,
        style: { fill: run.colour, "fill-opacity": "0.88" },
      }),
    );
  }
}
