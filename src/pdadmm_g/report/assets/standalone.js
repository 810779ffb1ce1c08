// A figure saved as PNG: a drawing of its own, with its title, what the colours mean, and every style written out.

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "display",
  "font-family",
  "font-size",
];

async function savePng(figure) {
  const { source, width, height } = standalone(figure);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await image.decode();
  const canvas = h("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => {
    canvas.toBlob(resolve, "image/png");
  });
  const link = h("a", { href: URL.createObjectURL(blob), download: `${figure.id}.png` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function standalone(figure) {
  const svg = figure.plot.querySelector("svg"),
    { width, height } = svg.viewBox.baseVal;
  const ink = resolved(figure, "var(--ink)"),
    font = getComputedStyle(document.body).fontFamily;
  const write = (x, y, content, size, weight) =>
    text(x, y, content, { style: { fill: ink, font: `${weight} ${size}px ${font}` } });
  const title = figure.run && several ? `${figure.title}: ${figure.run.name}` : figure.title;
  const outer = s("svg", { width: width + 24 }, write(12, 24, title, 15, 600));
  const items = figure.key || (figure.candidates || !several ? [] : shown().map((run) => [run.colour, run.name]));
  let x = 12,
    y = height + 60;
  if (figure.keys && figure.note) {
    outer.append(write(12, y, figure.note, 12, 400));
    y += 20;
  }
  for (const [colour, name] of items) {
    const wide = 32 + 7.5 * name.length;
    if (x > 12 && x + wide > width + 12) {
      x = 12;
      y += 20;
    }
    const dot = s("circle", { cx: x + 5, cy: y - 4, r: 5, fill: resolved(figure, colour) });
    outer.append(dot, write(x + 15, y, name, 12, 400));
    x += wide;
  }
  const full = y + (items.length ? 14 : -8);
  outer.setAttribute("height", full);
  outer.prepend(s("rect", { width: "100%", height: "100%", fill: resolved(figure, "var(--card)") }));
  const copy = styledCopy(svg);
  setAttributes(copy, { x: 12, y: 36, width, height });
  outer.append(copy);
  return { source: new XMLSerializer().serializeToString(outer), width: width + 24, height: full };
}

/** A colour that needs no style sheet. */
function resolved(figure, colour) {
  const probe = figure.plot.appendChild(h("span", { style: { color: colour } }));
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function styledCopy(svg) {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of STYLES) node.style.setProperty(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll(".cursor").forEach((node) => node.remove());
  return copy;
}
