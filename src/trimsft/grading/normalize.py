r"""One spelling for what is written in many: unicode, spacing, synonyms of LaTeX commands.

    >>> clean("$\\dfrac{1}{2}\\,\\pi\\!$.")
    '\\frac{1}{2} \\pi'
    >>> clean("½ x²")
    '\\frac{1}{2} x^{2}'

Every pattern here is linear in the text; text longer than `MAX_ANSWER` is never passed in.
"""

import re
import unicodedata

from trimsft.grading.words import UNIT_OF, closes_at, number_in_words

MAX_ANSWER = 2_000  # characters; the longest gold of the seven benchmarks has 210
MAX_DEPTH = 40  # nested brackets

# ---- what characters and LaTeX commands are spelled as

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
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
_GREEK_NAMES = """
alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi
omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
"""
_GREEK = dict(zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", _GREEK_NAMES.split(), strict=True))
_MAP = str.maketrans(
    _UNICODE
    | {char: f"\\{name} " for char, name in _GREEK.items()}
    | {char: f"\\frac{{{a}}}{{{b}}}" for char, (a, b) in _VULGAR.items()}
)

_RENAMED = {
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
_LITERAL = set("()|[]<>/:%*'") | {"^\\circ", ""}
_LAYOUT = """
left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr middle displaystyle textstyle limits nolimits
scriptstyle normalsize large Large quad qquad space hspace phantom null
"""
_DROPPED = frozenset(_LAYOUT.split())

# ---- patterns

_RAISED = re.compile(f"[{''.join(map(re.escape, _SUPERSCRIPTS))}]+")
_LOWERED = re.compile(f"[{''.join(map(re.escape, _SUBSCRIPTS))}]+")

_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\\(begin|end)\{(?:b|B|small)?matrix\*?\}|\\(begin|end)\{array\}(?:\{[^{}]*\})?")
_SPACES = re.compile(r"\s+")
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,\s*\\!|\\,|\\!)\s*(?=\d{3}(?!\d))")
_WORD_OR = re.compile(r"\\text\{\s*,?\s*(and|or)\s*,?\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])")
_MIXED = re.compile(r"(?<![\d.^_{/])(\d{1,9}) (\d{1,9})/(\d{1,9})(?![\d.])")
_SPACED_GROUPS = re.compile(r"(?<![\d.,] )(?<![\d.,])\d{1,3}(?: \d{3})+(?! ?[\d,.]\d| ?\d)")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}])")
_NOT_EQUAL = re.compile(r"(?<![\d)])( ?)!=")
_SPOKEN = re.compile(
    r"\$?\s*(?:\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{\s*)?([A-Za-z -]+?)\s*\.?\s*\}?\s*\.?\s*\$?"
)
_SPOKEN_LENGTH = 200
_DOLLARS = re.compile(r"\\?\$\s*((?:\d[\d,]*(?:\.\d+)?|\.\d+))\s*\.?")
_FONT = re.compile(r"\\(?:mathbf|mathit|mathsf|boldsymbol|bm)\s*\{\s*([A-Za-z]|\\[A-Za-z]+)\s*\}")
_TEXT_COMMAND = re.compile(r"\\text\s*\{\s*(\\[A-Za-z]+)\s*\}")
_EMPTY_TEXT = re.compile(r"\\text\s*\{\s*\}")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_SINGLE = re.compile(r"\\text\s*\{\s*([A-Za-z]|-?\d+(?:\.\d+)?)\s*\}")


def clean(text: str) -> str:
    """`text` in one spelling; the same mathematics."""
    spoken = _SPOKEN.fullmatch(text.strip()) if len(text.strip()) <= _SPOKEN_LENGTH else None
    if spoken and (number := number_in_words(spoken[1])) is not None:
        return str(number)
    text = _from_unicode(text)
    text = _DOLLARS.sub(r"\1\\text{ dollars}", text) if _DOLLARS.fullmatch(text.strip()) else text
    text = text.replace("\\$", "").replace("$", "").replace("**", "^")
    if "\\begin" not in text:  # elsewhere a doubled backslash is an escaped one, not a new row
        text = _DOUBLED.sub(r"\\", text)
    text = _NOT_EQUAL.sub(r"\\ne ", text).replace("<=", r"\le ").replace(">=", r"\ge ")
    text = _GROUPING.sub("", text)
    text = _ENVIRONMENT.sub(lambda m: f"\\{m[1] or m[2]}{{pmatrix}}", text)
    text = _FONT.sub(r" \1 ", text)  # bold or slanted letters are symbols, upright ones may be units
    text = _COMMAND.sub(_respell, text)
    text = _TEXT_COMMAND.sub(r" \1 ", text)
    text = _EMPTY_TEXT.sub(" ", text).replace("{}", " ")
    text = _SINGLE.sub(_plain_letter, text)
    text = _WORD_OR.sub(",", text)
    text = _SPACES.sub(" ", text).strip()
    text = _SPACED_GROUPS.sub(lambda m: m.group().replace(" ", ""), text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = text.rstrip(" .,;:") if not text.endswith("\\") else text
    return _unwrap(text)


def _from_unicode(text: str) -> str:
    text = _RAISED.sub(lambda m: "^{" + "".join(_SUPERSCRIPTS[c] for c in m.group()) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + "".join(_SUBSCRIPTS[c] for c in m.group()) + "}", text)
    text = unicodedata.normalize("NFKC", text.translate(_MAP)).translate(_MAP)
    return "".join(c if unicodedata.category(c)[0] != "C" else " " if c in "\n\t\r" else "" for c in text)


def _respell(command: re.Match[str]) -> str:
    name = command[1]
    if name in _DROPPED or name in ",;:! ()[]":
        # a bracket written as a delimiter of mathematics goes; \{ and \\ stay
        return " "
    name = _RENAMED.get(name, name)
    if name in ("or", "and"):
        return f" {name} "
    return name if name in _LITERAL else "\\" + name


def _plain_letter(letter: re.Match[str]) -> str:
    r"""`\text{e}` is `e`, but the `\text{m}` after a number is a unit and stays; 70K is no temperature, 70 K is."""
    before = letter.string[: letter.start()]
    spaced = before.endswith(" ") or letter.group().partition("{")[2].startswith(" ")
    is_unit = letter[1] in UNIT_OF and (letter[1] != "K" or spaced)
    after_value = before.rstrip()[-1:] in tuple("0123456789})")
    return letter.group() if is_unit and after_value else f" {letter[1]}"


def _unwrap(text: str) -> str:
    """Without braces around the whole: `{5}` is `5`."""
    for _ in range(MAX_DEPTH):
        if not (text.startswith("{") and text.endswith("}") and closes_at(text, "{}") == len(text) - 1):
            return text
        text = text[1:-1].strip()
    return text


def depth_of(text: str) -> int:
    """Deepest nesting of brackets; a bracket that is never closed counts too."""
    depth = deepest = 0
    for char in text:
        depth += char in "([{"
        depth -= char in ")]}"
        deepest = max(deepest, depth)
    return deepest


def key(text: str) -> str:
    """The text without spacing, for equality; a space between digits stays, as `1 2` is not 12."""
    return _NOT_BETWEEN_DIGITS.sub("", text)
