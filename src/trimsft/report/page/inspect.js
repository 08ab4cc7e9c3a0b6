// The numbers behind one token: every run, every method, and the alternatives that the model saw.
const three = (value) => (Math.abs(value) < 0.0005 && value !== 0 ? value.toExponential(1) : value.toFixed(3));
const named = (store, index) => make("code", { textContent: store.texts[index].replace("\n", "") });

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
    list.append(make("li", { className: gold ? "gold" : "" }, named(store, index), make("span", { className: "bar-line" }, bar), make("span", { className: "figure", textContent: p < 0.0005 ? p.toExponential(0) : digits(100 * p, 1) + " %" })));
  }
  return list;
};

const drawRuns = (store, view, example, i) => {
  const methods = Object.entries(given.objectives);
  const heads = ["", "p", "gap", "nll", "competitor", "entropy", "rank", ...methods.map(([, name]) => `w ${name}`)];
  const rows = store.runs.flatMap((run, number) => {
    if (!run || run.missing.has(example.place)) return [];
    const [nll, gap] = [run.nll[i], run.gap[i]];
    const figure = (textContent, className = "figure") => make("td", { textContent, className });
    const rank = run.rank[i] >= 65535 ? "≥ 65535" : run.rank[i];
    const weights = methods.map(([method]) =>
      figure(weigher({ ...view.a, method })(nll, gap).toFixed(3), method === view.a.method ? "figure chosen" : "figure"));
    return make("tr", { className: number === view.a.run ? "chosen" : "" },
      make("th", { scope: "row", textContent: given.runs[number] }), figure(three(Math.exp(-nll))), figure(three(gap)), figure(three(nll)),
      make("td", {}, named(store, run.competitor[i])), figure(three(run.entropy[i])), figure(rank), ...weights);
  });
  const head = make("tr", {}, ...heads.map((textContent) => make("th", { scope: "col", textContent, className: textContent === "competitor" || !textContent ? "" : "figure" })));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
};

const drawInspected = (holder, store, view, i) => {
  const example = view.exampleOf(i);
  const place = i - example.start;
  const heading = make("p", { className: "which" }, "Token ", named(store, store.token[i]),
    ` id ${store.ids[store.token[i]]}, ${given.categories[store.category[i]]}, number ${place + 1} of ${grouped(example.length)} in example ${example.number + 1}`);
  if (view.b && view.others) {
    heading.append(`; weight A ${digits(view.weights[i], 3)}, B ${digits(view.others[i], 3)}`);
  }
  const run = view.run && !view.run.missing.has(example.place) ? view.run : null;
  const parts = [make("div", { className: "runs wide" }, drawRuns(store, view, example, i))];
  if (run) parts.unshift(make("div", { className: "tops" }, drawAlternatives(store, run, i)));
  holder.replaceChildren(heading, make("div", { className: "numbers" }, ...parts));
};
