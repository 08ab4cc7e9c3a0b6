// The viewer: `view` holds all of the state; `refresh` draws what follows from it. Started at the end of controls.js.
const startViewer = async () => {
  const store = await openStore();
  const usable = store.runs.flatMap((run, number) => (run ? [number] : []));
  if (usable.length === 0) return;
  const view = {
    defaults: { method: "trim", margin: tokenData.parameters.margin, bandwidth: tokenData.parameters.bandwidth, run: usable[0], moment: moments.length - 1 },
    get run() { return store.runs[this.a.run]; },
    matches: null, refused: "", remark: "", textHits: null, others: null, shown: null, examples: store.examples,
    exampleOf: (i) => store.examples[exampleAt(store.examples, i)],
  };
  readHash(view, store);
  fillChoices(store);
  for (const words of document.querySelectorAll("#written, #tokens .written")) words.remove();
  byId("viewer").hidden = false;
  view.weights = weighAll(store, view.a);
  view.others = view.b && weighAll(store, view.b);
  view.goTo = (i, focus) => goTo(store, view, i, focus);
  view.say = (words) => { byId("said").textContent = words; };
  view.texts = makeTexts(byId("pane"), store, view);
  view.refresh = (changes) => refresh(store, view, changes);
  watchControls(store, view);
  watchTokens(store, view);
  watchKeys(store, view);
  view.refresh({ b: true, sort: true });
  if (view.at !== null) view.goTo(view.at);
  window.addEventListener("hashchange", () => restore(store, view));
  document.addEventListener("trimsft:setting", ({ detail }) => {
    const text = (value) => (value === undefined || value === null ? null : String(value));
    view.a = settingFrom({ method: text(detail?.objective), m: text(detail?.margin), tau: text(detail?.bandwidth), run: null }, view.a, usable);
    view.refresh({ sort: true });
  });
  performance.mark("tokens-ready");
  document.documentElement.dataset.tokens = "ready";
};

const exampleAt = (examples, i) => {
  let [low, high] = [0, examples.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (examples[middle].start <= i) low = middle;
    else high = middle - 1;
  }
  return low;
};

const restore = (store, view) => {
  const before = view.at;
  if (!location.hash.slice(1).includes("=")) return; // a link to a section
  readHash(view, store);
  view.refresh({ b: true, sort: true });
  if (view.at !== null && view.at !== before) view.goTo(view.at);
};

const fillChoices = (store) => {
  const option = (value, textContent, disabled = false) => make("option", { value, textContent, disabled });
  byId("model").append(...tokenData.runs.map((label, number) => option(number, label, !store.runs[number])));
  byId("quantity").append(...Object.entries(QUANTITIES).map(([key, { name }]) => option(key, name)));
  byId("target").append(...Object.entries(TARGETS).map(([key, { name }]) => option(key, name)));
  byId("sort").append(...Object.entries(SORTS).map(([key, name]) => option(key, name)));
};

// ---- drawing

// `b`: setting B has changed; `sort`: the examples may stand in another order (not while a slider moves)
const refresh = (store, view, { b = false, sort = false } = {}) => {
  view.weights = weighAll(store, view.a);
  if (b) view.others = view.b && weighAll(store, view.b);
  view.matches = matchesOf(store, view);
  view.remark = [view.refused, inexact(store.corpus[view.a.run], view.a)].filter(Boolean).join(" ");
  view.refused = "";
  view.say("");
  showControls(view);
  showCorpus(store, view);
  if (sort) sortExamples(store, view);
  hideExamples(store, view);
  view.texts.recolour();
  showFound(store, view);
  if (view.shown !== null) drawInspected(byId("inspected"), store, view, view.shown);
  clearTimeout(view.writing);
  view.writing = setTimeout(() => writeHash(view), 250); // browsers count how often an address is changed
};

