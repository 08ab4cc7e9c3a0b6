// Taking things with you: the address, the clipboard, CSV.
const PREFIX = "t."; // other keys of the address belong to other rooms and are left as they are

const finite = (text) => (text === null || text.trim() === "" || !Number.isFinite(Number(text)) ? null : Number(text));
const between = (value, low, high) => Math.min(high, Math.max(low, value));

const LIMITS = { margin: [-1000, 1000], bandwidth: [0.001, 1000] };

// {method, margin, bandwidth, run, moment} from text; what is no setting becomes the fallback
const settingFrom = ({ method, m, tau, run, moment = null }, fallback, runs) => ({
  method: method !== null && Object.hasOwn(tokenData.objectives, method) ? method : fallback.method,
  margin: between(finite(m) ?? fallback.margin, ...LIMITS.margin),
  bandwidth: between(finite(tau) ?? fallback.bandwidth, ...LIMITS.bandwidth),
  run: runs.includes(finite(run)) ? finite(run) : fallback.run,
  moment: moments[finite(moment)] ? finite(moment) : fallback.moment,
});

// the type of a text; null where there is none
const typeCalled = (store, text) => {
  const type = store.typeTexts.indexOf(text);
  return type < 0 ? null : type;
};
const readHash = (view, store) => {
  const query = new URLSearchParams(location.hash.slice(1));
  const get = (name) => query.get(PREFIX + name);
  const runs = store.runs.flatMap((run, number) => (run ? [number] : []));
  view.a = settingFrom({ method: get("method"), m: get("m"), tau: get("tau"), run: get("run"), moment: get("moment") }, view.defaults, runs);
  const [method = null, m = null, tau = null, run = null, moment = null] = (get("b") ?? "").split("~");
  view.b = get("b") === null ? null : settingFrom({ method, m, tau, run, moment }, view.a, runs);
  const known = (table, name, fallback) => (name !== null && Object.hasOwn(table, name) ? name : fallback);
  view.quantity = known(QUANTITIES, get("colour"), "learned");
  if (view.quantity === "difference" && !view.b) view.quantity = "learned";
  view.target = known(TARGETS, get("go"), null);
  view.sort = known(SORTS, get("sort"), "order");
  const [gapLow = null, gapHigh = null] = (get("gap") ?? "").split("~").map(finite);
  const [weightLow = null, weightHigh = null] = (get("w") ?? "").split("~").map(finite);
  const category = finite(get("kind"));
  view.filter = {
    query: (get("find") ?? "").slice(0, 200), gapLow, gapHigh, weightLow, weightHigh,
    category: tokenData.categories[category] === undefined ? null : category,
    type: typeCalled(store, get("type")),
  };
  view.matches = matchesOf(store, Object.assign(view, { weights: weighAll(store, view.a) }));
  if (view.target === null || !isThere(view, view.target)) view.target = view.usualTarget();
  const at = (get("at") ?? "").split("~").map(finite);
  const example = store.examples.find(({ number }) => number === at[0]);
  view.at = example && at[1] >= 0 && at[1] < example.length ? example.start + Math.floor(at[1]) : null;
};

const writeHash = (view) => {
  const query = new URLSearchParams(location.hash.slice(1).includes("=") ? location.hash.slice(1) : "");
  for (const name of [...query.keys()]) if (name.startsWith(PREFIX)) query.delete(name);
  const { a, b, filter, defaults } = view;
  const put = (name, value, usual) => { if (value !== null && value !== usual) query.set(PREFIX + name, value); };
  put("method", a.method, defaults.method);
  put("m", a.margin, defaults.margin);
  put("tau", a.bandwidth, defaults.bandwidth);
  put("run", a.run, defaults.run);
  put("moment", a.moment, defaults.moment);
  if (b) put("b", [b.method, b.margin, b.bandwidth, b.run, b.moment].join("~"));
  put("colour", view.quantity, "learned");
  put("go", view.target, view.usualTarget());
  put("sort", view.sort, "order");
  put("find", filter.query, "");
  put("kind", filter.category, null);
  if (filter.type !== null) put("type", view.textOf(filter.type));
  put("gap", `${filter.gapLow ?? ""}~${filter.gapHigh ?? ""}`, "~");
  put("w", `${filter.weightLow ?? ""}~${filter.weightHigh ?? ""}`, "~");
  if (view.at !== null) {
    const example = view.exampleOf(view.at);
    put("at", `${example.number}~${view.at - example.start}`);
  }
  const text = query.toString();
  if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
};

// to the clipboard; where there is none, the text is selected so that a key copies it
const copyFrom = async (element, say) => {
  try {
    await navigator.clipboard.writeText(element.textContent);
    say("Copied.");
  } catch {
    const range = document.createRange();
    range.selectNodeContents(element);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    element.focus();
    say("Selected: press Ctrl+C or ⌘C to copy.");
  }
};

// texts as JSON strings, which no spreadsheet takes for formulas
const quoted = (text) => `"${JSON.stringify(text).replaceAll('"', '""')}"`;
const tokensCsv = (store, view) => {
  const head = ["example", "position", "token_id", "text", "category", "run", "nll", "gap", "entropy", "rank", "competitor", "weight_a"];
  const lines = [[...head, ...(view.b ? ["weight_b"] : [])].join(",")];
  for (const { place, number, start, length } of store.examples) {
    if (!view.run || view.run.missing.has(place)) continue;
    const { nll, gap, entropy, rank, competitor } = view.run;
    for (let i = start; i < start + length; i++) {
      if (view.matches && !view.matches[i]) continue;
      const cells = [number, i - start, store.ids[store.token[i]], quoted(store.texts[store.token[i]]), tokenData.categories[store.category[i]], quoted(tokenData.runs[view.a.run]),
        tidy(nll[i]), tidy(gap[i]), tidy(entropy[i]), rank[i], quoted(store.texts[competitor[i]]), tidy(view.weights[i])];
      if (view.b) cells.push(tidy(view.others[i]));
      lines.push(cells.join(","));
    }
  }
  return `${lines.join("\n")}\n`;
};

const corpusCsv = (corpus, result) => {
  const lines = ["category,tokens,mean_gap,sd_gap,sum_gradient_norm,sum_weight_a"];
  for (let cell = 0; cell < corpus.count.length; cell++) {
    const { category, count, mean, spread, norm } = corpus;
    lines.push([tokenData.categories[category[cell]], count[cell], tidy(mean[cell]), tidy(spread[cell]), tidy(norm[cell]), tidy(result.w[cell])].join(","));
  }
  return `${lines.join("\n")}\n`;
};
