// What each token is worth under a setting {method, margin, bandwidth, run, moment}, by the formulas of trimsft.objectives; and
// what that makes of the whole corpus.
const BY_GAP = new Set(["sft", "trim", "trim-e", "trim-h"]);
const SUMMED = new Set(["fsft", "dft"]); // by nll; their sums over cells are in the file
const TAKES = { fsft: ["gamma"], trim: ["margin", "bandwidth"], "trim-e": ["margin", "bandwidth"], "trim-h": ["margin", "bandwidth"] };
const HIGH = 0.5;
const hasBand = ({ method }) => TAKES[method]?.includes("margin") ?? false;
// the band that masses of a setting are told by: its own; without one, that of the setting beside it
const bandOf = (setting, other) => (!hasBand(setting) && other && hasBand(other) ? other : setting);
// gaps below this are out of reach: without a band, the model would choose another token
const splitOf = (setting) => (hasBand(setting) ? setting.margin : 0);
const { gamma } = tokenData.parameters;
const { moments } = tokenData; // [step, gate, exponent] of AutoTrim in the course of a training

// (nll, gap) -> weight
const weigher = ({ method, margin, bandwidth, moment }) => {
  const [, gate, exponent] = moments[moment];
  const scale = -0.5 / bandwidth ** 2;
  const bell = (distance) => Math.exp(scale * distance * distance);
  return {
    sft: () => 1,
    fsft: (nll) => (-Math.expm1(-nll)) ** gamma,
    dft: (nll) => Math.exp(-nll),
    trim: (nll, gap) => bell(gap - margin),
    "trim-e": (nll, gap) => bell(Math.min(gap - margin, 0)),
    "trim-h": (nll, gap) => bell(Math.max(gap - margin, 0)),
    "auto-trim": (nll) => gate + (1 - gate) * Math.exp(-exponent * nll),
  }[method];
};

// the gaps whose weight is above one half, for methods that go by the gap
const highBand = ({ method, margin, bandwidth }) => {
  const half = bandwidth * Math.sqrt(2 * Math.LN2);
  return {
    sft: [-Infinity, Infinity],
    trim: [margin - half, margin + half],
    "trim-e": [margin - half, Infinity],
    "trim-h": [-Infinity, margin + half],
  }[method];
};

// below this nll AutoTrim's weight is above one half
const highBelow = ({ moment }) => {
  const [, gate, exponent] = moments[moment];
  return gate >= HIGH ? Infinity : -Math.log((HIGH - gate) / (1 - gate)) / exponent;
};

// weights of all shown tokens; NaN where the run has other tokens
const weighAll = (store, setting) => {
  const weights = new Float32Array(store.size).fill(NaN);
  const run = store.runs[setting.run];
  if (!run) return weights;
  const weigh = weigher(setting);
  for (const { place, start, length } of store.examples) {
    if (run.missing.has(place)) continue;
    for (let i = start; i < start + length; i++) weights[i] = weigh(run.nll[i], run.gap[i]);
  }
  return weights;
};

const nameOf = ({ method, margin, bandwidth, moment }) => {
  const [, gate, exponent] = moments[moment];
  const at = method === "auto-trim" ? ` x=${digits(gate, 2)} a=${digits(exponent, 2)}` : "";
  return tokenData.objectives[method] + (TAKES[method]?.includes("margin") ? ` m=${tidy(margin)} τ=${tidy(bandwidth)}` : at);
};
// why there is nothing to compare; empty where there is
const sameness = (a, b) => {
  if (!b || a.method !== b.method || (hasBand(a) && (a.margin !== b.margin || a.bandwidth !== b.bandwidth))) return "";
  if (a.method === "auto-trim" && a.moment !== b.moment) return "";
  if (a.run === b.run) return "A and B are the same setting: nothing differs until one of them is changed.";
  return `A and B weigh by the same rule, ${nameOf(a)}: what differs comes from the models.`;
};
const tidy = (value) => String(Number(Number(value).toPrecision(6)));

const yamlOf = (setting) => {
  const taken = (TAKES[setting.method] ?? []).map((name) => `${name}: ${tidy({ ...setting, gamma }[name])}`);
  return [`objective: ${setting.method}`, ...taken].join("\n");
};
const commandOf = (setting) =>
  `trimsft train --model_name_or_path ${shellWord(tokenData.model || "MODEL")} --dataset_name DATA.jsonl ${yamlOf(setting).split("\n").map((line) => `--${line.replace(":", "")}`).join(" ")}`;

// ---- statistics of the whole corpus, from its cells: see packing.py for what a cell is and how exact this is

// share of a cell whose gaps lie below a border; `closed`: a gap on the border counts as below
const shareBelow = (mean, spread, border, closed) => {
  if (spread === 0) return closed ? +(mean <= border) : +(mean < border);
  const half = Math.sqrt(3) * spread;
  return Math.min(1, Math.max(0, (border - mean + half) / (2 * half)));
};

