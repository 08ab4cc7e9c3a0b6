// The viewer: `view` holds all of the state; `refresh` draws what follows from it. Started at the end of controls.js.
const startViewer = async () => {
  const store = await openStore();
  const usable = store.runs.flatMap((run, number) => (run ? [number] : []));
  if (usable.length === 0) return;
  store.isFormat = formatTokens(store);
  store.news = newsOf(store);
  const view = {
    defaults: { method: "trim", margin: tokenData.parameters.margin, bandwidth: tokenData.parameters.bandwidth, run: usable[0], moment: moments.length - 1 },
    get run() { return store.runs[this.a.run]; },
    matches: null, refused: "", remark: "", textHits: null, others: null, shown: null, row: 0, examples: store.examples, news: store.news,
    usualTarget: () => (view.matches ? "matches" : countOf(store, view, "errors") ? "errors" : "band"),
    textOf: (type) => store.typeTexts[type],
    exampleOf: (i) => store.examples[exampleAt(store.examples, i)],
  };
  readHash(view, store);
  fillChoices(store);
  for (const words of document.querySelectorAll("#written, #tokens .written")) words.remove();
  byId("viewer").hidden = false;
  weighSides(store, view);
  view.goTo = (i, focus) => goTo(store, view, i, focus);
  view.say = (words) => {
    byId("said").textContent = words;
    clearTimeout(view.silence);
    if (words) view.silence = setTimeout(() => view.say(""), 8000);
  };
  view.copyPicture = (example) => copyPicture(store, view, example);
  view.texts = makeTexts(byId("pane"), byId("examples"), store, view);
  view.refresh = (changes) => refresh(store, view, changes);
  watchControls(store, view);
  watchTokens(store, view);
  watchKeys(store, view);
  view.refresh({ sort: true });
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
  view.refresh({ sort: true });
  if (view.at !== null && view.at !== before) view.goTo(view.at);
};

const fillChoices = (store) => {
  const option = (value, textContent, disabled = false) => make("option", { value, textContent, disabled });
  for (const id of ["model", "model-b"]) byId(id).append(...tokenData.runs.map((label, number) => option(number, label, !store.runs[number])));
  byId("quantity").append(...Object.entries(QUANTITIES).map(([key, { name }]) => option(key, name)));
  byId("sort").append(...Object.entries(SORTS).map(([key, name]) => option(key, name)));
};

// ---- drawing

// A, and B where there is one, as texts, card and figures take them
const weighSides = (store, view) => {
  const key = JSON.stringify(view.b);
  view.weights = weighAll(store, view.a);
  if (view.weighed !== key) [view.weighed, view.others] = [key, view.b && weighAll(store, view.b)];
  const side = (letter, setting, weights, other) => ({
    letter, setting, weights, others: view.others, run: store.runs[setting.run], split: splitOf(setting), band: bandOf(setting, other),
  });
  view.sides = [side("A", view.a, view.weights, view.b)];
  if (view.b) view.sides.push(side("B", view.b, view.others, view.a));
};

// `sort`: the examples may stand in another order, and all that takes longer is drawn at once (not while a handle moves)
const refresh = (store, view, { sort = false } = {}) => {
  weighSides(store, view);
  view.matches = matchesOf(store, view);
  const inexactly = view.sides.map(({ setting }) => inexact(store.corpus[setting.run], setting));
  if (view.target === null || !isThere(view, view.target)) view.target = view.usualTarget();
  view.remark = [view.refused, sameness(view.a, view.b), ...new Set(inexactly)].filter(Boolean).join(" ");
  view.refused = "";
  view.say("");
  showControls(view);
  showCorpus(store, view);
  if (sort) sortExamples(store, view);
  hideExamples(store, view);
  view.texts.recolour();
  if (view.shown !== null) showAgain(store, view);
  clearTimeout(view.later);
  if (sort) showLater(store, view);
  else view.later = setTimeout(() => showLater(store, view), 120);
  clearTimeout(view.writing);
  view.writing = setTimeout(() => writeHash(view), 250); // browsers count how often an address is changed
};
// the card follows the setting, unless its example is hidden now
const showAgain = (store, view) => {
  if (view.texts.articles[view.exampleOf(view.shown).place].article.hidden) hideCard(view);
  else showToken(store, view, view.texts.spanOf(view.shown, view.row));
};
const showLater = (store, view) => {
  showChips(store, view);
  clearTimeout(view.typing);
  if (byId("by-type").open) view.typing = setTimeout(() => drawTypes(byId("types"), store, view)); // after what is waited for
};

