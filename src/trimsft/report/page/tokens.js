// The token viewer: texts coloured by gradient, a card for a token, finding, going to tokens, address and export.

// ---- data: packed arrays (examples.py), unpacked once and then looked up by the number of a token

const bytesOf = (text) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
};

const unpack = async ({ code, bytes, step, data }) => {
  const stream = new Blob([bytesOf(data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  if (bytes === 1) return planes;
  const length = planes.length / bytes;
  const whole = new Uint32Array(length);
  for (let plane = bytes - 1; plane >= 0; plane--) {
    for (let i = 0; i < length; i++) whole[i] = whole[i] * 256 + planes[plane * length + i];
  }
  if (code === "whole") return whole;
  return Float32Array.from(whole, (value) => (code === "linear" ? (value - 32768) * step : (value * step) ** 2));
};

const ROOM = Math.SQRT2 - 1; // between the smallest and the largest norm for a probability
const unpackRun = async (packed) => {
  if (!packed) return null;
  const { missing, ...columns } = packed;
  const names = Object.keys(columns);
  const arrays = await Promise.all(names.map((name) => unpack(columns[name])));
  const run = { missing: new Set(missing), ...Object.fromEntries(names.map((name, place) => [name, arrays[place]])) };
  run.norm = Float32Array.from(run.nll, (nll, i) => -Math.expm1(-nll) * (1 + (ROOM * run.norm[i]) / 255));
  return run;
};

// a token as it is shown: spaces and line breaks as signs, and such signs themselves spelt out; an accent alone on a circle
const spelt = (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
const SIGNS = { ...tokenData.spaces, ...Object.fromEntries(Object.values(tokenData.spaces).map((sign) => [sign[0], spelt(sign)])) };
const SIGNED = new RegExp(`[${Object.keys(SIGNS).join("")}]`, "g");
const showText = (text) => (/^\p{M}/u.test(text) ? "◌" : "") + text.replace(SIGNED, (letter) => SIGNS[letter]);

// {examples: [{place, number, start, length, leftOut, prompt}], token, category, texts, shown, names (shown, on one line), ids, runs, size}
const openStore = async () => {
  const { vocabulary, numbers, lengths, left_out: leftOut, prompts, tokens, category, runs } = tokenData.examples;
  const [ids, token, kinds] = await Promise.all([vocabulary.ids, tokens, category].map(unpack));
  let size = 0;
  const examples = numbers.map((number, place) => {
    size += lengths[place];
    return { place, number, start: size - lengths[place], length: lengths[place], leftOut: leftOut[place], prompt: prompts[place] };
  });
  const shown = vocabulary.texts.map((text, place) => showText(vocabulary.short[place] ?? text));
  const names = shown.map((text) => text.replaceAll("\n", ""));
  return { examples, token, category: kinds, ids, texts: vocabulary.texts, shown, names, size, runs: await Promise.all(runs.map(unpackRun)) };
};

// ---- texts: only examples near the window have a span for each token; the others keep their height

const STRENGTHS = 8; // classes l1 to l8, from a hundredth of the largest gradient of a token to all of it
const levelOf = (share) => (share >= 0.02 ? Math.ceil(STRENGTHS * Math.min(1, share)) : 0);
const classOf = (view, run, i) => {
  const found = view.matches ? (view.matches[i] ? " hit" : " dim") : "";
  return `t lit l${run ? levelOf(view.weights[i] * run.norm[i]) : 0}${found}`;
};
const runFor = ({ run }, { place }) => (run && !run.missing.has(place) ? run : null);

const makeArticle = (view, example) => {
  const facts = make("span", { className: "note" });
  const text = make("p", { className: "completion" });
  const copy = make("button", { type: "button", className: "copy", textContent: "Copy as image", tabIndex: -1, title: "i" }); // one stop an example: its tokens
  copy.addEventListener("click", () => view.copyPicture(example));
  const article = make("article", { className: "example" }, make("div", { className: "head" }, make("h3", { textContent: `Example ${example.number + 1} ` }, facts), copy));
  if (example.prompt) article.append(make("p", { className: "prompt", textContent: example.prompt }));
  article.append(text);
  if (example.leftOut) article.append(make("p", { className: "note", textContent: `${grouped(example.leftOut)} more tokens are not shown.` }));
  article.example = example;
  return { article, text, facts };
};

const makeTexts = (store, view) => {
  const pane = byId("pane");
  const [near, rendered] = [new Set(), new Map()]; // rendered: example -> its spans
  const articles = store.examples.map((example) => makeArticle(view, example));
  byId("examples").replaceChildren(...articles.map(({ article }) => article));

  const note = (example) => {
    const run = runFor(view, example);
    let [mass, kept, nll, matches] = [0, 0, 0, 0];
    for (let i = example.start; i < example.start + example.length; i++) {
      if (view.matches && isMatch(view, i)) matches++;
      if (!run) continue;
      mass += run.norm[i];
      kept += run.norm[i] * view.weights[i];
      nll += run.nll[i];
    }
    const trimmed = digits(mass > 0 ? 100 * (1 - kept / mass) : NaN, 1);
    const known = run ? `; ${trimmed} % of its gradient mass trimmed; mean nll ${digits(nll / example.length, 3)}` : "; this model's tokens are others";
    const matching = view.matches ? `; ${grouped(matches)} ${matches === 1 ? "match" : "matches"}` : "";
    articles[example.place].facts.textContent = `${grouped(example.length)} tokens${known}${matching}`;
    return matches;
  };
  const render = (example) => {
    if (rendered.has(example)) return;
    const { text } = articles[example.place];
    const run = runFor(view, example);
    const spans = Array.from({ length: example.length }, (_, place) => {
      const i = example.start + place;
      const span = make("span", { className: classOf(view, run, i), textContent: store.shown[store.token[i]], tabIndex: place ? -1 : 0, role: "option" });
      span.token = i;
      return span;
    });
    text.replaceChildren(...spans);
    Object.assign(text, { role: "listbox", ariaLabel: `Tokens of example ${example.number + 1}` });
    text.style.minHeight = "";
    rendered.set(example, spans);
    note(example);
  };
  const leave = (example) => {
    const { article, text } = articles[example.place];
    if (!rendered.has(example) || article.contains(document.activeElement)) return;
    text.style.minHeight = `${text.offsetHeight}px`;
    text.replaceChildren();
    Object.assign(text, { role: null, ariaLabel: null });
    rendered.delete(example);
  };

  // a guess of the height, so that the scroll bar is about right before anything is drawn
  const letters = Math.max(20, pane.clientWidth / 9.2);
  for (const { article: { example }, text } of articles) {
    let [lines, column] = [1, 0];
    for (let i = example.start; i < example.start + example.length; i++) {
      const token = store.shown[store.token[i]];
      column += token.length;
      if (column > letters || token.endsWith("\n")) [lines, column] = [lines + 1, 0];
    }
    text.style.minHeight = `${Math.round(lines * 28.5)}px`;
  }
  const watcher = new IntersectionObserver((entries) => {
    for (const { target: { example }, isIntersecting } of entries) {
      if (isIntersecting) near.add(example);
      else near.delete(example);
      if (isIntersecting) render(example);
      else leave(example);
    }
  }, { root: pane, rootMargin: "60% 0px" });
  for (const { article } of articles) watcher.observe(article);
  // on paper there is no scrolling: every example that is not hidden is drawn
  window.addEventListener("beforeprint", () => { for (const { article } of articles) if (!article.hidden) render(article.example); });
  window.addEventListener("afterprint", () => { for (const example of [...rendered.keys()]) if (!near.has(example)) leave(example); });

  return {
    isHidden: ({ place }) => articles[place].article.hidden,
    show: ({ place }) => { articles[place].article.hidden = false; },
    recolour: () => {
      let shown = 0;
      for (const example of store.examples) {
        const hidden = note(example) === 0 && view.matches !== null;
        articles[example.place].article.hidden = hidden;
        if (!hidden) shown++;
      }
      byId("nothing").hidden = shown > 0;
      for (const [example, spans] of rendered) {
        const run = runFor(view, example);
        spans.forEach((span) => {
          const name = classOf(view, run, span.token);
          if (span.className !== name) span.className = name;
        });
      }
    },
    spanOf: (i) => {
      const example = view.exampleOf(i);
      render(example);
      return rendered.get(example)[i - example.start];
    },
  };
};

// ---- one token: a card beside it

const percentOf = (share) => (share < 0.0005 ? share.toExponential(0) : `${digits(100 * share, 1)} %`);
const saidOf = (store, view, i) => {
  const run = runFor(view, view.exampleOf(i));
  const known = run ? `gap ${digits(run.gap[i], 2)}, weight ${digits(view.weights[i], 3)}` : "this model's tokens are others";
  return `${store.names[store.token[i]]}; ${known}`;
};

const drawCard = (store, view, i) => {
  const named = (index) => make("code", { textContent: store.names[index] });
  const example = view.exampleOf(i);
  const run = runFor(view, example);
  const place = `, token ${grouped(i - example.start + 1)} of ${grouped(example.length)}, ${tokenData.categories[store.category[i]]}`;
  const rows = run ? [
    ["probability", percentOf(Math.exp(-run.nll[i]))],
    ["expected", named(run.competitor[i]), ` ${percentOf(Math.exp(-run.nll[i] - run.gap[i]))}`],
    ["gap", digits(run.gap[i], 2)], ["entropy", digits(run.entropy[i], 2)], ["weight", digits(view.weights[i], 3)],
    ["share of the gradient", percentOf((view.weights[i] * run.norm[i]) / view.mass)],
  ] : [["", "This model's tokens are others."]];
  const lines = rows.map(([name, ...values]) => make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", {}, ...values)));
  byId("card").replaceChildren(make("p", {}, named(store.token[i]), make("span", { className: "note", textContent: place })), make("table", {}, make("tbody", {}, ...lines)));
};

// below its token, or above it where there is more room; never over it
const showToken = (store, view, span) => {
  const [card, pane] = [byId("card"), byId("pane")];
  view.shown = span.token;
  drawCard(store, view, span.token);
  card.hidden = false;
  const [box, frame] = [span.getBoundingClientRect(), pane.getBoundingClientRect()];
  const room = { above: box.top - Math.max(frame.top, 0), below: Math.min(frame.bottom, innerHeight) - box.bottom };
  const above = room.below < card.offsetHeight + 8 && room.above > room.below;
  card.style.left = `${between(box.left - frame.left, 4, Math.max(4, pane.clientWidth - card.offsetWidth - 4))}px`;
  card.style.top = `${(above ? box.top - card.offsetHeight - 6 : box.bottom + 6) - frame.top + pane.scrollTop}px`;
};
const hideCard = (view) => {
  byId("card").hidden = true;
  view.shown = null;
};

// this token is the one that keys go on from
const arrive = (store, view, span) => {
  for (const other of byId("pane").querySelectorAll("[aria-current]")) {
    other.removeAttribute("aria-current");
    other.removeAttribute("aria-label");
  }
  span.setAttribute("aria-current", "true");
  span.setAttribute("aria-label", saidOf(store, view, span.token));
  view.at = span.token;
  showToken(store, view, span);
  writeHashSoon(view);
};

// without `focus` the token is shown, and whoever types goes on typing
const goTo = (store, view, i, focus = true) => {
  const pane = byId("pane");
  view.texts.show(view.exampleOf(i));
  const span = view.texts.spanOf(i);
  for (const other of span.parentNode.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
  span.tabIndex = 0;
  pane.scrollIntoView({ block: "nearest", behavior: "instant" });
  const [box, frame] = [span.getBoundingClientRect(), pane.getBoundingClientRect()];
  const head = span.closest(".example").querySelector(".head").offsetHeight; // which stays at the top
  const [top, bottom] = [Math.max(frame.top, 0) + head, Math.min(frame.bottom, innerHeight)];
  if (box.top < top + 4 || box.bottom > bottom - 12) pane.scrollTop += box.top - top - (bottom - top) / 3;
  if (focus) span.focus({ preventScroll: true });
  else {
    arrive(store, view, span);
    byId("heard").textContent = saidOf(store, view, i);
  }
};

// the token a line above or below, by where it stands
const lineAway = (span, direction) => {
  const here = span.getBoundingClientRect();
  let best = null;
  for (let other = span; other; other = direction > 0 ? other.nextSibling : other.previousSibling) {
    const { left, top } = other.getBoundingClientRect();
    const lines = Math.round(Math.abs(top - here.top) / (here.height || 1) - 0.2);
    if (lines < 1) continue;
    if (best && Math.abs(top - best.top) >= 4) break;
    const off = Math.abs(left - here.left);
    if (!best || off < best.off) best = { token: other.token, top, off };
  }
  return best ? best.token : span.token;
};

const watchTokens = (store, view) => {
  const pane = byId("pane");
  pane.addEventListener("mouseover", ({ target }) => { if (target.token !== undefined) showToken(store, view, target); });
  pane.addEventListener("mouseleave", () => {
    if (pane.contains(document.activeElement) && view.at !== null) showToken(store, view, view.texts.spanOf(view.at));
    else hideCard(view);
  });
  pane.addEventListener("focusin", ({ target }) => { if (target.token !== undefined) arrive(store, view, target); });
  pane.addEventListener("focusout", () => hideCard(view));
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
    goTo(store, view, between(to, start, start + length - 1));
  });
};

// ---- finding: the tokens that next and previous step through

const SUSPECT = tokenData.suspect; // score from which an audit takes a token for an error
const TARGETS = {
  errors: { name: "likely label errors", test: ({ run }, i) => -run.gap[i] >= SUSPECT * (1 + run.entropy[i]) },
  band: { name: "tokens in the band m ± τ", test: ({ run, a }, i) => Math.abs(run.gap[i] - a.margin) <= a.bandwidth },
  matches: { name: "matches of the text", test: (view, i) => view.matches !== null && isMatch(view, i) },
};

// a text that spans tokens is one match, at the first of them
const isMatch = ({ matches }, i) => matches[i] === 2;

// tokens that a text touches (2: it begins there), over the joined text of each example, whatever the case; null without a text
const matchesOf = (store, query) => {
  if (!query) return null;
  const hits = new Uint8Array(store.size);
  store.lower ??= store.texts.map((text) => text.toLowerCase());
  const wanted = query.toLowerCase();
  for (const { start, length } of store.examples) {
    const pieces = Array.from({ length }, (_, place) => store.lower[store.token[start + place]]);
    const ends = new Uint32Array(length);
    pieces.reduce((size, piece, place) => (ends[place] = size + piece.length), 0);
    const text = pieces.join("");
    let place = 0;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + 1)) {
      while (ends[place] <= at) place++;
      hits[start + place] = 2;
      for (let i = place + 1; i < length && ends[i - 1] < at + wanted.length; i++) hits[start + i] ||= 1;
    }
  }
  return hits;
};

// the tokens of a target, in order
const tokensOf = (store, view, target) => {
  const found = [];
  const looked = { ...view, run: view.run }; // plain properties: a getter is slow
  eachToken(store, target === "matches" ? { missing: new Set() } : view.run, (i) => { if (TARGETS[target].test(looked, i)) found.push(i); });
  return found;
};

const step = (store, view, direction, focus = true) => {
  const found = view.targets[view.target].filter((i) => !view.texts.isHidden(view.exampleOf(i)));
  if (found.length === 0) return;
  const from = view.at ?? -1;
  const next = direction > 0 ? found.find((i) => i > from) ?? found[0] : found.findLast((i) => i < from) ?? found.at(-1);
  goTo(store, view, next, focus);
};

// ---- address, clipboard, CSV

const PREFIX = "t."; // other keys of the address belong to other rooms and are left as they are
const LIMITS = { margin: [-1000, 1000], bandwidth: [0.001, 1000] };
const finite = (text) => (text === null || String(text).trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text));

// a setting with changes {method, margin, bandwidth, run, moment}; what is no setting stays as it was
const changed = (setting, { method, margin = null, bandwidth = null, run = null, moment = null }, runs) => ({
  method: Object.hasOwn(tokenData.objectives, method ?? "") ? method : setting.method,
  margin: between(finite(margin) ?? setting.margin, ...LIMITS.margin),
  bandwidth: between(finite(bandwidth) ?? setting.bandwidth, ...LIMITS.bandwidth),
  run: runs[finite(run) ?? -1] ? finite(run) : setting.run,
  moment: moments[finite(moment) ?? -1] ? finite(moment) : setting.moment,
});

const KEYS = { method: "method", m: "margin", tau: "bandwidth", run: "run", moment: "moment" };
const readHash = (view, store) => {
  const query = new URLSearchParams(location.hash.slice(1));
  const get = (name) => query.get(PREFIX + name);
  view.a = changed(view.defaults, Object.fromEntries(Object.entries(KEYS).map(([key, field]) => [field, get(key)])), store.runs);
  view.query = (get("find") ?? "").slice(0, 200);
  view.target = Object.hasOwn(TARGETS, get("go") ?? "") ? get("go") : null;
  const at = (get("at") ?? "").split("~").map(finite);
  const example = store.examples.find(({ number }) => number === at[0]);
  view.at = example && at[1] >= 0 && at[1] < example.length ? example.start + Math.floor(at[1]) : null;
};

const writeHash = (view) => {
  const query = new URLSearchParams(location.hash.slice(1).includes("=") ? location.hash.slice(1) : "");
  for (const name of [...query.keys()]) if (name.startsWith(PREFIX)) query.delete(name);
  const put = (name, value, usual) => { if (value !== usual) query.set(PREFIX + name, value); };
  for (const [key, field] of Object.entries(KEYS)) put(key, view.a[field], view.defaults[field]);
  put("find", view.query, "");
  put("go", view.target, view.usual);
  if (view.at !== null) put("at", `${view.exampleOf(view.at).number}~${view.at - view.exampleOf(view.at).start}`);
  const text = query.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
};
const writeHashSoon = (view) => { // browsers count how often an address is changed
  clearTimeout(view.writing);
  view.writing = setTimeout(() => writeHash(view), 250);
};

// to the clipboard; where there is none, the text is selected so that a key copies it
const copyFrom = async (element, say) => {
  try {
    await navigator.clipboard.writeText(element.textContent);
    say("Copied.");
  } catch {
    getSelection().selectAllChildren(element);
    element.focus();
    say("Selected: press Ctrl+C or ⌘C to copy.");
  }
};

const tokensCsv = (store, view) => {
  const { run, matches } = view;
  const rows = [["example", "position", "token_id", "text", "category", "run", "nll", "gap", "entropy", "competitor", "weight"]];
  eachToken(store, run, (i) => {
    if (matches && !matches[i]) return;
    const { number, start } = view.exampleOf(i);
    rows.push([number, i - start, store.ids[store.token[i]], store.texts[store.token[i]], tokenData.categories[store.category[i]], tokenData.runs[view.a.run],
      tidy(run.nll[i]), tidy(run.gap[i]), tidy(run.entropy[i]), store.texts[run.competitor[i]], tidy(view.weights[i])]);
  });
  return csv(rows);
};

// ---- drawing: `view` holds all of the state; `refresh` draws what follows from it

const FIGURES = [
  ["mean weight", ({ meanWeight }) => digits(meanWeight, 4)], ["R_eff", ({ effectiveRatio }) => digits(effectiveRatio, 4)],
  ["High-Weight (%)", ({ highWeight }) => digits(highWeight, 2)], ["mass below (%)", ({ mass }) => digits(mass[0], 2)],
  ["mass within (%)", ({ mass }) => digits(mass[1], 2)], ["mass above (%)", ({ mass }) => digits(mass[2], 2)],
];
const drawFigures = (result) => {
  const row = (name, ...cells) => make("tr", {}, make("th", { scope: "row", textContent: name }), ...cells.map((textContent) => make("td", { className: "figure", textContent })));
  const head = make("tr", {}, ...["by category (%)", "tokens", "gradient"].map((textContent) => make("th", { scope: "col", textContent })));
  byId("figures").replaceChildren(make("tbody", {}, ...FIGURES.map(([name, show]) => row(name, show(result)))));
  byId("kinds").replaceChildren(make("thead", {}, head), make("tbody", {}, ...result.categories.map(({ name, tokens, mass }) => row(name, digits(tokens, 1), digits(mass, 1)))));
};

const refresh = (store, view) => {
  view.weights = weighAll(store, view.a);
  view.matches = matchesOf(store, view.query);
  view.targets = Object.fromEntries(Object.keys(TARGETS).map((name) => [name, tokensOf(store, view, name)]));
  view.usual = view.matches ? "matches" : view.targets.errors.length ? "errors" : "band";
  if (view.target === null || (view.target === "matches" && !view.matches)) view.target = view.usual;
  view.mass = 0;
  eachToken(store, view.run, (i) => { view.mass += view.weights[i] * view.run.norm[i]; });
  view.say("");
  showControls(store, view);
  view.histogram(store, view.run, view.weights, view.a);
  drawFigures(diagnose(store, view.run, view.weights, view.a));
  view.texts.recolour();
  if (view.shown !== null && view.texts.isHidden(view.exampleOf(view.shown))) hideCard(view);
  else if (view.shown !== null) showToken(store, view, view.texts.spanOf(view.shown));
  writeHashSoon(view);
};

const showControls = (store, view) => {
  const { a } = view;
  const methods = document.querySelector(".methods");
  for (const radio of methods.querySelectorAll("input")) radio.checked = radio.value === a.method;
  const label = methods.querySelector(":checked").parentNode;
  methods.scrollLeft = label.offsetLeft - (methods.clientWidth - label.offsetWidth) / 2; // where the row is too long
  for (const name of ["margin", "bandwidth"]) {
    byId(name).disabled = !hasBand(a);
    if (document.activeElement !== byId(name)) byId(name).value = tidy(a[name]);
  }
  const [at, gate, exponent] = moments[a.moment];
  byId("moments").hidden = a.method !== "auto-trim" || moments.length < 2;
  byId("moment").value = a.moment;
  byId("moment-is").textContent = `${at}: x ${digits(gate, 2)}, a ${digits(exponent, 2)}`;
  byId("model").value = a.run;
  if (document.activeElement !== byId("query")) byId("query").value = view.query;
  for (const [name, found] of Object.entries(view.targets)) {
    const option = byId("target").querySelector(`[value=${name}]`);
    option.textContent = `${TARGETS[name].name} (${grouped(found.length)})`;
    option.hidden = name === "matches" && !view.matches;
  }
  byId("target").value = view.target;
  byId("painted").textContent = `${nameOf(a)} on ${tokenData.runs[a.run]}.`;
  byId("remark").hidden = view.refused === "";
  byId("remark").textContent = view.refused;
  view.refused = "";
  byId("yaml").textContent = yamlOf(a);
  byId("command").textContent = commandOf(a);
};

// ---- controls and keys: each changes `view` and lets it be drawn again

const watchControls = (store, view) => {
  const set = (changes) => {
    view.a = changed(view.a, changes, store.runs);
    refresh(store, view);
  };
  const find = (query) => {
    view.query = query;
    view.target = null;
    refresh(store, view);
  };
  for (const radio of document.querySelectorAll(".methods input")) radio.addEventListener("change", () => set({ method: radio.value }));
  for (const name of ["margin", "bandwidth"]) {
    const input = byId(name);
    input.addEventListener("input", () => { if (finite(input.value) !== null) set({ [name]: input.value }); }); // else not typed to its end
    input.addEventListener("change", () => {
      const [low, high] = LIMITS[name];
      view.a = changed(view.a, { [name]: input.value }, store.runs);
      if (finite(input.value) !== view.a[name]) {
        view.refused = `${name} must be a number from ${low} to ${high}, got ${input.value || "none"}: it is ${tidy(view.a[name])} now.`;
      }
      input.value = tidy(view.a[name]);
      refresh(store, view);
    });
  }
  byId("moment").addEventListener("input", () => set({ moment: byId("moment").value }));
  byId("model").addEventListener("change", () => set({ run: byId("model").value }));
  byId("query").addEventListener("input", () => find(byId("query").value));
  byId("query").addEventListener("keydown", ({ key, shiftKey }) => { if (key === "Enter") step(store, view, shiftKey ? -1 : 1, false); });
  byId("target").addEventListener("change", () => {
    view.target = byId("target").value;
    step(store, view, 1, false);
  });
  byId("next").addEventListener("click", () => step(store, view, 1));
  byId("previous").addEventListener("click", () => step(store, view, -1));
  byId("to-texts").addEventListener("click", () => byId("pane").querySelector('.t[tabindex="0"]')?.focus());
  for (const button of document.querySelectorAll("#side [data-copy]")) button.addEventListener("click", () => copyFrom(byId(button.dataset.copy), view.say));
  byId("copy-link").addEventListener("click", () => {
    writeHash(view);
    byId("link").hidden = false;
    byId("link").textContent = location.href;
    copyFrom(byId("link"), view.say);
  });
  byId("csv-tokens").addEventListener("click", () => download("tokens.csv", "text/csv", tokensCsv(store, view)));
  byId("svg").addEventListener("click", () => download("gaps.svg", "image/svg+xml", standaloneSvg(byId("histogram").firstChild)));
  document.addEventListener("trimsft:setting", ({ detail }) => set({ ...detail, method: detail.objective }));

  const help = byId("help");
  byId("help-button").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
  const nudge = (name, by) => { if (hasBand(view.a)) set({ [name]: Math.round((view.a[name] + by) * 100) / 100 }); };
  const keys = {
    "/": () => { byId("query").focus(); byId("query").select(); },
    "?": () => help.showModal(),
    n: () => step(store, view, 1), p: () => step(store, view, -1),
    "[": () => nudge("margin", -0.1), "]": () => nudge("margin", 0.1),
    "{": () => nudge("bandwidth", -0.1), "}": () => nudge("bandwidth", 0.1),
    i: () => view.copyPicture(view.exampleOf(view.at ?? 0)),
    Escape: () => { // one thing at a time
      if (view.query) {
        byId("query").value = "";
        find("");
      } else hideCard(view);
    },
  };
  Object.keys(tokenData.objectives).forEach((method, place) => { keys[place + 1] = () => set({ method }); });
  // inside the viewer, wherever nothing is typed
  byId("viewer").addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || help.open) return;
    const typing = event.target.closest?.('input:not([type="radio"], [type="range"]), select');
    if ((typing && event.key !== "Escape") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  return set;
};

const startViewer = async () => {
  const store = await openStore();
  const first = store.runs.findIndex((run) => run !== null);
  if (first < 0) return;
  const starts = store.examples.map(({ start }) => start);
  const view = {
    defaults: { method: "trim", margin: tokenData.parameters.margin, bandwidth: tokenData.parameters.bandwidth, run: first, moment: moments.length - 1 },
    get run() { return store.runs[this.a.run]; },
    matches: null, refused: "", shown: null, usual: null,
    exampleOf: (i) => store.examples[starts.findLastIndex((start) => start <= i)],
    say: (words) => {
      byId("said").textContent = words;
      clearTimeout(view.silence);
      if (words) view.silence = setTimeout(() => view.say(""), 8000);
    },
    copyPicture: (example) => copyPicture(store, view, example),
  };
  readHash(view, store);
  byId("model").append(...tokenData.runs.map((label, number) => make("option", { value: number, textContent: label, disabled: !store.runs[number] })));
  byId("target").append(...Object.keys(TARGETS).map((value) => make("option", { value })));
  for (const words of document.querySelectorAll("#written, #tokens .written")) words.remove();
  byId("viewer").hidden = false;
  view.weights = weighAll(store, view.a);
  view.texts = makeTexts(store, view);
  const set = watchControls(store, view);
  view.histogram = makeHistogram(byId("histogram"), set);
  watchTokens(store, view);
  refresh(store, view);
  if (view.at !== null) goTo(store, view, view.at);
  window.addEventListener("hashchange", () => {
    const before = view.at;
    if (!location.hash.slice(1).includes("=")) return; // a link to a section
    readHash(view, store);
    refresh(store, view);
    if (view.at !== null && view.at !== before) goTo(store, view, view.at);
  });
  performance.mark("tokens-ready");
  document.documentElement.dataset.tokens = "ready";
};

if (tokenData.examples) startViewer();
