// The tab Tokens: what SFT and one method learn from, by example and by logit gap; headline and numbers follow the handles.
const { tokens, outcome } = page;
const percent = (share) => (share < 0.1 ? "almost none" : `${share < 10 ? share.toFixed(1) : Math.round(share)} %`);
const brief = (share) => (share < 0.1 ? "< 0.1 %" : percent(share));
const tidy = (value) => String(Number(value.toFixed(2)));
const hasBand = (side) => side.margin !== undefined;
// the weights of objectives by gap and nll, as in trimsft.objectives; those of others come from Python
const gaussian = (distance, bandwidth) => Math.exp((-0.5 * distance * distance) / bandwidth ** 2);
const FORMULAS = {
  sft: () => 1,
  fsft: (gap, nll, { gamma }) => (-Math.expm1(-nll)) ** gamma,
  dft: (gap, nll) => Math.exp(-nll),
  trim: (gap, nll, { margin, bandwidth }) => gaussian(gap - margin, bandwidth),
  "trim-e": (gap, nll, { margin, bandwidth }) => gaussian(Math.min(gap - margin, 0), bandwidth),
  "trim-h": (gap, nll, { margin, bandwidth }) => gaussian(Math.max(gap - margin, 0), bandwidth),
  "auto-trim": (gap, nll, { floor }) => floor + (1 - floor) * Math.exp(-nll),
};
const LIMITS = { margin: [-100, 100], bandwidth: [0.05, 100] };
const LONGEST = 48; // tokens of an example that are shown at first, and not much less than all of them

// ---- the state, and what follows from it
const state = { side: 0, margin: 0, bandwidth: 0, at: 0, whole: false };
const sideOf = () => tokens.sides[state.side];
const settingOf = (side) => (hasBand(side) && side === sideOf() ? state : side); // the handles move the chosen one
// {shares: percent of the gradient of each token, about: of those that the page is about}
const learns = (side) => {
  const { norm, marked, gap, nll } = tokens;
  const shares = new Float64Array(norm.length);
  const [weigh, setting] = [FORMULAS[side.objective], settingOf(side)];
  let [total, about] = [0, 0];
  for (let i = 0; i < norm.length; i++) {
    shares[i] = norm[i] * (side.weights ? side.weights[i] : weigh(gap[i], nll[i], setting));
    total += shares[i];
    if (marked[i]) about += shares[i];
  }
  for (let i = 0; i < shares.length; i++) shares[i] *= 100 / (total || 1);
  return { shares, about: (100 * about) / (total || 1) };
};

// ---- headline and outcome
const strong = (text, className = "") => make("b", { textContent: text, className });
const drawHeadline = (first, second) => {
  const side = sideOf();
  if (!tokens.base) return;
  const spends = ["SFT spends ", strong(percent(first.about), tokens.wrong.length ? "bad" : ""), " of its gradient "];
  const method = strong(side.name, "blue");
  const then = strong(percent(second.about), "blue");
  if (tokens.wrong.length) {
    const are = make("b", { textContent: "wrong", className: "bad" });
    byId("headline").replaceChildren(`${tokens.wrong.length} of ${counted(tokens.steps, "step")} in these examples ${tokens.wrong.length === 1 ? "is" : "are"} `, are, ". ",
      ...spends, `on ${tokens.wrong.length === 1 ? "it" : "them"}; `, method, " spends ", then, ".");
  } else {
    const share = percent((100 * tokens.marked.reduce((sum, mark) => sum + mark, 0)) / tokens.marked.length);
    byId("headline").replaceChildren(`The model would have written ${share} of these tokens differently. `, ...spends, "there, ", method, " ", then, ".");
  }
};
const shortLabel = (label, most) => (label.length > most ? `${label.slice(0, most - 2)}…` : label);
// the labels of the two runs that are compared, as far as they are there
const pairOf = () => {
  if (tokens?.base) return [tokens.sides[0].run, sideOf().run];
  return page.answers ? page.answers.pair.map((run) => page.answers.runs[run]) : [null, outcome[0]?.label];
};
const drawOutcome = () => {
  const [a, b] = pairOf().map((label) => outcome.find((row) => row.label === label));
  const best = a?.curve.reduce((most, point) => (point[1] > most[1] ? point : most), [0, -1]) ?? [0]; // SFT where it is best
  const [first, second] = [a, b].map((row) => shortLabel(row?.label ?? "", 20));
  const whole = (score) => strong(`${Math.round(score[0])} %`);
  const parts = [];
  if (a?.average && b?.average) {
    parts.push(tokens?.base ? "After training on such data, " : "", whole(a.average), ` of ${first}'s sampled answers are right and `, whole(b.average), ` of ${second}'s`,
      b.arrows.average ? ". " : b.arrows.average === "" ? ", which do not differ clearly. " : ", on other problems. ");
    if (best[0] && best[1] > a.average[0]) parts.push(`${first} at its best temperature, ${best[0]}, has `, whole(best.slice(1)), ". ");
  } else if (b?.average) parts.push(whole(b.average), ` of ${second}'s sampled answers are right`);
  if (a?.greedy && b?.greedy) {
    const both = `${Math.round(a.greedy[0])} and ${Math.round(b.greedy[0])} %.`;
    parts.push(b.arrows.greedy === "" ? `Greedy answers do not differ clearly: ${both}` : `Of the greedy answers ${both}`);
  } else if (b?.greedy) parts.push(b.average ? ", and " : "", whole(b.greedy), b.average ? " of its greedy ones." : ` of ${second}'s greedy answers are right.`);
  else if (b?.average && !a) parts.push(".");
  if (!parts.length) return;
  if (a && b && !tokens?.base) { // without a base this says more than the training log
    if (!byId("outcome").textContent && page.log) byId("outcome").textContent = page.log;
    byId("headline").replaceChildren(...parts);
  } else byId("outcome").replaceChildren(...parts);
};

