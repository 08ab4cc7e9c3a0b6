// LaTeX made readable: formulas become MathML, built node by node and with text only. What is not understood stands as its
// source. Depth, length and number of nodes are bounded, so that no text can make it hang or fail.

// ---- what LaTeX commands look like: one table for each kind of thing a formula is made of
const pairs = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split("=")));

const LETTERS = pairs(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν
  xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω
  Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
  ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ infty=∞ partial=∂ nabla=∇ emptyset=∅ varnothing=∅ imath=ı jmath=ȷ
  angle=∠ measuredangle=∡ triangle=△ square=□ Box=□ degree=° circ=∘ prime=′ dots=… ldots=… cdots=⋯ vdots=⋮ ddots=⋱
  dotsc=… dotsb=⋯ dotsm=⋯ top=⊤ bot=⊥ checkmark=✓ pounds=£ euro=€ blacksquare=■ dagger=† S=§`);

const OPERATORS = pairs(`
  pm=± mp=∓ times=× div=÷ cdot=⋅ ast=∗ star=⋆ bullet=∙ oplus=⊕ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ smallsetminus=∖
  land=∧ wedge=∧ lor=∨ vee=∨ lnot=¬ neg=¬ forall=∀ exists=∃ nexists=∄
  le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ equiv=≡ approx=≈ cong=≅ sim=∼ simeq=≃ propto=∝ ll=≪ gg=≫
  prec=≺ succ=≻ preceq=⪯ succeq=⪰ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊
  mid=∣ nmid=∤ parallel=∥ perp=⊥ colon=: therefore=∴ because=∵ vdash=⊢ models=⊨ asymp=≍ doteq=≐ triangleq=≜
  to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ implies=⟹ impliedby=⟸
  longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ Longleftrightarrow=⟺ mapsto=↦ longmapsto=⟼ uparrow=↑ downarrow=↓
  rightleftharpoons=⇌ hookrightarrow=↪ diamond=⋄
  langle=⟨ rangle=⟩ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ lvert=| rvert=| vert=| lVert=‖ rVert=‖ Vert=‖ backslash=\\
  lbrace={ rbrace=} lbrack=[ rbrack=] lt=< gt=> int=∫ iint=∬ iiint=∭ oint=∮ surd=√`);

// above and below in a display, beside elsewhere
const LARGE = pairs("sum=∑ prod=∏ coprod=∐ bigcup=⋃ bigcap=⋂ bigoplus=⨁ bigvee=⋁ bigwedge=⋀");
const LIMITS = new Set(["lim", "limsup", "liminf", "max", "min", "sup", "inf", "gcd", "det", "Pr", "argmax", "argmin"]);
const FUNCTIONS = new Set([...LIMITS, ..."sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth exp log ln lg dim ker deg hom arg lcm mod bmod".split(" ")]);

const ACCENTS = pairs("hat=^ widehat=^ bar=¯ overline=¯ vec=→ overrightarrow=→ overleftarrow=← overleftrightarrow=↔ tilde=~ widetilde=~ dot=˙ ddot=¨ overarc=⌒ overparen=⏜ overbrace=⏞");
const BELOW = pairs("underline=_ underbrace=⏟");
const SPACES = { ",": 0.17, ":": 0.22, ";": 0.28, "!": 0, " ": 0.25, quad: 1, qquad: 2, space: 0.25, enspace: 0.5, thinspace: 0.17, "\n": 0.25 };
const SILENT = new Set("displaystyle textstyle scriptstyle scriptscriptstyle limits nolimits left. right. hline nonumber notag centering normalsize large Large small bigl bigr Bigl Bigr biggl biggr Biggl Biggr big Big bigg Bigg bigm smallskip medskip bigskip allowbreak cal it bf boldmath".split(" "));
const UPRIGHT = new Set("text textrm textbf textit texttt textsf textnormal mbox hbox mathrm operatorname mathsf mathtt emph rm".split(" "));
const STYLED = { mathbf: "math-bold", boldsymbol: "math-bold", bm: "math-bold", mathit: "math-italic", mathcal: "math-script", mathscr: "math-script", mathfrak: "math-script", boxed: "math-boxed", fbox: "math-boxed", bold: "math-bold", cancel: "math-cancelled", substack: "math-stack" };
const DOUBLE = pairs("A=𝔸 B=𝔹 C=ℂ D=𝔻 E=𝔼 F=𝔽 G=𝔾 H=ℍ I=𝕀 J=𝕁 K=𝕂 L=𝕃 M=𝕄 N=ℕ O=𝕆 P=ℙ Q=ℚ R=ℝ S=𝕊 T=𝕋 U=𝕌 V=𝕍 W=𝕎 X=𝕏 Y=𝕐 Z=ℤ 1=𝟙");
// an environment's fences; the others are rows alone
const FENCES = { pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "‖‖", cases: "{ ", rcases: " }", matrix: "  ", smallmatrix: "  " };
const ROWS = new Set([...Object.keys(FENCES), ..."array tabular align aligned alignat alignedat gather gathered split eqnarray equation multline flalign".split(" ")]);

const MATHML = "http://www.w3.org/1998/Math/MathML";
const DEEPEST = 24, LONGEST = 4000, MOST_NODES = 3000;

class Unreadable extends Error {}

class Formula {
  constructor(source) {
    if (source.length > LONGEST) throw new Unreadable("too long");
    Object.assign(this, { source, at: 0, depth: 0, nodes: 0 });
  }

  node(name, children = [], attributes = {}) {
    if (++this.nodes > MOST_NODES) throw new Unreadable("too much");
    const made = document.createElementNS(MATHML, name);
    if (typeof children === "string") made.textContent = children;
    else made.append(...children);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  row(children) {
    return children.length === 1 ? children[0] : this.node("mrow", signsSettled(children));
  }

  deeper(parse) {
    if (++this.depth > DEEPEST) throw new Unreadable("too deep");
    const parsed = parse();
    this.depth -= 1;
    return parsed;
  }

  peek() { return this.source[this.at]; }

  skipSpace() { while (this.at < this.source.length && /\s/.test(this.peek())) this.at += 1; }

  take(text) {
    const isThere = this.source.startsWith(text, this.at);
    if (isThere) this.at += text.length;
    return isThere;
  }

  match(pattern) { // sticky
    pattern.lastIndex = this.at;
    const match = pattern.exec(this.source);
    if (match) this.at = pattern.lastIndex;
    return match;
  }

  command() {
    const match = this.match(/\\([A-Za-z]+\*?|[^])/y);
    if (!match) throw new Unreadable("a lone backslash");
    return match[1];
  }

  rawGroup() { // the text between braces, as it stands
    this.skipSpace();
    if (!this.take("{")) return this.at < this.source.length ? this.source[this.at++] : "";
    const start = this.at;
    for (let open = 1; this.at < this.source.length; this.at += 1) {
      if (this.peek() === "\\") this.at += 1;
      else if (this.peek() === "{") open += 1;
      else if (this.peek() === "}" && --open === 0) return this.source.slice(start, this.at++);
    }
    throw new Unreadable("unclosed");
  }

  whole() { return this.content(() => this.at >= this.source.length); }

  content(ended) { // a row, or a table where there is more
    const rows = this.cells(ended);
    return rows.length === 1 && rows[0].length === 1 ? this.row(rows[0][0]) : this.table(rows, "rows");
  }

  cells(ended) { // rows of cells of nodes, up to where it ends
    const rows = [[[]]];
    for (;;) {
      this.skipSpace();
      if (ended()) break;
      if (this.take("\\\\")) {
        this.match(/\s*\[[^\]]{0,20}\]/y); // extra space between rows
        rows.push([[]]);
      } else if (this.take("&")) rows.at(-1).push([]);
      else if (this.at >= this.source.length) throw new Unreadable("unclosed");
      else rows.at(-1).at(-1).push(...this.scripted());
    }
    if (rows.length > 1 && rows.at(-1).length === 1 && rows.at(-1)[0].length === 0) rows.pop();
    return rows;
  }

  table(rows, kind) {
    const lines = rows.map((row) => this.node("mtr", row.map((cell) => this.node("mtd", [this.node("mrow", signsSettled(cell))]))));
    return this.node("mtable", lines, { class: `math-${kind}` });
  }

  group() { return this.deeper(() => this.content(() => this.take("}"))); }

  argument() { // a group, or one thing
    this.skipSpace();
    if (this.at >= this.source.length) throw new Unreadable("an argument is missing");
    if (this.take("{")) return this.group();
    if (/[0-9]/.test(this.peek())) return this.node("mn", this.source[this.at++]);
    return this.deeper(() => this.row(this.atom().nodes));
  }

  scripted() { // something with what stands above and below it
    const { nodes, limits = false } = /[\^_]/.test(this.peek()) ? { nodes: [this.node("mrow")] } : this.atom();
    let above = null, below = null;
    for (;;) {
      this.skipSpace();
      const primes = this.match(/'+/y);
      const script = primes ? null : this.match(/[\^_]/y);
      if (!primes && !script) break;
      const isAbove = primes !== null || script[0] === "^";
      if ((isAbove ? above : below) !== null) throw new Unreadable("twice above or below");
      if (primes) {
        above = this.node("mo", "′".repeat(primes[0].length));
        const more = this.take("^") ? this.argument() : null;
        if (more) above = this.node("mrow", [above, more]);
      } else if (isAbove) above = this.argument();
      else below = this.argument();
    }
    if (above === null && below === null) return nodes;
    const base = nodes.pop() ?? this.node("mrow");
    const names = limits ? ["munderover", "munder", "mover"] : ["msubsup", "msub", "msup"];
    const name = above && below ? names[0] : below ? names[1] : names[2];
    return [...nodes, this.node(name, [base, below, above].filter((part) => part !== null))];
  }

  atom() {
    const number = this.match(/\d+(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+/y);
    if (number) return { nodes: [this.node("mn", number[0])] };
    const letter = String.fromCodePoint(this.source.codePointAt(this.at));
    if (letter === "\\") return this.named(this.command());
    if (letter === "}") throw new Unreadable("closed too often");
    this.at += letter.length;
    if (letter === "{") return { nodes: [this.group()] };
    if (letter === "~") return { nodes: [this.space(0.25)] };
    if (letter === "&") throw new Unreadable("a column outside of a table");
    if (/\p{L}/u.test(letter)) return { nodes: [this.node("mi", letter)] };
    return { nodes: [this.sign({ "-": "−", "*": "∗" }[letter] ?? letter)] };
  }

  sign(text, attributes = { stretchy: "false" }) {
    const tight = /^[/|‖]$/.test(text) ? { lspace: "0", rspace: "0" } : {};
    return this.node("mo", text, { ...attributes, ...tight });
  }

  space(width) { return this.node("mspace", [], { width: `${width}em` }); }

  text() { // words, perhaps with formulas between them
    const parts = this.rawGroup().split(/(?<!\\)\$/);
    if (parts.length % 2 === 0) throw new Unreadable("unclosed");
    const inside = (source) => this.deeper(() => Object.assign(new Formula(source), { depth: this.depth }).whole());
    return this.row(parts.map((part, place) => (place % 2 ? inside(part) : this.node("mtext", unescaped(part)))));
  }

  named(name) {
    const one = (node, more = {}) => ({ nodes: [node], ...more });
    if (Object.hasOwn(SPACES, name)) return one(this.space(SPACES[name]));
    if (SILENT.has(name)) return { nodes: [] };
    if (Object.hasOwn(LETTERS, name)) return one(this.node("mi", LETTERS[name]));
    if (Object.hasOwn(LARGE, name)) return one(this.node("mo", LARGE[name], { movablelimits: "true" }), { limits: true });
    if (Object.hasOwn(OPERATORS, name)) return one(this.sign(OPERATORS[name]));
    if (FUNCTIONS.has(name)) {
      const space = name === "bmod" || name === "mod" ? [this.space(0.25)] : [];
      return { nodes: [...space, this.node("mi", name.replace("bmod", "mod")), ...space], limits: LIMITS.has(name) };
    }
    if (/^[%$&#_]$/.test(name)) return one(this.node("mtext", name));
    if (/^[{}|]$/.test(name)) return one(this.sign(name === "|" ? "‖" : name));
    if (/^(d|t|c)?frac$/.test(name)) return one(this.node("mfrac", [this.argument(), this.argument()]));
    if (Object.hasOwn(ACCENTS, name)) return one(this.node("mover", [this.argument(), this.sign(ACCENTS[name], { stretchy: "true" })], { accent: "true" }), { limits: name === "overbrace" });
    if (Object.hasOwn(BELOW, name)) return one(this.node("munder", [this.argument(), this.sign(BELOW[name], { stretchy: "true" })]), { limits: true });
    if (UPRIGHT.has(name.replace("*", ""))) return one(this.text());
    if (Object.hasOwn(STYLED, name)) return one(this.node("mrow", [this.argument()], { class: STYLED[name] }));
    return this.special(name);
  }

  special(name) {
    const one = (...nodes) => ({ nodes });
    switch (name) {
      case "sqrt": return one(this.root());
      case "binom": case "dbinom": case "tbinom":
        return one(this.sign("(", {}), this.node("mfrac", [this.argument(), this.argument()], { linethickness: "0" }), this.sign(")", {}));
      case "mathbb": return one(this.node("mi", [...this.rawGroup()].map((letter) => DOUBLE[letter] ?? letter).join("")));
      case "left": return one(this.fenced());
      case "begin": return one(this.environment());
      case "not": return one(this.sign(`${this.argument().textContent}\u0338`));
      case "pmod": return one(this.space(0.5), this.sign("("), this.node("mi", "mod"), this.space(0.25), this.argument(), this.sign(")"));
      case "overset": case "stackrel": { const above = this.argument(); return one(this.node("mover", [this.argument(), above])); }
      case "underset": { const below = this.argument(); return one(this.node("munder", [this.argument(), below])); }
      case "hspace": this.rawGroup(); return one(this.space(0.5));
      case "phantom": case "label": this.rawGroup(); return one();
      case "tag": return one(this.space(1), this.node("mtext", `(${unescaped(this.rawGroup())})`));
      case "right": case "end": throw new Unreadable("closed too often");
      default: return one(this.node("mtext", `\\${name}`, { class: "math-source" }));
    }
  }

  root() {
    this.skipSpace();
    if (!this.take("[")) return this.node("msqrt", [this.argument()]);
    const degree = this.deeper(() => this.content(() => this.take("]")));
    return this.node("mroot", [this.argument(), degree]);
  }

  delimiter() {
    this.skipSpace();
    if (this.at >= this.source.length) throw new Unreadable("a bracket is missing");
    if (this.peek() !== "\\") return this.source[this.at++].replace(".", "");
    const name = this.command();
    return Object.hasOwn(OPERATORS, name) ? OPERATORS[name] : name.replace("|", "‖");
  }

  fenced() {
    const left = this.delimiter();
    const inside = this.deeper(() => this.content(() => this.match(/\\right(?![A-Za-z])/y) !== null));
    return this.between(left, inside, this.delimiter());
  }

  between(left, inside, right) {
    const bracket = (text) => (text.trim() ? [this.sign(text, { stretchy: "true" })] : []);
    return this.node("mrow", [...bracket(left), inside, ...bracket(right)]);
  }

  environment() {
    const name = this.rawGroup();
    const plain = name.replace("*", "");
    if (!ROWS.has(plain)) throw new Unreadable("an unknown environment");
    if (/^(array|tabular|alignat|alignedat)$/.test(plain)) {
      this.match(/\s*\[[^\]]{0,20}\]/y);
      this.rawGroup();
    }
    const rows = this.deeper(() => this.cells(() => this.take(`\\end{${name}}`)));
    const fences = FENCES[plain] ?? "  ";
    const kind = plain.includes("matrix") || plain === "array" ? "matrix" : "rows";
    return this.between(fences[0], this.table(rows, kind), fences[1]);
  }
}

// A minus after another sign belongs to what follows it.
const signsSettled = (nodes) => {
  nodes.forEach((node, place) => {
    const before = nodes[place - 1];
    const leads = !before || (before.localName === "mo" && !/[)\]}|!′…⌋⌉⟩]/.test(before.textContent));
    if (leads && node.localName === "mo" && /^[−+±∓]$/.test(node.textContent)) node.setAttribute("form", "prefix");
  });
  return nodes;
};

const unescaped = (text) => text.replace(/\\([%$&#_{} ])/g, "$1").replaceAll("~", " ").replace(/^ | $/g, "\u00a0");

const sourceNode = (text) => Object.assign(document.createElement("code"), { className: "math-source", textContent: text });
// one formula as MathML; as its source where it cannot be read.
const formula = (source, display, whole) => {
  try {
    const reader = new Formula(source);
    const math = document.createElementNS(MATHML, "math");
    math.append(reader.whole());
    math.setAttribute("alttext", source);
    if (display) math.setAttribute("display", "block");
    return math;
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    return sourceNode(whole);
  }
};

// ---- text with formulas in it
const OPENINGS = /\\\\|\\\$|\$\$|\$|\\\(|\\\[|\\begin\{([a-zA-Z]+\*?)\}|\\boxed\s*(?=\{)|\[asy\]/g;
const CLOSINGS = { "$$": "$$", "\\(": "\\)", "\\[": "\\]", "[asy]": "[/asy]" };

const braced = (text, open) => { // the place after the brace that closes the one at `open`; -1 where none does
  let depth = 0;
  for (let at = open; at < Math.min(text.length, open + LONGEST); at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "{") depth += 1;
    else if (text[at] === "}" && --depth === 0) return at + 1;
  }
  return -1;
};

const dollarEnd = (text, from) => { // of $...$; -1 where it is a price, or goes over paragraphs
  let [open, within] = [0, -1]; // \text{if $n$ is odd} has formulas within braces
  let at = from;
  for (const last = Math.min(text.length, from + LONGEST); at < last; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "{") open += 1;
    else if (text[at] === "}") open -= 1;
    else if (text[at] === "\n" && text[at + 1] === "\n") break;
    else if (text[at] === "$" && open <= 0) return isFormula(text.slice(from, at), text[at + 1]) ? at : -1;
    else if (text[at] === "$" && within < 0) within = at;
  }
  return within >= 0 && isFormula(text.slice(from, within), text[within + 1]) ? within : -1;
};

const isFormula = (inside, next = "") => {
  const tight = inside.trim() !== "" && inside === inside.trim() && !/\d/.test(next);
  return tight || /\\[a-zA-Z]|[\^_]/.test(inside) || /^\s.*[=+].*\s$/s.test(inside);
};

// The formula that opens here: what is inside, where it ends, whether it stands alone; null where nothing does.
const formulaAt = (text, opening) => {
  const after = opening.index + opening[0].length;
  if (opening[0] === "\\\\" || opening[0] === "\\$") return null;
  if (opening[0] === "$") {
    const end = dollarEnd(text, after);
    return end < 0 ? null : { inside: text.slice(after, end), end: end + 1, display: false };
  }
  if (opening[0].startsWith("\\boxed")) {
    const end = braced(text, after);
    return end < 0 ? null : { inside: text.slice(opening.index, end), end, display: false };
  }
  const closing = CLOSINGS[opening[0]] ?? `\\end{${opening[1]}}`;
  if (opening[1] && !ROWS.has(opening[1].replace("*", ""))) return null;
  const end = text.indexOf(closing, after);
  if (end < 0 || end - after > LONGEST) return null;
  const inside = opening[1] ? text.slice(opening.index, end + closing.length) : text.slice(after, end);
  return { inside, end: end + closing.length, display: opening[0] !== "\\(", drawing: opening[0] === "[asy]" };
};

// Text with its formulas readable, as nodes.
const readable = (text) => {
  const made = document.createDocumentFragment();
  let from = 0;
  let failures = 0; // each may have looked far ahead
  OPENINGS.lastIndex = 0;
  for (let opening; failures < 200 && (opening = OPENINGS.exec(text)); ) {
    const one = formulaAt(text, opening);
    if (one === null) { failures += 1; continue; }
    const whole = text.slice(opening.index, one.end);
    made.append(text.slice(from, opening.index).replaceAll("\\$", "$"), one.drawing ? sourceNode(whole) : formula(one.inside, one.display, whole));
    from = OPENINGS.lastIndex = one.end;
  }
  made.append(text.slice(from).replaceAll("\\$", "$"));
  return made;
};
