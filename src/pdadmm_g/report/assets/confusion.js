// The confusion matrix: a cell for each pair of a true and a predicted class.

function drawConfusion(figure, svg, width) {
  const { classes, counts, nodes } = figure.run.confusion;
  const longest = Math.min(12, Math.max(...classes.map((name) => name.length)));
  const left = 34 + 7 * longest,
    top = 8;
  const cell = Math.max(2, Math.min(40, (width - left - 12) / classes.length)),
    size = cell * classes.length;
  const every = Math.ceil(14 / cell);
  const digits = String(Math.max(...counts.flat())).length,
    numbered = cell >= 6 + 6 * digits;
  const spots = [];
  counts.forEach((row, i) => {
    const all = total(row),
      y = top + i * cell;
    if (i % every === 0) svg.append(text(left - 6, y + cell / 2 + 4, clip(classes[i], 12), { "text-anchor": "end" }));
    row.forEach((count, j) => {
      const part = all ? count / all : 0,
        x = left + j * cell;
      drawCell(svg, x, y, cell, count, part, numbered);
      const title = `${classes[i]} taken for ${classes[j]}`,
        value = `${count} (${(100 * part).toFixed(1)} %)`,
        rows = [{ name: `of ${all} ${nodesCalled(nodes)} of ${classes[i]}`, value }];
      spots.push({ left: x, right: x + cell, top: y, bottom: y + cell, title, rows });
    });
  });
  // Names that are too wide to stand side by side are turned.
  const turned = 7 * longest > cell * every - 2;
  classes.forEach((name, j) => {
    if (j % every) return;
    const x = left + (j + 0.5) * cell,
      y = top + size + (turned ? 8 : 15);
    const how = turned ? { "text-anchor": "end", transform: `rotate(-55 ${x} ${y})` } : { "text-anchor": "middle" };
    svg.append(text(x, y, clip(name, 12), how));
  });
  const below = top + size + (turned ? 14 + 6 * longest : 33),
    middle = top + size / 2;
  svg.append(text(left + size / 2, below, "predicted class", { "text-anchor": "middle" }));
  svg.append(text(14, middle, "true class", { "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }));
  figure.show = (px, py) => spot(spots, px, py);
  return below + 9;
}

function drawCell(svg, x, y, cell, count, part, numbered) {
  const side = cell - (cell > 8 ? 1 : 0);
  const style = count
    ? { fill: "var(--accent)", "fill-opacity": String(0.14 + 0.86 * part) }
    : { fill: "var(--grid)", "fill-opacity": "0.6" };
  svg.append(s("rect", { x, y, width: side, height: side, style }));
  if (!count || !numbered) return;
  svg.append(
    text(x + cell / 2, y + cell / 2 + 4, String(count), {
      "text-anchor": "middle",
      class: cell < 32 ? "small" : null,
      style: { fill: part > 0.5 ? "var(--card)" : "var(--ink)" },
    }),
  );
}
