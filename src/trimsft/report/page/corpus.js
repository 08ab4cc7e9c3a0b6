// The whole corpus beside the texts: histogram with weight curves, figures of A and B, bars by region and category.
const makeSvg = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const withCommas = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const grouped = (value) => withCommas.format(value);
const digits = (value, places) => (Number.isFinite(value) ? value.toFixed(places) : "–");

const CHART = { width: 380, height: 196, left: 6, right: 374, top: 14, bottom: 166, bars: 92 };

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

const hasCurve = ({ method }) => !SUMMED.has(method);
const drawHistogram = (holder, corpus, range, a, b, sums) => {
  const { width, height, left, right, top, bottom, bars } = CHART;
  const [low, high] = range;
  const [all, weighted] = [new Float64Array(bars), new Float64Array(bars)];
  for (let cell = 0; cell < corpus.count.length; cell++) {
    const place = Math.floor(((corpus.mean[cell] - low) / (high - low)) * bars);
    const bar = Math.min(bars - 1, Math.max(0, place));
    all[bar] += corpus.count[cell];
    weighted[bar] += sums.w[cell];
  }
  const across = (gap) => left + ((gap - low) / (high - low)) * (right - left);
  const highest = Math.max(...all, 1);
  const step = (right - left) / bars;
  const outline = (heights) => {
    let path = "";
    heights.forEach((value, bar) => {
      if (value > 0) path += `M${(left + bar * step).toFixed(2)},${bottom}v${((-(bottom - top) * value) / highest).toFixed(2)}h${(step - 0.6).toFixed(2)}V${bottom}Z`;
    });
    return path;
  };
  const curve = (setting) => {
    const weigh = weigher(setting);
    const points = Array.from({ length: 161 }, (_, place) => {
      const gap = low + ((high - low) * place) / 160;
      const nll = Math.log1p(Math.exp(-gap)); // of two tokens, for what goes by p
      return `${across(gap).toFixed(1)},${(bottom - (bottom - top) * weigh(nll, gap)).toFixed(1)}`;
    });
    return `M${points.join("L")}`;
  };
  const inside = (gap) => Math.min(right, Math.max(left, across(gap)));
  const [from, to] = [inside(a.margin - a.bandwidth), inside(a.margin + a.bandwidth)];
  const said = `Gaps of ${grouped(corpus.tokens)} tokens; the darker part of each bar is what ${nameOf(a)} keeps of it`;
  const parts = [
    makeSvg("title", {}, said),
    makeSvg("rect", { class: "region", x: from, y: top, width: to - from, height: bottom - top }),
    makeSvg("path", { class: "all", d: outline(all) }),
    makeSvg("path", { class: "kept", d: outline(weighted) }),
  ];
  if (b && hasCurve(b)) parts.push(makeSvg("path", { class: "curve-b", d: curve(b) }));
  if (hasCurve(a)) parts.push(makeSvg("path", { class: "curve-a", d: curve(a) }));
  const every = [1, 2, 5, 10, 20, 50, 100].find((size) => (high - low) / size <= 10) ?? 200;
  for (let gap = Math.ceil(low / every) * every; gap <= high; gap += every) {
    parts.push(makeSvg("line", { class: "axis", x1: across(gap), x2: across(gap), y1: bottom, y2: bottom + 3 }));
    parts.push(makeSvg("text", { class: "tick middle", x: across(gap), y: bottom + 14 }, String(gap)));
  }
  parts.push(makeSvg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  const curves = BY_GAP.has(a.method) ? "; line: weight" : hasCurve(a) ? "; line: weight where two tokens compete" : " (its weight goes by p)";
  parts.push(makeSvg("text", { class: "tick", x: left, y: 9 }, `bars: tokens, dark: kept${curves}`));
  parts.push(makeSvg("text", { class: "tick end", x: right, y: height - 2 }, "logit gap"));
  holder.replaceChildren(makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, ...parts));
};

// dragging in the histogram moves the margin
const dragMargin = (holder, rangeOf, move, end) => {
  const follow = (event) => {
    const box = holder.getBoundingClientRect();
    const [low, high] = rangeOf();
    const share = (((event.clientX - box.left) / box.width) * CHART.width - CHART.left) / (CHART.right - CHART.left);
    move(Math.round((low + share * (high - low)) * 20) / 20);
  };
  holder.addEventListener("pointerdown", (event) => {
    holder.setPointerCapture(event.pointerId);
    follow(event);
  });
  holder.addEventListener("pointerup", end);
  holder.addEventListener("pointermove", (event) => { if (holder.hasPointerCapture(event.pointerId)) follow(event); });
};

const ROWS = [
  ["mean weight", (result) => digits(result.meanWeight, 4)],
  ["R_eff", (result) => digits(result.effectiveRatio, 4)],
  ["High-Weight (%)", (result) => digits(result.highWeight, 2)],
  ["mass below (%)", (result) => digits(result.mass[0], 2)],
  ["mass within (%)", (result) => digits(result.mass[1], 2)],
  ["mass above (%)", (result) => digits(result.mass[2], 2)],
];
const drawFigures = (table, a, b, resultA, resultB) => {
  const heads = [make("td"), make("th", { scope: "col", textContent: `A: ${nameOf(a)}` })];
  if (b) heads.push(make("th", { scope: "col", textContent: `B: ${nameOf(b)}` }));
  const rows = ROWS.map(([name, show]) => {
    const label = make("th", { scope: "row" });
    if (name === "R_eff") label.append("R", make("sub", { textContent: "eff" }));
    else label.textContent = name;
    const cells = [resultA, ...(b ? [resultB] : [])].map((result) => make("td", { className: "figure", textContent: result ? show(result) : "–" }));
    return make("tr", {}, label, ...cells);
  });
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
};

const drawBars = (holder, resultA, resultB) => {
  const stacked = (name, shares) => {
    const pieces = shares.map((share, place) => {
      const piece = make("span", { className: `piece r${place}`, title: `${digits(share, 1)} %`, textContent: share >= 9 ? digits(share, 0) : "" });
      piece.style.flexGrow = Number.isFinite(share) ? share : 0; // through the object model, which the policy allows
      return piece;
    });
    return make("div", { className: "bar-row" }, make("span", { className: "bar-name", textContent: name }), make("span", { className: "stack" }, ...pieces));
  };
  const group = (title, key) => {
    const lines = resultA.categories.map((kind, place) => {
      const bars = [["tokens", kind.tokens], ["A", kind[key]], ...(resultB ? [["B", resultB.categories[place][key]]] : [])];
      const drawn = bars.map(([name, share]) => {
        const bar = make("span", { className: `bar of-${name}` });
        bar.style.width = `${Number.isFinite(share) ? Math.max(share, 0.3) : 0}%`;
        return make("span", { className: "bar-line", title: `${name}: ${digits(share, 2)} %` }, bar, make("span", { className: "bar-value", textContent: digits(share, 1) }));
      });
      return make("div", { className: "bar-row" }, make("span", { className: "bar-name", textContent: kind.name }), make("span", { className: "bar-lines" }, ...drawn));
    });
    return [make("h4", { textContent: title }), ...lines];
  };
  holder.replaceChildren(
    make("h4", { textContent: "Gradient mass below, within, above m ± τ (%)" }),
    stacked("A", resultA.mass), ...(resultB ? [stacked("B", resultB.mass)] : []),
    ...group("By category (%): tokens, then gradient mass", "mass"),
  );
};
