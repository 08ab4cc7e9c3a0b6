// Data of the page: packed arrays (packing.py) are unpacked once, and looked up by the number of a token from then on.
const tokenData = JSON.parse(byId("data-tokens").textContent);

const bytesOf = (text) => {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
};

const inflated = async (text) => {
  const stream = new Blob([bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

const unpack = async ({ code, bytes, step, data }) => {
  const planes = await inflated(data);
  if (bytes === 1) return planes;
  const length = planes.length / bytes;
  if (code === "single") return floatsFrom(planes, length);
  const whole = bytes === 2 ? new Uint16Array(length) : new Uint32Array(length);
  for (let plane = bytes - 1; plane >= 0; plane--) {
    const start = plane * length;
    for (let i = 0; i < length; i++) whole[i] = whole[i] * 256 + planes[start + i];
  }
  if (code === "whole") return whole;
  const values = new Float32Array(length);
  for (let i = 0; i < length; i++) values[i] = code === "linear" ? (whole[i] - 32768) * step : (whole[i] * step) ** 2;
  return values;
};

const floatsFrom = (planes, length) => {
  const bytes = new Uint8Array(planes.length);
  for (let i = 0; i < length; i++) for (let plane = 0; plane < 4; plane++) bytes[4 * i + plane] = planes[plane * length + i];
  return new Float32Array(bytes.buffer);
};

const unpackAll = async (packed) => {
  const names = Object.keys(packed);
  const arrays = await Promise.all(names.map((name) => unpack(packed[name])));
  return Object.fromEntries(names.map((name, place) => [name, arrays[place]]));
};

const ROOM = Math.SQRT2 - 1; // between the smallest and the largest norm for a probability
const unpackRun = async (packed) => {
  if (!packed) return null;
  const { missing, top = [], top_nll: topNll = [], ...columns } = packed;
  const run = await unpackAll(columns);
  run.missing = new Set(missing);
  run.top = await Promise.all(top.map(unpack));
  run.topNll = await Promise.all(topNll.map(unpack));
  const norm = new Float32Array(run.nll.length);
  for (let i = 0; i < norm.length; i++) norm[i] = -Math.expm1(-run.nll[i]) * (1 + (ROOM * run.norm[i]) / 255);
  run.norm = norm;
  return run;
};

const unpackCorpus = async (packed) => packed && { ...packed, ...(await unpackAll(packed.columns)) };

// a token as it is shown: spaces and line breaks as signs, and such signs themselves spelt out; an accent alone on a circle
const spelt = (letter) => `⟨U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
const SIGNS = { ...tokenData.spaces, ...Object.fromEntries(Object.values(tokenData.spaces).map((sign) => [sign[0], spelt(sign)])) };
const SIGNED = new RegExp(`[${Object.keys(SIGNS).join("")}]`, "g");
const showText = (text) => {
  const shown = text.replace(SIGNED, (letter) => SIGNS[letter]);
  return /^\p{M}/u.test(text) ? `◌${shown}` : shown;
};
const onOneLine = (shown) => (shown.includes("\n") ? shown.replaceAll("\n", "") : shown);

// {examples: [{number, start, length, leftOut, prompt}], token, category, texts, shown (a long one cut), names (shown, on one line), typeOf, typeTexts, typeNames, ids, runs, corpus}
// a type is a text: several ids may have one
const typesIn = (texts, names) => {
  const known = new Map();
  const typeNames = [];
  texts.forEach((text, place) => {
    if (known.has(text)) return;
    known.set(text, known.size);
    typeNames.push(names[place]);
  });
  return { typeOf: Uint32Array.from(texts, (text) => known.get(text)), typeTexts: [...known.keys()], typeNames };
};

const openStore = async () => {
  const { vocabulary, numbers, lengths, left_out: leftOut, prompts, tokens, category, runs } = tokenData.examples;
  const [ids, token, kinds] = await Promise.all([vocabulary.ids, tokens, category].map(unpack));
  let start = 0;
  const examples = numbers.map((number, place) => {
    const example = { place, number, start, length: lengths[place], leftOut: leftOut[place], prompt: prompts[place] };
    start += lengths[place];
    return example;
  });
  const shown = vocabulary.texts.map((text, place) => showText(vocabulary.short[place] ?? text));
  const names = shown.map(onOneLine);
  return {
    examples, token, category: kinds, ids, texts: vocabulary.texts, shown, names, size: start,
    ...typesIn(vocabulary.texts, names),
    runs: await Promise.all(runs.map(unpackRun)),
    corpus: await Promise.all(tokenData.corpus.map(unpackCorpus)),
  };
};