// ---- one example in two rows
const letters = (i, kind = "token") => tokens.texts[tokens[kind][i]];
const quoted = (i, kind) => `“${letters(i, kind).trim() || "↵"}”`;
const exampleOf = (i) => tokens.starts.findLastIndex((start) => start <= i);
const stopsOf = (first, second) => { // wrong steps; else the examples, those first in which the two differ most
  if (tokens.wrong.length) return tokens.wrong;
  const examples = tokens.starts.map((start, place) => {
    let [moved, most, at] = [0, -1, start];
    for (let i = start; i < start + tokens.lengths[place]; i++) {
      const by = Math.abs(second.shares[i] - (first?.shares[i] ?? 0));
      moved += by;
      if (by > most) [most, at] = [by, i];
    }
    return { first: at, last: at, moved };
  });
  return examples.sort((p, q) => q.moved - p.moved);
};
const windowOf = ({ first, last }) => { // what is shown of an example: [from, to)
  const place = exampleOf(first);
  const [start, length] = [tokens.starts[place], tokens.lengths[place]];
  if (state.whole || length <= 1.2 * LONGEST) return [start, start + length];
  const from = between(first - Math.floor((LONGEST - (last - first)) / 2), start, start + length - LONGEST);
  return [from, from + LONGEST];
};
const describe = (i, rows) => {
  const gap = tokens.gap[i];
  const chance = 100 * Math.exp(-tokens.nll[i]);
  const other = `${quoted(i, "competitor")}${gap < 0 ? `, ${(-gap).toFixed(1)} logits above` : ` ${gap.toFixed(1)} logits below`}`;
  const learned = rows.map(({ name, shares }) => `${name} ${shares[i] < 0.01 ? "< 0.01" : shares[i].toFixed(2)} %`).join(", ");
  return `${quoted(i)}: the model gives it ${chance < 0.1 ? "< 0.1" : chance.toFixed(1)} %, and ${gap < 0 ? "expects" : "puts"} ${other}. Share of what is learned: ${learned}.${tokens.data ? ` Weight of the data: ${tidy(tokens.data[i])}.` : ""}`;
};
const drawText = (row, stop, [from, to], shares, top, isFirst) => {
  const text = row.querySelector(".text");
  const place = exampleOf(stop.first);
  const [begin, end] = [tokens.starts[place], tokens.starts[place] + tokens.lengths[place]];
  text.replaceChildren(from > begin ? "… " : "");
  for (let i = from; i < to; i++) {
    const span = make("span", { className: `t${tokens.wrong.length && tokens.marked[i] ? " bad" : ""}`, textContent: letters(i) });
    span.dataset.token = i;
    span.style.setProperty("--share", `${(100 * Math.min(1, shares[i] / top) ** 0.6).toFixed(1)}%`);
    if (isFirst) span.tabIndex = i === from ? 0 : -1;
    text.append(span);
    const wrong = isFirst && tokens.wrong.find(({ last }) => last === i);
    if (wrong) text.append(make("span", { className: "fix", textContent: ` should be ${wrong.right}${i + 1 < to && /^\w/.test(letters(i + 1)) ? " " : ""}` }));
  }
  if (from === begin && to === end) return;
  text.append(to < end ? " … " : " ");
  if (!isFirst) return;
  const more = make("button", { type: "button", textContent: `all ${(end - begin).toLocaleString("en")} tokens` });
  more.addEventListener("click", () => { state.whole = true; refresh(); });
  text.append(more);
};
const noteOf = (side) => {
  if (hasBand(side)) return `margin ${tidy(settingOf(side).margin)}, bandwidth ${tidy(settingOf(side).bandwidth)}`;
  const notes = { sft: "every token counts the same", dft: "weight p", fsft: `weight (1 − p)^${side.gamma}`, "auto-trim": `weight p above a floor of ${side.floor}` };
  return notes[side.objective] ?? "";
};
const rowOf = (side, about) => {
  const base = tokens.base ? "to tokens it would write differently" : "of what is left to learn lies below gap 0";
  return make("div", { className: "row" },
    make("div", {}, strong(side.name), make("small", { textContent: noteOf(side) })),
    make("p", { className: "text", role: "group", ariaLabel: `Tokens under ${side.name}` }),
    make("div", { className: "spent" }, strong(brief(about)), make("small", { textContent: tokens.wrong.length ? "to wrong digits" : base })));
};

