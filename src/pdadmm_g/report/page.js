"use strict";
(() => {
  // Text from the runs only ever becomes the text of an element, never markup.
  const data = JSON.parse(document.getElementById("data").textContent);
  /** More runs than colours: those beyond get the same ones, muted. */
  const colour = (place) =>
    place < data.colours
      ? `var(--run-${place})`
      : `color-mix(in srgb, var(--run-${place % data.colours}) 50%, var(--soft))`;
  const runs = data.runs.map((run, place) => ({ ...run, colour: colour(place) }));
  const several = runs.length > 1;
  const hidden = new Set();
  let axis = "epoch";
  const figures = [];

  // ---------------------------------------------------------------------------------------------------- elements

  const make =
    (space) =>
    (tag, attributes = {}, ...children) => {
      const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
        else if (value === true) node.setAttribute(name, "");
        else if (value !== false && value != null) node.setAttribute(name, value);
      }
      node.append(...children.filter((child) => child != null));
      return node;
    };
  const h = make(null);
  const s = make("http://www.w3.org/2000/svg");
  const swatch = (colour) => h("span", { class: "swatch", "aria-hidden": "true", style: { background: colour } });

  /** A row of buttons of which one is pressed. */
  function choice(label, options, chosen, act) {
    const group = h("span", { class: "switch", role: "group", "aria-label": label });
    for (const [value, text] of options) {
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

  // ----------------------------------------------------------------------------------------------------- numbers

  const DASH = "\u2013";
  const share = (value) => (value == null ? DASH : value.toFixed(3));
  const whole = (value) =>
    value == null ? DASH : value >= 1e7 ? short(value) : Math.round(value).toLocaleString("en-GB");
  const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

  /** A number in few characters: 0.00012 as 1.2e-4, 12000 as 12k. */
  function short(value, digits = 3) {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-3 || size >= 1e15) {
      const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
      return `${trim(mantissa)}e${Number(exponent)}`;
    }
    for (const [unit, letter] of [
      [1e12, "T"],
      [1e9, "G"],
      [1e6, "M"],
      [1e3, "k"],
    ]) {
      if (size >= unit * (unit === 1e3 ? 10 : 1)) return trim((value / unit).toPrecision(digits)) + letter;
    }
    return size >= 1000 ? String(Math.round(value)) : trim(value.toPrecision(digits));
  }
  function seconds(value) {
    if (value == null) return DASH;
    if (value >= 120) return value >= 7200 ? `${(value / 3600).toFixed(1)} h` : `${(value / 60).toFixed(1)} min`;
    return value >= 1 || value === 0
      ? `${trim(value.toPrecision(3))} s`
      : value >= 1e-3
        ? `${trim((1e3 * value).toPrecision(3))} ms`
        : `${trim((1e6 * value).toPrecision(3))} \u00b5s`;
  }
  function bytes(value) {
    if (value == null) return DASH;
    for (const [unit, name] of [
      [1e12, "TB"],
      [1e9, "GB"],
      [1e6, "MB"],
      [1e3, "kB"],
    ]) {
      if (value >= unit) return `${trim((value / unit).toPrecision(3))} ${name}`;
    }
    return `${Math.round(value)} B`;
  }

  function linearTicks(low, high, count) {
    const raw = (high - low) / Math.max(1, count);
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
    const ticks = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++)
      ticks.push(Number((k * step).toPrecision(12)));
    return ticks;
  }
  function logTicks(low, high, count) {
    const first = Math.ceil(Math.log10(low) - 1e-9),
      last = Math.floor(Math.log10(high) + 1e-9);
    if (last - first < 1) {
      const fine = [];
      for (let k = first - 1; k <= last; k++)
        for (const m of [1, 2, 3, 5, 7]) fine.push(Number((m * 10 ** k).toPrecision(6)));
      const inside = fine.filter((value) => value >= low && value <= high);
      return inside.length > 1 ? inside : linearTicks(low, high, count).filter((value) => value > 0);
    }
    const step = Math.ceil((last - first + 1) / count);
    const ticks = [];
    for (let k = first; k <= last; k += step) ticks.push(10 ** k);
    return ticks;
  }

  /** Where a value lies between two pixels. */
  function scale(low, high, from, to, log) {
    const place = log ? Math.log10 : (value) => value;
    const slope = (to - from) / (place(high) - place(low) || 1);
    return (value) => from + (place(value) - place(low)) * slope;
  }
  /** The last index whose value is at most x; 0 if there is none. */
  function before(sorted, x) {
    let low = 0,
      high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (sorted[middle] <= x) low = middle;
      else high = middle - 1;
    }
    return low;
  }
  /** The epoch as it is, or the seconds of training at its end. */
  function along(run, epoch) {
    if (axis === "epoch") return epoch;
    const { epoch: at, seconds: value } = run.clock;
    if (!at.length || epoch <= 0) return 0;
    if (epoch <= at[0]) return (value[0] * epoch) / at[0];
    const i = Math.min(before(at, epoch), at.length - 1),
      j = Math.min(i + 1, at.length - 1);
    return i === j ? value[i] : value[i] + ((value[j] - value[i]) * (epoch - at[i])) / (at[j] - at[i]);
  }
  const axisTitle = () => (axis === "epoch" ? "epoch" : "seconds of training");
  const shown = () => runs.filter((run) => !hidden.has(run.name));

  // ----------------------------------------------------------------------------------------------------- drawing

  const text = (x, y, content, attributes = {}) => s("text", { x, y, ...attributes }, content);
  const line = (x1, y1, x2, y2, kind) => s("line", { x1, y1, x2, y2, class: kind });

  function bottomAxis(svg, x, low, high, box, title, format) {
    const ticks = linearTicks(low, high, Math.max(2, Math.floor((box.right - box.left) / 70)));
    for (const tick of ticks) {
      svg.append(line(x(tick), box.bottom, x(tick), box.bottom + 4, "axis"));
      svg.append(text(x(tick), box.bottom + 17, format(tick), { "text-anchor": "middle" }));
    }
    svg.append(line(box.left, box.bottom, box.right, box.bottom, "axis"));
    svg.append(text((box.left + box.right) / 2, box.bottom + 33, title, { "text-anchor": "middle" }));
  }

  /** Thin lines where the network grew; those that runs share are drawn once, in grey. */
  function drawStages(svg, selected, x, box) {
    const places = new Map();
    for (const run of selected) {
      for (const stage of run.stages.slice(1)) {
        const at = Math.round(x(along(run, stage.epoch - 0.5)) * 2) / 2;
        const known = places.get(at);
        places.set(at, { text: known && known.text !== `${stage.depth} layers` ? "" : `${stage.depth} layers` });
      }
    }
    let free = -Infinity;
    for (const [at, label] of [...places].sort((a, b) => a[0] - b[0])) {
      svg.append(line(at, box.top, at, box.bottom, "stage"));
      if (label.text && at >= free && at + 52 < box.right) {
        svg.append(text(at + 3, box.top - 4, label.text, { class: "small" }));
        free = at + 62;
      }
    }
  }

  function drawCurves(figure, svg, width) {
    const height = 300,
      box = { left: 54, right: width - 18, top: 22, bottom: height - 42 };
    const selected = shown().filter((run) => figure.keys.some(([key]) => run.series[key]));
    const curves = [];
    let dropped = false;
    for (const run of selected) {
      figure.keys.forEach(([key, name], rank) => {
        const series = run.series[key];
        if (!series) return;
        let points = series.epoch.map((epoch, i) => [along(run, epoch), series.value[i], epoch, i]);
        if (figure.scale === "log") points = points.filter((point) => point[1] > 0);
        dropped ||= points.length < series.epoch.length;
        if (points.length) curves.push({ run, name, rank, points });
      });
    }
    figure.curves = curves;
    figure.hint(figure.note + (dropped ? " Gaps: zero or less." : ""));
    if (!curves.length) {
      const why = selected.length
        ? "no positive values to show on a log scale"
        : "all runs with this figure are hidden";
      svg.append(text(width / 2, height / 2, why, { "text-anchor": "middle" }));
      return height;
    }
    const log = figure.scale === "log";
    const values = curves.flatMap((curve) => curve.points.map((point) => point[1]));
    let low = values.reduce((a, b) => Math.min(a, b)),
      high = values.reduce((a, b) => Math.max(a, b));
    const margin = log ? Math.max((high / low) ** 0.04, 1.05) : (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
    [low, high] = log ? [low / margin, high * margin] : [low - margin, high + margin];
    if (!log && figure.least != null && values.every((value) => value >= figure.least))
      low = Math.max(low, figure.least);
    if (!log && figure.most != null)
      high = Math.min(Math.max(high, low + 0.02), figure.most + (figure.most - low) * 0.02);
    const end = curves.reduce((most, { points }) => Math.max(most, points[points.length - 1][0]), 0) || 1;
    const x = scale(0, end, box.left, box.right),
      y = scale(low, high, box.bottom, box.top, log);
    for (const tick of (log ? logTicks : linearTicks)(low, high, 5)) {
      svg.append(line(box.left, y(tick), box.right, y(tick), "grid"));
      svg.append(text(box.left - 7, y(tick) + 4, short(tick), { "text-anchor": "end" }));
    }
    drawStages(svg, selected, x, box);
    bottomAxis(svg, x, 0, end, box, axisTitle(), short);
    for (const { run, rank, points } of [...curves].reverse()) {
      if (points.length === 1) {
        svg.append(
          s("circle", {
            cx: x(points[0][0]),
            cy: y(points[0][1]),
            r: 3.5,
            class: "dot",
            "data-run": run.name,
            style: { fill: run.colour },
          }),
        );
        continue;
      }
      const joined = (i) => i > 0 && points[i][3] === points[i - 1][3] + 1;
      const path = points
        .map((point, i) => `${joined(i) ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`)
        .join("");
      svg.append(
        s("path", {
          d: path,
          class: rank ? "curve second" : "curve",
          "data-run": run.name,
          style: { stroke: run.colour },
        }),
      );
    }
    const cursor = line(0, box.top, 0, box.bottom, "cursor");
    cursor.style.display = "none";
    svg.append(cursor);
    figure.show = (px) => {
      if (px == null) {
        cursor.style.display = "none";
        return null;
      }
      const at = Math.min(end, Math.max(0, ((px - box.left) / (box.right - box.left)) * end));
      return readCurves(figure, cursor, x, at);
    };
    figure.steps = Math.max(...curves.map((curve) => curve.points.length));
    figure.range = [box.left, box.right];
    return height;
  }

  function readCurves(figure, cursor, x, at) {
    const rows = [];
    let nearest = null;
    for (const { run, name, points } of figure.curves) {
      const places = points.map((point) => point[0]);
      const i = before(places, at),
        j = Math.min(i + 1, points.length - 1);
      const point = Math.abs(places[j] - at) < Math.abs(places[i] - at) ? points[j] : points[i];
      if (!nearest || Math.abs(point[0] - at) < Math.abs(nearest[0] - at)) nearest = [point[0], point[2]];
      rows.push({
        colour: run.colour,
        name: figure.keys.length > 1 ? (several ? `${run.name}, ${name}` : name) : run.name,
        value: short(point[1], 4),
        epoch: point[2],
      });
    }
    cursor.setAttribute("x1", x(nearest[0]));
    cursor.setAttribute("x2", x(nearest[0]));
    cursor.style.display = "";
    const title = axis === "epoch" ? `epoch ${nearest[1]}` : `${seconds(nearest[0])} of training`;
    // Each run has its own clock, and a thinned curve its own epochs: say which one a value is from.
    for (const row of rows) if (axis !== "epoch" || row.epoch !== nearest[1]) row.name += ` (epoch ${row.epoch})`;
    return { x: x(nearest[0]), title, rows };
  }

  const PARTS = {
    share: [
      ["compute_seconds", "computing", "--compute"],
      ["pack_seconds", "packing", "--pack"],
      ["wait_seconds", "waiting", "--wait"],
    ],
    bytes: [
      ["bytes_p", "p to the left", "--compute"],
      ["bytes_q", "q to the right", "--pack"],
    ],
  };
  PARTS.seconds = PARTS.share;

  function drawTimeline(figure, svg, width) {
    const run = figure.run(),
      { edges, workers } = run.timeline;
    const parts = PARTS[figure.mode],
      sum = (worker, i) => parts.reduce((total, [key]) => total + Math.max(0, worker[key][i]), 0);
    const narrow = width < 480,
      lane = Math.max(14, Math.min(44, 380 / workers.length)),
      gap = lane > 20 ? 5 : 2;
    const box = { left: narrow ? 34 : 74, right: width - 18, top: 22, bottom: 22 + workers.length * lane };
    const totals = workers.flatMap((worker) => edges.slice(1).map((_, i) => sum(worker, i))).sort((a, b) => a - b);
    // One slow stretch, such as the first epochs, must not flatten all others.
    const most =
      Math.min(totals[totals.length - 1], 2 * totals[Math.floor(0.9 * (totals.length - 1))]) ||
      totals[totals.length - 1] ||
      1;
    const start = along(run, edges[0]),
      end = along(run, edges[edges.length - 1]) || 1;
    const x = scale(start, end, box.left, box.right);
    workers.forEach((worker, rank) => {
      const floor = box.top + (rank + 1) * lane - gap,
        tall = lane - gap;
      svg.append(s("rect", { x: box.left, y: floor - tall, width: box.right - box.left, height: tall, class: "lane" }));
      svg.append(
        text(box.left - 7, floor - tall / 2 + 4, narrow ? `w${rank}` : `worker ${rank}`, { "text-anchor": "end" }),
      );
      const paths = parts.map(() => "");
      for (let i = 0; i + 1 < edges.length; i++) {
        const full = figure.mode === "share" ? sum(worker, i) : most;
        let used = 0;
        const left = x(along(run, edges[i])),
          wide = x(along(run, edges[i + 1])) - left;
        parts.forEach(([key], part) => {
          const size = full > 0 ? Math.min(tall - used, (tall * Math.max(0, worker[key][i])) / full) : 0;
          if (size > 0.05)
            paths[part] +=
              `M${left.toFixed(1)} ${(floor - used).toFixed(1)}h${wide.toFixed(1)}v${(-size).toFixed(1)}h${(-wide).toFixed(1)}z`;
          used += size;
        });
      }
      parts.forEach(([, name, colour], part) => {
        if (paths[part])
          svg.append(s("path", { d: paths[part], "data-part": name, style: { fill: `var(${colour})` } }));
      });
    });
    drawStages(svg, [run], x, box);
    bottomAxis(svg, x, start, end, box, axisTitle(), short);
    const unit = figure.mode === "bytes" ? bytes : seconds;
    figure.hint(
      figure.mode === "share"
        ? "Share of each epoch that a worker spent on what, averaged over neighbouring epochs."
        : totals[totals.length - 1] === 0
          ? "Nothing was sent: a single worker has no neighbours."
          : `Per epoch; a full lane is ${unit(most)}${totals[totals.length - 1] > most * 1.001 ? ", more is cut off" : ""}.`,
    );
    figure.key = parts.map(([, name, colour]) => [`var(${colour})`, name]);
    const mark = s("rect", { fill: "none", class: "cursor", style: { display: "none" } });
    svg.append(mark);
    const starts = edges.slice(0, -1).map((epoch) => x(along(run, epoch)));
    figure.show = (px, py) => {
      if (px == null || px < box.left) {
        mark.style.display = "none";
        return null;
      }
      const i = before(starts, px),
        rank = Math.max(0, Math.min(workers.length - 1, Math.floor((py - box.top) / lane)));
      const wide = (i + 1 < starts.length ? starts[i + 1] : box.right) - starts[i];
      for (const [name, value] of Object.entries({
        x: starts[i],
        y: box.top + rank * lane,
        width: wide,
        height: lane - gap,
      }))
        mark.setAttribute(name, value);
      mark.style.display = "";
      const rows = [...PARTS.seconds.map((part) => [part, seconds]), ...PARTS.bytes.map((part) => [part, bytes])].map(
        ([[key, name, colour], format]) => ({ colour: `var(${colour})`, name, value: format(workers[rank][key][i]) }),
      );
      const span =
        edges[i] + 1 === edges[i + 1] ? `epoch ${edges[i + 1]}` : `epochs ${edges[i] + 1}\u2013${edges[i + 1]}`;
      return { x: starts[i] + wide / 2, title: `worker ${rank}, ${span}, per epoch`, rows };
    };
    figure.steps = starts.length;
    figure.range = [box.left, box.right];
    return box.bottom + 42;
  }

  function drawPlan(figure, svg, width) {
    const run = figure.run(),
      row = 30,
      box = { left: width < 480 ? 66 : 84, right: width - 18, top: 6 };
    const spots = [];
    run.stages.forEach((stage, number) => {
      const y = box.top + number * row,
        unit = (box.right - box.left) / Math.max(1, stage.depth);
      svg.append(
        text(box.left - 7, y + 17, `${stage.depth} layer${stage.depth === 1 ? "" : "s"}`, { "text-anchor": "end" }),
      );
      const counts = stage.workers.length ? stage.workers : [stage.depth];
      let first = 0;
      counts.forEach((count, rank) => {
        if (!count) return;
        const left = box.left + first * unit,
          wide = count * unit;
        svg.append(
          s("rect", {
            x: left,
            y,
            width: wide,
            height: row - 6,
            class: "layer",
            style: { fill: `var(--plan-${rank % 2})` },
          }),
        );
        if (unit > 6)
          for (let k = 1; k < count; k++)
            svg.append(line(left + k * unit, y + 3, left + k * unit, y + row - 9, "layer"));
        const range = count > 1 ? `layers ${first + 1}\u2013${first + count}` : `layer ${first + 1}`;
        const who = stage.workers.length ? `worker ${rank}` : "one process";
        const label = [`${who}: ${range}`, who, stage.workers.length ? String(rank) : ""].find(
          (label) => label.length * 6.6 < wide - 6,
        );
        if (label) svg.append(text(left + wide / 2, y + 16.5, label, { "text-anchor": "middle", class: "strong" }));
        spots.push({
          left,
          right: left + wide,
          top: y,
          bottom: y + row,
          title: `${who}, ${stage.depth} layers in all`,
          rows: [{ name: range, value: `${count}` }],
        });
        first += count;
      });
    });
    figure.show = (px, py) => spot(spots, px, py);
    return box.top + run.stages.length * row;
  }
  function spot(spots, px, py) {
    const found =
      px != null && spots.find((item) => px >= item.left && px < item.right && py >= item.top && py < item.bottom);
    return found ? { x: (found.left + found.right) / 2, title: found.title, rows: found.rows } : null;
  }

  const clip = (name, length) => (name.length > length ? `${name.slice(0, length - 1)}\u2026` : name);
  const total = (row) => row.reduce((sum, count) => sum + count, 0);

  function drawClasses(figure, svg, width) {
    const selected = shown().filter((run) => run.confusion);
    const names = [...new Set(selected.flatMap((run) => run.confusion.classes))];
    const longest = Math.min(14, Math.max(0, ...names.map((name) => name.length)));
    const row = names.length > 24 ? 15 : 24,
      box = { left: 58 + 7 * longest, right: width - 18, top: 6, bottom: 6 + names.length * row };
    if (!names.length) {
      svg.append(text(width / 2, 60, "all runs with this figure are hidden", { "text-anchor": "middle" }));
      return 120;
    }
    const recalls = new Map(
      selected.map((run) => [
        run,
        new Map(
          run.confusion.classes.map((name, i) => {
            const all = total(run.confusion.counts[i]);
            return [
              name,
              all ? { right: run.confusion.counts[i][i], all, value: run.confusion.counts[i][i] / all } : null,
            ];
          }),
        ),
      ]),
    );
    const values = [...recalls.values()].flatMap((map) =>
      [...map.values()].filter(Boolean).map((recall) => recall.value),
    );
    const low = Math.max(0, Math.floor(10 * Math.min(1, ...values) - 0.5) / 10),
      x = scale(low, 1, box.left, box.right);
    for (const tick of linearTicks(low, 1, Math.max(2, Math.floor((box.right - box.left) / 70))))
      svg.append(line(x(tick), box.top, x(tick), box.bottom, "grid"));
    names.forEach((name, i) => {
      const y = box.top + (i + 0.5) * row;
      const found = selected.map((run) => [run, recalls.get(run).get(name)]).filter(([, recall]) => recall);
      svg.append(
        text(box.left - 10, y + 4, found.length ? `${clip(name, 14)} (${whole(found[0][1].all)})` : clip(name, 14), {
          "text-anchor": "end",
        }),
      );
      if (found.length) {
        const places = found.map(([, recall]) => x(recall.value));
        svg.append(line(found.length > 1 ? Math.min(...places) : x(low), y, Math.max(...places), y, "axis"));
      }
      for (const [run, recall] of found.reverse()) {
        svg.append(
          s("circle", {
            cx: x(recall.value),
            cy: y,
            r: row > 20 ? 5.5 : 4,
            class: "dot",
            "data-run": run.name,
            style: { fill: run.colour, "fill-opacity": "0.88" },
          }),
        );
      }
    });
    bottomAxis(svg, x, low, 1, box, "accuracy", short);
    figure.show = (px, py) => {
      const i = Math.floor((py - box.top) / row);
      if (px == null || i < 0 || i >= names.length) return null;
      const rows = selected
        .filter((run) => recalls.get(run).get(names[i]))
        .map((run) => {
          const recall = recalls.get(run).get(names[i]);
          return {
            colour: run.colour,
            name: run.name,
            value: `${share(recall.value)} (${recall.right} of ${recall.all})`,
          };
        });
      return { x: px, title: `class ${names[i]}`, rows };
    };
    return box.bottom + 42;
  }

  function drawConfusion(figure, svg, width) {
    const { classes, counts, nodes } = figure.run().confusion;
    const longest = Math.min(12, Math.max(...classes.map((name) => name.length)));
    const left = 34 + 7 * longest,
      top = 8,
      n = classes.length;
    const cell = Math.max(2, Math.min(40, (width - left - 12) / n)),
      size = cell * n;
    const every = Math.ceil(14 / cell),
      spots = [];
    const digits = String(Math.max(...counts.flat())).length,
      numbered = cell >= 6 + 6 * digits;
    const across = 7 * longest > cell * every - 2;
    counts.forEach((row, i) => {
      const all = total(row),
        y = top + i * cell;
      if (i % every === 0) svg.append(text(left - 6, y + cell / 2 + 4, clip(classes[i], 12), { "text-anchor": "end" }));
      row.forEach((count, j) => {
        const part = all ? count / all : 0,
          x = left + j * cell;
        svg.append(
          s("rect", {
            x,
            y,
            width: cell - (cell > 8 ? 1 : 0),
            height: cell - (cell > 8 ? 1 : 0),
            style: {
              fill: count ? "var(--accent)" : "var(--grid)",
              "fill-opacity": String(count ? 0.14 + 0.86 * part : 0.6),
            },
          }),
        );
        if (count && numbered) {
          svg.append(
            text(x + cell / 2, y + cell / 2 + 4, String(count), {
              "text-anchor": "middle",
              class: cell < 32 ? "small" : null,
              style: { fill: part > 0.5 ? "var(--card)" : "var(--ink)" },
            }),
          );
        }
        spots.push({
          left: x,
          right: x + cell,
          top: y,
          bottom: y + cell,
          title: `${classes[i]} taken for ${classes[j]}`,
          rows: [
            { name: `of ${all} ${nodes} nodes of ${classes[i]}`, value: `${count} (${(100 * part).toFixed(1)} %)` },
          ],
        });
      });
    });
    classes.forEach((name, j) => {
      if (j % every) return;
      const x = left + (j + 0.5) * cell,
        y = top + size + (across ? 8 : 15);
      svg.append(
        text(
          x,
          y,
          clip(name, 12),
          across ? { "text-anchor": "end", transform: `rotate(-55 ${x} ${y})` } : { "text-anchor": "middle" },
        ),
      );
    });
    const below = top + size + (across ? 14 + 6 * longest : 33);
    svg.append(text(left + size / 2, below, "predicted class", { "text-anchor": "middle" }));
    svg.append(
      text(14, top + size / 2, "true class", {
        "text-anchor": "middle",
        transform: `rotate(-90 14 ${top + size / 2})`,
      }),
    );
    figure.show = (px, py) => spot(spots, px, py);
    return below + 9;
  }

  // ----------------------------------------------------------------------------------------------------- figures

  function addFigure(figure) {
    const plot = h("div", { class: "plot" }),
      tip = h("div", { class: "tip", role: "status", hidden: true });
    const note = h("p", { class: "note" }, figure.note || "");
    const bar = h("div", { class: "bar" }, h("h2", { id: `title-${figure.id}` }, figure.title));
    figure.hint = (content) => {
      note.textContent = content;
    };
    if (figure.candidates) {
      let chosen = figure.candidates[0];
      figure.run = () => chosen;
      if (figure.candidates.length > 1) {
        const pick = (event) => {
          chosen = figure.candidates[event.target.selectedIndex];
          figure.draw();
        };
        bar.append(
          h(
            "select",
            { "aria-label": `${figure.title}: run`, onchange: pick },
            ...figure.candidates.map((run) => h("option", {}, run.name)),
          ),
        );
      }
    }
    if (figure.scale)
      bar.append(
        choice(
          `${figure.title}: scale`,
          [
            ["log", "log"],
            ["linear", "linear"],
          ],
          figure.scale,
          (value) => {
            figure.scale = value;
            figure.draw();
          },
        ),
      );
    if (figure.mode)
      bar.append(
        choice(
          `${figure.title}: measure`,
          [
            ["share", "share"],
            ["seconds", "seconds"],
            ["bytes", "bytes"],
          ],
          figure.mode,
          (value) => {
            figure.mode = value;
            figure.draw();
          },
        ),
      );
    bar.append(
      h(
        "button",
        { type: "button", class: "png", "aria-label": `Save ${figure.title} as PNG`, onclick: () => savePng(figure) },
        "PNG",
      ),
    );
    const key = h("p", { class: "note key" });
    const card = h(
      "figure",
      { class: "card figure", id: figure.id, "aria-labelledby": `title-${figure.id}` },
      bar,
      note,
      plot,
      key,
      tip,
    );
    document.getElementById("figures").append(card);
    Object.assign(figure, { plot, tip, card });

    figure.draw = () => {
      const width = Math.max(240, Math.floor(plot.clientWidth));
      const svg = s("svg", { role: "img", tabindex: "0", "aria-label": `${figure.title}. ${figure.label || ""}` });
      figure.show = null;
      const height = figure.paint(figure, svg, width);
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
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
      key.replaceChildren(...(figure.key || []).flatMap(([colour, name]) => [swatch(colour), ` ${name}\u2003`]));
    };
    figures.push(figure);
  }

  function readOut(figure, px, py = 0) {
    const found = figure.show ? figure.show(px, py) : null;
    figure.tip.hidden = !found;
    if (!found) return;
    const rows = found.rows
      .slice(0, 14)
      .map((row) =>
        h("div", {}, row.colour ? swatch(row.colour) : null, h("span", {}, row.name), h("b", {}, row.value)),
      );
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
    if (event.key === "Escape") return readOut(figure, null);
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !figure.range || !figure.show) return undefined;
    event.preventDefault();
    const [from, to] = figure.range,
      step = Math.max((to - from) / (figure.steps || 100), 4);
    figure.at = Math.max(from, Math.min(to, (figure.at ?? from - step) + move * step));
    return readOut(figure, figure.at, 30);
  }

  // ---------------------------------------------------------------------------------------------------------- PNG

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

  /** The figure as a drawing of its own: title above, what the colours mean below, every style written out. */
  function standalone(figure) {
    const svg = figure.plot.querySelector("svg"),
      width = svg.viewBox.baseVal.width,
      height = svg.viewBox.baseVal.height;
    const resolve = (colour) => {
      const probe = figure.plot.appendChild(h("span", { style: { color: colour } }));
      const value = getComputedStyle(probe).color;
      probe.remove();
      return value;
    };
    const copy = svg.cloneNode(true);
    const originals = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, i) => {
      const style = getComputedStyle(originals[i]);
      for (const name of STYLES) node.style.setProperty(name, style.getPropertyValue(name));
    });
    copy.querySelectorAll(".cursor").forEach((node) => node.remove());
    const ink = resolve("var(--ink)"),
      font = getComputedStyle(document.body).fontFamily;
    const write = (x, y, content, size, weight) =>
      text(x, y, content, { style: { fill: ink, font: `${weight} ${size}px ${font}` } });
    const title = figure.run && several ? `${figure.title}: ${figure.run().name}` : figure.title;
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
      outer.append(s("circle", { cx: x + 5, cy: y - 4, r: 5, fill: resolve(colour) }), write(x + 15, y, name, 12, 400));
      x += wide;
    }
    const full = y + (items.length ? 14 : -8);
    outer.setAttribute("height", full);
    outer.prepend(s("rect", { width: "100%", height: "100%", fill: resolve("var(--card)") }));
    for (const [name, value] of Object.entries({ x: 12, y: 36, width, height })) copy.setAttribute(name, value);
    outer.append(copy);
    return { source: new XMLSerializer().serializeToString(outer), width: width + 24, height: full };
  }

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

  // -------------------------------------------------------------------------------------------------- tables, page

  const STATUS = (run) =>
    h(
      "span",
      {
        class: `status ${run.failed ? "bad" : ["UNFINISHED", "INTERRUPTED"].includes(run.status) ? "" : "good"}`,
      },
      run.status,
    );
  const COLUMNS = [
    ["test accuracy", (facts) => share(facts.test_accuracy)],
    ["validation", (facts) => share(facts.val_accuracy)],
    ["training", (facts) => share(facts.train_accuracy)],
    ["layers", (facts) => whole(facts.layers)],
    ["parameters", (facts) => whole(facts.parameters)],
    ["epochs", (facts) => whole(facts.epochs)],
    ["time", (facts) => seconds(facts.seconds)],
    ["sent", (facts) => bytes(facts.bytes_sent)],
  ];

  function overview() {
    const place = document.getElementById("overview");
    if (!several) {
      const [run] = runs;
      const tiles = COLUMNS.map(([name, value]) =>
        h("div", { class: "tile" }, h("b", {}, value(run.facts)), h("span", {}, name)),
      );
      place.append(
        h(
          "div",
          { class: "card" },
          h(
            "div",
            { class: "bar" },
            h("h2", {}, `${run.facts.method} on ${run.facts.dataset}, seed ${run.facts.seed}`),
            STATUS(run),
          ),
          h("p", { class: "note" }, run.advice),
          h("div", { class: "tiles" }, ...tiles),
        ),
      );
      return;
    }
    const head = ["status", "method", "data set"].map((name) => h("th", { scope: "col" }, name));
    const numbers = COLUMNS.map(([name]) => h("th", { scope: "col", class: "number" }, name));
    const rows = runs.map((run) => {
      const figures = COLUMNS.map(([, value]) => h("td", { class: "number" }, value(run.facts)));
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, swatch(run.colour), ` ${run.name}`),
        ...figures,
        h("td", { title: run.advice }, STATUS(run)),
        h("td", {}, String(run.facts.method)),
        h("td", {}, String(run.facts.dataset)),
      );
    });
    const notes = runs
      .filter((run) => run.failed || run.status === "UNFINISHED")
      .map((run) => h("p", { class: "note" }, `${run.name}: ${run.advice}`));
    place.append(
      h(
        "div",
        { class: "card" },
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" },
          h(
            "table",
            {},
            h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "run"), ...numbers, ...head)),
            h("tbody", {}, ...rows),
          ),
        ),
        ...notes,
      ),
    );
  }

  function configuration() {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.config)))];
    const rows = names.map((name) => {
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
    });
    const table = h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, "setting"),
          ...runs.map((run) =>
            h("th", { scope: "col" }, several ? swatch(run.colour) : null, several ? ` ${run.name}` : "value"),
          ),
        ),
      ),
      h("tbody", {}, ...rows),
    );
    const button = h(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        onclick: () => {
          const all = table.classList.toggle("all");
          button.setAttribute("aria-pressed", String(all));
          button.textContent = all ? "Show fewer settings" : "Show all settings";
        },
      },
      "Show all settings",
    );
    document
      .getElementById("configuration")
      .append(
        h(
          "div",
          { class: "card" },
          h("div", { class: "bar" }, h("h2", {}, "Configuration"), button),
          h(
            "p",
            { class: "note" },
            several
              ? "Settings that differ between the runs; bold: not the default."
              : "Settings that are not the default.",
          ),
          h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of settings" }, table),
        ),
      );
  }

  const drawAll = () => figures.forEach((figure) => figure.draw());

  function legend() {
    const place = document.getElementById("legend");
    for (const run of runs) {
      const button = h(
        "button",
        {
          type: "button",
          "aria-pressed": "true",
          "data-run": run.name,
          onclick: () => {
            if (!hidden.delete(run.name)) hidden.add(run.name);
            button.setAttribute("aria-pressed", String(!hidden.has(run.name)));
            drawAll();
          },
        },
        swatch(run.colour),
        run.name,
      );
      place.append(button);
    }
  }

  function theme() {
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
    document.getElementById("controls").append(
      choice(
        "Horizontal axis",
        [
          ["epoch", "epochs"],
          ["seconds", "seconds"],
        ],
        axis,
        (value) => {
          axis = value;
          drawAll();
        },
      ),
      button,
    );
  }

  function build() {
    legend();
    theme();
    overview();
    const curves = (id, title, note, keys, more = {}) => {
      if (runs.some((run) => keys.some(([key]) => run.series[key])))
        addFigure({ id, title, note, keys, paint: drawCurves, label: note, ...more });
    };
    curves(
      "accuracy",
      "Accuracy",
      "Solid: validation nodes; dashed: training nodes.",
      [
        ["val_accuracy", "validation"],
        ["train_accuracy", "training"],
      ],
      { least: 0, most: 1 },
    );
    curves(
      "loss",
      "Loss",
      "Mean per node. Solid: validation nodes; dashed: training nodes.",
      [
        ["val_loss", "validation"],
        ["train_loss", "training"],
      ],
      { scale: "linear", least: 0 },
    );
    curves(
      "objective",
      "Objective",
      "Solid: objective, with pdADMM-G the Lagrangian, else the loss; dashed: risk alone.",
      [
        ["objective", "objective"],
        ["risk", "risk"],
      ],
      { scale: "log" },
    );
    curves(
      "residuals",
      "Residuals",
      "Solid: primal, |p \u2212 q|; dashed: dual, \u03c1 |change of q|.",
      [
        ["primal_residual", "primal"],
        ["dual_residual", "dual"],
      ],
      { scale: "log" },
    );
    curves("rho", "Penalty \u03c1", "The weight on p = q.", [["rho", "\u03c1"]]);
    const timed = runs.filter((run) => run.timeline),
      staged = runs.filter((run) => run.stages.length),
      judged = runs.filter((run) => run.confusion);
    if (timed.length)
      addFigure({ id: "workers", title: "Workers", candidates: timed, mode: "share", paint: drawTimeline });
    if (staged.length)
      addFigure({
        id: "plan",
        title: "Layer plan",
        note: "Who owns which layers, from the first stage of growth to the last.",
        candidates: staged,
        paint: drawPlan,
      });
    const nodes = [...new Set(judged.map((run) => run.confusion.nodes))]
      .map((name) => ({ test: "test", val: "validation" })[name] || name)
      .join(" or ");
    if (judged.length) {
      addFigure({
        id: "classes",
        title: "Accuracy per class",
        note: `On the ${nodes} nodes; in brackets how many of them are of the class.`,
        paint: drawClasses,
      });
      addFigure({
        id: "confusion",
        title: "Confusion matrix",
        note: `Counts of ${nodes} nodes; the shade is the share of the true class.`,
        candidates: judged,
        paint: drawConfusion,
      });
    }
    if (!figures.length)
      document.getElementById("figures").append(h("p", { class: "card" }, "No epoch has ended yet: nothing to draw."));
    configuration();
    const versions = [...new Set(runs.map((run) => run.facts.versions).filter(Boolean))].join("; ");
    document.getElementById("footer").textContent =
      `Written ${data.written} by pdadmm-g ${data.version}.${versions ? ` Trained with ${versions}.` : ""}`;
    drawAll();
    let width = innerWidth;
    new ResizeObserver(() => {
      if (document.body.clientWidth !== width) {
        width = document.body.clientWidth;
        drawAll();
      }
    }).observe(document.body);
  }
  build();
})();
