r"""One spelling for what is written in many: unicode, spacing, synonyms of LaTeX commands.

    >>> clean("$\\dfrac{1}{2}\\,\\pi\\!$.")
    '\\frac{1}{2} \\pi'
    >>> clean("½ x²")
    '\\frac{1}{2} x^{2}'

Every pattern here is linear in the text; text longer than `MAX_ANSWER` is never passed in.
"""

import re
import unicodedata

from trimsft.grading.units import NEEDS_SPACE, NUMBERS, SCALES, UNITS, closes_at

MAX_ANSWER = 2_000  # characters; the longest gold of the seven benchmarks has 210
MAX_DEPTH = 40  # nested brackets

# ---- what characters and LaTeX commands are spelled as

_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_VULGAR = {
    "½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅕": (1, 5), "⅖": (2, 5), "⅗": (3, 5),
    "⅘": (4, 5), "⅙": (1, 6), "⅚": (5, 6), "⅛": (1, 8), "⅜": (3, 8), "⅝": (5, 8), "⅞": (7, 8), "⅐": (1, 7), "⅑": (1, 9),
    "⅒": (1, 10),
}  # fmt: skip
_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "∗": "*", "÷": "/", "⁄": "/", "∕": "/", "√": r"\sqrt ", "∛": r"\sqrt[3]", "∞": r"\infty ", "≤": r"\le ",
    "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ",
    "∅": r"\emptyset ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "°": r"^\circ ", "º": r"^\circ ", "⟨": "(",
    "⟩": ")", "′": "'", "’": "'", "∠": r"\angle ", "△": r"\triangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "→": r"\to ", "⇒": r"\to ", "…": r"\ldots ", "“": '"', "”": '"',
    "∜": r"\sqrt[4]", "≈": r"\approx ", "∖": r"\setminus ",
    "％": "%", "~": " ", "，": ",", "、": ",", "。": ".", "；": ";", "：": ":", "Ω": r"\Omega ", "µ": r"\mu ",
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
    "cdots": "ldots", "boxed": "", "fbox": "", "prime": "'", "underline": "", "simeq": "approx",
    "thickapprox": "approx", "backslash": "setminus", "smallsetminus": "setminus", "textnormal": "text",
    "textsf": "text", "emph": "text",
}  # fmt: skip
_LITERAL = set("()|[]<>/:%*'") | {"^\\circ", ""}
_LAYOUT = """
left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr middle displaystyle textstyle limits nolimits
scriptstyle tiny small normalsize large Large LARGE huge Huge quad qquad space null bf it
"""
_DROPPED = frozenset(_LAYOUT.split())

# ---- patterns

_RAISED = re.compile(f"[{''.join(map(re.escape, _SUPERSCRIPTS))}]+")
_LOWERED = re.compile(f"[{''.join(map(re.escape, _SUBSCRIPTS))}]+")

