// What was chosen, and the table of settings; those that differ or are not the default, until all are asked for.

function configuration() {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
  const heads = several ? runs.map((run) => [swatch(run.colour), ` ${run.name}`]) : [["value"]];
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "setting"),
    ...heads.map((content) => h("th", { scope: "col" }, ...content)),
  );
  const table = h("table", {}, h("thead", {}, head), h("tbody", {}, ...names.map(settingRow)));
  const toggle = () => {
    const all = table.classList.toggle("all");
    button.setAttribute("aria-pressed", String(all));
    button.textContent = all ? "Show fewer settings" : "Show all settings";
  };
  const button = h("button", { type: "button", "aria-pressed": "false", onclick: toggle }, "Show all settings");
  const note = several
    ? "Settings that differ between the runs; bold: not the default."
    : "Settings that are not the default.";
  byId("configuration").append(
    h(
      "div",
      { class: "card" },
      h("div", { class: "bar" }, h("h2", {}, "Configuration"), button),
      h("p", { class: "note" }, note),
      scrolling("Table of settings", table),
    ),
  );
}

/** What was chosen by the data and why; runs with the same choices share them. */
function choices() {
  const made = choicesMade();
  if (made.length) byId("choices").append(h("div", { class: "card" }, h("h2", {}, "What was chosen by the data, and why"), ...made));
}

function choicesMade() {
  const groups = new Map();
  for (const run of runs.filter((each) => each.choices.length)) {
    const key = JSON.stringify(run.choices);
    groups.set(key, [...(groups.get(key) || []), run]);
  }
  return [...groups.values()].flatMap((group) => {
    const names = group.flatMap((run, place) => [swatch(run.colour), ` ${run.name}${place + 1 < group.length ? ", " : ""}`]);
    const items = group[0].choices.map((words) => h("li", {}, words));
    return [...(several ? [h("h3", {}, ...names)] : []), h("ul", { class: "choices" }, ...items)];
  });
}

/** Every run has its own folder: that the settings 'out' differ says nothing. */
function settingRow(name) {
  const values = runs.map((run) => run.config[name] ?? DASH);
  const differs = name !== "out" && new Set(values.filter((value) => value !== DASH)).size > 1;
  const changed = runs.map((run) => run.changed.includes(name));
  const plain = several ? !differs : !changed[0];
  return h(
    "tr",
    { class: [differs ? "differs" : "", plain ? "plain" : ""].join(" ").trim() },
    h("th", { scope: "row" }, name),
    ...values.map((value, i) => h("td", { class: changed[i] ? "changed" : "" }, value)),
  );
}
