// The head of the page: the runs, which can be hidden, the horizontal axis, light or dark.

function legend() {
  for (const run of runs) {
    const toggle = () => {
      if (!hidden.delete(run.name)) hidden.add(run.name);
      button.setAttribute("aria-pressed", String(!hidden.has(run.name)));
      drawAll();
    };
    const attributes = { type: "button", "aria-pressed": "true", "data-run": run.name, onclick: toggle };
    const button = h("button", attributes, swatch(run.colour), run.name);
    byId("legend").append(button);
  }
}

function controls() {
  const count = (value) => {
    axis = value;
    drawAll();
  };
  const axes = { epoch: "epochs", seconds: "seconds" };
  byId("axes").append(choice("Horizontal axis", axes, axis, count));
  byId("controls").append(themeButton());
}

/** Light or dark as the system is, until the button is pressed. */
function themeButton() {
  const dark = matchMedia("(prefers-color-scheme: dark)"),
    root = document.documentElement;
  const button = h("button", { type: "button", id: "theme" });
  const apply = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
  };
  let chosen = false;
  dark.addEventListener("change", () => {
    if (!chosen) apply(dark.matches ? "dark" : "light");
  });
  button.addEventListener("click", () => {
    chosen = true;
    apply(root.dataset.theme === "dark" ? "light" : "dark");
  });
  apply(dark.matches ? "dark" : "light");
  return button;
}