_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_ENVIRONMENT = re.compile(r"\\(begin|end)\{(?:b|B|small)?matrix\*?\}|\\(begin|end)\{array\}(?:\{[^{}]*\})?")
_SPACES = re.compile(r"\s+")
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,\s*\\!|\\,|\\!)\s*(?=\d{3}(?!\d))")
_WORD_OR = re.compile(
    r"\\text\{\s*,?\s*(?:and|or|或者?|[和与])\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|或者?|[和与]"
)
_MIXED = re.compile(r"(?<![\d.^_{/])(\d{1,9}) (\d{1,9})/(\d{1,9})(?![\d.])")
_SPACED_GROUPS = re.compile(r"(?<![\d.,] )(?<![\d.,_^])\d{1,3}(?: \d{3})+(?! ?[\d,.]\d| ?\d)")
_TO = re.compile(r"(?<=[\d})]) ?(?:\\text\{ ?to ?\}|\bto\b) ?(?=[\d\\(])")
_DERIVATIVE = re.compile(r"(?<![A-Za-z\\])d ?([A-Za-z]) ?/ ?d ?([A-Za-z])(?![A-Za-z])")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}])")
_NOT_EQUAL = re.compile(r"(?<![\d)])( ?)!=")
_SPOKEN = re.compile(
    r"\$?\s*(?:\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{\s*)?([A-Za-z -]+?)\s*\.?\s*\}?\s*\.?\s*\$?"
)
_SPOKEN_LENGTH = 200
_CURRENCY = {
    "$": "dollars", "USD": "dollars", "€": "euros", "EUR": "euros", "£": "sterling", "¥": "yuan", "RMB": "yuan",
}  # fmt: skip
_MONEY = re.compile(
    r"(-?)\s*(?:US)?\\?(\$|USD|€|EUR|£|¥|RMB)\s*(\d[\d,]*(?:\.\d+)?|\.\d+)"
    r"(?:(?:\s|\\text\s*\{)*([a-z]*illion|thousand)\s*\}?)?"
    r"(?:(?:\s|\\text\s*\{)*((?:per |each|/)[a-z\s{\\]*)\}?)?\s*\.?"
)
_LAYOUT_WITH_ARGUMENT = re.compile(
    r"\\(?:(?:text)?color|[hvm]space|[hv]?phantom|label|tag)\*?\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}"
)
_BOLD_MATHEMATICS = re.compile(r"\\(?:mathbf|mathit|mathsf|boldsymbol|bm)\s*(?=\{[^{}]*[\\\d^_=+<>])")
_ROOT_OF_DIGITS = re.compile(r"([√∛∜])\s*(\d+(?:\.\d+)?)")
_DOTTED = re.compile(r"((?<!\d)\d*\.\d*)\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?")
_NEW_ROW = re.compile(r"\\\\\s*\[[^\[\]]*\]|\\cr(?![A-Za-z])")
_NUMBER_SET = re.compile(
    r"\\(?:mathbb|mathbf|Bbb)\s*(?:\{\s*([RZNQC])\s*\}|([RZNQC])(?![A-Za-z]))|\\([RZNQ])(?![A-Za-z])"
)
_DEGREE_AS_LETTER = re.compile(r"(?<=\d)\s*\^\s*(?:o(?![A-Za-z])|\{\s*o\s*\})")
_NAMES_OF_THINGS = {
    "infinity": r"\infty", "positive infinity": r"\infty", "negative infinity": r"-\infty", "empty set": r"\emptyset",
    "the empty set": r"\emptyset", "all real numbers": r"\mathbb{R}", "all reals": r"\mathbb{R}",
    "the set of all real numbers": r"\mathbb{R}", "all integers": r"\mathbb{Z}",
}  # fmt: skip
_QUOTES = re.compile(r"(?<!\d)(?:\"|``|'')|(?:\"|'')(?=\s*\}?\s*$)(?<!\d\")")
_TEXT_OF_LETTERS = re.compile(r"\\text\s*\{\s*([A-Z]{1,4}(?:(?:\s*,\s*|\s+)(?:and\s+)?[A-Z]{1,4})+)\s*\}")
_TEXT_OF_NUMBER = re.compile(r"\\text\s*\{\s*(-?\.?\d[^{}]*|[0-9A-Z]+(?=\s*\}\s*_))\}")
_BASED = re.compile(
    r"(-?)\s*\(?\s*(\d[0-9A-Za-z]{0,40}(?:\.\d+)?)\s*\)?\s*(?:_|(?:\\text\s*\{\s*)?(?:in )?base)"
    rf"(?:[\s{{}}()]|\\text)*(\d{{1,2}}|{'|'.join(list(NUMBERS)[:20])})[\s{{}})]*",
    re.IGNORECASE,
)
_SYSTEM = re.compile(
    r"\\begin\{(aligned|align\*?|gather(?:ed)?\*?|split|[dr]?cases|array|matrix)\}"
    r"(?:\{[^{}]*\})?(.*?)\\end\{\1\}",
    re.DOTALL,
)
_LEFT_BRACE = re.compile(
    r"\\left\s*\\\{\s*\\begin\{(array|aligned|gathered|matrix)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}\s*\\right\s*\.",
    re.DOTALL,
)
_ALIGNED = re.compile(r"&\s*(?=[=<>]|\\(?:le|ge|ne|lt|gt|approx))")
_FONT = re.compile(r"\\(?:mathbf|mathit|mathsf|boldsymbol|bm)\s*\{\s*([A-Za-z]|\\[A-Za-z]+)\s*\}")
_TEXT_COMMAND = re.compile(r"\\text\s*\{\s*(\\[A-Za-z]+)\s*\}")
_TEXT_FUNCTION = re.compile(
    r"\\text\s*\{\s*(gcd|lcm|max(?=\s*\}\s*[(\\])|min(?=\s*\}\s*[(\\])|(?:arc)?(?:sin|cos|tan)|ln|log|exp)\s*\}"
)
_EMPTY_TEXT = re.compile(r"\\text\s*\{\s*\}")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_SINGLE = re.compile(r"\\text\s*\{\s*([A-Za-z]|-?\d+(?:\.\d+)?)\s*\}")


