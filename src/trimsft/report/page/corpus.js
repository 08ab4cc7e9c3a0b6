// Figures of the whole corpus beside the texts, of A and B: a table, and bars by region and category.
const withCommas = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const grouped = (value) => withCommas.format(value);
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const digits = (value, places) => (Number.isFinite(value) ? value.toFixed(places) : "–");

const ROWS = [
  ["mean weight", (result) => digits(result.meanWeight, 4)],
  ["R_eff", (result) => digits(result.effectiveRatio, 4)],
  ["High-Weight (%)", (result) => digits(result.highWeight, 2)],
  ["mass below (%)", (result) => digits(result.mass[0], 2)],
  ["mass within (%)", (result) => digits(result.mass[1], 2)],
  ["mass above (%)", (result) => digits(result.mass[2], 2)],
];
// `sides`: [{letter, setting, band, result}], A and maybe B
const drawFigures = (table, sides) => {
  const heads = sides.map(({ letter, setting }) =>
    make("th", { scope: "col" }, `${letter}: ${nameOf(setting)}`, make("span", { className: "note", title: tokenData.runs[setting.run], textContent: `on ${cut(tokenData.runs[setting.run], 40)}` })));
  const rows = ROWS.map(([name, show]) => {
    const label = make("th", { scope: "row" });
    if (name === "R_eff") label.append("R", make("sub", { textContent: "eff" }));
    else label.textContent = name;
    const cells = sides.map(({ result }) => make("td", { className: "figure", textContent: result ? show(result) : "–" }));
    return make("tr", {}, label, ...cells);
  });
  table.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows));
};

// `choose({category} or {gapLow, gapHigh})`: what a click on a bar asks for; `chosen` is what is filtered now
const drawBars = (holder, sides, chosen, choose) => {
  const [a] = sides;
  const { margin, bandwidth } = a.band;
  const bands = sides.map(({ letter, band }) => `${letter} ${tidy(band.margin)} ± ${tidy(band.bandwidth)}`);
  const [from, to] = [margin - bandwidth, margin + bandwidth].map((gap) => Number(gap.toFixed(2)));
  const regions = [["below the band", null, from], ["within the band", from, to], ["above the band", to, null]];
  const stacked = ({ letter, result }) => {
    const pieces = result.mass.map((share, place) => {
      const [name, gapLow, gapHigh] = regions[place];
      const about = { className: `piece r${place}`, title: `${letter}, ${name}: ${digits(share, 1)} %`, textContent: share >= 9 ? digits(share, 0) : "" };
      const piece = letter === "A" ? pressable(about, chosen.gapLow === gapLow && chosen.gapHigh === gapHigh, () => choose({ gapLow, gapHigh })) : make("span", about);
      piece.style.flexGrow = Number.isFinite(share) ? share : 0; // through the object model, which the policy allows
      return piece;
    });
    return make("div", { className: "bar-row" }, make("span", { className: "bar-name", textContent: letter }), make("span", { className: "stack" }, ...pieces));
  };
  const lines = a.result.categories.map((kind, place) => {
    const bars = [["tokens", kind.tokens], ...sides.map(({ letter, result }) => [letter, result?.categories[place].mass])];
    const lengths = bars.map(([name, share]) => {
      const bar = make("span", { className: `bar of-${name}` });
      bar.style.width = `${Number.isFinite(share) ? Math.max(share, 0.3) : 0}%`;
      return make("span", { className: "bar-line", title: `${name}: ${digits(share, 2)} %` }, bar, make("span", { className: "bar-value", textContent: digits(share, 1) }));
    });
    const name = pressable({ className: "bar-name", textContent: kind.name, title: `Find tokens of the category ${kind.name}` }, chosen.category === place, () => choose({ category: place }));
    return make("div", { className: "bar-row" }, name, make("span", { className: "bar-lines" }, ...lengths));
  });
  const focused = [...holder.querySelectorAll("button")].indexOf(document.activeElement);
  holder.replaceChildren(
    make("h4", { textContent: `Gradient mass (%) below, within, above m ± τ: ${bands.join(", ")}` }), ...sides.filter(({ result }) => result).map(stacked),
    make("h4", { textContent: "By category (%): tokens, then gradient mass" }), ...lines,
  );
  holder.querySelectorAll("button")[focused]?.focus({ preventScroll: true }); // the bars are new, the hand is where it was
};

const pressable = (about, pressed, act) => {
  const button = make("button", { type: "button", ...about });
  button.setAttribute("aria-pressed", pressed);
  if (!about.textContent) button.setAttribute("aria-label", about.title);
  button.addEventListener("click", act);
  return button;
};
