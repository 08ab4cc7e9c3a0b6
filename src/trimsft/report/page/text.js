// Texts of the examples, each token in its colour: one row by setting A, and where there is a setting B, one below it by B.

// ---- from numbers to the nine steps of a scale; the colours themselves are those of the style sheet, by class

const ninths = Array.from({ length: 8 }, (_, place) => (place + 1) / 9);
// `of(side, i)` is the value of a token, its place among `edges` the step; `side`: {letter, setting, run, weights, others, split}
const QUANTITIES = {
  learned: { name: "what is learned", colours: "d", step: (side, i) => learnedStep(side.weights[i], side.run.gap[i] < side.split) },
  weight: { name: "weight", edges: ninths, colours: "q", of: (side, i) => side.weights[i] },
  gradient: { name: "gradient: weight × norm", edges: [0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8], colours: "q", of: (side, i) => side.weights[i] * side.run.norm[i] },
  gap: { name: "gap", edges: tokenData.edges, colours: "d", of: (side, i) => side.run.gap[i] },
  probability: { name: "probability", edges: ninths, colours: "q", of: (side, i) => Math.exp(-side.run.nll[i]) },
  entropy: { name: "entropy", edges: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2], colours: "q", of: (side, i) => side.run.entropy[i] },
  difference: {
    name: "weight A − B", edges: [-0.75, -0.5, -0.25, -0.05, 0.05, 0.25, 0.5, 0.75], colours: "x",
    of: (side, i) => side.weights[i] - side.others[i],
  },
};

const stepOf = (edges, value) => {
  let step = 0;
  while (step < 8 && value >= edges[step]) step++;
  return step;
};

// weights above one half are blue; those below are orange on the side of what is out of reach, pale on that of what is mastered
const LEARNED = [
  ["trimmed, out of reach", "< 0.02", "< 0.1", "< 0.25", "≤ 0.5"],
  ["kept", "> 0.5", "≥ 0.8"],
  ["trimmed, mastered", "≤ 0.5", "< 0.25", "< 0.05"],
];
const learnedStep = (weight, below) => {
  if (Number.isNaN(weight)) return 9;
  if (weight > HIGH) return weight < 0.8 ? 4 : 5;
  if (below) return weight < 0.02 ? 0 : weight < 0.1 ? 1 : weight < 0.25 ? 2 : 3;
  return weight >= 0.25 ? 6 : weight >= 0.05 ? 7 : 8;
};

// [{text, title, name of the class}], and {text} where a group begins
const scaleOf = ({ edges, colours }) => {
  if (!edges) {
    let step = 0;
    return LEARNED.flatMap(([group, ...texts]) => [{ text: group }, ...texts.map((text) => ({ text, title: `weight ${text}, ${group}`, name: colours + step++ }))]);
  }
  const short = (value) => String(Number(value.toPrecision(2)));
  return Array.from({ length: 9 }, (_, step) => {
    const text = step === 0 ? `< ${short(edges[0])}` : step === 8 ? `≥ ${short(edges[7])}` : short(edges[step - 1]);
    const title = step === 0 || step === 8 ? text : `${short(edges[step - 1])} to ${short(edges[step])}`;
    return { text, title, name: colours + step };
  });
};
const drawScale = (list, quantity) =>
  list.replaceChildren(...scaleOf(quantity).map(({ text, title = "", name = "group-name" }) => make("li", { textContent: text, title, className: name })));

// what the browser makes of the classes, as red, green, blue, opacity, for canvases: read again when the scheme changes
const paints = () => {
  const probe = document.body.appendChild(document.createElement("span"));
  const bytes = (colour) => [...colour.match(/[\d.]+/g).slice(0, 3).map(Number), 255];
  const paintOf = { ink: bytes(getComputedStyle(probe).color) };
  for (const colours of ["d", "q", "x"]) {
    for (let step = 0; step < 9; step++) {
      probe.className = colours + step;
      paintOf[colours + step] = bytes(getComputedStyle(probe).backgroundColor);
    }
  }
  probe.remove();
  return paintOf;
};

