// Recolours the tokens and shows the numbers behind one. Text goes into the page as text only, never as HTML.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const paragraphs = [...document.querySelectorAll(".completion")];
  window.addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
  if (paragraphs.length === 0) return;

  const { margin, bandwidth, gamma } = data.parameters;
  const bell = (distance) => Math.exp(-0.5 * (distance / bandwidth) ** 2);
  // the formulas of trimsft.objectives
  const weights = {
    sft: () => 1,
    fsft: (nll) => (-Math.expm1(-nll)) ** gamma,
    dft: (nll) => Math.exp(-nll),
    trim: (nll, gap) => bell(gap - margin),
    "trim-e": (nll, gap) => bell(Math.min(gap - margin, 0)),
    "trim-h": (nll, gap) => bell(Math.max(gap - margin, 0)),
  };
  const ninths = Array.from({ length: 8 }, (_, place) => (place + 1) / 9);
  const quantities = {
    gap: { name: "gap", of: (run, i) => run.gap[i], edges: data.edges, colours: "d" },
    probability: { name: "probability", of: (run, i) => Math.exp(-run.nll[i]), edges: ninths, colours: "q" },
    entropy: { name: "entropy (nats)", of: (run, i) => run.entropy[i], edges: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2], colours: "q" },
  };
  for (const [key, name] of Object.entries(data.objectives)) {
    const of = (run, i) => weights[key](run.nll[i], run.gap[i]);
    quantities[key] = { name: `weight under ${name}`, of, edges: ninths, colours: "q" };
  }

  // ---- colours
  const quantity = document.getElementById("quantity");
  const model = document.getElementById("model");
  const option = (value, text, disabled = false) =>
    Object.assign(document.createElement("option"), { value, textContent: text, disabled });
  quantity.append(...Object.entries(quantities).map(([key, { name }]) => option(key, name)));
  const shown = data.runs.map((_, run) => data.examples.some((example) => example.runs[run]));
  model.append(...data.runs.map((label, run) => option(run, label, !shown[run])));
  model.value = String(shown.indexOf(true));

  const short = (value) => String(Number(value.toPrecision(2)));
  const drawScale = ({ edges, colours }) => {
    const items = edges.map((edge, place) => (place ? `${short(edges[place - 1])} to ${short(edge)}` : `< ${short(edge)}`));
    items.push(`≥ ${short(edges[edges.length - 1])}`);
    document.getElementById("scale").replaceChildren(
      ...items.map((textContent, place) => Object.assign(document.createElement("li"), { textContent, className: colours + place })),
    );
  };
  const recolour = () => {
    const { of, edges, colours } = quantities[quantity.value];
    paragraphs.forEach((paragraph, place) => {
      const run = data.examples[place].runs[model.value];
      [...paragraph.children].forEach((token, i) => {
        const value = run ? of(run, i) : null;
        const step = edges.filter((edge) => value >= edge).length;
        token.className = value === null ? "t" : `t ${colours}${step}`;
      });
    });
    drawScale(quantities[quantity.value]);
  };
  quantity.addEventListener("change", recolour);
  model.addEventListener("change", recolour);

  // ---- the numbers of one token
  const inspector = document.getElementById("inspector");
  const row = (tag, cells) => {
    const line = document.createElement("tr");
    line.append(...cells.map((textContent, place) =>
      Object.assign(document.createElement(place ? tag : "th"), { textContent, className: place ? "figure" : "" })));
    return line;
  };
  const three = (value) => (Math.abs(value) < 0.0005 && value !== 0 ? value.toExponential(1) : value.toFixed(3));
  const inspect = (place, i) => {
    const example = data.examples[place];
    const heading = document.createElement("p");
    const token = Object.assign(document.createElement("code"), { textContent: example.tokens[i].replace("\n", "") });
    heading.append("Token ", token, `, id ${example.ids[i]}, number ${i + 1} of ${example.tokens.length}`);
    const table = document.createElement("table");
    const names = Object.entries(data.objectives);
    table.append(row("th", ["", "p", "nll", "gap", "competitor", "entropy", "rank", ...names.map(([, name]) => `w ${name}`)]));
    data.runs.forEach((label, number) => {
      const run = example.runs[number];
      if (!run) return;
      const [nll, gap] = [run.nll[i], run.gap[i]];
      const found = names.map(([key]) => weights[key](nll, gap).toFixed(3));
      const cells = [three(Math.exp(-nll)), three(nll), three(gap), run.competitor[i].replace("\n", ""), three(run.entropy[i]), run.rank[i]];
      table.append(row("td", [label, ...cells, ...found]));
    });
    document.getElementById("inspected").replaceChildren(heading, table);
    inspector.hidden = false;
  };
  document.getElementById("close").addEventListener("click", () => { inspector.hidden = true; });

  // ---- pointing and arrow keys: one stop of the tab key for each example
  const select = (paragraph, i) => {
    for (const token of paragraph.querySelectorAll('[tabindex="0"]')) token.tabIndex = -1;
    paragraph.children[i].tabIndex = 0;
    paragraph.children[i].focus();
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
  paragraphs.forEach((paragraph, place) => {
    const tokens = [...paragraph.children];
    tokens.forEach((token, i) => {
      token.removeAttribute("title"); // the panel says more
      token.tabIndex = i ? -1 : 0;
    });
    const at = (event) => tokens.indexOf(event.target.closest(".t"));
    for (const kind of ["focusin", "mouseover"]) {
      paragraph.addEventListener(kind, (event) => { if (at(event) >= 0) inspect(place, at(event)); });
    }
    paragraph.addEventListener("keydown", (event) => {
      if (event.key === "Escape") inspector.hidden = true;
      if (!(event.key in steps) || at(event) < 0) return;
      event.preventDefault();
      select(paragraph, Math.min(tokens.length - 1, Math.max(0, at(event) + steps[event.key])));
    });
  });

  for (const part of document.querySelectorAll(".with-script")) part.hidden = false;
  recolour();
})();