// ---- gradient by gap: the figure is the control
const [LOW, HIGH, BINS, FLOOR] = [8, 392, 48, 140];
const spans = () => [Math.asinh(tokens.range[0]), Math.asinh(tokens.range[1])];
const across = (gap) => between(LOW + ((HIGH - LOW) * (Math.asinh(gap) - spans()[0])) / (spans()[1] - spans()[0]), LOW, HIGH);
const gapAt = (x) => Math.sinh(spans()[0] + ((between(x, LOW, HIGH) - LOW) / (HIGH - LOW)) * (spans()[1] - spans()[0]));
const binned = ({ shares }, only = null) => {
  const bars = new Float64Array(BINS);
  for (let i = 0; i < shares.length; i++) if (!only || only[i]) bars[tokens.bins[i]] += shares[i];
  return bars;
};
const knobs = {};
const makeKnob = (name, sign, valueAt) => {
  const knob = draw("g", { class: "knob", role: "slider", tabindex: 0, "aria-label": name }, draw("circle", { class: "reach", r: 16 }), draw("circle", { r: 11 }), draw("text", { y: 4, "text-anchor": "middle" }, sign));
  const steps = { ArrowLeft: -0.1, ArrowDown: -0.1, ArrowRight: 0.1, ArrowUp: 0.1, PageDown: -1, PageUp: 1 };
  knob.addEventListener("keydown", (event) => {
    if (steps[event.key] === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    set({ [name]: state[name] + steps[event.key] });
  });
  let frame = 0;
  knob.addEventListener("pointerdown", (event) => {
    knob.setPointerCapture(event.pointerId);
    knob.focus();
  });
  knob.addEventListener("pointermove", ({ clientX, pointerId }) => {
    if (!knob.hasPointerCapture(pointerId)) return;
    const box = byId("gradient").getBoundingClientRect();
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => set({ [name]: Math.round(20 * valueAt(gapAt(((clientX - box.left) * 400) / box.width))) / 20 }));
  });
  return knob;
};
const placeKnob = (name, gap, y) => {
  knobs[name].setAttribute("transform", `translate(${across(gap).toFixed(1)} ${y})`);
  for (const [key, value] of Object.entries({ now: state[name], min: LIMITS[name][0], max: LIMITS[name][1] })) knobs[name].setAttribute(`aria-value${key}`, tidy(value));
};
const drawGradient = (first, second) => {
  const [svg, side] = [byId("gradient"), sideOf()];
  const [all, own] = [first && binned(first), binned(second)];
  const wrong = first && tokens.wrong.length ? binned(first, tokens.marked) : [];
  const highest = Math.max(...own, ...(all ?? []));
  const step = [1, 2, 5, 10, 20, 50].find((size) => highest / size <= 3.5) ?? 50;
  const up = (share) => FLOOR - (118 * share) / Math.max(highest, step);
  const bar = (className, place, share, inset) => draw("rect", { class: className, x: LOW + ((HIGH - LOW) / BINS) * place + inset, width: (HIGH - LOW) / BINS - 1 - 2 * inset, y: up(share), height: FLOOR - up(share) });
  const parts = [];
  for (let share = step; share <= highest; share += step) {
    parts.push(draw("line", { x1: LOW, x2: HIGH, y1: up(share), y2: up(share), class: "grid" }), draw("text", { x: HIGH, y: up(share) - 3, "text-anchor": "end" }, share + step > highest ? `${share} %` : `${share}`));
  }
  for (const [className, shares, inset] of [["grey", all ?? [], 0], ["bad", wrong, 0], ["blue", own, 1.5]]) {
    shares.forEach((share, place) => { if (share) parts.push(bar(className, place, share, inset)); });
  }
  parts.push(draw("line", { x1: LOW, x2: HIGH, y1: FLOOR + 0.5, y2: FLOOR + 0.5, class: "axis" }));
  for (const gap of [-20, -10, -3, -1, 0, 1, 3, 10, 20]) {
    if (gap > tokens.range[0] && gap < tokens.range[1]) parts.push(draw("text", { x: across(gap), y: 155, "text-anchor": "middle" }, minus(gap)));
  }
  parts.push(draw("text", { x: LOW, y: 172 }, "← the model expects another token"), draw("text", { x: HIGH, y: 172, "text-anchor": "end" }, "it knows this one →"));
  const keys = [...(first ? [["grey", "SFT"]] : []), ...(wrong.length ? [["bad", "wrong digits under SFT"]] : []), ["blue", side.name]];
  keys.forEach(([className, name], place) => {
    const x = LOW + [0, 54, 222][keys.length < 3 && place ? 1 : place];
    parts.push(draw("rect", { class: className, x, y: 180, width: 9, height: 9 }), draw("text", { x: x + 13, y: 189 }, name));
  });
  if (hasBand(side) && first) {
    const { margin, bandwidth } = state;
    const curve = Array.from({ length: 193 }, (_, place) => `${LOW + 2 * place},${(FLOOR - 124 * FORMULAS[side.objective](gapAt(LOW + 2 * place), 0, state)).toFixed(1)}`);
    parts.push(draw("path", { class: "curve", d: `M${curve.join("L")}` }), knobs.margin, knobs.bandwidth);
    placeKnob("margin", margin, 16);
    placeKnob("bandwidth", side.objective === "trim-e" ? margin - bandwidth : margin + bandwidth, 65);
  }
  const held = document.activeElement; // a handle that is moved in the document loses the focus
  svg.replaceChildren(...parts);
  if (Object.values(knobs).includes(held)) held.focus();
};
const commandOf = (side) => {
  const band = hasBand(side) ? ` --margin ${tidy(state.margin)} --bandwidth ${tidy(state.bandwidth)}` : "";
  return `trimsft train --model_name_or_path ${tokens.path || "MODEL"} --dataset_name DATA.jsonl --objective ${side.objective}${band}`;
};

