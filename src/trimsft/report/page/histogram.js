// The histogram of gaps of all shown tokens, which is also the control: handles for margin and bandwidth.
const makeSvg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, tag);
  setAll(element, attributes);
  element.append(...children);
  return element;
};
const setAll = (element, attributes) => { for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value); };

const CHART = { width: 380, height: 168, left: 14, right: 366, top: 27, bottom: 141, bars: 88 };
const EDGE = Math.exp(-0.5); // TrimSFT's weight where a band ends
const STEPS = { ArrowRight: 0.05, ArrowUp: 0.05, ArrowLeft: -0.05, ArrowDown: -0.05, PageUp: 0.5, PageDown: -0.5 };

// gaps that the histogram spans: all but two in a thousand, the rest goes into its outermost bars
const histogramRange = (store, run) => {
  const gaps = [];
  eachToken(store, run, (i) => gaps.push(run.gap[i]));
  const sorted = Float32Array.from(gaps).sort();
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  const [low, high] = [Math.floor(at(0.001)) - 1, Math.ceil(at(0.999)) + 1];
  return [low, Math.max(high, low + 4)];
};

// the roundest number within half a step of a value, so that a pixel that covers 1.5 means 1.5
const roundest = (value, step) => {
  const sizes = [10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05];
  const size = sizes.find((one) => Math.abs(Math.round(value / one) * one - value) <= step / 2) ?? 0.01;
  return Number((Math.round(value / size) * size).toFixed(2));
};

const outlineOf = (heights, highest) => {
  const { left, right, top, bottom, bars } = CHART;
  const step = (right - left) / bars;
  let path = "";
  heights.forEach((value, bar) => {
    const [x, y] = [(left + bar * step).toFixed(2), ((-(bottom - top) * value) / highest).toFixed(2)];
    if (value > 0) path += `M${x},${bottom}v${y}h${(step - 0.6).toFixed(2)}V${bottom}Z`;
  });
  return path;
};

const curveOf = (setting, [low, high], across) => {
  const weigh = weigher(setting);
  const points = Array.from({ length: 161 }, (_, place) => {
    const gap = low + ((high - low) * place) / 160;
    const nll = Math.log1p(Math.exp(-gap)); // of two tokens, for what goes by p
    return `${across(gap).toFixed(1)},${(CHART.bottom - (CHART.bottom - CHART.top) * weigh(nll, gap)).toFixed(1)}`;
  });
  return `M${points.join("L")}`;
};

const axisOf = ([low, high], across) => {
  const { left, right, bottom, height } = CHART;
  const every = [1, 2, 5, 10, 20, 50, 100].find((size) => (high - low) / size <= 10) ?? 200;
  const ticks = [makeSvg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom })];
  for (let gap = Math.ceil(low / every) * every; gap <= high; gap += every) {
    ticks.push(makeSvg("line", { class: "axis", x1: across(gap), x2: across(gap), y1: bottom, y2: bottom + 3 }));
    ticks.push(makeSvg("text", { class: "tick middle", x: across(gap), y: bottom + 14 }, String(gap)));
  }
  return [...ticks, makeSvg("text", { class: "tick end", x: right, y: height - 2 }, "logit gap")];
};

// `drag(event)` gets the place of the pointer, `nudge(by)` the step of a key
const makeHandle = (name, { drag, nudge }) => {
  const sign = { margin: "m", bandwidth: "τ" }[name];
  const line = makeSvg("line", { class: "guide" });
  const circles = [makeSvg("circle", { class: "reach", r: 13 }), makeSvg("circle", { class: "disc-of", r: 7 })];
  const grip = makeSvg("g", { class: "grip" }, ...circles, makeSvg("text", { class: "middle", y: 3.5 }, sign));
  const element = makeSvg("g", { class: "handle", role: "slider", tabindex: 0, "data-moves": name, "aria-label": `${name} ${sign}` }, line, grip);
  element.addEventListener("keydown", (event) => {
    if (STEPS[event.key] === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    nudge(STEPS[event.key]);
  });
  let held = false;
  grip.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = true;
    grip.setPointerCapture(event.pointerId);
  });
  grip.addEventListener("pointermove", (event) => { if (held) drag(event); });
  for (const kind of ["pointerup", "pointercancel"]) grip.addEventListener(kind, () => { held = false; });
  return { element, line, grip };
};