// a token's class in one number: step of the colour (9: none), dimmed, found
const codeOf = (view, side, run, quantity, i) => {
  let step = 9;
  if (run && quantity.step) step = quantity.step(side, i);
  else if (run) {
    const value = quantity.of(side, i);
    if (!Number.isNaN(value)) step = stepOf(quantity.edges, value);
  }
  return step + (view.matches ? (view.matches[i] ? 32 : 16) : 0);
};
const classOf = (code, { colours: letter }) =>
  `t${(code & 15) < 9 ? ` ${letter}${code & 15}` : ""}${code & 16 ? " dim" : ""}${code & 32 ? " hit" : ""}`;

// ---- one example: heading, strips and texts

const makeArticle = (example, view) => {
  const facts = make("span", { className: "note" });
  const rows = ["A", "B"].map((letter) => ({
    strip: make("canvas", { className: "strip", width: Math.max(1, example.length), height: 2, title: `all tokens of the example, ${letter}` }),
    text: make("p", { className: `completion row-${letter}` }),
  }));
  const article = make("article", { className: "example" });
  const copy = make("button", { type: "button", className: "copy", textContent: "Copy as image", tabIndex: -1, title: "i" }); // one stop an example: its tokens
  copy.addEventListener("click", () => view.copyPicture(example));
  article.append(make("div", { className: "head" }, make("h3", { textContent: `Example ${example.number + 1} ` }, facts), copy), ...rows.map(({ strip }) => strip));
  if (example.prompt) article.append(make("p", { className: "prompt", textContent: example.prompt }));
  article.append(...rows.map(({ text }) => text));
  if (example.leftOut) article.append(make("p", { className: "note", textContent: `${grouped(example.leftOut)} more tokens are not shown.` }));
  for (const { strip } of rows) {
    strip.addEventListener("click", (event) => {
      const share = event.offsetX / strip.clientWidth;
      view.goTo(example.start + Math.min(example.length - 1, Math.floor(share * example.length)));
    });
  }
  article.example = example;
  return { article, rows, facts };
};

