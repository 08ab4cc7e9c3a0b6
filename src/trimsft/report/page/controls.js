// Controls and keys: each changes `view` and lets it be drawn again.
const watchControls = (store, view) => {
  watchSetting(store, view, "a", "");
  watchSetting(store, view, "b", "-b");
  for (const name of ["quantity", "sort"]) {
    byId(name).addEventListener("change", () => { view[name] = byId(name).value; view.refresh({ sort: true }); });
  }
  const filter = (changes) => {
    Object.assign(view.filter, changes);
    view.matches = matchesOf(store, view);
    view.target = view.usualTarget();
    view.refresh({ sort: true });
  };
  // the same once more forgets it
  view.toggle = (changes) => {
    const same = Object.entries(changes).every(([key, value]) => view.filter[key] === value);
    filter(same ? Object.fromEntries(Object.keys(changes).map((key) => [key, null])) : changes);
  };
  byId("query").addEventListener("input", () => filter({ query: byId("query").value }));
  byId("query").addEventListener("keydown", ({ key, shiftKey }) => { if (key === "Enter") step(store, view, shiftKey ? -1 : 1, false); });
  byId("category").addEventListener("change", () => filter({ category: finite(byId("category").value) }));
  for (const [id, key] of RANGES) byId(id).addEventListener("input", () => filter({ [key]: finite(byId(id).value) }));
  byId("clear").addEventListener("click", () => { clearFilters(view); byId("query").focus(); });
  byId("next").addEventListener("click", () => step(store, view, 1));
  byId("previous").addEventListener("click", () => step(store, view, -1));
  byId("keep").addEventListener("click", () => keep(view));
  byId("swap-settings").addEventListener("click", () => swap(view));
  byId("to-texts").addEventListener("click", () => byId("pane").querySelector('.t[tabindex="0"]')?.focus());
  view.histograms = ["a", "b"].map((name, place) => makeHistogram(byId(place ? "histogram-b" : "histogram"), "AB"[place], {
    move: (changes, ended) => {
      const text = (key) => (key in changes ? String(changes[key]) : null);
      view[name] = settingFrom({ method: null, run: null, m: text("margin"), tau: text("bandwidth") }, view[name], []);
      view.refresh({ sort: ended });
    },
    brush: place ? null : (gapLow, gapHigh) => { if (gapLow !== view.filter.gapLow || gapHigh !== view.filter.gapHigh) filter({ gapLow, gapHigh }); },
  }));
  watchChips(store, view);
  watchTypes(store, view);
  watchTaking(store, view);
};

// the row of one setting: `name` is "a" or "b", `suffix` what the ids of its controls end in
const watchSetting = (store, view, name, suffix) => {
  const set = (changes, what) => { Object.assign(view[name], changes); view.refresh(what); };
  for (const radio of document.querySelectorAll(`#bar input[name="method${suffix}"]`)) {
    radio.addEventListener("change", () => {
      if (name === "b") view.b = radio.value ? { ...(view.b ?? view.a), method: radio.value } : null;
      if (name === "b" && !view.b) forgetB(view);
      else set({ method: radio.value }, { sort: true });
    });
  }
  for (const [key, short] of [["margin", "m"], ["bandwidth", "tau"]]) {
    const input = byId(key + suffix);
    const take = (typed) => { view[name] = settingFrom({ method: null, m: null, tau: null, run: null, [short]: typed }, view[name], []); };
    input.addEventListener("input", () => {
      if (finite(input.value) === null) return; // not typed to its end
      take(input.value);
      view.refresh();
    });
    input.addEventListener("change", () => {
      take(input.value);
      if (finite(input.value) !== view[name][key]) {
        const [low, high] = LIMITS[key];
        view.refused = `${key} must be a number from ${low} to ${high}, got ${input.value === "" ? "none" : input.value}: it is ${tidy(view[name][key])} now.`;
      }
      input.value = tidy(view[name][key]);
      view.refresh({ sort: true });
    });
  }
  byId(`moment${suffix}`).addEventListener("input", () => set({ moment: Number(byId(`moment${suffix}`).value) }));
  byId(`moment${suffix}`).addEventListener("change", () => view.refresh({ sort: true }));
  byId(`model${suffix}`).addEventListener("change", () => set({ run: Number(byId(`model${suffix}`).value) }, { sort: true }));
};

const clearFilters = (view) => {
  view.filter = { query: "", category: null, type: null, gapLow: null, gapHigh: null, weightLow: null, weightHigh: null };
  for (const id of ["query", ...RANGES.map(([name]) => name)]) byId(id).value = "";
  if (view.target === "matches") view.target = null; // the usual one
  view.refresh({ sort: true });
};
const forgetB = (view) => {
  if (view.quantity === "difference") view.quantity = "learned";
  view.refresh({ sort: true });
};
const keep = (view) => {
  view.b = { ...view.a };
  view.refresh({ sort: true });
};
const swap = (view) => {
  if (!view.b) return;
  [view.a, view.b] = [view.b, view.a];
  view.refresh({ sort: true });
};

// a toolbar: one stop for the tab key, arrows within it; a chip goes to the next token of its kind
const watchChips = (store, view) => {
  const chips = byId("chips");
  chips.addEventListener("click", ({ target }) => {
    const chip = target.closest(".chip");
    if (!chip || chip.ariaDisabled === "true") return;
    view.target = chip.dataset.target;
    showChips(store, view);
    step(store, view, 1, false);
  });
  chips.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...chips.children];
    const to = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
    for (const chip of all) chip.tabIndex = chip === to ? 0 : -1;
    to.focus();
  });
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
  byId("csv-corpus").addEventListener("click", () => download("corpus.csv", "text/csv", corpusCsv(store.corpus[view.a.run], view.sides[0].result)));
  byId("svg").addEventListener("click", () => download("gaps.svg", "image/svg+xml", standaloneSvg(byId("histogram").firstChild)));
};

// ---- keys, which work inside the viewer wherever nothing is typed

const watchKeys = (store, view) => {
  const help = byId("help");
  byId("help-button").addEventListener("click", () => help.showModal());
  byId("help-close").addEventListener("click", () => help.close());
  const change = (changes) => { Object.assign(view.a, changes); view.refresh({ sort: true }); };
  const nudge = (name, by) => {
    if (hasBand(view.a)) change(settingFrom({ method: null, run: null, m: null, tau: null, [name === "margin" ? "m" : "tau"]: String(Math.round((view.a[name] + by) * 100) / 100) }, view.a, []));
  };
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
    i: () => copyPicture(store, view, view.exampleOf(view.at ?? view.examples[0].start)),
    Escape: () => { // one thing at a time
      if (!byId("dock").hidden) unpin();
      else if (view.matches) clearFilters(view);
      else hideCard(view);
    },
  };
  Object.keys(tokenData.objectives).forEach((method, place) => { keys[place + 1] = () => change({ method }); });
  byId("viewer").addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented || help.open) return;
    const typing = event.target.closest?.('input:not([type="radio"], [type="range"]), textarea, select');
    if ((typing && event.key !== "Escape") || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
};

if (tokenData.examples) startViewer();