const showControls = (view) => {
  const { a, b, filter } = view;
  showSetting("", a);
  showSetting("-b", b);
  byId("quantity").querySelector('[value="difference"]').disabled = !b;
  Object.assign(byId("quantity"), { value: view.quantity });
  Object.assign(byId("sort"), { value: view.sort });
  byId("category").value = filter.category ?? "";
  if (document.activeElement !== byId("query")) byId("query").value = filter.query;
  for (const [id, key] of RANGES) if (document.activeElement !== byId(id)) byId(id).value = filter[key] ?? "";
  byId("clear").hidden = view.matches === null;
  byId("filters").classList.toggle("active", Object.entries(filter).some(([key, value]) => key !== "query" && value !== null));
  byId("swap-settings").hidden = !b;
  if (view.scaled !== view.quantity) drawScale(byId("scale"), QUANTITIES[view.quantity]);
  view.scaled = view.quantity;
  byId("painted").textContent = `Colour: ${QUANTITIES[view.quantity].name}. ${view.sides.map(({ letter, setting }) => `${letter}: ${nameOf(setting)} on ${tokenData.runs[setting.run]}`).join("; ")}.`;
  byId("remark").hidden = view.remark === "";
  byId("remark").textContent = view.remark;
  byId("yaml").textContent = yamlOf(a);
  byId("command").textContent = commandOf(a);
};
const RANGES = [["gap-low", "gapLow"], ["gap-high", "gapHigh"], ["weight-low", "weightLow"], ["weight-high", "weightHigh"]];

// the row of A ("") or B ("-b"); what a method does not take cannot be moved
const showSetting = (suffix, setting) => {
  const methods = document.querySelector(`#setting${suffix} .methods`);
  const method = setting?.method ?? "";
  if (methods.dataset.chosen !== method) {
    methods.dataset.chosen = method;
    for (const radio of methods.querySelectorAll("input")) radio.checked = radio.value === method;
    const label = methods.querySelector(":checked").parentNode;
    methods.scrollLeft = label.offsetLeft - (methods.clientWidth - label.offsetWidth) / 2; // where the row is too long
  }
  document.querySelector(`#setting${suffix} .more`).hidden = !setting;
  if (!setting) return;
  for (const name of ["margin", "bandwidth"]) {
    const input = byId(name + suffix);
    input.disabled = !hasBand(setting);
    if (document.activeElement !== input) input.value = tidy(setting[name]);
  }
  const [step, gate, exponent] = moments[setting.moment];
  byId(`moments${suffix}`).hidden = setting.method !== "auto-trim" || moments.length < 2;
  byId(`moment${suffix}`).value = setting.moment;
  byId(`moment-is${suffix}`).textContent = `${step}: x ${digits(gate, 2)}, a ${digits(exponent, 2)}`;
  byId(`model${suffix}`).value = setting.run;
};