const showControls = (view) => {
  const { a, b, filter } = view;
  for (const radio of document.querySelectorAll('#bar input[name="method"]')) radio.checked = radio.value === a.method;
  for (const name of ["margin", "bandwidth"]) {
    byId(name).value = a[name];
    if (document.activeElement !== byId(`${name}-number`)) byId(`${name}-number`).value = tidy(a[name]);
  }
  const [step, gate, exponent] = moments[a.moment];
  byId("moments").hidden = a.method !== "auto-trim" || moments.length < 2;
  byId("moment").value = a.moment;
  byId("moment-is").textContent = `${step}: x ${digits(gate, 2)}, a ${digits(exponent, 2)}`;
  byId("model").value = a.run;
  byId("quantity").querySelector('[value="difference"]').disabled = !b;
  byId("target").querySelector('[value="differing"]').disabled = !b;
  Object.assign(byId("quantity"), { value: view.quantity });
  Object.assign(byId("target"), { value: view.target });
  Object.assign(byId("sort"), { value: view.sort });
  byId("category").value = filter.category ?? "";
  if (document.activeElement !== byId("query")) byId("query").value = filter.query;
  for (const [id, key] of RANGES) if (document.activeElement !== byId(id)) byId(id).value = filter[key] ?? "";
  byId("clear").hidden = view.matches === null;
  byId("filters").classList.toggle("active", Object.entries(filter).some(([key, value]) => key !== "query" && value !== null));
  byId("swap-settings").hidden = byId("drop").hidden = !b;
  if (view.scaled !== view.quantity) drawScale(byId("scale"), QUANTITIES[view.quantity]);
  view.scaled = view.quantity;
  byId("painted").textContent = `Colour: ${QUANTITIES[view.quantity].name}. A: ${nameOf(a)} on ${tokenData.runs[a.run]}${b ? `; B: ${nameOf(b)} on ${tokenData.runs[b.run]}` : ""}.`;
  byId("remark").hidden = view.remark === "";
  byId("remark").textContent = view.remark;
  byId("yaml").textContent = yamlOf(a);
  byId("command").textContent = commandOf(a);
};
const RANGES = [["gap-low", "gapLow"], ["gap-high", "gapHigh"], ["weight-low", "weightLow"], ["weight-high", "weightHigh"]];

const showCorpus = (store, view) => {
  const { a, b } = view;
  const corpus = store.corpus[a.run];
  if (view.rangeOf !== corpus) [view.rangeOf, view.range] = [corpus, histogramRange(corpus)];
  const result = diagnose(corpus, a, a);
  const resultB = b && diagnose(store.corpus[b.run], b, a);
  view.result = result;
  drawHistogram(byId("histogram"), corpus, view.range, a, b, result);
  drawFigures(byId("figures"), a, b, result, resultB);
  drawBars(byId("bars"), result, resultB);
  const exact = corpus.width === 0 ? "" : ` Counted in cells ${corpus.width < 1 ? `1/${1 / corpus.width}` : corpus.width} of a gap wide.`;
  byId("counts").textContent = `Figures: all ${grouped(corpus.tokens)} tokens of ${tokenData.runs[a.run]}.${exact} Texts: ${grouped(store.size)} tokens in ${grouped(store.examples.length)} examples.`;
};

const sortExamples = (store, view) => {
  const order = sorted(store, view);
  const same = order.every((example, place) => example === view.examples[place]);
  view.examples = order;
  if (!same) view.texts.order(order);
};

const hideExamples = (store, view) => {
  if (!view.matches && !view.hiding) return;
  view.hiding = view.matches !== null;
  let shown = 0;
  for (const example of store.examples) {
    const hidden = view.hiding && factsOf(view, example).matches === 0;
    view.texts.hide(example, hidden);
    if (!hidden) shown++;
  }
  byId("nothing").hidden = shown > 0;
};

const showFound = (store, view) => {
  const { test } = TARGETS[view.target];
  // plain properties: the loop is long, and a getter is slow
  const looked = { ...view };
  let count = 0;
  if (looked.run) for (let i = 0; i < store.size; i++) if (test(looked, i)) count++;
  let words = `${grouped(count)} of ${grouped(store.size)} shown`;
  const [{ a, b }, corpus] = [view, store.corpus[view.a.run]];
  if (view.target === "differing" && b && a.run === b.run && BY_GAP.has(a.method) && BY_GAP.has(b.method)) {
    words += `, ${grouped(differing(corpus, a, b))} of ${grouped(corpus.tokens)} in all`;
  }
  byId("found").textContent = words;
};

