// Elements of HTML and SVG, made from a tag, attributes and children.

// Text from the runs only ever becomes the text of an element, never markup.
const make =
  (space) =>
  (tag, attributes = {}, ...children) => {
    const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
      else if (value === true) node.setAttribute(name, "");
      else if (value != null) node.setAttribute(name, value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  };
const h = make(null);
const s = make("http://www.w3.org/2000/svg");

const byId = (id) => document.getElementById(id);
const swatch = (colour) => h("span", { class: "swatch", "aria-hidden": "true", style: { background: colour } });

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

/** A row of buttons of which one is pressed; options: what each stands for, and its text. */
function choice(label, options, chosen, act) {
  const group = h("span", { class: "switch", role: "group", "aria-label": label });
  for (const [value, text] of Object.entries(options)) {
    const press = () => {
      for (const button of group.children) button.setAttribute("aria-pressed", String(button.value === value));
      act(value);
    };
    group.append(
      h("button", { type: "button", value, "aria-pressed": String(value === chosen), onclick: press }, text),
    );
  }
  return group;
}

/** A table that scrolls sideways on a narrow screen, also with the keyboard. */
const scrolling = (label, table) =>
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table);
