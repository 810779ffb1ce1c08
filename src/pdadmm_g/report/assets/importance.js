// What columns are worth: the score that is lost when the values of one are exchanged between nodes.

const WHOSE = { own: ["of the node itself", "--accent"], neighbours: ["of its neighbours", "--pack"] };
const MOST_COLUMNS = 15;

function drawImportance(figure, svg, width) {
  const { figure: name, score, on, nodes, out_of_fold: expected } = figure.run.importance,
    rows = figure.run.importance.rows.filter(({ lost }) => lost != null);
  const columns = new Map();
  for (const row of rows) {
    const parts = [...(columns.get(row.column) || []), row];
    columns.set(row.column, parts.sort((one, other) => other.whose.localeCompare(one.whose))); // own first
  }
  const felt = [...columns].filter(([, parts], place) => !place || parts.some(({ lost }) => Math.abs(lost) >= 0.001));
  const drawn = felt.slice(0, MOST_COLUMNS);
  const longest = Math.min(width < 480 ? 14 : 22, Math.max(...drawn.map(([column]) => column.length)));
  const box = { left: 18 + 7 * longest, right: width - 18, top: 4 };
  const ends = drawn.flatMap(([, parts]) => parts.flatMap((row) => [row.lost - row.spread, row.lost + row.spread]));
  const low = Math.min(0, ...ends),
    high = Math.max(0.01, ...ends);
  const x = scale(low, high, box.left, box.right);
  const spots = [];
  const frame = s("g");
  svg.append(frame);
  let y = box.top;
  for (const [column, parts] of drawn) {
    const tall = 9 * parts.length;
    svg.append(text(box.left - 8, y + tall / 2 + 4, clip(column, longest), { "text-anchor": "end" }));
    parts.forEach(({ whose, lost, spread }, place) => {
      const at = y + 9 * place;
      const fill = WHOSE[whose] ? `var(${WHOSE[whose][1]})` : "var(--soft)";
      const part = WHOSE[whose] ? whose : "graph";
      svg.append(
        s("rect", { x: x(Math.min(0, lost)), y: at, width: Math.abs(x(lost) - x(0)), height: 8, "data-part": part, style: { fill } }),
      );
      if (spread) svg.append(line(x(lost - spread), at + 4, x(lost + spread), at + 4, "whisker"));
    });
    const said = parts.map(({ whose, lost, spread }) => ({
      name: WHOSE[whose] ? WHOSE[whose][0] : "trained again without it",
      value: `${lost.toFixed(3)}${spread == null ? "" : ` \u00b1 ${spread.toFixed(3)}`}`,
    }));
    spots.push({ left: 0, right: width, top: y, bottom: y + tall + 7, title: column, rows: said });
    y += tall + 7;
  }
  box.bottom = y;
  for (const tick of acrossTicks(low, high, box)) frame.append(line(x(tick), box.top, x(tick), box.bottom, "grid"));
  svg.append(line(x(0), box.top, x(0), box.bottom, "axis"));
  const title = METRICS[name] || name.replace("_", " ");
  bottomAxis(svg, x, low, high, box, `${title} lost`);
  const rest = columns.size - drawn.length,
    more = rest ? ` Not shown, as less is lost: ${whole(rest)}.` : "";
  const alone = rows.find(({ whose }) => whose === "trained without");
  const both = alone && expected != null ? [expected, expected - alone.lost].map(share) : null;
  const graph = both ? ` The graph: ${title} ${both[0]} out of fold with it, ${both[1]} without.` : "";
  figure.hint(
    `What is lost of ${title} ${share(score)} on ${whole(nodes)} ${on} nodes when values are exchanged between nodes.${more}${graph}`,
  );
  const kinds = Object.keys(WHOSE).filter((kind) => rows.some(({ whose }) => whose === kind));
  figure.key = kinds.map((kind) => [`var(${WHOSE[kind][1]})`, WHOSE[kind][0]]);
  if (columns.has("the graph")) figure.key.push(["var(--soft)", "what a model without the graph is behind"]);
  figure.show = (px, py) => spot(spots, px, py);
  return box.bottom + 42;
}