// ---- scores: dots with intervals over the temperature, a diamond for greedy
const MOST_SCORES = 8; // all runs stand in the tab Scores
const classOf = (label) => ["first", "chosen"][pairOf().lastIndexOf(label)] ?? "";
const drawScores = () => {
  if (!outcome.length) return;
  const svg = byId("scored");
  const important = (row) => ["", "first", "chosen"].indexOf(classOf(row.label));
  const ranked = outcome.filter(({ curve }) => curve.length).sort((p, q) => important(q) - important(p)).slice(0, MOST_SCORES);
  byId("more").textContent = ranked.length < outcome.length ? `${ranked.length} of ${outcome.length} runs; ` : "";
  const points = ranked.flatMap(({ curve }) => curve);
  const hottest = Math.max(...points.map(([at]) => at)) || 1;
  const least = Math.min(...points.map(([, value]) => value)) < 50 ? 0 : 50;
  const X = (at) => 42 + (206 * at) / hottest;
  const Y = (value) => 134 - (126 * (value - least)) / (100 - least);
  const text = (x, y, words, anchor) => draw("text", { x, y, "text-anchor": anchor }, words);
  svg.replaceChildren(text(268, 166, "temperature", "end"));
  for (const value of [least, (least + 100) / 2, 100]) {
    svg.append(draw("line", { x1: 22, x2: 268, y1: Y(value), y2: Y(value), class: "grid" }), text(16, Y(value) + 4, value, "end"));
  }
  for (const at of new Set(points.map(([at]) => at))) svg.append(text(X(at), 150, at || "greedy", "middle"));
  // labels stand beside the ends of their lines, as far apart as letters need
  const ends = ranked.map((row) => ({ row, y: Y(row.curve.at(-1)[1]) + 4 })).sort((p, q) => p.y - q.y);
  ends.forEach((end, place) => { if (place) end.y = Math.max(end.y, ends[place - 1].y + 15); });
  const over = Math.max(0, (ends.at(-1)?.y ?? 0) - 138);
  for (const { row, y } of ends.sort((p, q) => important(p.row) - important(q.row))) {
    const aside = 3 * (ranked.indexOf(row) - (ranked.length - 1) / 2); // intervals stand side by side
    const group = draw("g", { class: classOf(row.label) });
    group.append(draw("path", { class: "line", d: `M${row.curve.map(([at, value]) => `${X(at) + aside},${Y(value)}`).join("L")}` }));
    for (const [at, value, low, high] of row.curve) {
      const x = X(at) + aside;
      group.append(draw("line", { x1: x, x2: x, y1: Y(low), y2: Y(high), class: "whisker" }));
      group.append(at ? draw("circle", { cx: x, cy: Y(value), r: 3.5 }) : draw("path", { class: "diamond", d: `M${x - 4.5},${Y(value)}l4.5,-4.5l4.5,4.5l-4.5,4.5Z` }));
    }
    const shown = `${Math.round(row.curve.at(-1)[1])} ${row.arrows.average ?? ""}`;
    group.append(text(282, y - over, shortLabel(row.label, 12), "start"), text(400, y - over, shown.trim(), "end"));
    svg.append(group);
  }
};

