"""The tables of `normalize`: what characters and LaTeX commands are spelled as."""

from __future__ import annotations

SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8),
}  # fmt: skip
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∗": "*", "÷": "/", "⁄": "/", "∕": "/", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∞": r"\infty ", "≤": r"\le ",
    "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "°": r"^\circ ", "º": r"^\circ ", "⟨": "(",
    "⟩": ")", "′": "'", "’": "'", "∠": r"\angle ", "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "→": r"\to ", "⇒": r"\to ", "…": r"\ldots ", "€": "", "£": "", "¥": "",
    "％": "%", "~": " ", "，": ",", "。": ".", "；": ";", "：": ":",
}  # fmt: skip
_GREEK_LETTERS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_GREEK_NAMES = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi
omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""
_GREEK = dict(zip(_GREEK_LETTERS, _GREEK_NAMES.split(), strict=True))
MAP = str.maketrans(
    _UNICODE
    | {char: f"\\{name} " for char, name in _GREEK.items()}
    | {char: f"\\frac{{{a}}}{{{b}}}" for char, (a, b) in _VULGAR.items()}
)

RENAMED = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "dbinom": "binom", "tbinom": "binom", "leq": "le",
    "geq": "ge", "leqslant": "le", "geqslant": "ge", "neq": "ne", "lbrace": "{", "rbrace": "}", "langle": "(",
    "rangle": ")", "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "lbrack": "[", "rbrack": "]",
    "varnothing": "emptyset", "operatorname": "text", "mbox": "text", "textbf": "text", "textit": "text",
    "textrm": "text", "mathrm": "text", "mathbf": "text", "mathit": "text", "mathsf": "text", "bm": "text",
    "boldsymbol": "text", "rm": "text", "textup": "text", "varphi": "phi", "varepsilon": "epsilon", "lt": "<",
    "gt": ">", "div": "/", "colon": ":", "degree": "^\\circ", "textdegree": "^\\circ", "percent": "%",
    "ast": "*", "lor": "or", "vee": "or", "land": "and", "wedge": "and", "implies": "to", "iff": "to",
    "Rightarrow": "to", "bmatrix": "pmatrix", "smallmatrix": "pmatrix", "dotsc": "ldots", "dots": "ldots",
    "cdots": "ldots", "boxed": "", "fbox": "", "prime": "'",
}  # fmt: skip
LITERAL = set("()|[]<>/:%*'") | {"^\\circ", ""}
_LAYOUT = """
left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr middle displaystyle textstyle limits nolimits
scriptstyle normalsize large Large quad qquad space hspace phantom null
"""
DROPPED = frozenset(_LAYOUT.split())