// ---- texts: only examples near the window have a span for each token; the others keep their height
const makeTexts = (pane, holder, store, view) => {
  const near = new Set();
  const rendered = new Map(); // example -> for each row {spans, codes, letter of the colours}
  let colours = paints();
  const articles = store.examples.map((example) => makeArticle(example, view));
  holder.replaceChildren(...articles.map(({ article }) => article));

  // the settings that have a row: a difference is one row
  const sides = () => (view.quantity === "difference" ? view.sides.slice(0, 1) : view.sides);
  const runFor = ({ run }, { place }) => (run && !run.missing.has(place) ? run : null);

  const renderRow = (example, side, text) => {
    const [run, quantity] = [runFor(side, example), QUANTITIES[view.quantity]];
    const codes = new Uint8Array(example.length);
    const spans = Array.from({ length: example.length }, (_, place) => {
      const i = example.start + place;
      codes[place] = codeOf(view, side, run, quantity, i);
      const span = document.createElement("span");
      span.className = classOf(codes[place], quantity);
      span.textContent = store.shown[store.token[i]];
      span.tabIndex = place || side !== view.sides[0] ? -1 : 0;
      span.role = "option";
      span.token = i;
      return span;
    });
    text.replaceChildren(...spans);
    text.role = "listbox";
    text.ariaLabel = `Tokens of example ${example.number + 1} by setting ${side.letter}`;
    text.style.minHeight = "";
    return { spans, codes, letter: quantity.colours };
  };
  const render = (example) => {
    if (rendered.has(example)) return;
    rendered.set(example, sides().map((side, place) => renderRow(example, side, articles[example.place].rows[place].text)));
    drawStrips(example);
    note(example);
  };

  const note = (example) => {
    const { length, matches, trimmed, nll } = factsOf(view, example);
    const other = view.sides[1] ? ` (by B ${digits(100 * factsOf(view, example, view.sides[1]).trimmed, 1)} %)` : "";
    const known = Number.isNaN(nll) ? "; this model's tokens are others" : `; ${digits(100 * trimmed, 1)} % of its gradient mass trimmed${other}; mean nll ${digits(nll, 3)}`;
    const matching = view.matches ? `; ${grouped(matches)} ${matches === 1 ? "match" : "matches"}` : "";
    articles[example.place].facts.textContent = `${grouped(length)} tokens${known}${matching}`;
  };

  const leave = (example, force = false) => {
    const { article, rows } = articles[example.place];
    if (!rendered.has(example) || (!force && article.contains(document.activeElement))) return;
    for (const { text } of rows) {
      text.style.minHeight = `${text.offsetHeight}px`;
      text.replaceChildren();
      text.role = null;
      text.ariaLabel = null;
    }
    rendered.delete(example);
  };

  // one pixel a token, which the style sheet stretches: colour above, matches below
  const drawStrips = (example) => {
    const quantity = QUANTITIES[view.quantity];
    sides().forEach((side, at) => {
      const run = runFor(side, example);
      const pixels = new ImageData(Math.max(1, example.length), 2);
      const row = 4 * pixels.width;
      for (let place = 0; place < example.length; place++) {
        const code = codeOf(view, side, run, quantity, example.start + place);
        const paint = (code & 15) < 9 ? colours[quantity.colours + (code & 15)] : [0, 0, 0, 0];
        pixels.data.set(paint, 4 * place);
        pixels.data.set(code & 32 ? colours.ink : paint, row + 4 * place);
        if (code & 16) pixels.data[4 * place + 3] = pixels.data[row + 4 * place + 3] = 60;
      }
      articles[example.place].rows[at].strip.getContext("2d").putImageData(pixels, 0, 0);
    });
  };

  const recolour = () => {
    const quantity = QUANTITIES[view.quantity];
    const wanted = sides();
    pane.classList.toggle("two", wanted.length === 2);
    for (const [example, drawn] of [...rendered]) {
      if (drawn.length !== wanted.length) { // a row more, or less
        const current = view.at !== null && view.exampleOf(view.at) === example && document.activeElement.token !== undefined;
        leave(example, true);
        render(example);
        if (current) view.goTo(view.at);
        continue;
      }
      wanted.forEach((side, at) => {
        const run = runFor(side, example);
        const { codes, spans, letter } = drawn[at];
        for (let place = 0; place < example.length; place++) {
          const code = codeOf(view, side, run, quantity, example.start + place);
          if (code === codes[place] && letter === quantity.colours) continue;
          codes[place] = code;
          spans[place].className = classOf(code, quantity);
        }
        drawn[at].letter = quantity.colours;
      });
      drawStrips(example);
      note(example);
    }
  };

  // a guess of the height, so that the scroll bar is about right before anything is drawn
  const guess = () => {
    const letters = Math.max(20, pane.clientWidth / 9.2);
    for (const { article, rows } of articles) {
      const { start, length } = article.example;
      if (rendered.has(article.example)) continue;
      let [lines, column] = [1, 0];
      for (let i = start; i < start + length; i++) {
        const token = store.shown[store.token[i]];
        column += token.length;
        if (column > letters || token.endsWith("\n")) [lines, column] = [lines + 1, 0];
      }
      for (const { text } of rows) text.style.minHeight = `${Math.round(lines * 28.5)}px`;
    }
  };
  guess();

  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) near.add(target.example);
      else near.delete(target.example);
      if (isIntersecting) render(target.example);
      else leave(target.example);
    }
  }, { root: pane, rootMargin: "60% 0px" });
  for (const { article } of articles) watcher.observe(article);

  // on paper there is no scrolling: every example that is not hidden is drawn
  window.addEventListener("beforeprint", () => {
    for (const { article } of articles) if (!article.hidden) render(article.example);
  });
  window.addEventListener("afterprint", () => {
    for (const example of [...rendered.keys()]) if (!near.has(example)) leave(example);
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => repaint());
  document.addEventListener("trimsft:theme", () => repaint());
  const repaint = () => {
    colours = paints();
    for (const example of rendered.keys()) drawStrips(example);
  };

  return {
    articles, rendered, recolour, render,
    spanOf: (i, row = 0) => {
      const example = view.exampleOf(i);
      render(example);
      const rows = rendered.get(example);
      return (rows[row] ?? rows[0]).spans[i - example.start];
    },
    order: (examples) => {
      holder.replaceChildren(...examples.map(({ place }) => articles[place].article));
      pane.scrollTop = 0;
    },
    hide: (example, hidden) => {
      const { article } = articles[example.place];
      if (article.hidden !== hidden) article.hidden = hidden;
    },
  };
};
