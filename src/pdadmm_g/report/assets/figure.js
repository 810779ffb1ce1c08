// The frame of a figure: title, switches, what is read under the pointer or with the arrow keys.

// A figure is given its id, its title, the function that paints it, and what else it needs: place (the element that it
// goes to, that of the curves by default), note and label (what is shown), more (what only the page says of it), keys (names of series), candidates (runs of which one is drawn), scale
// (log or linear), rounds (whether its axis counts these), modes and mode (what may be drawn, and what is), folded
// (whether only its title is shown until it is asked for), marks (whether the epoch that is kept is marked), least and most (beyond which no value is drawn). Painting fills the svg and returns its height; it may set show (what is read at a place),
// range and steps (how the arrow keys walk), key (what the colours mean).
const figures = [];
const drawAll = () => figures.forEach(draw);

function addFigure(figure) {
  if (figure.candidates) [figure.run] = figure.candidates;
  const plot = h("div", { class: "plot" }),
    tip = h("div", { class: "tip", role: "status", hidden: true }),
    note = h("p", { class: "note" }, figure.note || ""),
    colours = h("p", { class: "note key" });
  const card = h(
    "figure",
    { class: `card figure${figure.folded ? " foldable folded" : ""}`, id: figure.id, "aria-labelledby": `title-${figure.id}` },
    titleBar(figure),
    note,
    plot,
    colours,
    tip,
  );
  byId(figure.place || "figures").append(card);
  const hint = (content) => {
    note.textContent = content;
  };
  figures.push(Object.assign(figure, { plot, tip, colours, card, hint }));
}

function titleBar(figure) {
  const { title, candidates } = figure;
  const whose = several && candidates && candidates.length === 1 ? `: ${candidates[0].name}` : "";
  const bar = h("div", { class: "bar" }, h("h2", { id: `title-${figure.id}` }, title + whose));
  const change = (name) => (value) => {
    figure[name] = value;
    draw(figure);
  };
  if (candidates && candidates.length > 1) {
    const pick = (event) => change("run")(candidates[event.target.selectedIndex]);
    const options = candidates.map((run) => h("option", {}, run.name));
    bar.append(h("select", { "aria-label": `${title}: run`, onchange: pick }, ...options));
  }
  if (figure.scale) {
    const scales = { log: "log", linear: "linear" };
    bar.append(choice(`${title}: scale`, scales, figure.scale, change("scale")));
  }
  if (figure.modes) bar.append(choice(`${title}: measure`, figure.modes, figure.mode, change("mode")));
  if (figure.folded) bar.append(foldButton(figure));
  const save = () => savePng(figure);
  bar.append(h("button", { type: "button", class: "png", "aria-label": `Save ${title} as PNG`, onclick: save }, "PNG"));
  return bar;
}

/** Shows and hides all but the title of a figure that says little. */
function foldButton(figure) {
  const toggle = () => {
    figure.folded = figure.card.classList.toggle("folded");
    button.setAttribute("aria-expanded", String(!figure.folded));
    button.textContent = figure.folded ? "Show" : "Hide";
    draw(figure);
  };
  const label = `Show or hide ${figure.title}`;
  const attributes = { type: "button", class: "fold", "aria-expanded": "false", "aria-label": label, onclick: toggle };
  const button = h("button", attributes, "Show");
  return button;
}

function draw(figure) {
  const { plot } = figure;
  if (figure.folded) return;
  const width = Math.max(240, Math.floor(plot.clientWidth));
  const svg = s("svg", { role: "img", tabindex: "0", "aria-label": `${figure.title}. ${figure.label || ""}` });
  figure.show = null;
  const height = figure.paint(figure, svg, width);
  setAttributes(svg, { viewBox: `0 0 ${width} ${height}`, height });
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    readOut(figure, event.clientX - frame.left, event.clientY - frame.top);
  });
  svg.addEventListener("pointerleave", () => readOut(figure, null));
  svg.addEventListener("blur", () => readOut(figure, null));
  svg.addEventListener("keydown", (event) => walk(figure, event));
  const focused = plot.firstChild && plot.firstChild === document.activeElement;
  plot.replaceChildren(svg);
  if (focused) svg.focus();
  readOut(figure, null);
  figure.colours.replaceChildren(...(figure.key || []).flatMap(([colour, name]) => [swatch(colour), ` ${name}\u2003`]));
}

/** Says what is drawn at a place of the plot, beside it; without a place, says nothing. */
function readOut(figure, px, py = 0) {
  const found = figure.show ? figure.show(px, py) : null;
  figure.tip.hidden = !found;
  if (!found) return;
  const rows = found.rows
    .slice(0, 14)
    .map((row) => h("div", {}, row.colour ? swatch(row.colour) : null, h("span", {}, row.name), h("b", {}, row.value)));
  if (found.rows.length > rows.length) rows.push(h("div", {}, `and ${found.rows.length - rows.length} more`));
  figure.tip.replaceChildren(h("div", {}, h("strong", {}, found.title)), ...rows);
  const frame = figure.card.getBoundingClientRect(),
    plot = figure.plot.getBoundingClientRect();
  const wide = figure.tip.offsetWidth,
    at = plot.left - frame.left + found.x;
  const left = at + 14 + wide < frame.width ? at + 14 : at - 14 - wide;
  figure.tip.style.left = `${Math.max(4, Math.min(left, frame.width - wide - 6))}px`;
  figure.tip.style.top = `${plot.top - frame.top + (figure.keys ? 26 : py + 16)}px`;
}

/** The arrow keys move the read-out, as the pointer would. */
function walk(figure, event) {
  if (event.key === "Escape") readOut(figure, null);
  const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!move || !figure.range || !figure.show) return;
  event.preventDefault();
  const [from, to] = figure.range,
    step = Math.max((to - from) / (figure.steps || 100), 4);
  figure.at = Math.max(from, Math.min(to, (figure.at ?? from - step) + move * step));
  readOut(figure, figure.at, 30);
}
