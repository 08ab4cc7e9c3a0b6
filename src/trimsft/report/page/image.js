// One example as a picture, with its setting and the legend: to the clipboard, or saved where that is not allowed.
const PICTURE = { width: 900, least: 480, edge: 24, line: 30, small: 21, scale: 2, prompt: 8 };
const MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const FONTS = { title: `600 17px ${SANS}`, words: `14px ${SANS}`, token: `15px ${MONO}` };

// colours of text and ground that the style sheet gives to a class
const looks = () => {
  const probe = byId("pane").appendChild(document.createElement("span"));
  const known = new Map();
  const of = (name) => {
    if (known.has(name)) return known.get(name);
    probe.className = name;
    const { color, backgroundColor } = getComputedStyle(probe);
    known.set(name, { ink: color, ground: backgroundColor });
    return known.get(name);
  };
  const page = getComputedStyle(document.body);
  return { of, ink: page.color, page: page.backgroundColor, soft: of("note").ink, end: () => probe.remove() };
};

// pieces one after the other, on a new line where there is no room; returns where the next line begins
const flow = (context, pieces, { x, y, right, line }, draw) => {
  let [at, top] = [x, y];
  for (const piece of pieces) {
    const width = context.measureText(piece.text).width + (piece.room ?? 0);
    if (at > x && at + width > right) [at, top] = [x, top + line];
    draw(piece, at, top, width);
    at += width;
    if (piece.ends) [at, top] = [x, top + line];
  }
  return at > x ? top + line : top;
};

const wordsOf = (text) => text.split(/(?<= )|(?<=\n)/).map((word) => ({ text: word.replace("\n", ""), ends: word.endsWith("\n") }));

// what stands in the picture from top to bottom: {font, line, pieces, gap above}
const blocksOf = (store, view, example, look) => {
  const run = runFor(view, example);
  const pieces = Array.from({ length: example.length }, (_, place) => {
    const i = example.start + place;
    const level = run ? levelOf(view.weights[i] * run.norm[i]) : 0;
    return { text: store.names[store.token[i]], ends: store.texts[store.token[i]].endsWith("\n"), look: level ? look.of(`lit l${level}`) : null, room: 1 };
  });
  const prompt = { font: FONTS.words, line: PICTURE.small, gap: 6, pieces: wordsOf(example.prompt), ink: look.soft, most: PICTURE.prompt };
  return [
    { font: FONTS.title, line: 26, gap: 0, pieces: wordsOf(`${document.title}, example ${example.number + 1}`) },
    ...(example.prompt ? [prompt] : []),
    { font: FONTS.words, line: PICTURE.small, gap: 14, pieces: wordsOf(`${nameOf(view.a)} on ${tokenData.runs[view.a.run]}; darker: more of its gradient`) },
    { font: FONTS.token, line: PICTURE.line, gap: 2, pieces },
  ];
};

const drawPicture = (store, view, example) => {
  const look = looks();
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const blocks = blocksOf(store, view, example, look);
  let width = PICTURE.least;
  const paint = (block, drawn) => ({ text, look: own }, x, y, size) => {
    if (!drawn) width = Math.max(width, x + size + PICTURE.edge);
    if (!drawn || (block.most && y >= block.top + block.most * block.line)) return;
    if (own) {
      context.fillStyle = own.ground;
      context.fillRect(x, y + 2, size - 1, block.line - 4);
    }
    context.fillStyle = own?.ink ?? block.ink ?? look.ink;
    context.fillText(text, x, y + block.line / 2);
  };
  const walk = (drawn) => {
    let y = PICTURE.edge;
    for (const block of blocks) {
      context.font = block.font;
      block.top = y + block.gap;
      const end = flow(context, block.pieces, { x: PICTURE.edge, y: block.top, right: PICTURE.width - PICTURE.edge, line: block.line }, paint(block, drawn));
      y = block.most ? Math.min(end, block.top + block.most * block.line) : end;
    }
    return y + PICTURE.edge;
  };
  const height = walk(false);
  [canvas.width, canvas.height] = [Math.ceil(width * PICTURE.scale), Math.ceil(height * PICTURE.scale)];
  context.scale(PICTURE.scale, PICTURE.scale);
  context.fillStyle = look.page;
  context.fillRect(0, 0, width, height);
  Object.assign(context, { textBaseline: "middle", direction: "ltr" });
  walk(true);
  look.end();
  return canvas;
};

const copyPicture = async (store, view, example) => {
  const canvas = drawPicture(store, view, example);
  const picture = new Promise((done) => { canvas.toBlob(done, "image/png"); }); // some browsers want to be asked within the click
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
    view.say(`Example ${example.number + 1} is in the clipboard, as an image.`);
  } catch {
    const name = `example-${example.number + 1}.png`;
    download(name, "image/png", await picture);
    view.say(`Saved as ${name}: this browser allows no image in the clipboard.`);
  }
};
