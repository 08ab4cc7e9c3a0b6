// From numbers to the nine steps of a scale; the colours themselves are those of the style sheet, by class.
const ninths = Array.from({ length: 8 }, (_, place) => (place + 1) / 9);
const QUANTITIES = {
  weight: { name: "weight", edges: ninths, colours: "q", of: ({ weights }, run, i) => weights[i] },
  gap: { name: "gap", edges: given.edges, colours: "d", of: (view, run, i) => run.gap[i] },
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
  const found = { ink: bytes(getComputedStyle(probe).color) };
  for (const colours of ["d", "q", "x"]) {
    for (let step = 0; step < 9; step++) {
      probe.className = colours + step;
      found[colours + step] = bytes(getComputedStyle(probe).backgroundColor);
    }
  }
  probe.remove();
  return found;
};
