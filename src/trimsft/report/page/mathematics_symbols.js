// What LaTeX commands look like: one table for each kind of thing a formula is made of.
const pairs = (text) => Object.fromEntries(text.trim().split(/\s+/).map((pair) => pair.split("=")));

const LETTERS = pairs(`
  alpha=α beta=β gamma=γ delta=δ epsilon=ϵ varepsilon=ε zeta=ζ eta=η theta=θ vartheta=ϑ iota=ι kappa=κ lambda=λ mu=μ nu=ν
  xi=ξ pi=π varpi=ϖ rho=ρ varrho=ϱ sigma=σ varsigma=ς tau=τ upsilon=υ phi=ϕ varphi=φ chi=χ psi=ψ omega=ω
  Gamma=Γ Delta=Δ Theta=Θ Lambda=Λ Xi=Ξ Pi=Π Sigma=Σ Upsilon=Υ Phi=Φ Psi=Ψ Omega=Ω
  ell=ℓ hbar=ℏ Re=ℜ Im=ℑ aleph=ℵ infty=∞ partial=∂ nabla=∇ emptyset=∅ varnothing=∅ imath=ı jmath=ȷ
  angle=∠ measuredangle=∡ triangle=△ square=□ Box=□ degree=° circ=∘ prime=′ dots=… ldots=… cdots=⋯ vdots=⋮ ddots=⋱
  dotsc=… dotsb=⋯ dotsm=⋯ top=⊤ bot=⊥ heartsuit=♡ diamondsuit=♢ spadesuit=♠ clubsuit=♣ checkmark=✓ pounds=£ euro=€ blacksquare=■
  AA=Å mho=℧ dagger=† complement=∁ bigtriangleup=△ frown=⌢ S=§`);

const OPERATORS = pairs(`
  pm=± mp=∓ times=× div=÷ cdot=⋅ ast=∗ star=⋆ bullet=∙ oplus=⊕ otimes=⊗ odot=⊙ cap=∩ cup=∪ setminus=∖ smallsetminus=∖
  land=∧ wedge=∧ lor=∨ vee=∨ lnot=¬ neg=¬ forall=∀ exists=∃ nexists=∄
  le=≤ leq=≤ leqslant=⩽ ge=≥ geq=≥ geqslant=⩾ ne=≠ neq=≠ equiv=≡ approx=≈ cong=≅ sim=∼ simeq=≃ propto=∝ ll=≪ gg=≫
  prec=≺ succ=≻ preceq=⪯ succeq=⪰ in=∈ notin=∉ ni=∋ subset=⊂ supset=⊃ subseteq=⊆ supseteq=⊇ subsetneq=⊊
  mid=∣ nmid=∤ parallel=∥ perp=⊥ colon=: therefore=∴ because=∵ vdash=⊢ models=⊨ asymp=≍ doteq=≐ triangleq=≜
  to=→ rightarrow=→ leftarrow=← leftrightarrow=↔ Rightarrow=⇒ Leftarrow=⇐ Leftrightarrow=⇔ iff=⟺ implies=⟹ impliedby=⟸
  longrightarrow=⟶ longleftarrow=⟵ Longrightarrow=⟹ Longleftrightarrow=⟺ mapsto=↦ longmapsto=⟼ uparrow=↑ downarrow=↓
  rightleftharpoons=⇌ hookrightarrow=↪ bowtie=⋈ diamond=⋄ oslash=⊘ rightleftarrows=⇄ perpendicular=⊥ nearrow=↗ searrow=↘ swarrow=↙ nwarrow=↖
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
