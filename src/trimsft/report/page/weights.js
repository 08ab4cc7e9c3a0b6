// Weights of tokens under a setting {method, margin, bandwidth, run, moment}, by the formulas of trimsft.objectives, and
// statistics of all shown tokens.
const tokenData = JSON.parse(byId("data-tokens").textContent);
const { moments } = tokenData; // [step, gate, exponent] of AutoTrim in the course of a training
const { gamma } = tokenData.parameters;
const TAKES = { fsft: ["gamma"], trim: ["margin", "bandwidth"], "trim-e": ["margin", "bandwidth"], "trim-h": ["margin", "bandwidth"] };
const HIGH = 0.5;
const hasBand = ({ method }) => TAKES[method]?.includes("margin") ?? false;

const withCommas = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const grouped = (value) => withCommas.format(value);
const digits = (value, places) => (Number.isFinite(value) ? value.toFixed(places) : "–");
const tidy = (value) => String(Number(Number(value).toPrecision(6)));
const between = (value, low, high) => Math.min(high, Math.max(low, value));

// (nll, gap) -> weight
const weigher = ({ method, margin, bandwidth, moment }) => {
  const [, gate, exponent] = moments[moment];
  const bell = (distance) => Math.exp((-0.5 / bandwidth ** 2) * distance * distance);
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

// calls `visit(i)` for each shown token that the run has, too
const eachToken = (store, run, visit) => {
  for (const { place, start, length } of store.examples) {
    if (!run || run.missing.has(place)) continue;
    for (let i = start; i < start + length; i++) visit(i);
  }
};

// weights of all shown tokens; NaN where the run has other tokens
const weighAll = (store, setting) => {
  const weights = new Float32Array(store.size).fill(NaN);
  const [run, weigh] = [store.runs[setting.run], weigher(setting)];
  eachToken(store, run, (i) => { weights[i] = weigh(run.nll[i], run.gap[i]); });
  return weights;
};

// as statistics.diagnose does it, over the shown tokens
const diagnose = (store, run, weights, { margin, bandwidth }) => {
  const kinds = tokenData.categories.map((name) => ({ name, tokens: 0, mass: 0 }));
  const mass = [0, 0, 0]; // below, within and above the band
  let [tokens, sum, squares, high] = [0, 0, 0, 0];
  eachToken(store, run, (i) => {
    const [weight, gap, kind] = [weights[i], run.gap[i], kinds[store.category[i]]];
    tokens++;
    sum += weight;
    squares += weight * weight;
    if (weight > HIGH) high++;
    mass[gap < margin - bandwidth ? 0 : gap <= margin + bandwidth ? 1 : 2] += weight * run.norm[i];
    kind.tokens++;
    kind.mass += weight * run.norm[i];
  });
  const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : NaN);
  const total = mass[0] + mass[1] + mass[2];
  return {
    tokens, meanWeight: sum / tokens, effectiveRatio: squares > 0 ? (sum * sum) / (tokens * squares) : NaN,
    highWeight: percent(high, tokens), mass: mass.map((part) => percent(part, total)),
    categories: kinds.map((kind) => ({ name: kind.name, tokens: percent(kind.tokens, tokens), mass: percent(kind.mass, total) })),
  };
};

const nameOf = ({ method, margin, bandwidth, moment }) => {
  const [, gate, exponent] = moments[moment];
  const at = method === "auto-trim" ? ` x=${digits(gate, 2)} a=${digits(exponent, 2)}` : "";
  return tokenData.objectives[method] + (hasBand({ method }) ? ` m=${tidy(margin)} τ=${tidy(bandwidth)}` : at);
};
const yamlOf = (setting) => {
  const taken = (TAKES[setting.method] ?? []).map((name) => `${name}: ${tidy({ ...setting, gamma }[name])}`);
  return [`objective: ${setting.method}`, ...taken].join("\n");
};
const commandOf = (setting) => {
  const options = yamlOf(setting).split("\n").map((line) => `--${line.replace(":", "")}`).join(" ");
  return `trimsft train --model_name_or_path ${shellWord(tokenData.model || "MODEL")} --dataset_name DATA.jsonl ${options}`;
};
