// Token types of the shown texts in a table that can be sorted: how often, and which share of the gradient under A and B.
const TYPES_SHOWN = 12;

// [{index, name, count, A, B}] of every type that is there; shares in percent
const typesOf = (store, view) => {
  const { typeOf, typeTexts, token } = store;
  store.typeNames ??= typeTexts.map((text) => showText(text).replaceAll("\n", ""));
  const count = new Uint32Array(typeTexts.length);
  for (let i = 0; i < store.size; i++) count[typeOf[token[i]]]++;
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
    return mass.map((own) => (total > 0 ? (100 * own) / total : NaN));
  });
  return Array.from(count.keys()).filter((index) => count[index] > 0)
    .map((index) => ({ index, name: store.typeNames[index], count: count[index], A: shares[0][index], B: shares[1]?.[index] }));
};

const inOrder = (types, { key, down }) => {
  const sign = down ? -1 : 1;
  const value = (type) => (Number.isNaN(type[key]) ? -1 : type[key]);
  const compare = key === "name" ? (one, other) => sign * one.name.localeCompare(other.name) : (one, other) => sign * (value(one) - value(other));
  return types.sort((one, other) => compare(one, other) || one.index - other.index);
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
  const types = inOrder(typesOf(store, view), view.types);
  const rows = types.slice(0, shown).map(({ index, name, count, ...share }) => {
    const button = pressable({ textContent: name, title: `Find every ${name}` }, view.filter.type === index, () => view.toggle({ type: index }));
    const figures = [grouped(count), digits(share.A, 2), ...(view.b ? [digits(share.B, 2)] : [])];
    return make("tr", {}, make("th", { scope: "row" }, button), ...figures.map((text) => figure(text)));
  });
  const focused = [...table.querySelectorAll("button")].indexOf(document.activeElement);
  table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  if (focused >= 0) table.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  byId("more-types").hidden = types.length <= shown;
  byId("types-counted").textContent = `${grouped(types.length)} types in the texts that are shown; their share of the gradient under each setting.`;
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