def clean(text: str) -> str:
    """`text` in one spelling; the same mathematics."""
    spoken = _SPOKEN.fullmatch(text.strip()) if len(text.strip()) <= _SPOKEN_LENGTH else None
    if spoken and (number := _number_in_words(spoken[1].lower().split())) is not None:
        return str(number)
    if spoken and (name := _NAMES_OF_THINGS.get(spoken[1].lower())):
        return name
    # long runs of spaces would cost the patterns below time that grows with their square
    text = _GROUPING.sub("", _SPACES.sub(" ", _from_unicode(text)))
    if money := _MONEY.fullmatch(text.strip()):
        rate = re.sub(r"\\text|\{", "", money[5] or "")
        text = f"{money[1]}{money[3]}\\text{{ {money[4] or ''} {_CURRENCY[money[2]]} {rate}}}"
    text = text.replace("\\$", "").replace("$", "").replace("**", "^")
    text = _QUOTES.sub("", _LAYOUT_WITH_ARGUMENT.sub(" ", text))
    # where there is no matrix, a doubled backslash is an escaped one and no new row
    if "\\begin" in text:
        text = _LEFT_BRACE.sub(r"\\begin{cases}\2\\end{cases}", _NEW_ROW.sub(r"\\\\ ", text))
        text = _SYSTEM.sub(_listed, text)
    else:
        text = _DOUBLED.sub(r"\\", text)
    text = _NOT_EQUAL.sub(r"\\ne ", text).replace("<=", r"\le ").replace(">=", r"\ge ")
    text = _NUMBER_SET.sub(r" \\mathbb{\1\2\3}", _DEGREE_AS_LETTER.sub(r"^\\circ ", text)).replace(r"\not=", r"\ne ")
    text = _DOTTED.sub(r"\1\\overline{\2\3\4}", text)
    text = _ENVIRONMENT.sub(lambda m: f"\\{m[1] or m[2]}{{pmatrix}}", text)
    # bold or slanted letters are symbols, upright ones may be units
    text = _BOLD_MATHEMATICS.sub("", _FONT.sub(r" \1 ", text))
    text = _COMMAND.sub(_respell, text)
    text = _TEXT_FUNCTION.sub(r" \\\1 ", text)
    text = _TEXT_COMMAND.sub(r" \1 ", text)
    text = _EMPTY_TEXT.sub(" ", text).replace("{}", " ")
    text = _SINGLE.sub(_plain_letter, text)
    text = _TEXT_OF_LETTERS.sub(r"\1", _TEXT_OF_NUMBER.sub(r" \1 ", text))
    text = _WORD_OR.sub(",", text)
    text = _SPACES.sub(" ", text).strip()
    text = _DERIVATIVE.sub(r"\\frac{d\1}{d\2}", _TO.sub(":", text))
    text = _SPACED_GROUPS.sub(lambda m: m.group().replace(" ", ""), text)
    text = _MIXED.sub(r"\1\\frac{\2}{\3}", text)
    text = _unwrap(_unwrap(text).rstrip(" .,;:") if not text.endswith("\\") else text)
    return _numeral(text.removeprefix("\\approx").strip())


def _number_in_words(words: list[str]) -> int | None:
    """The number that words are: up to ninety-nine, times hundred, thousand and so on."""
    scale = 1
    while len(words) > 1 and words[-1] in SCALES:
        scale *= SCALES[words.pop()]
    number = NUMBERS.get("-".join(words))
    return None if number is None else number * scale


def _listed(system: re.Match[str]) -> str:
    r"""Return equations below each other as a list; a row that begins with a sign goes on with the one before."""
    kind, rows = system[1], _ALIGNED.sub("", system[2]).split("\\\\")
    rows = [row.strip(" ,;.") for row in rows if row.strip()]
    is_list = not any("&" in row or "\\text" in row or "=" not in row for row in rows)
    if not is_list and ("cases" in kind or kind in ("array", "matrix")):
        return system[0].replace(f"{{{kind}}}", "{cases}") if "cases" in kind else system[0]
    text = ", ".join(row.replace("&", " ").strip() for row in rows)
    return re.sub(r", (?==)", " ", text)


def _numeral(text: str) -> str:
    r"""A numeral in another base in one spelling, `2B_{16}`, which begins with a digit; other texts as they are."""
    based = _BASED.fullmatch(text)
    if not based:
        return text
    sign, digits, base = based[1], based[2].upper(), int(NUMBERS.get(based[3].lower(), based[3]))
    if not all(char == "." or int(char, 36) < base for char in digits):
        return text
    return sign + (digits if base == 10 else f"{digits}_{{{base}}}")


def _from_unicode(text: str) -> str:
    text = _ROOT_OF_DIGITS.sub(r"\1{\2}", text)
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
    is_unit = letter[1] in UNITS and (letter[1] not in NEEDS_SPACE or spaced)
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


def is_too_complex(text: str) -> bool:
    """Return whether a text is longer or deeper nested than any that is read."""
    # a character may stand for many
    return max(len(text), len(unicodedata.normalize("NFKC", text))) > MAX_ANSWER or depth_of(text) > MAX_DEPTH


def key(text: str) -> str:
    """The text without spacing, for equality; a space between digits stays, as `1 2` is not 12."""
    return _NOT_BETWEEN_DIGITS.sub("", text)
