// What all tabs stand on: elements, the address, tabs, groups of controls with one stop of the tab key, CSV, charts.
const byId = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const SVG = "http://www.w3.org/2000/svg";
const draw = (tag, attributes = {}, ...children) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const page = JSON.parse(byId("data").textContent);
const between = (value, low, high) => Math.min(high, Math.max(low, value));
const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
const minus = (text) => String(text).replace("-", "−");

// deflated numbers or JSON
const inflated = async (text) => {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));
};
const unpack = async (text) => new Float32Array(await (await inflated(text)).arrayBuffer());

// ---- the address holds what a reader chose, so that a link shows the same
const chosen = () => new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
const remember = (changes) => {
  const query = chosen();
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  if (text !== chosen().toString()) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
};
let waiting = 0;
const rememberSoon = (changes) => { // browsers count how often an address is changed
  clearTimeout(waiting);
  waiting = setTimeout(remember, 250, changes);
};

// ---- a group is one stop of the tab key; arrows go from one item to the next
const rove = (group, selector) => {
  const stop = (item) => { for (const other of group.querySelectorAll(selector)) other.tabIndex = other === item ? 0 : -1; };
  group.addEventListener("keydown", (event) => {
    const items = [...group.querySelectorAll(selector)];
    const at = items.indexOf(event.target.closest(selector));
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    items[(to + items.length) % items.length].focus();
  });
  group.addEventListener("focusin", ({ target }) => { if (target.closest(selector)) stop(target.closest(selector)); });
  return stop;
};

const tabs = [...document.querySelectorAll("nav a")];
const panels = tabs.map((tab) => byId(tab.hash.slice(1)));
const showTab = (place) => {
  tabs.forEach((tab, at) => tab.setAttribute("aria-selected", at === place));
  panels.forEach((panel, at) => { panel.hidden = at !== place; });
  stopAtTab(tabs[place]);
  panels[place].dispatchEvent(new Event("shown"));
};
const named = (id) => Math.max(0, panels.findIndex((panel) => panel.id === id));
const stopAtTab = rove(byId("tabs"), "a");
byId("tabs").setAttribute("role", "tablist");
tabs.forEach((tab, place) => {
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", panels[place].id);
  panels[place].setAttribute("role", "tabpanel");
  const open = () => {
    showTab(place);
    remember({ tab: place ? panels[place].id : null });
  };
  tab.addEventListener("focus", open);
  tab.addEventListener("click", (event) => {
    event.preventDefault();
    open();
  });
});
const readTab = () => showTab(named(chosen().get("tab") ?? location.hash.slice(1)));

// ---- clipboard and files
let silence = 0;
const say = (words) => {
  byId("said").textContent = words;
  clearTimeout(silence);
  if (words) silence = setTimeout(() => say(""), 8000);
};
const download = (name, content) => {
  const address = URL.createObjectURL(content);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
};
const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied: ${text}`);
  } catch {
    say(text); // to be selected by hand
  }
};
for (const table of document.querySelectorAll("table[data-csv]")) {
  const name = table.dataset.csv;
  const save = make("button", { type: "button", textContent: "CSV", ariaLabel: `${name} as CSV` });
  save.addEventListener("click", () => download(`${name}.csv`, new Blob([page.csv[name]], { type: "text/csv" })));
  table.caption.append(" ", save);
}

// ---- charts of lines: {title, x, lines: {label: [[x, y], ...]}}, each line in the colour and dashes of its run
const ticksOf = (low, high, about) => {
  const power = 10 ** Math.floor(Math.log10((high - low) / about));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => (high - low) / size <= about);
  const ticks = [];
  for (let place = Math.ceil(low / step); place * step <= high; place++) ticks.push(Number((place * step).toPrecision(6)));
  return ticks;
};
const lineOf = (d, label) => {
  const path = draw("path", { d, class: "line" });
  [path.style.stroke, path.style.strokeDasharray] = page.lines[label];
  return path;
};
const drawChart = ({ title, x: across, lines }) => {
  const [width, height, left, bottom] = [380, 220, 44, 180];
  const points = Object.values(lines).flat();
  const ends = (place) => points.reduce(([low, high], point) => [Math.min(low, point[place]), Math.max(high, point[place])], [Infinity, -Infinity]);
  const [[x0, x1], [y0, y1]] = [ends(0), ends(1)];
  const X = (value) => left + ((width - left - 8) * (value - x0)) / (x1 - x0 || 1);
  const Y = (value) => bottom - ((bottom - 26) * (value - y0)) / (y1 - y0 || 1);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${Object.keys(lines).join(", ")}` });
  svg.append(draw("text", { x: 0, y: 12, class: "title" }, title), draw("text", { x: width - 8, y: height - 6, "text-anchor": "end" }, across));
  for (const tick of ticksOf(y0, y1 > y0 ? y1 : y0 + 1, 5)) {
    svg.append(draw("line", { x1: left, x2: width - 8, y1: Y(tick), y2: Y(tick), class: "grid" }), draw("text", { x: left - 5, y: Y(tick) + 4, "text-anchor": "end" }, minus(tick)));
  }
  for (const tick of ticksOf(x0, x1 > x0 ? x1 : x0 + 1, 6)) svg.append(draw("text", { x: X(tick), y: bottom + 16, "text-anchor": "middle" }, minus(tick)));
  for (const [label, line] of Object.entries(lines)) {
    svg.append(lineOf(`M${line.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join("L")}`, label));
  }
  return svg;
};
for (const [id, charts] of Object.entries(page.charts)) {
  const labels = [...new Set(charts.flatMap(({ lines }) => Object.keys(lines)))];
  const marks = labels.map((label) => {
    const mark = draw("svg", { viewBox: "0 0 34 10", class: "mark", "aria-hidden": "true" }, lineOf("M0,5H34", label));
    return make("li", {}, mark, ` ${label}`);
  });
  byId(id).append(make("ul", { className: "legend" }, ...marks), make("div", { className: "charts" }, ...charts.map(drawChart)));
}
