// One token: a card beside it with what matters, and, once it is pinned, a dock with every number of every run and method.
const three = (value) => (Math.abs(value) < 0.0005 && value !== 0 ? value.toExponential(1) : value.toFixed(3));
const named = (store, index) => make("code", { textContent: store.names[index] });
const figure = (textContent, className = "figure") => make("td", { textContent, className });
const percentOf = (p) => (p < 0.0005 ? p.toExponential(0) : `${digits(100 * p, 1)} %`);

// the settings that say something of a token: a run may have other tokens there
const sidesOf = (view, { place }) => view.sides.filter(({ run }) => run && !run.missing.has(place));

// what is said of a token to whoever does not see its colour
const labelOf = (store, view, i) => {
  const told = sidesOf(view, view.exampleOf(i)).map(({ letter, run, weights }) => `${letter}: gap ${digits(run.gap[i], 2)}, weight ${digits(weights[i], 3)}`);
  return [store.names[store.token[i]], ...(told.length ? told : ["this model's tokens are others"])].join("; ");
};

// ---- the card

const drawCard = (card, store, view, i) => {
  const example = view.exampleOf(i);
  const heads = ["gap", "p", "instead", "weight"].map((textContent) => make("th", { scope: "col", textContent, className: textContent === "instead" ? "" : "figure" }));
  const rows = sidesOf(view, example).map(({ letter, run, weights }) =>
    make("tr", {}, make("th", { scope: "row" }, make("span", { className: `letter of-${letter}`, textContent: letter })), figure(digits(run.gap[i], 2)), figure(percentOf(Math.exp(-run.nll[i]))),
      make("td", {}, named(store, run.competitor[i]), ` ${percentOf(Math.exp(-run.nll[i] - run.gap[i]))}`), figure(digits(weights[i], 3), "figure chosen")));
  const title = make("p", {}, named(store, store.token[i]), ` ${tokenData.categories[store.category[i]]}`);
  const table = make("table", {}, make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows));
  card.replaceChildren(title, rows.length ? table : make("p", { className: "note", textContent: "This model's tokens are others." }),
    make("p", { className: "note", textContent: byId("dock").hidden ? "Enter or another click: all numbers" : "" }));
};

// where what is seen of the texts ends
const dockTop = () => (byId("dock").hidden ? innerHeight : Math.min(innerHeight, byId("dock").getBoundingClientRect().top));

// below its token, or above it where there is more room or where the same token by B stands below; never over it
const placeCard = (card, pane, span) => {
  card.hidden = false;
  const [box, frame] = [span.getBoundingClientRect(), pane.getBoundingClientRect()];
  const bottom = Math.min(frame.bottom, dockTop());
  const [room, need] = [{ above: box.top - Math.max(frame.top, 0), below: bottom - box.bottom }, card.offsetHeight + 8];
  const wanted = pane.classList.contains("two") && span.closest(".row-A") ? room.above >= need : room.below < need;
  const above = wanted && (room.above >= need || room.above > room.below);
  const left = between(box.left - frame.left, 4, Math.max(4, pane.clientWidth - card.offsetWidth - 4));
  const top = above ? box.top - card.offsetHeight - 6 : box.bottom + 6;
  card.style.left = `${left}px`;
  card.style.top = `${top - frame.top + pane.scrollTop}px`;
};

// ---- the dock: the alternatives that the model saw, and every run with every method

// the five most likely tokens that are known, and the gold one wherever it stands
const alternatives = (store, run, i) => {
  const gold = store.token[i];
  const known = [[gold, run.nll[i]], [run.competitor[i], run.nll[i] + run.gap[i]]];
  run.top.forEach((column, place) => { if (column[i]) known.push([column[i] - 1, (run.topNll[place][i] / 40) ** 2]); });
  const sortedByP = known.map(([index, nll]) => ({ index, p: Math.exp(-nll), gold: index === gold })).sort((one, other) => other.p - one.p);
  return sortedByP.filter((token, place) => place < 5 || token.gold);
};

const drawAlternatives = (store, run, i) => {
  const list = make("ol", { className: "top" });
  for (const { index, p, gold } of alternatives(store, run, i)) {
    const bar = make("span", { className: "bar" });
    bar.style.width = `${100 * p}%`;
    list.append(make("li", { className: gold ? "gold" : "" }, named(store, index), make("span", { className: "bar-line" }, bar), make("span", { className: "figure", textContent: percentOf(p) })));
  }
  return list;
};

