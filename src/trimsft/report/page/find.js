// Finding tokens: text and ranges give matches; targets, offered as chips, are what next and previous step through.

// `test(view, i)`; `there(view)`: whether it is offered; `of(view)`: what the count depends on, where that is not the setting
const SUSPECT = tokenData.suspect; // score from which an audit takes a token for an error
const TARGETS = {
  errors: {
    name: "Likely label errors", title: `A's model is sure of another token: −gap / (1 + entropy) is at least ${SUSPECT}, as in trimsft audit`,
    test: ({ run }, i) => -run.gap[i] >= SUSPECT * (1 + run.entropy[i]), of: ({ a }) => a.run,
  },
  band: { name: "In the band", title: "gap within m ± τ", test: ({ run, band }, i) => Math.abs(run.gap[i] - band.margin) <= band.bandwidth },
  mastered: { name: "Mastered", title: "gap above m + τ", test: ({ run, band }, i) => run.gap[i] > band.margin + band.bandwidth },
  format: { name: "Format", title: "line breaks, spaces, punctuation and special tokens", test: ({ isFormat, token }, i) => isFormat[token[i]] === 1, of: ({ a }) => a.run },
  news: {
    name: "AutoTrim's news", title: "the first model would choose another token, the one trained with AutoTrim this one",
    there: ({ news }) => news !== null, test: ({ news }, i) => news.before.gap[i] < 0 && news.after.gap[i] > 0, of: () => "news",
  },
  differing: { name: "A and B differ", title: "weights differ by more than 0.5", there: ({ b }) => b !== null, test: (view, i) => Math.abs(view.weights[i] - view.others[i]) > HIGH },
  matches: { name: "Matches", title: "tokens that pass the filters", there: ({ matches }) => matches !== null, test: (view, i) => isMatch(view, i) },
};
const isThere = (view, name) => TARGETS[name].there?.(view) ?? true;

// which tokens of the vocabulary say nothing: no letter, no digit and no sign of mathematics, or special ones such as <eos>
const formatTokens = (store) => {
  const other = tokenData.categories.indexOf("other");
  const isFormat = new Uint8Array(store.texts.length);
  const says = store.texts.map((text) => /[\p{L}\p{N}]/u.test(text) && !/^<[^\s<>]+>$/.test(text));
  for (let i = 0; i < store.size; i++) if (store.category[i] === other && !says[store.token[i]]) isFormat[store.token[i]] = 1;
  return isFormat;
};

// the first run and the one that AutoTrim trained, where both have the shown tokens
const newsOf = (store) => {
  const before = store.runs.find((run) => run !== null);
  const after = store.runs.find((run, number) => run && run !== before && tokenData.trained[number] === "auto-trim");
  return after ? { before, after, missing: new Set([...before.missing, ...after.missing]) } : null;
};

// plain properties for loops over all tokens: a getter is slow
const lookedAt = (store, view) => ({ ...view, run: view.run, band: bandOf(view.a, view.b), isFormat: store.isFormat, news: store.news, token: store.token });
// examples whose tokens a target can judge: those that the models it asks have, too
const judged = (store, view, name) => {
  const missing = name === "matches" ? new Set() : name === "news" ? store.news.missing : view.run.missing;
  return ({ place }) => !missing.has(place);
};
const countOf = (store, view, name) => {
  const { test, of } = TARGETS[name];
  const key = of?.(view);
  const known = (store.counted ??= {});
  if (key !== undefined && known[name]?.key === key) return known[name].count;
  const looked = lookedAt(store, view);
  let count = 0;
  for (const { start, length } of store.examples.filter(judged(store, view, name))) {
    for (let i = start; i < start + length; i++) if (test(looked, i)) count++;
  }
  known[name] = { key, count };
  return count;
};
const SORTS = { order: "as in the data", trimmed: "trimmed mass", nll: "mean nll", length: "length", matches: "matches" };

// a text that spans tokens is one match, at the first of them
const isMatch = ({ matches, textHits }, i) =>
  matches !== null && matches[i] === 1 && (textHits === null || textHits[i] === 2 || matches[i - 1] !== 1);

// tokens that a text touches (2: it begins there), over the joined text of each example, whatever the case
const textMatches = (store, query) => {
  const hits = new Uint8Array(store.size);
  store.lower ??= store.texts.map((text) => text.toLowerCase());
  const wanted = query.toLowerCase();
  for (const { start, length } of store.examples) {
    const ends = new Uint32Array(length);
    const pieces = [];
    let size = 0;
    for (let place = 0; place < length; place++) {
      const piece = store.lower[store.token[start + place]];
      pieces.push(piece);
      ends[place] = size += piece.length;
    }
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

// 1 for each token that all filters let through; null where there is no filter
const matchesOf = (store, view) => {
  const { query, category, type, gapLow, gapHigh, weightLow, weightHigh } = view.filter;
  const none = [category, type, gapLow, gapHigh, weightLow, weightHigh].every((value) => value === null) && !query;
  if (none) return null;
  if (view.lastQuery !== query) [view.lastQuery, view.textHits] = [query, query ? textMatches(store, query) : null];
  const { run, weights, textHits } = view;
  const matches = new Uint8Array(store.size);
  for (let i = 0; i < store.size; i++) {
    const gap = run ? run.gap[i] : NaN;
    matches[i] = +(
      (textHits === null || textHits[i] > 0) && (category === null || store.category[i] === category) && (type === null || store.typeOf[store.token[i]] === type) &&
      (gapLow === null || gap >= gapLow) && (gapHigh === null || gap <= gapHigh) &&
      (weightLow === null || weights[i] >= weightLow) && (weightHigh === null || weights[i] <= weightHigh)
    );
  }
  return matches;
};

// of an example: share of its gradient mass that is trimmed, mean nll, matches
const factsOf = (view, { place, start, length }, side = view.sides[0]) => {
  const run = side.run && !side.run.missing.has(place) ? side.run : null;
  let [mass, kept, nll, matches] = [0, 0, 0, 0];
  for (let i = start; i < start + length; i++) {
    if (view.matches && isMatch(view, i)) matches++;
    if (!run) continue;
    mass += run.norm[i];
    kept += run.norm[i] * side.weights[i];
    nll += run.nll[i];
  }
  return { length, matches, trimmed: run && mass > 0 ? 1 - kept / mass : NaN, nll: run ? nll / length : NaN };
};

const sorted = (store, view) => {
  if (view.sort === "order") return store.examples;
  const values = store.examples.map((example) => factsOf(view, example)[view.sort]);
  const value = ({ place }) => (Number.isNaN(values[place]) ? -Infinity : values[place]);
  return [...store.examples].sort((one, other) => value(other) - value(one) || one.place - other.place);
};

// the next token that a test lets through, in the order that examples stand in, from a token on; null if none
const nextToken = (examples, from, direction, test) => {
  const here = examples.findIndex(({ start, length }) => from >= start && from < start + length);
  for (let step = 0; step <= examples.length; step++) {
    const { start, length } = examples[(here + step * direction + examples.length * 2) % examples.length];
    const [first, last] = direction > 0 ? [start, start + length - 1] : [start + length - 1, start];
    const begin = step === 0 ? from + direction : first;
    for (let i = begin; direction > 0 ? i <= last : i >= last; i += direction) if (test(i)) return i;
  }
  return null;
};