// ---- everything that follows from the state
let [first, stops, shown] = [null, [], null];
const refresh = () => {
  const side = sideOf();
  const second = learns(side);
  const stop = stops[state.at] ?? { first: 0, last: 0 };
  const place = exampleOf(stop.first);
  const range = windowOf(stop);
  const rows = [...(first ? [{ side: tokens.sides[0], ...first }] : []), { side, ...second }].map((row) => ({ ...row, name: row.side.name }));
  let top = 300 / tokens.norm.length;
  for (const { shares } of rows) for (let i = range[0]; i < range[1]; i++) top = Math.max(top, shares[i]);
  shown = rows;
  byId("question").textContent = `Example ${tokens.numbers[place] + 1}${tokens.prompts[place] ? `: ${tokens.prompts[place]}` : ""}`;
  const made = rows.map((row) => rowOf(row.side, row.about));
  made.forEach((row, at) => drawText(row, stop, range, rows[at].shares, top, at === 0));
  byId("rows").replaceChildren(...made);
  byId("place").textContent = `${tokens.wrong.length ? "wrong step" : "example"} ${state.at + 1} of ${stops.length}`;
  byId("setting").hidden = !first;
  byId("setting-is").textContent = hasBand(side) ? `margin m ${tidy(state.margin)}, bandwidth τ ${tidy(state.bandwidth)}` : noteOf(side);
  drawHeadline(first, second);
  drawGradient(first, second);
  drawOutcome();
  drawScores();
};
const set = (changes) => {
  const before = sideOf();
  Object.assign(state, changes);
  if (sideOf() !== before && hasBand(sideOf())) Object.assign(state, { margin: sideOf().margin, bandwidth: sideOf().bandwidth }, changes);
  for (const [name, [least, most]] of Object.entries(LIMITS)) state[name] = between(state[name], least, most);
  refresh();
  const side = sideOf();
  const moved = (name) => (hasBand(side) && state[name] !== side[name] ? tidy(state[name]) : null);
  rememberSoon({ method: state.side === usual ? null : side.name, m: moved("margin"), tau: moved("bandwidth"), at: state.at === usualStop ? null : state.at + 1 });
};
let [usual, usualStop] = [0, 0];
const read = () => {
  const query = chosen();
  const number = (name, otherwise) => (query.get(name)?.trim() && Number.isFinite(Number(query.get(name))) ? Number(query.get(name)) : otherwise);
  const named = tokens.sides.findIndex(({ name }) => name === query.get("method"));
  state.side = named < (tokens.base ? 1 : 0) ? usual : named;
  state.margin = between(number("m", sideOf().margin ?? 0), ...LIMITS.margin);
  state.bandwidth = between(number("tau", sideOf().bandwidth ?? 1), ...LIMITS.bandwidth);
  state.at = between(Math.round(number("at", usualStop + 1)) - 1, 0, Math.max(0, stops.length - 1));
};
const go = (to) => {
  byId("card").textContent = "Point at a token for its numbers.";
  set({ at: (to + stops.length) % stops.length, whole: false });
};

