// Controls and keys: each changes `view` and lets it be drawn again.
const watchControls = (store, view) => {
  const set = (changes, what) => { Object.assign(view.a, changes); view.refresh(what); };
  for (const radio of document.querySelectorAll('#bar input[name="method"]')) radio.addEventListener("change", () => set({ method: radio.value }, { sort: true }));
  for (const name of ["margin", "bandwidth"]) {
    byId(name).addEventListener("input", () => set({ [name]: Number(byId(name).value) }));
    byId(name).addEventListener("change", () => view.refresh({ sort: true }));
    byId(`${name}-number`).addEventListener("change", (event) => {
      const typed = event.target.value;
      view.a = settingFrom({ method: null, m: null, tau: null, run: null, [name === "margin" ? "m" : "tau"]: typed }, view.a, []);
      if (finite(typed) !== view.a[name]) {
        const [low, high] = LIMITS[name];
        view.refused = `${name} must be a number from ${low} to ${high}, got ${typed === "" ? "none" : typed}: it is ${tidy(view.a[name])} now.`;
      }
      event.target.value = tidy(view.a[name]);
      view.refresh({ sort: true });
    });
  }
  byId("moment").addEventListener("input", () => set({ moment: Number(byId("moment").value) }));
  byId("moment").addEventListener("change", () => view.refresh({ sort: true }));
  byId("model").addEventListener("change", () => set({ run: Number(byId("model").value) }, { sort: true }));
  for (const name of ["quantity", "target", "sort"]) {
    byId(name).addEventListener("change", () => { view[name] = byId(name).value; view.refresh({ sort: true }); });
  }
  const filter = (changes) => { Object.assign(view.filter, changes); view.refresh({ sort: true }); };
  byId("query").addEventListener("input", () => {
    view.target = byId("query").value ? "matches" : view.target;
    filter({ query: byId("query").value });
  });
  byId("query").addEventListener("keydown", ({ key, shiftKey }) => { if (key === "Enter") step(store, view, shiftKey ? -1 : 1, false); });
  byId("category").addEventListener("change", () => filter({ category: finite(byId("category").value) }));
  for (const [id, key] of RANGES) byId(id).addEventListener("input", () => filter({ [key]: finite(byId(id).value) }));
  byId("clear").addEventListener("click", () => { clearFilters(view); byId("query").focus(); });
  byId("next").addEventListener("click", () => step(store, view, 1));
  byId("previous").addEventListener("click", () => step(store, view, -1));
  byId("keep").addEventListener("click", () => keep(view));
  byId("swap-settings").addEventListener("click", () => swap(view));
  byId("drop").addEventListener("click", () => {
    view.b = null;
    if (view.quantity === "difference") view.quantity = "weight";
    if (view.target === "differing") view.target = "trimmed";
    view.refresh({ b: true });
  });
  dragMargin(byId("histogram"), () => view.range, (margin) => set({ margin }), () => view.refresh({ sort: true }));
  watchTaking(store, view);
};

const clearFilters = (view) => {
  view.filter = { query: "", category: null, gapLow: null, gapHigh: null, weightLow: null, weightHigh: null };
  for (const id of ["query", ...RANGES.map(([name]) => name)]) byId(id).value = "";
  if (view.target === "matches") view.target = "trimmed";
  view.refresh({ sort: true });
};
const keep = (view) => {
  view.b = { ...view.a };
  view.refresh({ b: true });
  view.say(`B is now ${nameOf(view.b)}; change A and colour by “weight A − B”.`);
};
const swap = (view) => {
  if (!view.b) return;
  [view.a, view.b] = [view.b, view.a];
  view.refresh({ b: true, sort: true });
};

const watchTaking = (store, view) => {
  for (const button of document.querySelectorAll("#side [data-copy]")) button.addEventListener("click", () => copyFrom(byId(button.dataset.copy), view.say));
  byId("copy-link").addEventListener("click", () => {
    writeHash(view);
    byId("link").hidden = false;
    byId("link").textContent = location.href;
    copyFrom(byId("link"), view.say);
  });
  byId("csv-tokens").addEventListener("click", () => download("tokens.csv", "text/csv", tokensCsv(store, view)));
  byId("csv-corpus").addEventListener("click", () => download("corpus.csv", "text/csv", corpusCsv(store.corpus[view.a.run], view.result)));
  byId("svg").addEventListener("click", () => download("gaps.svg", "image/svg+xml", standaloneSvg(byId("histogram").firstChild)));
};

// ---- keys that work wherever nothing is typed

const watchKeys = (store, view) => {
  const help = byId("help");
  byId("help-button").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
  const change = (changes) => { Object.assign(view.a, changes); view.refresh({ sort: true }); };
  const nudge = (name, by) => change(settingFrom({ method: null, run: null, m: null, tau: null, [name === "margin" ? "m" : "tau"]: String(Math.round((view.a[name] + by) * 100) / 100) }, view.a, []));
  const keys = {
    "/": () => { byId("query").focus(); byId("query").select(); },
    "?": () => help.showModal(),
    n: () => step(store, view, 1), p: () => step(store, view, -1),
    "[": () => nudge("margin", -0.1), "]": () => nudge("margin", 0.1),
    "{": () => nudge("bandwidth", -0.1), "}": () => nudge("bandwidth", 0.1),
    b: () => keep(view), x: () => swap(view),
    c: () => {
      const names = Object.keys(QUANTITIES).filter((name) => name !== "difference" || view.b);
      view.quantity = names[(names.indexOf(view.quantity) + 1) % names.length];
      view.refresh();
    },
    Escape: () => {
      if (!byId("inspector").hidden) byId("inspector").hidden = true; // one thing at a time
      else if (view.matches) clearFilters(view);
    },
  };
  Object.keys(tokenData.objectives).forEach((method, place) => { keys[place + 1] = () => change({ method }); });
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || help.open) return;
    const typing = event.target.closest?.('input:not([type="radio"], [type="range"]), textarea, select');
    const inside = event.target === document.body || byId("viewer").contains(event.target);
    if ((typing && event.key !== "Escape") || !inside || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
};

if (tokenData.examples) startViewer();
