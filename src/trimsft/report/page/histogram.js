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

// `move(changes, ended)` is told of a handle, `brush(low, high)` of gaps that are dragged over
const makeHistogram = (holder, letter, { move, brush }) => {
  const { width, height, left, right, top, bottom, bars } = CHART;
  let [low, high] = [0, 1];
  let drawn = null; // the setting that is drawn
  const across = (gap) => left + ((gap - low) / (high - low)) * (right - left);
  const inside = (gap) => Math.min(right, Math.max(left, across(gap)));

  const parts = {
    title: makeSvg("title"),
    region: makeSvg("rect", { class: "region", y: top, height: bottom - top }),
    all: makeSvg("path", { class: "all" }),
    kept: makeSvg("path", { class: `kept kept-${letter}` }),
    curve: makeSvg("path", { class: `curve-${letter}` }),
    brushed: makeSvg("rect", { class: "brushed", y: top, height: bottom - top }),
    axis: makeSvg("g"),
    band: makeSvg("text", { class: "tick", x: left, y: 10 }),
  };
  const paper = makeSvg("rect", { class: "paper-of", x: left, y: top, width: right - left, height: bottom - top });
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `Histogram of gaps, ${letter}` }, ...Object.values(parts), paper);
  const handles = { margin: handle("margin"), bandwidth: handle("bandwidth") };
  svg.append(handles.bandwidth.element, handles.margin.element);
  holder.replaceChildren(svg);

  function handle(name) {
    const sign = { margin: "m", bandwidth: "τ" }[name];
    const line = makeSvg("line", { class: "guide" });
    const grip = makeSvg("g", { class: "grip" }, makeSvg("circle", { class: "reach", r: 13 }), makeSvg("circle", { class: `disc-${letter}`, r: 7 }), makeSvg("text", { class: "middle", y: 3.5 }, sign));
    const element = makeSvg("g", { class: "handle", role: "slider", tabindex: 0, "data-moves": `${name}-${letter}`, "aria-label": `${name} ${sign} of ${letter}` }, line, grip);
    element.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 0.05, ArrowUp: 0.05, ArrowLeft: -0.05, ArrowDown: -0.05, PageUp: 0.5, PageDown: -0.5 }[event.key];
      if (by === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      move({ [name]: Number((drawn[name] + by).toFixed(2)) }, true);
    });
    watchDrag(grip, (event) => {
      const gap = gapAt(event);
      const value = name === "margin" ? gap : Math.abs(gap - drawn.margin);
      move({ [name]: Math.max(name === "margin" ? -Infinity : 0.05, roundest(value, perPixel())) }, false);
    }, () => move({}, true));
    return { element, line, grip };
  }

  const perPixel = () => (((high - low) / (right - left)) * width) / (svg.getBoundingClientRect().width || width);
  const gapAt = ({ clientX }) => {
    const box = svg.getBoundingClientRect();
    const x = ((clientX - box.left) / box.width) * width;
    return low + ((between(x, left, right) - left) / (right - left)) * (high - low);
  };
  if (brush) {
    let from = null;
    watchDrag(paper, (event, start) => {
      from = start;
      if (Math.abs(event.clientX - start.clientX) < 4) return;
      const ends = [gapAt(start), gapAt(event)].sort((one, other) => one - other).map((gap) => roundest(gap, perPixel()));
      brush(...ends);
    }, (event) => { if (from && Math.abs(event.clientX - from.clientX) < 4) brush(null, null); }); // a click forgets them
  }

  const outline = (heights, highest) => {
    const step = (right - left) / bars;
    let path = "";
    heights.forEach((value, bar) => {
      if (value > 0) path += `M${(left + bar * step).toFixed(2)},${bottom}v${((-(bottom - top) * value) / highest).toFixed(2)}h${(step - 0.6).toFixed(2)}V${bottom}Z`;
    });
    return path;
  };
  const curveOf = (setting) => {
    const weigh = weigher(setting);
    const points = Array.from({ length: 161 }, (_, place) => {
      const gap = low + ((high - low) * place) / 160;
      const nll = Math.log1p(Math.exp(-gap)); // of two tokens, for what goes by p
      return `${across(gap).toFixed(1)},${(bottom - (bottom - top) * weigh(nll, gap)).toFixed(1)}`;
    });
    return `M${points.join("L")}`;
  };
  const drawAxis = () => {
    const every = [1, 2, 5, 10, 20, 50, 100].find((size) => (high - low) / size <= 10) ?? 200;
    const ticks = [makeSvg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom })];
    for (let gap = Math.ceil(low / every) * every; gap <= high; gap += every) {
      ticks.push(makeSvg("line", { class: "axis", x1: across(gap), x2: across(gap), y1: bottom, y2: bottom + 3 }));
      ticks.push(makeSvg("text", { class: "tick middle", x: across(gap), y: bottom + 14 }, String(gap)));
    }
    ticks.push(makeSvg("text", { class: "tick end", x: right, y: height - 2 }, "logit gap"));
    parts.axis.replaceChildren(...ticks);
  };
  const placeHandles = (setting) => {
    const { margin, bandwidth, method } = setting;
    const side = method === "trim-e" ? -1 : 1; // where its weight falls
    const at = { margin: [inside(margin), top], bandwidth: [inside(margin + side * bandwidth), bottom - (bottom - top) * EDGE] };
    const [least, most] = [Math.min(low, margin), Math.max(high, margin)];
    for (const [name, [x, y]] of Object.entries(at)) {
      const { element, line, grip } = handles[name];
      element.toggleAttribute("hidden", !hasBand(setting));
      setAll(line, { x1: x, x2: x, y1: y, y2: bottom });
      setAll(grip, { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
      const ends = name === "margin" ? [least, most] : [0, Math.max(high - low, bandwidth)];
      setAll(element, { "aria-valuemin": tidy(ends[0]), "aria-valuemax": tidy(ends[1]), "aria-valuenow": tidy(setting[name]) });
    }
  };

  return {
    draw: (corpus, range, setting, sums, gaps = [null, null]) => {
      drawn = setting;
      if (range[0] !== low || range[1] !== high) {
        [low, high] = range;
        drawAxis();
      }
      const [all, weighted] = [new Float64Array(bars), new Float64Array(bars)];
      for (let cell = 0; cell < corpus.count.length; cell++) {
        const bar = between(Math.floor(((corpus.mean[cell] - low) / (high - low)) * bars), 0, bars - 1);
        all[bar] += corpus.count[cell];
        weighted[bar] += sums.w[cell];
      }
      const highest = Math.max(...all, 1);
      setAll(parts.all, { d: outline(all, highest) });
      setAll(parts.kept, { d: outline(weighted, highest) });
      setAll(parts.curve, { d: hasCurve(setting) ? curveOf(setting) : "" });
      parts.title.textContent = `Gaps of ${grouped(corpus.tokens)} tokens; the coloured part of each bar is what ${nameOf(setting)} keeps of it`;
      parts.band.textContent = cut(`${letter}: ${nameOf(setting)} on ${tokenData.runs[setting.run]}`, 58);
      const [from, to] = [inside(setting.margin - setting.bandwidth), inside(setting.margin + setting.bandwidth)];
      setAll(parts.region, { x: from, width: hasBand(setting) ? to - from : 0 });
      const [start, end] = [inside(gaps[0] ?? low), inside(gaps[1] ?? high)];
      setAll(parts.brushed, { x: start, width: gaps[0] === null && gaps[1] === null ? 0 : Math.max(1, end - start) });
      placeHandles(setting);
    },
  };
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
      if (start) end(event);
      start = null;
    });
  }
};