const listStops = () => {
  const row = (kind, cells) => make("tr", {}, ...cells.map((cell, at) => make(kind, { className: at > 1 ? "number" : "" }, cell)));
  const list = stops.slice(0, 200).map((stop, at) => {
    const place = exampleOf(stop.first);
    const button = make("button", { type: "button", textContent: tokens.numbers[place] + 1 });
    button.addEventListener("click", () => {
      go(at);
      byId("question").scrollIntoView({ block: "center" });
    });
    const lowest = Math.min(...tokens.gap.slice(stop.first, stop.last + 1));
    const wrong = [stop.written, stop.right, minus(lowest.toFixed(1))];
    return row("td", [button, ...(tokens.wrong.length ? wrong : [tokens.prompts[place].slice(0, 120), tokens.lengths[place], stop.moved.toFixed(2)])]);
  });
  const names = tokens.wrong.length ? ["example", "written", "right", "logit gap"] : ["example", "problem", "tokens", first ? "gradient moved, %" : "gradient, %"];
  const [wrong, right] = (tokens.doubt ?? []).map((gap) => minus(gap.toFixed(1)));
  const apart = tokens.doubt && tokens.doubt[0] < tokens.doubt[1]
    ? `The base model already tells them apart: it doubts every wrong result (gap ${wrong} or lower) and no right one (${right} or higher).`
    : `The base model does not tell all of them apart: one wrong result has no gap below ${wrong}, and a right one goes down to ${right}.`;
  byId("list").replaceChildren(make("p", { textContent: tokens.doubt ? apart : "" }), make("table", {}, make("thead", {}, row("th", names)), make("tbody", {}, ...list)));
};

// what the window shows of the example, painted word by word; a page may not turn its own elements into an image
const copyPicture = async () => {
  const [frame, scale, edge] = [byId("example"), 2, 16];
  const box = frame.getBoundingClientRect();
  const canvas = make("canvas", { width: scale * (box.width + 2 * edge), height: scale * (box.height + 2 * edge) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.translate(edge - box.left, edge - box.top);
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(box.left - edge, box.top - edge, box.width + 2 * edge, box.height + 2 * edge);
  context.textBaseline = "middle";
  const walker = document.createTreeWalker(frame, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const look = getComputedStyle(node.parentElement);
    if (node.parentElement.closest("button")) continue;
    for (const { index, 0: word } of node.data.matchAll(/\S+\s?|\s/g)) {
      const range = new Range();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const { left, top, width, height } = range.getBoundingClientRect();
      context.fillStyle = look.backgroundColor;
      context.fillRect(left, top, width, height);
      context.fillStyle = look.color;
      context.font = `${look.fontWeight} ${look.fontSize} ${look.fontFamily}`;
      context.fillText(word.trimEnd(), left, top + height / 2);
      const [underline] = look.boxShadow.match(/rgba?\([^)]*\)/) ?? [];
      context.fillStyle = underline;
      if (underline) context.fillRect(left, top + height - 2, width, 3);
    }
  }
  const picture = new Promise((done) => { canvas.toBlob(done, "image/png"); }); // some browsers want to be asked within the click
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
    say("The example is in the clipboard, as an image.");
  } catch {
    download("example.png", await picture);
    say("Saved as example.png: this browser allows no image in the clipboard.");
  }
};

