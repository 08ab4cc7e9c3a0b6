"use strict";
// Draws what its server, or the page itself, tells of trainings; the numbers are those of page.py.
(() => {
  const told = JSON.parse(document.getElementById("told").textContent);
  const SIZE = { width: 420, height: 230, left: 46, right: 412, top: 8, bottom: 206 };
  const PANELS = [
    { id: "loss", title: "weighted loss", field: "loss" },
    { id: "nll", title: "nll", field: "nll", note: "circles: held out" },
    { id: "gap", title: "logit gap", field: "gap_p50", quantiles: true },
    { id: "ratio", title: "effective ratio", field: "effective_ratio", bounds: [0, 1] },
    { id: "gate", title: "gate x", field: "gate", bounds: [0, 1] },
  ];
  const element = (id) => document.getElementById(id);
  const make = (name, attributes = {}, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const short = (value) => String(Number(value.toPrecision(3)));
  const paint = (shape, run) => {
    shape.style.setProperty("--method", `light-dark(${run.colour}, ${run.dark})`);
    if (run.dashes.length && !run.alone && shape.classList.contains("series")) {
      shape.style.strokeDasharray = run.dashes.map((length) => 2 * length).join(" ");
    }
    return shape;
  };

  // ---- scales

  const ticks = (low, high, about) => {
    const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
    return Array.from({ length: Math.max(0, count) }, (_, place) => Number(((first + place) * step).toPrecision(10)));
  };
  const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
  const upScale = (values, bounds) => {
    const positive = values.every((value) => value > 0), most = Math.max(...values), least = Math.min(...values);
    if (positive && !bounds && most > 50 * least) {
      const [low, high] = [Math.log10(least) - 0.05, Math.log10(most) + 0.05], place = scale(low, high, SIZE.bottom, SIZE.top);
      const powers = Array.from({ length: Math.floor(high) - Math.ceil(low) + 1 }, (_, place) => 10 ** (Math.ceil(low) + place));
      return { at: (value) => place(Math.log10(value)), ticks: powers };
    }
    const room = 0.06 * (most - least) || 0.5;
    const [low, high] = bounds ? [-0.03, 1.03] : [least - room, most + room];
    return { at: scale(low, high, SIZE.bottom, SIZE.top), ticks: ticks(low, high, 5) };
  };

  // ---- one panel

  const points = (run, field) =>
    run.step.map((step, i) => [step, run.fields[field]?.[i]]).filter(([, value]) => value !== undefined && value !== null);
  const path = (pairs, across, up) => pairs.map(([step, value], i) => `${i ? "L" : "M"}${across(step).toFixed(1)},${up.at(value).toFixed(1)}`).join("");
  const area = (run, low, high, across, up) =>
    `${path(points(run, high), across, up)}${path(points(run, low).reverse(), across, up).replace("M", "L")}Z`;

  const drawAxes = (svg, across, up, steps) => {
    for (const tick of up.ticks) {
      svg.append(make("line", { class: "grid", x1: SIZE.left, x2: SIZE.right, y1: up.at(tick), y2: up.at(tick) }));
      svg.append(make("text", { class: "end", x: SIZE.left - 5, y: up.at(tick) + 4 }, short(tick)));
    }
    for (const tick of ticks(...steps, 5)) {
      if (Number.isInteger(tick)) svg.append(make("text", { class: "middle", x: across(tick), y: SIZE.bottom + 15 }, tick));
    }
    svg.append(make("text", { class: "end", x: SIZE.left - 5, y: SIZE.bottom + 15 }, "step"));
    svg.append(make("line", { class: "axis", x1: SIZE.left, x2: SIZE.right, y1: SIZE.bottom, y2: SIZE.bottom }));
  };

  const drawQuantiles = (svg, run, across, up) => {
    if (run.band) {
      const [low, high] = run.band.map(up.at);
      svg.append(make("rect", { class: "band", x: SIZE.left, width: SIZE.right - SIZE.left, y: high, height: low - high }));
    }
    for (const [low, high, name] of [["gap_p05", "gap_p95", "wide"], ["gap_p25", "gap_p75", "narrow"]]) {
      if (run.fields[low] && run.fields[high]) svg.append(paint(make("path", { class: name, d: area(run, low, high, across, up) }), run));
    }
    if (run.fields.counts_from) svg.append(make("path", { class: "limit", d: path(points(run, "counts_from"), across, up) }));
  };

  const note = (panel, runs) => {
    if (!panel.quantiles) return panel.note && runs.some((run) => run.evaluations.length) ? panel.note : "";
    if (runs.length > 1) return "median";
    const band = runs[0].band ? "; grey: margin ± bandwidth" : "";
    return `median, 25 to 75 %, 5 to 95 %${band}${runs[0].fields.counts_from ? "; dots: gap with weight 1/2" : ""}`;
  };

  const drawPanel = (panel, all) => {
    const runs = all.filter((run) => points(run, panel.field).length);
    const alone = panel.quantiles && runs.length === 1;
    const shown = alone ? ["gap_p05", "gap_p95", "gap_p50", "counts_from"] : [panel.field];
    const values = runs.flatMap((run) => shown.flatMap((field) => points(run, field).map(([, value]) => value)));
    if (!values.length) return null;
    const evaluations = panel.id === "nll" ? runs.flatMap((run) => run.evaluations.map(([, value]) => value)) : [];
    const band = alone && runs[0].band ? runs[0].band : [];
    const up = upScale([...values, ...evaluations, ...band], panel.bounds);
    const every = runs.flatMap((run) => run.step), first = Math.min(...every);
    const steps = [first, Math.max(...every, first + 1)], across = scale(...steps, SIZE.left, SIZE.right);
    const svg = make("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": `${panel.title} over steps` });
    drawAxes(svg, across, up, steps);
    if (alone) drawQuantiles(svg, runs[0], across, up);
    for (const run of runs) {
      svg.append(paint(make("path", { class: "series", d: path(points(run, panel.field), across, up) }), run));
      for (const [step, value] of panel.id === "nll" ? run.evaluations : []) {
        svg.append(paint(make("circle", { class: "dot", cx: across(step), cy: up.at(value), r: 3.2 }), run));
      }
    }
    return { svg, runs, across, steps };
  };

  // ---- a pointer reads the values of a step

  const readAt = (output, panel, { svg, runs, across, steps }) => {
    const still = runs.map((run) => `${runs.length > 1 ? `${run.label} ` : ""}${short(points(run, panel.field).at(-1)[1])}`);
    output.textContent = runs.length > 3 ? "" : still.join(", ");
    const line = make("line", { class: "pointer", y1: SIZE.top, y2: SIZE.bottom, visibility: "hidden" });
    svg.append(line);
    const rest = output.textContent;
    svg.addEventListener("pointermove", (event) => {
      const x = ((event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width) * SIZE.width;
      const wanted = steps[0] + ((x - SIZE.left) / (SIZE.right - SIZE.left)) * (steps[1] - steps[0]);
      const nearest = runs.map((run) => points(run, panel.field).reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a)));
      const at = across(nearest[0][0]);
      for (const end of ["x1", "x2"]) line.setAttribute(end, at);
      line.setAttribute("visibility", "visible");
      const read = nearest.map(([, value], i) => `${runs.length > 1 ? `${runs[i].label} ` : ""}${short(value)}`);
      output.textContent = `step ${nearest[0][0]}: ${read.join(", ")}`;
    });
    svg.addEventListener("pointerleave", () => {
      line.setAttribute("visibility", "hidden");
      output.textContent = rest;
    });
  };

  // ---- the whole

  const drawRuns = (state) => {
    element("runs").replaceChildren(...state.runs.map((run) => {
      const item = document.createElement("li"), mark = make("svg", { viewBox: "0 0 34 10", "aria-hidden": "true" });
      mark.append(paint(make("path", { class: "series", d: "M0,5H34" }), run));
      const name = document.createElement("strong"), said = document.createElement("span");
      name.textContent = run.label;
      said.textContent = run.said;
      said.className = "said";
      item.dataset.state = run.state;
      item.append(mark, name, said);
      return item;
    }));
  };
  let states = "";
  const announce = (state) => {
    const now = state.runs.map((run) => `${run.label} ${run.state}`).join(", ");
    if (now === states) return;
    states = now;
    const rest = state.leftOut ? `${state.leftOut} more, which wrote longer ago, are left out` : "";
    element("news").textContent = now;
    element("problem").textContent = rest;
  };
  const draw = (state) => {
    for (const run of state.runs) run.alone = state.runs.length === 1;
    if (state.runs.length === 1) document.title = `${state.runs[0].said} | ${element("title").textContent}`; // seen in its tab
    announce(state);
    drawRuns(state);
    element("panels").replaceChildren(...PANELS.flatMap((panel) => {
      const drawn = drawPanel(panel, state.runs);
      if (!drawn) return [];
      const figure = document.createElement("figure"), caption = document.createElement("figcaption"), output = document.createElement("span");
      figure.id = panel.id;
      caption.append(panel.title, output);
      readAt(output, panel, drawn);
      figure.append(caption, drawn.svg);
      const below = note(panel, drawn.runs);
      if (below) figure.append(Object.assign(document.createElement("p"), { textContent: below }));
      return [figure];
    }));
  };

  let version = "";
  const ask = async () => {
    try {
      const answer = await fetch(`state.json?seen=${version}`, { cache: "no-store" });
      if (answer.status === 200) {
        const state = await answer.json();
        version = state.version;
        draw(state);
      }
    } catch {
      states = "";
      element("problem").textContent = "trimsft watch has ended; this is the last it said";
    }
  };
  if (told.state) {
    draw(told.state);
  } else {
    const again = async () => {
      await ask();
      setTimeout(again, 1000 * told.every);
    };
    document.addEventListener("visibilitychange", () => document.hidden || ask()); // timers of a hidden page are slow
    again();
  }
})();