const placeHandle = ({ element, line, grip }, x, y, { hidden, least, most, value }) => {
  element.toggleAttribute("hidden", hidden);
  setAll(line, { x1: x, x2: x, y1: y, y2: CHART.bottom });
  setAll(grip, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
  setAll(element, { "aria-valuemin": tidy(least), "aria-valuemax": tidy(most), "aria-valuenow": tidy(value) });
};

// `move(changes)` gets what a handle was moved to; returns a function that draws
const makeHistogram = (holder, move) => {
  const { width, height, left, right, top, bottom, bars } = CHART;
  let [range, drawn] = [[0, 1], null]; // gaps from left to right; the setting that is drawn
  const across = (gap) => left + ((gap - range[0]) / (range[1] - range[0])) * (right - left);
  const inside = (gap) => between(across(gap), left, right);
  const parts = {
    title: makeSvg("title"),
    region: makeSvg("rect", { class: "region", y: top, height: bottom - top }),
    all: makeSvg("path", { class: "all" }), kept: makeSvg("path", { class: "kept" }), curve: makeSvg("path", { class: "curve" }),
    axis: makeSvg("g"), about: makeSvg("text", { class: "tick", x: left, y: 10 }),
  };
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Histogram of gaps" }, ...Object.values(parts));
  holder.replaceChildren(svg);

  const box = () => svg.getBoundingClientRect();
  const perPixel = () => (((range[1] - range[0]) / (right - left)) * width) / (box().width || width);
  const gapAt = ({ clientX }) => {
    const x = between(((clientX - box().left) / box().width) * width, left, right);
    return range[0] + ((x - left) / (right - left)) * (range[1] - range[0]);
  };
  const handleOf = (name, valueAt) => makeHandle(name, {
    drag: (event) => move({ [name]: valueAt(gapAt(event), perPixel()) }),
    nudge: (by) => move({ [name]: Number((drawn[name] + by).toFixed(2)) }),
  });
  const handles = {
    bandwidth: handleOf("bandwidth", (gap, pixel) => Math.max(0.05, roundest(Math.abs(gap - drawn.margin), pixel))),
    margin: handleOf("margin", roundest),
  };
  svg.append(handles.bandwidth.element, handles.margin.element);

  return (store, run, weights, setting) => {
    drawn = setting;
    range = (store.ranges ??= {})[setting.run] ??= histogramRange(store, run);
    parts.axis.replaceChildren(...axisOf(range, across));
    const [all, kept] = [new Float64Array(bars), new Float64Array(bars)];
    eachToken(store, run, (i) => {
      const bar = between(Math.floor(((run.gap[i] - range[0]) / (range[1] - range[0])) * bars), 0, bars - 1);
      all[bar]++;
      kept[bar] += weights[i];
    });
    const highest = Math.max(...all, 1);
    setAll(parts.all, { d: outlineOf(all, highest) });
    setAll(parts.kept, { d: outlineOf(kept, highest) });
    setAll(parts.curve, { d: setting.method === "fsft" || setting.method === "dft" ? "" : curveOf(setting, range, across) });
    parts.title.textContent = `Gaps of the tokens; the coloured part of each bar is what ${nameOf(setting)} keeps of it`;
    parts.about.textContent = `${nameOf(setting)} on ${tokenData.runs[setting.run]}`.slice(0, 58);
    const { margin, bandwidth, method } = setting;
    const [from, to] = [inside(margin - bandwidth), inside(margin + bandwidth)];
    const hidden = !hasBand(setting);
    setAll(parts.region, { x: from, width: hidden ? 0 : to - from });
    const edge = margin + (method === "trim-e" ? -bandwidth : bandwidth); // on the side where its weight falls
    placeHandle(handles.margin, inside(margin), top, { hidden, least: Math.min(range[0], margin), most: Math.max(range[1], margin), value: margin });
    placeHandle(handles.bandwidth, inside(edge), bottom - (bottom - top) * EDGE, { hidden, least: 0, most: Math.max(range[1] - range[0], bandwidth), value: bandwidth });
  };
};