const showCorpus = (store, view) => {
  const corpora = view.sides.map(({ setting }) => store.corpus[setting.run]);
  const key = view.sides.map(({ setting }) => setting.run).join();
  if (view.rangeOf !== key) {
    const ranges = [...new Set(corpora)].map(histogramRange);
    [view.rangeOf, view.range] = [key, [Math.min(...ranges.map(([low]) => low)), Math.max(...ranges.map(([, high]) => high))]];
  }
  view.sides.forEach((side, place) => { side.result = diagnose(corpora[place], side.setting, side.band); });
  const { gapLow, gapHigh } = view.filter;
  byId("histogram-b").hidden = !view.b;
  view.sides.forEach(({ setting, result }, place) => view.histograms[place].draw(corpora[place], view.range, setting, result, place ? undefined : [gapLow, gapHigh]));
  byId("hint").textContent = view.sides.some(({ setting }) => hasBand(setting)) ? "drag the handles, or drag over gaps to find them" : "drag over gaps to find them";
  byId("key-curve").hidden = !hasCurve(view.a);
  byId("key-curve").lastChild.textContent = BY_GAP.has(view.a.method) ? "weight" : "weight where two tokens compete";
  drawFigures(byId("figures"), view.sides);
  drawBars(byId("bars"), view.sides, view.filter, view.toggle);
  const [corpus] = corpora;
  const exact = corpus.width === 0 ? "" : ` Counted in cells ${corpus.width < 1 ? `1/${1 / corpus.width}` : corpus.width} of a gap wide.`;
  const whose = view.sides.map(({ letter, setting }, place) => `${view.b ? `${letter} ` : ""}all ${grouped(corpora[place].tokens)} tokens of ${tokenData.runs[setting.run]}`);
  byId("counts").textContent = `Figures: ${whose.join(", ")}.${exact} Texts: ${grouped(store.size)} tokens in ${grouped(store.examples.length)} examples.`;
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

// ---- chips: what there is to see, counted; one of them is what next and previous step through

const showChips = (store, view) => {
  view.counts = {};
  const chips = Object.entries(TARGETS).filter(([name]) => isThere(view, name)).map(([name, { name: text, title }]) => {
    const count = (view.counts[name] = countOf(store, view, name));
    const chip = make("button", { type: "button", className: "chip", title, tabIndex: name === view.target ? 0 : -1 }, `${text} `, make("b", { textContent: count ? grouped(count) : "none" }));
    chip.dataset.target = name;
    if (name === view.target) chip.setAttribute("aria-current", "true");
    chip.setAttribute("aria-disabled", count === 0);
    return chip;
  });
  const focused = document.activeElement?.dataset?.target;
  byId("chips").replaceChildren(...chips);
  if (focused) byId("chips").querySelector(`[data-target="${focused}"]`)?.focus({ preventScroll: true });
  showFound(store, view);
};

const showFound = (store, view) => {
  let words = `${grouped(view.counts[view.target])} of ${grouped(store.size)} shown`;
  const [{ a, b }, corpus] = [view, store.corpus[view.a.run]];
  if (view.target === "differing" && a.run === b.run && BY_GAP.has(a.method) && BY_GAP.has(b.method)) {
    words += `, ${grouped(differing(corpus, a, b))} of ${grouped(corpus.tokens)} in all`;
  }
  byId("found").textContent = words;
};

// ---- going to tokens

// without `focus` the token is shown, and whoever types goes on typing
const goTo = (store, view, i, focus = true) => {
  view.texts.hide(view.exampleOf(i), false);
  const span = view.texts.spanOf(i, view.row);
  for (const other of byId("pane").querySelectorAll('.t[tabindex="0"]')) if (other.closest(".example") === span.closest(".example")) other.tabIndex = -1;
  span.tabIndex = 0;
  byId("pane").scrollIntoView({ block: "nearest", behavior: "instant" });
  keepInSight(span);
  if (focus) span.focus({ preventScroll: true });
  else {
    arrive(store, view, span);
    byId("heard").textContent = labelOf(store, view, i);
  }
};

const step = (store, view, direction, focus = true) => {
  const { test } = TARGETS[view.target];
  const looked = lookedAt(store, view);
  const order = view.examples.filter(({ place }) => !view.texts.articles[place].article.hidden).filter(judged(store, view, view.target));
  if (order.length === 0) return;
  const inOrder = view.at !== null && order.includes(view.exampleOf(view.at));
  const first = order[0].start;
  const next = !inOrder && direction > 0 && test(looked, first) ? first : nextToken(order, inOrder ? view.at : first, direction, (i) => test(looked, i));
  if (next !== null) view.goTo(next, focus);
};
