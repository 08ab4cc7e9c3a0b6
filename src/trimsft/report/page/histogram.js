// The histogram of gaps, which is also the control: handles for margin and bandwidth, and gaps to be found by dragging.
const makeSvg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, tag);
  setAll(element, attributes);
  element.append(...children);
  return element;
};
const setAll = (element, attributes) => { for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value); };

const CHART = { width: 380, height: 168, left: 14, right: 366, top: 27, bottom: 141, bars: 88 };
const EDGE = Math.exp(-0.5); // TrimSFT's weight where a band ends

// gaps that the histogram spans: all but two in a thousand, the rest goes into its outermost bars
const histogramRange = (corpus) => {
  const order = Array.from(corpus.mean.keys()).sort((one, other) => corpus.mean[one] - corpus.mean[other]);
  const at = (share) => {
    let seen = 0;
    for (const cell of order) if ((seen += corpus.count[cell]) >= share * corpus.tokens) return corpus.mean[cell];
    return 0;
  };
  const [low, high] = [Math.floor(at(0.001)) - 1, Math.ceil(at(0.999)) + 1];
  return [low, Math.max(high, low + 4)];
};

// the roundest number within half a step of a value, so that a pixel that covers 1.5 means 1.5
const roundest = (value, step) => {
  const sizes = [10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05];
  const size = sizes.find((one) => Math.abs(Math.round(value / one) * one - value) <= step / 2) ?? 0.01;
  return Number((Math.round(value / size) * size).toFixed(2));
};

const hasCurve = ({ method }) => !SUMMED.has(method);

// ---- drawing, with `across` from gaps to places

const heightsOf = (corpus, [low, high], sums) => {
  const [all, kept] = [new Float64Array(CHART.bars), new Float64Array(CHART.bars)];
  for (let cell = 0; cell < corpus.count.length; cell++) {
    const bar = between(Math.floor(((corpus.mean[cell] - low) / (high - low)) * CHART.bars), 0, CHART.bars - 1);
    all[bar] += corpus.count[cell];
    kept[bar] += sums.w[cell];
  }
  return { all, kept };
};

