// Texts of the examples, each token in its colour.

// ---- from numbers to the nine steps of a scale; the colours themselves are those of the style sheet, by class
const ninths = Array.from({ length: 8 }, (_, place) => (place + 1) / 9);
const QUANTITIES = {
  weight: { name: "weight", edges: ninths, colours: "q", of: ({ weights }, run, i) => weights[i] },
  gap: { name: "gap", edges: tokenData.edges, colours: "d", of: (view, run, i) => run.gap[i] },
  probability: { name: "probability", edges: ninths, colours: "q", of: (view, run, i) => Math.exp(-run.nll[i]) },
  entropy: { name: "entropy", edges: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2], colours: "q", of: (view, run, i) => run.entropy[i] },
  difference: {
    name: "weight A − B", edges: [-0.75, -0.5, -0.25, -0.05, 0.05, 0.25, 0.5, 0.75], colours: "x",
    of: ({ weights, others }, run, i) => weights[i] - others[i],
  },
};

const stepOf = (edges, value) => {
  let step = 0;
  while (step < 8 && value >= edges[step]) step++;
  return step;
};

const drawScale = (list, { edges, colours }) => {
  const short = (value) => String(Number(value.toPrecision(2)));
  list.replaceChildren(
    ...Array.from({ length: 9 }, (_, step) => {
      const text = step === 0 ? `< ${short(edges[0])}` : step === 8 ? `≥ ${short(edges[7])}` : short(edges[step - 1]);
      const between = step === 0 || step === 8 ? text : `${short(edges[step - 1])} to ${short(edges[step])}`;
      return Object.assign(document.createElement("li"), { textContent: text, title: between, className: colours + step });
    }),
  );
};

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

// ---- texts: only examples near the window have a span for each token; the others keep their height
const makeTexts = (pane, store, view) => {
  const near = new Set();
  const rendered = new Map(); // example -> {spans, codes}
  let colours = paints();

  const articles = store.examples.map((example) => {
    const strip = make("canvas", { className: "strip", width: Math.max(1, example.length), height: 2, title: "all tokens of the example" });
    const facts = make("span", { className: "note" });
    const article = make("article", { className: "example" });
    const text = make("p", { className: "completion" });
    article.append(make("h3", { textContent: `Example ${example.number + 1} ` }, facts), strip);
    if (example.prompt) article.append(make("p", { className: "prompt", textContent: example.prompt }));
    article.append(text);
    if (example.leftOut) article.append(make("p", { className: "note", textContent: `${grouped(example.leftOut)} more tokens are not shown.` }));
    strip.addEventListener("click", (event) => {
      const share = event.offsetX / strip.clientWidth;
      view.goTo(example.start + Math.min(example.length - 1, Math.floor(share * example.length)));
    });
    article.example = example;
    return { article, text, strip, facts };
  });
  pane.replaceChildren(...articles.map(({ article }) => article));

  // a token's class in one number: step of the colour (9: none), dimmed, found
  const codeOf = (run, { of, edges }, i) => {
    const value = run ? of(view, run, i) : NaN;
    const step = Number.isNaN(value) ? 9 : stepOf(edges, value);
    return step + (view.matches ? (view.matches[i] ? 32 : 16) : 0);
  };
  const classOf = (code, { colours: letter }) =>
    `t${(code & 15) < 9 ? ` ${letter}${code & 15}` : ""}${code & 16 ? " dim" : ""}${code & 32 ? " hit" : ""}`;

  const runFor = ({ place }) => {
    const run = store.runs[view.a.run];
    return run && !run.missing.has(place) ? run : null;
  };

  const render = (example) => {
    if (rendered.has(example)) return;
    const { text } = articles[example.place];
    const [run, quantity] = [runFor(example), QUANTITIES[view.quantity]];
    const codes = new Uint8Array(example.length);
    const spans = Array.from({ length: example.length }, (_, place) => {
      const i = example.start + place;
      codes[place] = codeOf(run, quantity, i);
      const span = document.createElement("span");
      span.className = classOf(codes[place], quantity);
      span.textContent = store.shown[store.token[i]];
      span.tabIndex = place ? -1 : 0;
      span.token = i;
      return span;
    });
    text.replaceChildren(...spans);
    text.style.minHeight = "";
    rendered.set(example, { spans, codes, letter: quantity.colours });
    drawStrip(example);
    note(example);
  };

  const note = (example) => {
    const { length, matches, trimmed, nll } = factsOf(view, example);
    const known = Number.isNaN(nll) ? "; this model's tokens are others" : `; ${digits(100 * trimmed, 1)} % of its gradient mass trimmed; mean nll ${digits(nll, 3)}`;
    const matching = view.matches ? `; ${grouped(matches)} ${matches === 1 ? "match" : "matches"}` : "";
    articles[example.place].facts.textContent = `${grouped(length)} tokens${known}${matching}`;
  };

  const leave = (example) => {
    const { text } = articles[example.place];
    if (!rendered.has(example) || text.contains(document.activeElement)) return;
    text.style.minHeight = `${text.offsetHeight}px`;
    text.replaceChildren();
    rendered.delete(example);
  };

  // one pixel a token, which the style sheet stretches: colour above, matches below
  const drawStrip = (example) => {
    const { strip } = articles[example.place];
    const [run, quantity] = [runFor(example), QUANTITIES[view.quantity]];
    const pixels = new ImageData(Math.max(1, example.length), 2);
    const row = 4 * pixels.width;
    for (let place = 0; place < example.length; place++) {
      const code = codeOf(run, quantity, example.start + place);
      const paint = (code & 15) < 9 ? colours[quantity.colours + (code & 15)] : [0, 0, 0, 0];
      pixels.data.set(paint, 4 * place);
      pixels.data.set(code & 32 ? colours.ink : paint, row + 4 * place);
      if (code & 16) pixels.data[4 * place + 3] = pixels.data[row + 4 * place + 3] = 60;
    }
    strip.getContext("2d").putImageData(pixels, 0, 0);
  };

  const recolour = () => {
    const quantity = QUANTITIES[view.quantity];
    for (const [example, drawn] of rendered) {
      const run = runFor(example);
      for (let place = 0; place < example.length; place++) {
        const code = codeOf(run, quantity, example.start + place);
        if (code === drawn.codes[place] && drawn.letter === quantity.colours) continue;
        drawn.codes[place] = code;
        drawn.spans[place].className = classOf(code, quantity);
      }
      drawn.letter = quantity.colours;
      drawStrip(example);
      note(example);
    }
  };

  // a guess of the height, so that the scroll bar is about right before anything is drawn
  const guess = () => {
    const letters = Math.max(20, pane.clientWidth / 9.2);
    for (const { article, text } of articles) {
      const { start, length } = article.example;
      if (rendered.has(article.example)) continue;
      let [lines, column] = [1, 0];
      for (let i = start; i < start + length; i++) {
        const token = store.shown[store.token[i]];
        column += token.length;
        if (column > letters || token.endsWith("\n")) [lines, column] = [lines + 1, 0];
      }
      text.style.minHeight = `${Math.round(lines * 28.5)}px`;
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
    for (const example of rendered.keys()) drawStrip(example);
  };

  return {
    articles, rendered, recolour, render,
    spanOf: (i) => {
      const example = view.exampleOf(i);
      render(example);
      return rendered.get(example).spans[i - example.start];
    },
    order: (examples) => {
      pane.replaceChildren(...examples.map(({ place }) => articles[place].article));
      pane.scrollTop = 0;
    },
    hide: (example, hidden) => {
      const { article } = articles[example.place];
      if (article.hidden !== hidden) article.hidden = hidden;
    },
  };
};