// why the figures are not to be trusted to their last digit; empty where they are
const SHARP = 0.15; // the smallest bandwidth that figures from cells are tested for
const inexact = ({ width }, { method, bandwidth }) => {
  const least = Math.max(SHARP, 20 * width);
  if (width > 0 && method === "auto-trim") return "This corpus is counted in cells: figures of AutoTrim, which goes by p, are approximate.";
  if (width === 0 || !TAKES[method]?.includes("bandwidth") || bandwidth >= least) return "";
  return `This corpus is counted in cells: with a bandwidth below ${tidy(least)} its figures are approximate.`;
};

// for each cell: sum of w, sum of w g; and the sum of w^2
const cellSums = (corpus, setting) => {
  const { count, mean, spread, norm, nll, nll_spread: nllSpread } = corpus;
  const cells = count.length;
  if (SUMMED.has(setting.method)) {
    return { w: corpus[`${setting.method}.w`], mass: corpus[`${setting.method}.mass`], squares: corpus.totals[setting.method].squares };
  }
  const weigh = weigher(setting);
  const [w, mass] = [new Float64Array(cells), new Float64Array(cells)];
  let squares = 0;
  for (let cell = 0; cell < cells; cell++) {
    const low = weigh(Math.max(0, nll[cell] - nllSpread[cell]), mean[cell] - spread[cell]);
    const high = count[cell] > 1 ? weigh(nll[cell] + nllSpread[cell], mean[cell] + spread[cell]) : low;
    const middle = (low + high) / 2;
    w[cell] = count[cell] * middle;
    mass[cell] = norm[cell] * middle;
    squares += (count[cell] * (low * low + high * high)) / 2;
  }
  return { w, mass, squares };
};

const highTokens = (corpus, setting) => {
  if (SUMMED.has(setting.method)) return corpus.totals[setting.method].high;
  const { count, mean, spread, nll, nll_spread: nllSpread } = corpus;
  let tokens = 0;
  if (setting.method === "auto-trim") {
    const border = highBelow(setting);
    for (let cell = 0; cell < count.length; cell++) tokens += count[cell] * shareBelow(nll[cell], nllSpread[cell], border, false);
    return tokens;
  }
  const [low, high] = highBand(setting);
  for (let cell = 0; cell < count.length; cell++) {
    // a weight of one half is not above it: both borders are open
    const inside = shareBelow(mean[cell], spread[cell], high, false) - shareBelow(mean[cell], spread[cell], low, true);
    tokens += count[cell] * Math.max(0, inside);
  }
  return tokens;
};

// mass of a cell below a border; where the border cuts it, with the weight in the middle of that part
const massBelow = (corpus, cell, mass, weigh, border, closed) => {
  const [mean, spread] = [corpus.mean[cell], corpus.spread[cell]];
  const share = shareBelow(mean, spread, border, closed);
  if (share === 0 || share === 1 || !weigh) return mass[cell] * share;
  return corpus.norm[cell] * share * weigh(0, (border + mean - Math.sqrt(3) * spread) / 2);
};

// as statistics.diagnose, with the regions of `band`, and the shares of each category
const diagnose = (corpus, setting, band) => {
  const { count, category, tokens } = corpus;
  const weigh = BY_GAP.has(setting.method) ? weigher(setting) : null;
  const { w, mass, squares } = cellSums(corpus, setting);
  const kinds = tokenData.categories.map((name) => ({ name, tokens: 0, weight: 0, mass: 0 }));
  const [from, to] = [band.margin - band.bandwidth, band.margin + band.bandwidth];
  let [sum, total, low, high] = [0, 0, 0, 0];
  for (let cell = 0; cell < count.length; cell++) {
    sum += w[cell];
    total += mass[cell];
    low += massBelow(corpus, cell, mass, weigh, from, false);
    high += mass[cell] - massBelow(corpus, cell, mass, weigh, to, true);
    const kind = kinds[category[cell]];
    kind.tokens += count[cell];
    kind.weight += w[cell];
    kind.mass += mass[cell];
  }
  const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : NaN);
  return {
    tokens, meanWeight: sum / tokens, effectiveRatio: squares > 0 ? (sum * sum) / (tokens * squares) : NaN,
    highWeight: percent(highTokens(corpus, setting), tokens),
    mass: [percent(low, total), percent(total - low - high, total), percent(high, total)],
    categories: kinds.map(({ name, ...kind }) => ({
      name, tokens: percent(kind.tokens, tokens), weight: percent(kind.weight, sum), mass: percent(kind.mass, total),
    })),
    w,
  };
};

// tokens of the corpus whose weight differs by more than one half, where both settings go by the gap of one run
const differing = (corpus, one, other) => {
  const [weigh, weighOther] = [weigher(one), weigher(other)];
  const { count, mean, spread } = corpus;
  const places = [-1.5, -0.75, 0, 0.75, 1.5];
  let tokens = 0;
  for (let cell = 0; cell < count.length; cell++) {
    const at = spread[cell] ? places : [0];
    const differ = at.filter((place) => {
      const gap = mean[cell] + place * spread[cell];
      return Math.abs(weigh(0, gap) - weighOther(0, gap)) > HIGH;
    });
    tokens += (count[cell] * differ.length) / at.length;
  }
  return tokens;
};
