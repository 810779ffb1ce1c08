// Wall time by task: a bar for each run, a part for each task.

function drawTimes(figure, svg, width) {
  const selected = shown().filter((run) => Object.keys(run.times).length);
  const tasks = [...new Set(runs.flatMap((run) => Object.keys(run.times)))];
  figure.key = tasks.map((task, i) => [colourOf(i), task]);
  const row = 30,
    longest = several ? Math.min(16, Math.max(0, ...selected.map((run) => run.name.length))) : 0;
  const box = { left: 18 + 7 * longest, right: width - 18, top: 6, bottom: 6 + Math.max(1, selected.length) * row };
  const sums = selected.map((run) => total(Object.values(run.times)));
  const x = scale(0, Math.max(...sums, 0) || 1, box.left, box.right);
  const spots = [];
  selected.forEach((run, i) => {
    const y = box.top + i * row;
    if (several) svg.append(text(box.left - 7, y + 17, clip(run.name, 16), { "text-anchor": "end" }));
    let left = 0;
    for (const [task, took] of Object.entries(run.times)) {
      const [from, to] = [x(left), x(left + took)];
      const style = { fill: colourOf(tasks.indexOf(task)) };
      svg.append(s("rect", { x: from, y, width: Math.max(0, to - from), height: row - 8, "data-part": task, style }));
      left += took;
    }
    const rows = Object.entries(run.times).map(([task, took]) => ({
      colour: colourOf(tasks.indexOf(task)),
      name: task,
      value: seconds(took),
    }));
    const title = `${several ? `${run.name}: ` : ""}${seconds(sums[i])} in all`;
    spots.push({ left: box.left, right: box.right, top: y, bottom: y + row, title, rows });
  });
  bottomAxis(svg, x, 0, Math.max(...sums, 0) || 1, box, "seconds");
  figure.show = (px, py) => spot(spots, px, py);
  return box.bottom + 42;
}