// ---- one token

const inspect = (store, view, i) => {
  view.shown = i;
  drawInspected(byId("inspected"), store, view, i);
  byId("inspector").hidden = false;
};

// without `focus` the token is shown, and whoever types goes on typing
const goTo = (store, view, i, focus = true) => {
  view.texts.hide(view.exampleOf(i), false);
  const span = view.texts.spanOf(i);
  for (const other of span.parentNode.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  span.tabIndex = 0;
  if (focus) span.focus({ preventScroll: true });
  else arrive(store, view, span);
  const pane = byId("pane");
  pane.scrollIntoView({ block: "nearest", behavior: "instant" });
  const [box, frame] = [span.getBoundingClientRect(), pane.getBoundingClientRect()];
  const top = Math.max(frame.top, 0);
  const bottom = Math.min(frame.bottom, byId("dock").getBoundingClientRect().top); // the dock may lie over the pane
  if (box.top < top + 20 || box.bottom > bottom - 20) pane.scrollTop += box.top - top - (bottom - top) / 3;
};

const step = (store, view, direction, focus = true) => {
  const { test } = TARGETS[view.target];
  const order = view.examples.filter(({ place }) => !view.texts.articles[place].article.hidden);
  if (!view.run || order.length === 0) return;
  const from = view.at ?? order[0].start - 1;
  const start = order.some((example) => example === view.exampleOf(from)) && from >= 0 ? from : order[0].start - 1;
  const begin = start < order[0].start && view.at === null ? null : start;
  const next = begin === null && test(view, order[0].start) && direction > 0 ? order[0].start : nextToken(order, begin ?? order[0].start, direction, (i) => test(view, i));
  if (next !== null) view.goTo(next, focus);
};

const watchTokens = (store, view) => {
  const pane = byId("pane");
  pane.addEventListener("mouseover", ({ target }) => { if (target.token !== undefined) inspect(store, view, target.token); });
  pane.addEventListener("mouseleave", () => { if (view.at !== null) inspect(store, view, view.at); });
  pane.addEventListener("focusin", ({ target }) => {
    if (target.token === undefined) return;
    arrive(store, view, target);
    // the numbers must not hide their token; where the window is still on its way here, the token stays in the pane
    const box = target.getBoundingClientRect();
    const below = box.bottom - byId("dock").getBoundingClientRect().top;
    const room = box.top - pane.getBoundingClientRect().top - 40;
    if (below > 0) pane.scrollTop += Math.max(0, Math.min(below + 20, room));
  });
  pane.addEventListener("keydown", (event) => {
    const i = event.target.token;
    if (i === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const { start, length } = view.exampleOf(i);
    const to = {
      ArrowRight: () => i + 1, ArrowLeft: () => i - 1, Home: () => start, End: () => start + length - 1,
      ArrowDown: () => lineAway(event.target, 1), ArrowUp: () => lineAway(event.target, -1),
    }[event.key]?.();
    if (to === undefined) return;
    event.preventDefault();
    view.goTo(between(to, start, start + length - 1));
  });
  byId("close").addEventListener("click", () => { byId("inspector").hidden = true; });
};

// this token is the one that keys go on from
const arrive = (store, view, span) => {
  byId("pane").querySelector("[aria-current]")?.removeAttribute("aria-current");
  span.setAttribute("aria-current", "true");
  view.at = span.token;
  inspect(store, view, span.token);
  clearTimeout(view.writing);
  view.writing = setTimeout(() => writeHash(view), 250);
};

// the token above or below, by where it stands
const lineAway = (span, direction) => {
  const here = span.getBoundingClientRect();
  let best = null;
  for (let other = span; other; other = direction > 0 ? other.nextSibling : other.previousSibling) {
    const { left, top } = other.getBoundingClientRect();
    const lines = Math.round(Math.abs(top - here.top) / (here.height || 1) - 0.2);
    if (lines > 2 && best) break;
    if (lines < 1) continue;
    if (!best || (Math.abs(top - best.top) < 4 && Math.abs(left - here.left) < best.off)) best = { token: other.token, top, off: Math.abs(left - here.left) };
    else if (Math.abs(top - best.top) >= 4) break;
  }
  return best ? best.token : span.token;
};

// ---- the numbers behind one token: every run, every method, and the alternatives that the model saw
const three = (value) => (Math.abs(value) < 0.0005 && value !== 0 ? value.toExponential(1) : value.toFixed(3));
const named = (store, index) => make("code", { textContent: store.names[index] });

// the five most likely tokens that are known, and the gold one wherever it stands
const alternatives = (store, run, i) => {
  const gold = store.token[i];
  const known = [[gold, run.nll[i]], [run.competitor[i], run.nll[i] + run.gap[i]]];
  run.top.forEach((column, place) => { if (column[i]) known.push([column[i] - 1, (run.topNll[place][i] / 40) ** 2]); });
  const sortedByP = known.map(([index, nll]) => ({ index, p: Math.exp(-nll), gold: index === gold })).sort((one, other) => other.p - one.p);
  return sortedByP.filter((token, place) => place < 5 || token.gold);
};

const drawAlternatives = (store, run, i) => {
  const list = make("ol", { className: "top" });
  for (const { index, p, gold } of alternatives(store, run, i)) {
    const bar = make("span", { className: "bar" });
    bar.style.width = `${100 * p}%`;
    list.append(make("li", { className: gold ? "gold" : "" }, named(store, index), make("span", { className: "bar-line" }, bar), make("span", { className: "figure", textContent: p < 0.0005 ? p.toExponential(0) : digits(100 * p, 1) + " %" })));
  }
  return list;
};

const drawRuns = (store, view, example, i) => {
  const methods = Object.entries(tokenData.objectives);
  const heads = ["", "p", "gap", "nll", "competitor", "entropy", "rank", ...methods.map(([, name]) => `w ${name}`)];
  const rows = store.runs.flatMap((run, number) => {
    if (!run || run.missing.has(example.place)) return [];
    const [nll, gap] = [run.nll[i], run.gap[i]];
    const figure = (textContent, className = "figure") => make("td", { textContent, className });
    const rank = run.rank[i] >= 65535 ? "≥ 65535" : run.rank[i];
    const weights = methods.map(([method]) =>
      figure(weigher({ ...view.a, method })(nll, gap).toFixed(3), method === view.a.method ? "figure chosen" : "figure"));
    return make("tr", { className: number === view.a.run ? "chosen" : "" },
      make("th", { scope: "row", textContent: tokenData.runs[number] }), figure(three(Math.exp(-nll))), figure(three(gap)), figure(three(nll)),
      make("td", {}, named(store, run.competitor[i])), figure(three(run.entropy[i])), figure(rank), ...weights);
  });
  const head = make("tr", {}, ...heads.map((textContent) => make("th", { scope: "col", textContent, className: textContent === "competitor" || !textContent ? "" : "figure" })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
};

const drawInspected = (holder, store, view, i) => {
  const example = view.exampleOf(i);
  const place = i - example.start;
  const heading = make("p", { className: "which" }, "Token ", named(store, store.token[i]),
    ` id ${store.ids[store.token[i]]}, ${tokenData.categories[store.category[i]]}, number ${place + 1} of ${grouped(example.length)} in example ${example.number + 1}`);
  if (view.b && view.others) {
    heading.append(`; weight A ${digits(view.weights[i], 3)}, B ${digits(view.others[i], 3)}`);
  }
  const run = view.run && !view.run.missing.has(example.place) ? view.run : null;
  const parts = [make("div", { className: "runs wide" }, drawRuns(store, view, example, i))];
  if (run) parts.unshift(make("div", { className: "tops" }, drawAlternatives(store, run, i)));
  holder.replaceChildren(heading, make("div", { className: "numbers" }, ...parts));
};
