// What concerns the whole page: elements, files to keep, links to sections, printing. All other scripts see this one.
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
  const given = value === null || value === undefined ? "" : String(value);
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(given) ? `'${given}` : given; // spreadsheets run formulas
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
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

// ---- links, printing

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
