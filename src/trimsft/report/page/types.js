// Token types of the shown texts in a table that can be sorted: how often, and which share of the gradient under A and B.
const TYPES_SHOWN = 12;

// for each type {count, A, B}; shares in percent
const typesOf = (store, view) => {
  const { typeOf, typeTexts, token } = store;
  if (!store.typeCount) {
    store.typeCount = new Uint32Array(typeTexts.length);
    for (let i = 0; i < store.size; i++) store.typeCount[typeOf[token[i]]]++;
  }
  const shares = view.sides.map(({ run, weights }) => {
    const mass = new Float64Array(typeTexts.length);
    let total = 0;
    for (const { place, start, length } of store.examples) {
      if (!run || run.missing.has(place)) continue;
      for (let i = start; i < start + length; i++) {
        const own = run.norm[i] * weights[i];
        mass[typeOf[token[i]]] += own;
        total += own;
      }
    }
    return mass.map((own) => (total > 0 ? (100 * own) / total : 0));
  });
  return { name: store.typeNames, count: store.typeCount, A: shares[0], B: shares[1] };
};

// the first types in an order, without sorting the others
const firstTypes = (types, { key, down, shown }) => {
  const values = types[key];
  const sign = down ? -1 : 1;
  const compare = key === "name" ? (one, other) => sign * values[one].localeCompare(values[other]) : (one, other) => sign * (values[one] - values[other]);
  const first = [];
  for (let index = 0; index < types.count.length; index++) {
    if (types.count[index] === 0 || (first.length === shown && compare(index, first[shown - 1]) >= 0)) continue;
    let place = first.length;
    while (place > 0 && compare(index, first[place - 1]) < 0) place--;
    first.splice(place, 0, index);
    if (first.length > shown) first.pop();
  }
  return first;
};

const drawTypes = (table, store, view) => {
  const columns = [["name", "token"], ["count", "times"], ["A", "A (%)"], ...(view.b ? [["B", "B (%)"]] : [])];
  if (!columns.some(([key]) => key === view.types.key)) view.types = { ...view.types, key: "A", down: true };
  const { key, down, shown } = view.types;
  const heads = columns.map(([name, text]) => {
    const button = make("button", { type: "button", textContent: text });
    button.dataset.sort = name;
    const head = make("th", { scope: "col", className: name === "name" ? "" : "figure" }, button);
    if (name === key) head.ariaSort = down ? "descending" : "ascending";
    return head;
  });
  const types = typesOf(store, view);
  const rows = firstTypes(types, view.types).map((index) => {
    const name = types.name[index];
    const button = pressable({ textContent: name, title: `Find every ${name}` }, view.filter.type === index, () => view.toggle({ type: index }));
    const figures = [grouped(types.count[index]), digits(types.A[index], 2), ...(view.b ? [digits(types.B[index], 2)] : [])];
    return make("tr", {}, make("th", { scope: "row" }, button), ...figures.map((text) => figure(text)));
  });
  const focused = [...table.querySelectorAll("button")].indexOf(document.activeElement);
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  if (focused >= 0) table.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  const there = types.count.reduce((sum, count) => sum + (count > 0), 0);
  byId("more-types").hidden = there <= shown;
  byId("types-counted").textContent = `${grouped(there)} types in the texts that are shown; their share of the gradient under each setting.`;
};

const watchTypes = (store, view) => {
  view.types = { key: "A", down: true, shown: TYPES_SHOWN };
  const draw = () => drawTypes(byId("types"), store, view);
  byId("types").addEventListener("click", ({ target }) => {
    const key = target.dataset.sort;
    if (!key) return;
    view.types = { ...view.types, key, down: key === view.types.key ? !view.types.down : key !== "name" };
    draw();
  });
  byId("more-types").addEventListener("click", () => {
    view.types.shown *= 4;
    draw();
  });
  byId("by-type").addEventListener("toggle", () => { if (byId("by-type").open) draw(); });
};