const drawRuns = (store, view, example, i) => {
  const methods = Object.entries(tokenData.objectives);
  const heads = ["p", "gap", "nll", "competitor", "entropy", "rank", ...methods.map(([, name]) => `w ${name}`)];
  const rows = store.runs.flatMap((run, number) => {
    if (!run || run.missing.has(example.place)) return [];
    const [nll, gap] = [run.nll[i], run.gap[i]];
    const rank = run.rank[i] >= 65535 ? "≥ 65535" : run.rank[i];
    const weights = methods.map(([method]) =>
      figure(weigher({ ...view.a, method })(nll, gap).toFixed(3), method === view.a.method ? "figure chosen" : "figure"));
    return make("tr", { className: number === view.a.run ? "chosen" : "" },
      make("th", { scope: "row", textContent: tokenData.runs[number] }), figure(three(Math.exp(-nll))), figure(three(gap)), figure(three(nll)),
      make("td", {}, named(store, run.competitor[i])), figure(three(run.entropy[i])), figure(rank), ...weights);
  });
  const head = make("tr", {}, make("td"), ...heads.map((textContent) => make("th", { scope: "col", textContent, className: textContent === "competitor" ? "" : "figure" })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
};

const drawDock = (store, view, i) => {
  const example = view.exampleOf(i);
  byId("which").replaceChildren("Token ", named(store, store.token[i]),
    ` id ${store.ids[store.token[i]]}, ${tokenData.categories[store.category[i]]}, number ${i - example.start + 1} of ${grouped(example.length)} in example ${example.number + 1}`);
  const run = view.run && !view.run.missing.has(example.place) ? view.run : null;
  const runs = make("div", { className: "runs wide", tabIndex: 0, role: "region", ariaLabel: "Every run" }, drawRuns(store, view, example, i));
  const parts = [runs];
  if (run) parts.unshift(make("div", { className: "tops" }, drawAlternatives(store, run, i)));
  byId("inspected").replaceChildren(...parts);
};

// ---- what a hand does: pointing and going to a token shows the card, a second click or Enter pins it

const showToken = (store, view, span) => {
  view.shown = span.token;
  drawCard(byId("card"), store, view, span.token);
  placeCard(byId("card"), byId("pane"), span);
  if (!byId("dock").hidden) drawDock(store, view, span.token);
};
const hideCard = (view) => {
  byId("card").hidden = true;
  view.shown = null;
};

// this token is the one that keys go on from
const arrive = (store, view, span) => {
  for (const other of byId("pane").querySelectorAll("[aria-current]")) {
    other.removeAttribute("aria-current");
    other.removeAttribute("aria-label");
  }
  span.setAttribute("aria-current", "true");
  span.setAttribute("aria-label", labelOf(store, view, span.token));
  view.at = span.token;
  showToken(store, view, span);
  clearTimeout(view.writing);
  view.writing = setTimeout(() => writeHash(view), 250);
};

const pin = (store, view) => {
  if (view.at === null) return;
  byId("dock").hidden = false;
  drawDock(store, view, view.at);
  keepInSight(view.texts.spanOf(view.at, view.row));
  showToken(store, view, view.texts.spanOf(view.at, view.row));
};
const unpin = () => { byId("dock").hidden = true; };

// a token that is gone to, or that the dock would lie over, is moved into what is seen of the pane
const keepInSight = (span) => {
  const pane = byId("pane");
  const [box, frame] = [span.getBoundingClientRect(), pane.getBoundingClientRect()];
  const head = span.closest(".example").querySelector(".head").offsetHeight; // which stays at the top
  const [top, bottom] = [Math.max(frame.top, 0) + head, Math.min(frame.bottom, dockTop())];
  if (box.top < top + 4 || box.bottom > bottom - 12) pane.scrollTop += box.top - top - (bottom - top) / 3;
};

const watchTokens = (store, view) => {
  const pane = byId("pane");
  const current = () => (view.at === null ? null : view.texts.spanOf(view.at, view.row));
  pane.addEventListener("mouseover", ({ target }) => { if (target.token !== undefined) showToken(store, view, target); });
  pane.addEventListener("mouseleave", () => {
    if (pane.contains(document.activeElement) && view.at !== null) showToken(store, view, current());
    else hideCard(view);
  });
  pane.addEventListener("focusin", ({ target }) => {
    if (target.token === undefined) return;
    view.row = target.parentNode.classList.contains("row-B") ? 1 : 0;
    arrive(store, view, target);
  });
  pane.addEventListener("focusout", () => hideCard(view));
  let again = false; // the click that brings the focus pins nothing
  pane.addEventListener("pointerdown", ({ target }) => { again = target.token !== undefined && target === document.activeElement; });
  pane.addEventListener("click", () => { if (again) pin(store, view); });
  pane.addEventListener("keydown", (event) => {
    const i = event.target.token;
    if (i === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const { start, length } = view.exampleOf(i);
    if (event.key === "Enter") pin(store, view);
    const to = {
      ArrowRight: () => i + 1, ArrowLeft: () => i - 1, Home: () => start, End: () => start + length - 1,
      ArrowDown: () => lineAway(event.target, 1), ArrowUp: () => lineAway(event.target, -1),
    }[event.key]?.();
    if (to === undefined) return;
    event.preventDefault();
    view.goTo(between(to, start, start + length - 1));
  });
  byId("close").addEventListener("click", () => {
    unpin();
    current()?.focus({ preventScroll: true });
  });
};

// the token above or below, by where it stands
const lineAway = (span, direction) => {
  const here = span.getBoundingClientRect();
  let best = null;
  for (let other = span; other; other = direction > 0 ? other.nextSibling : other.previousSibling) {
    const { left, top } = other.getBoundingClientRect();
    const lines = Math.round(Math.abs(top - here.top) / (here.height || 1) - 0.2);
    if (lines > 2 && best) break;
    if (lines < 1) continue;
    if (!best || (Math.abs(top - best.top) < 4 && Math.abs(left - here.left) < best.off)) best = { token: other.token, top, off: Math.abs(left - here.left) };
    else if (Math.abs(top - best.top) >= 4) break;
  }
  return best ? best.token : span.token;
};
