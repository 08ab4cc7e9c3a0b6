// What concerns the whole page: elements, files to keep, theme, links to sections, printing. All other scripts see this one.
const byId = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// ---- files to keep

const download = (name, type, text) => {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
};

const csvCell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // spreadsheets run formulas
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};
const csv = (rows) => rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");

// a drawing with the look it has now written into it, since the style sheet stays behind
const SVG = "http://www.w3.org/2000/svg";
const LOOK = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "text-anchor"];
const standaloneSvg = (svg) => {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of LOOK) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  for (const [name, value] of Object.entries({ width, height })) copy.setAttribute(name, value);
  const paper = document.createElementNS(SVG, "rect");
  const fill = getComputedStyle(document.body).backgroundColor;
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill })) paper.setAttribute(name, value);
  copy.querySelector("title").after(paper);
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(copy)}\n`;
};

// one word of a shell, whatever is in it
const shellWord = (text) => (/^[\w./@:+~-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`);

// ---- theme, links, printing

const root = document.documentElement;
const themes = ["system", "light", "dark"];
const setTheme = (name) => {
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  byId("theme").textContent = `Theme: ${name}`;
  document.dispatchEvent(new CustomEvent("trimsft:theme"));
};
const KEPT_THEME = "trimsft.theme";
try { // some browsers keep nothing for a file
  const kept = localStorage.getItem(KEPT_THEME);
  if (themes.includes(kept)) setTheme(kept);
} catch { /* then the theme is the system's */ }
byId("theme").hidden = false;
byId("theme").addEventListener("click", () => {
  const next = themes[(themes.indexOf(root.dataset.theme ?? "system") + 1) % themes.length];
  setTheme(next);
  try { localStorage.setItem(KEPT_THEME, next); } catch { /* it holds for this visit */ }
});

// the address holds the state of the rooms, so links to sections leave it alone; the tab key goes on from where they lead
const goToSection = (id) => {
  const section = byId(id);
  section.tabIndex = -1;
  section.focus({ preventScroll: true });
  section.scrollIntoView();
};
for (const link of document.querySelectorAll("a.skip, nav a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    goToSection(link.hash.slice(1));
  });
}

// a table that goes on to the side can be moved by keys, too
const widths = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const table of document.querySelectorAll(".wide, .panel")) widths.observe(table);

window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