const outlineOf = (heights, highest) => {
  const { left, right, top, bottom, bars } = CHART;
  const step = (right - left) / bars;
  let path = "";
  heights.forEach((value, bar) => {
    if (value > 0) path += `M${(left + bar * step).toFixed(2)},${bottom}v${((-(bottom - top) * value) / highest).toFixed(2)}h${(step - 0.6).toFixed(2)}V${bottom}Z`;
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

const makeParts = (letter) => {
  const { left, top, bottom } = CHART;
  return {
    title: makeSvg("title"),
    region: makeSvg("rect", { class: "region", y: top, height: bottom - top }),
    all: makeSvg("path", { class: "all" }),
    kept: makeSvg("path", { class: `kept kept-${letter}` }),
    curve: makeSvg("path", { class: `curve-${letter}` }),
    brushed: makeSvg("rect", { class: "brushed", y: top, height: bottom - top }),
    axis: makeSvg("g"),
    about: makeSvg("text", { class: "tick", x: left, y: 10 }),
  };
};

// ---- handles

const STEPS = { ArrowRight: 0.05, ArrowUp: 0.05, ArrowLeft: -0.05, ArrowDown: -0.05, PageUp: 0.5, PageDown: -0.5 };

// `drag(event)` is told where the pointer is, `nudge(by)` of keys, `end()` when the pointer lets go
const makeHandle = (name, letter, { drag, nudge, end }) => {
  const sign = { margin: "m", bandwidth: "τ" }[name];
  const line = makeSvg("line", { class: "guide" });
  const disc = makeSvg("circle", { class: `disc-${letter}`, r: 7 });
  const grip = makeSvg("g", { class: "grip" }, makeSvg("circle", { class: "reach", r: 13 }), disc, makeSvg("text", { class: "middle", y: 3.5 }, sign));
  const about = { role: "slider", tabindex: 0, "data-moves": `${name}-${letter}`, "aria-label": `${name} ${sign} of ${letter}` };
  const element = makeSvg("g", { class: "handle", ...about }, line, grip);
  element.addEventListener("keydown", (event) => {
    if (STEPS[event.key] === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    nudge(STEPS[event.key]);
  });
  watchDrag(grip, drag, end);
  return { element, line, grip };
};

const placeHandle = ({ element, line, grip }, x, y, { hidden, least, most, value }) => {
  element.toggleAttribute("hidden", hidden);
  setAll(line, { x1: x, x2: x, y1: y, y2: CHART.bottom });
  setAll(grip, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
  setAll(element, { "aria-valuemin": tidy(least), "aria-valuemax": tidy(most), "aria-valuenow": tidy(value) });
};

// ---- all of it: `move(changes, ended)` is told of a handle, `brush(low, high)` of gaps that are dragged over

const makeHistogram = (holder, letter, { move, brush }) => {
  const { width, height, left, right, top, bottom } = CHART;
  let range = [0, 1];
  let drawn = null; // the setting that is drawn
  const across = (gap) => left + ((gap - range[0]) / (range[1] - range[0])) * (right - left);
  const inside = (gap) => between(across(gap), left, right);

  const parts = makeParts(letter);
  const paper = makeSvg("rect", { class: "paper-of", x: left, y: top, width: right - left, height: bottom - top });
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Histogram of gaps, ${letter}` }, ...Object.values(parts), paper);
  holder.replaceChildren(svg);

  const box = () => svg.getBoundingClientRect();
  const perPixel = () => (((range[1] - range[0]) / (right - left)) * width) / (box().width || width);
  const gapAt = ({ clientX }) => {
    const x = between(((clientX - box().left) / box().width) * width, left, right);
    return range[0] + ((x - left) / (right - left)) * (range[1] - range[0]);
  };
  const handleOf = (name, valueAt) => makeHandle(name, letter, {
    drag: (event) => move({ [name]: valueAt(gapAt(event), perPixel()) }, false),
    nudge: (by) => move({ [name]: Number((drawn[name] + by).toFixed(2)) }, true),
    end: () => move({}, true),
  });
  const handles = {
    bandwidth: handleOf("bandwidth", (gap, pixel) => Math.max(0.05, roundest(Math.abs(gap - drawn.margin), pixel))),
    margin: handleOf("margin", roundest),
  };
  svg.append(handles.bandwidth.element, handles.margin.element);
  if (brush) watchBrush(paper, (event) => roundest(gapAt(event), perPixel()), brush);

  const placeHandles = (setting) => {
    const { margin, bandwidth, method } = setting;
    const hidden = !hasBand(setting);
    const edge = margin + (method === "trim-e" ? -bandwidth : bandwidth); // on the side where its weight falls
    placeHandle(handles.margin, inside(margin), top, { hidden, least: Math.min(range[0], margin), most: Math.max(range[1], margin), value: margin });
    placeHandle(handles.bandwidth, inside(edge), bottom - (bottom - top) * EDGE, { hidden, least: 0, most: Math.max(range[1] - range[0], bandwidth), value: bandwidth });
  };

  return {
    draw: (corpus, wanted, setting, sums, [gapLow, gapHigh] = [null, null]) => {
      drawn = setting;
      if (wanted[0] !== range[0] || wanted[1] !== range[1]) {
        range = wanted;
        parts.axis.replaceChildren(...axisOf(range, across));
      }
      const { all, kept } = heightsOf(corpus, range, sums);
      const highest = Math.max(...all, 1);
      setAll(parts.all, { d: outlineOf(all, highest) });
      setAll(parts.kept, { d: outlineOf(kept, highest) });
      setAll(parts.curve, { d: hasCurve(setting) ? curveOf(setting, range, across) : "" });
      parts.title.textContent = `Gaps of ${grouped(corpus.tokens)} tokens; the coloured part of each bar is what ${nameOf(setting)} keeps of it`;
      parts.about.textContent = cut(`${letter}: ${nameOf(setting)} on ${tokenData.runs[setting.run]}`, 58);
      const [from, to] = [inside(setting.margin - setting.bandwidth), inside(setting.margin + setting.bandwidth)];
      setAll(parts.region, { x: from, width: hasBand(setting) ? to - from : 0 });
      const [start, end] = [inside(gapLow ?? range[0]), inside(gapHigh ?? range[1])];
      setAll(parts.brushed, { x: start, width: gapLow === null && gapHigh === null ? 0 : Math.max(1, end - start) });
      placeHandles(setting);
    },
  };
};

// gaps from where the pointer is pressed to where it is; a click forgets them
const watchBrush = (paper, gapAt, brush) => {
  const moved = (event, start) => Math.abs(event.clientX - start.clientX) >= 4;
  watchDrag(paper, (event, start) => {
    if (moved(event, start)) brush(...[gapAt(start), gapAt(event)].sort((one, other) => one - other));
  }, (event, start) => { if (!moved(event, start)) brush(null, null); });
};

// a pointer that is pressed on an element, moved, and let go wherever that is
const watchDrag = (element, follow, end) => {
  let start = null;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = event;
    element.setPointerCapture(event.pointerId);
    follow(event, start);
  });
  element.addEventListener("pointermove", (event) => { if (start) follow(event, start); });
  for (const kind of ["pointerup", "pointercancel"]) {
    element.addEventListener(kind, (event) => {
      if (start) end(event, start);
      start = null;
    });
  }
};
