// Finding tokens: text and ranges give matches; targets are what next and previous step through; examples are sorted.
const TARGETS = {
  trimmed: { name: "trimmed tokens (w ≤ 0.5)", test: (view, i) => view.weights[i] <= HIGH },
  beyond: { name: "trimmed, out of reach", test: (view, i) => view.weights[i] <= HIGH && view.run.gap[i] < view.a.margin },
  mastered: { name: "trimmed, mastered", test: (view, i) => view.weights[i] <= HIGH && view.run.gap[i] >= view.a.margin },
  kept: { name: "kept tokens (w > 0.5)", test: (view, i) => view.weights[i] > HIGH },
  matches: { name: "matches of the filters", test: (view, i) => isMatch(view, i) },
  differing: { name: "A and B differ (by > 0.5)", test: (view, i) => Math.abs(view.weights[i] - view.others[i]) > HIGH },
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
  const { query, category, gapLow, gapHigh, weightLow, weightHigh } = view.filter;
  const none = [category, gapLow, gapHigh, weightLow, weightHigh].every((value) => value === null) && !query;
  if (none) return null;
  if (view.lastQuery !== query) [view.lastQuery, view.textHits] = [query, query ? textMatches(store, query) : null];
  const { run, weights, textHits } = view;
  const matches = new Uint8Array(store.size);
  for (let i = 0; i < store.size; i++) {
    const gap = run ? run.gap[i] : NaN;
    matches[i] = +(
      (textHits === null || textHits[i] > 0) && (category === null || store.category[i] === category) &&
      (gapLow === null || gap >= gapLow) && (gapHigh === null || gap <= gapHigh) &&
      (weightLow === null || weights[i] >= weightLow) && (weightHigh === null || weights[i] <= weightHigh)
    );
  }
  return matches;
};

// of an example: share of its gradient mass that is trimmed, mean nll, matches
const factsOf = (view, { place, start, length }) => {
  const run = view.run && !view.run.missing.has(place) ? view.run : null;
  let [mass, kept, nll, matches] = [0, 0, 0, 0];
  for (let i = start; i < start + length; i++) {
    if (view.matches && isMatch(view, i)) matches++;
    if (!run) continue;
    mass += run.norm[i];
    kept += run.norm[i] * view.weights[i];
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
