// What each token is worth under a setting {method, margin, bandwidth, run}: the formulas of trimsft.objectives.
const BY_GAP = new Set(["sft", "trim", "trim-e", "trim-h"]);
const TAKES = { fsft: ["gamma"], trim: ["margin", "bandwidth"], "trim-e": ["margin", "bandwidth"], "trim-h": ["margin", "bandwidth"] };
const HIGH = 0.5;
const { gamma } = given.parameters;

// (nll, gap) -> weight
const weigher = ({ method, margin, bandwidth }) => {
  const scale = -0.5 / bandwidth ** 2;
  const bell = (distance) => Math.exp(scale * distance * distance);
  return {
    sft: () => 1,
    fsft: (nll) => (-Math.expm1(-nll)) ** gamma,
    dft: (nll) => Math.exp(-nll),
    trim: (nll, gap) => bell(gap - margin),
    "trim-e": (nll, gap) => bell(Math.min(gap - margin, 0)),
    "trim-h": (nll, gap) => bell(Math.max(gap - margin, 0)),
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

const nameOf = ({ method, margin, bandwidth }) =>
  given.objectives[method] + (TAKES[method]?.includes("margin") ? ` m=${tidy(margin)} τ=${tidy(bandwidth)}` : "");
const tidy = (value) => String(Number(Number(value).toPrecision(6)));

const yamlOf = (setting) => {
  const taken = (TAKES[setting.method] ?? []).map((name) => `${name}: ${tidy({ ...setting, gamma }[name])}`);
  return [`objective: ${setting.method}`, ...taken].join("\n");
};
// one word of a shell, whatever is in it
const shellWord = (text) => (/^[\w./@:+-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`);
const commandOf = (setting) =>
  `trimsft train --model_name_or_path ${shellWord(given.model || "MODEL")} --dataset_name DATA.jsonl ${yamlOf(setting).split("\n").map((line) => `--${line.replace(":", "")}`).join(" ")}`;