const watch = () => {
  const point = ({ target }) => {
    const i = target.closest?.("[data-token]")?.dataset.token;
    if (i === undefined) return;
    byId("card").textContent = describe(Number(i), shown);
    for (const span of byId("rows").querySelectorAll("[data-token]")) span.classList.toggle("at", span.dataset.token === i);
  };
  for (const kind of ["pointerover", "focusin", "click"]) byId("rows").addEventListener(kind, point);
  rove(byId("rows"), ".t[tabindex]");
  rove(byId("toolbar"), "button")(byId("next"));
  byId("previous").addEventListener("click", () => go(state.at - 1));
  byId("next").addEventListener("click", () => go(state.at + 1));
  byId("all").addEventListener("click", () => {
    byId("list").hidden = !byId("list").hidden;
    byId("all").setAttribute("aria-expanded", !byId("list").hidden);
    if (!byId("list").hidden) listStops();
  });
  byId("image").addEventListener("click", copyPicture);
  byId("command").addEventListener("click", () => copyText(commandOf(sideOf())));
  const choices = tokens.sides.slice(tokens.base ? 1 : 0).map((side) => {
    const input = make("input", { type: "radio", name: "method", value: side.name, checked: side === sideOf() });
    input.addEventListener("change", () => set({ side: tokens.sides.indexOf(side) }));
    return make("label", {}, input, make("span", { textContent: side.name }));
  });
  byId("methods").append(...choices);
  byId("compare").hidden = choices.length < 2;
};

const open = async () => {
  for (const name of ["token", "competitor", "gap", "nll", "norm"]) tokens[name] = await unpack(tokens[name]);
  for (const side of tokens.sides) if (side.weights) side.weights = await unpack(side.weights);
  if (tokens.data) tokens.data = await unpack(tokens.data);
  let size = 0;
  tokens.starts = tokens.lengths.map((length) => (size += length) - length);
  tokens.marked = new Uint8Array(size);
  tokens.wrong = tokens.wrong.map(([place, from, to, written, right]) => ({ first: tokens.starts[place] + from, last: tokens.starts[place] + to, written, right }));
  for (const { first: from, last: to } of tokens.wrong) tokens.marked.fill(1, from, to + 1);
  if (!tokens.wrong.length) tokens.marked.set(tokens.gap.map((gap) => gap < 0));
  const [low, high] = spans();
  tokens.bins = Uint8Array.from(tokens.gap, (gap) => between(Math.floor((BINS * (Math.asinh(gap) - low)) / (high - low)), 0, BINS - 1));
  knobs.margin = makeKnob("margin", "m", (gap) => gap);
  knobs.bandwidth = makeKnob("bandwidth", "τ", (gap) => Math.abs(gap - state.margin));
  usual = Math.max(tokens.base ? 1 : 0, tokens.sides.findIndex(({ objective }) => objective === "trim"));
  state.side = usual;
  Object.assign(state, { margin: sideOf().margin ?? 0, bandwidth: sideOf().bandwidth ?? 1 });
  const second = learns(sideOf());
  first = tokens.base ? learns(tokens.sides[0]) : null;
  stops = stopsOf(first, second);
  // a short example with a single wrong step, where there is one
  const isAlone = ({ first: from }) => tokens.wrong.filter((other) => exampleOf(other.first) === exampleOf(from)).length === 1;
  usualStop = Math.max(0, tokens.wrong.findIndex((stop) => tokens.lengths[exampleOf(stop.first)] <= 0.7 * LONGEST && isAlone(stop)));
  read();
  watch();
  byId("viewer").hidden = false;
  refresh();
  addEventListener("hashchange", () => {
    read();
    for (const input of document.querySelectorAll("#methods input")) input.checked = input.value === sideOf().name;
    refresh();
  });
  document.documentElement.dataset.tokens = "ready";
  performance.mark("ready");
};
if (tokens) open();
else {
  drawOutcome();
  drawScores();
}
