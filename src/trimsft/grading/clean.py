r"""Bring for what is written in many: unicode, spacing, synonyms of LaTeX commands.

    >>> clean("$\\dfrac{1}{2}\\,\\pi\\!$.")
    '\\frac{1}{2} \\pi'
    >>> clean("½ x²")
    '\\frac{1}{2} x^{2}'

Every pattern here is linear in the text; text longer than `MAX_ANSWER` is never passed in.
"""

import re
import unicodedata
from itertools import accumulate
from pathlib import Path

from trimsft.grading.expression import GREEK
from trimsft.grading.units import NUMBERS, SCALES, closes_at

MAX_ANSWER = 2_000  # characters; the longest gold of the seven benchmarks has 210
MAX_DEPTH = 40  # nested brackets

# ---- what characters and LaTeX commands are spelled as

_SUPERSCRIPTS, _SUBSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "₀₁₂₃₄₅₆₇₈₉₊₋₍₎"
_VULGAR = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒"
_PARTS = Path(__file__).with_name("spellings.txt").read_text("utf-8").split("\n\n")
_CHARACTERS, _COMMANDS, _LAYOUT, _WORDS = (part.splitlines()[1:] for part in _PARTS)


def _read_table(lines: list[str], separator: str | None = None) -> dict[str, str]:
    """Return what each spelling stands for."""
    pairs = (line.split(" | ") for line in lines)
    return {other.strip(): one for one, others in pairs for other in others.split(separator)}


_RENAMED = _read_table(_COMMANDS)
_DROPPED = {*" ".join(_LAYOUT).split(), *",;:! ()[]"}  # delimiters of mathematics; \\{ and \\\\ stay
_LITERAL = {*"()|[]<>/:%*'", "^\\circ"}
_NAMES = _read_table(_WORDS, ",")
_GREEK = zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", GREEK.split(), strict=True)
_MAP = str.maketrans(
    {"~": " "}
    | {char: f"{new} " if new[-1].isalpha() else new for char, new in _read_table(_CHARACTERS).items()}
    | {char: f"\\{name} " for char, name in _GREEK}
    | {char: "\\frac{" + unicodedata.normalize("NFKC", char).replace("⁄", "}{") + "}" for char in _VULGAR}
)

# ---- patterns

_SPACES = re.compile(r"\s+")
_NOT_BETWEEN_DIGITS = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_RAISED, _LOWERED = (re.compile(f"[{chars}]+") for chars in (_SUPERSCRIPTS, _SUBSCRIPTS))
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}|,\s*\\!|\\,|\\!)\s*(?=\d{3}(?!\d))")
_SPOKEN = re.compile(
    r"\$?\s*(?:\\(?:text|textbf|textit|textrm|mathrm|mbox)\s*\{\s*)?([A-Za-z -]{3,40}?)\s*\.?\s*\}?\s*\.?\s*\$?"
)
_CURRENCY = {
    "$": "dollars", "USD": "dollars", "€": "euros", "EUR": "euros", "£": "sterling", "¥": "yuan", "RMB": "yuan",
}  # fmt: skip
_MONEY = re.compile(
    r"(-?)\s*(?:US)?\\?(\$|USD|€|EUR|£|¥|RMB)\s*(\d[\d,]*(?:\.\d+)?|\.\d+)"
    r"(?:(?:\s|\\text\s*\{)*([a-z]*illion|thousand)\s*\}?)?"
    r"(?:(?:\s|\\text\s*\{)*((?:per |each|/)[a-z\s{\\]*)\}?)?\s*\.?"
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
_NEW_ROW = re.compile(r"\\\\\s*\[[^\[\]]*\]|\\cr(?![A-Za-z])")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z{}])")
_ALIGNED = re.compile(r"&\s*(?=[=<>]|\\(?:le|ge|ne|lt|gt|approx))")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_SPACED_GROUPS = re.compile(r"(?<![\d.,] )(?<![\d.,_^])\d{1,3}(?: \d{3})+(?! ?[\d,.]\d| ?\d)")
_BASED = re.compile(
    r"(-?)\s*\(?\s*(\d[0-9A-Za-z]{0,40}(?:\.\d+)?)\s*\)?\s*(?:_|(?:\\text\s*\{\s*)?(?:in )?base)"
    rf"(?:[\s{{}}()]|\\text)*(\d{{1,2}}|{'|'.join(list(NUMBERS)[:20])})[\s{{}})]*",
    re.IGNORECASE,
)
_FONT = r"\\(?:mathbf|mathit|mathsf|boldsymbol|bm)\s*"
_RESPELLED = [  # before commands have one name each
    (r"(?<![\d)])( ?)!=", r"\\ne "),
    (r"<=", r"\\le "),
    (r">=", r"\\ge "),
    (r"(?<=\d)\s*\^\s*(?:o(?![A-Za-z])|\{\s*o\s*\})", r"^\\circ "),  # the letter o for a degree
    (
        r"\\(?:mathbb|mathbf|Bbb)\s*(?:\{\s*([RZNQC])\s*\}|([RZNQC])(?![A-Za-z]))|\\([RZNQ])(?![A-Za-z])",
        r" \\mathbb{\1\2\3}",
    ),
    (r"\\not=", r"\\ne "),
    (r"((?<!\d)\d*\.\d*)\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?", r"\1\\overline{\2\3\4}"),
    (r"\\(begin|end)\{(?:b|B|small)?matrix\*?\}", r"\\\1{pmatrix}"),
    (r"\\(begin|end)\{array\}(?:\{[^{}]*\})?", r"\\\1{pmatrix}"),
    # bold or slanted letters are symbols, upright ones may be units
    (_FONT + r"\{\s*([A-Za-z]|\\[A-Za-z]+)\s*\}", r" \1 "),
    (_FONT + r"(?=\{[^{}]*[\\\d^_=+<>])", ""),
]
_RESPELLED_LAST = [
    (r"\\text\s*\{\s*(\\[A-Za-z]+)\s*\}", r" \1 "),
    (r"\\text\s*\{\s*\}|\{\}", " "),
    (r"\\text\s*\{\s*(-?\.?\d[^{}]*|[0-9A-Z]+(?=\s*\}\s*_))\}", r" \1 "),
    (r"\\text\s*\{\s*([A-Z]{1,4}(?:(?:\s*,\s*|\s+)(?:and\s+)?[A-Z]{1,4})+)\s*\}", r"\1"),  # names of points
    (r"\\text\{\s*,?\s*(?:and|or|或者?|[和与])\s*,?\s*\}|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|或者?|[和与]", ","),
    (r"\s+", " "),
    (r"(?<=[\d})]) ?(?:\\text\{ ?to ?\}|\bto\b) ?(?=[\d\\(])", ":"),
    (r"(?<![A-Za-z\\])d ?([A-Za-z]) ?/ ?d ?([A-Za-z])(?![A-Za-z])", r"\\frac{d\1}{d\2}"),
]
_QUOTES = re.compile(r"(?<!\d)(?:\"|``|'')|(?:\"|'')(?=\s*\}?\s*$)(?<!\d\")")
_LAYOUT_WITH_ARGUMENT = re.compile(
    r"\\(?:(?:text)?color|[hvm]space|[hv]?phantom|label|tag)\*?\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}"
)
_MIXED = re.compile(r"(?<![\d.^_{/])(\d{1,9}) (\d{1,9})/(\d{1,9})(?![\d.])")


def clean(text: str) -> str:
    """Return `text` in one spelling; the same mathematics."""
    text = text.strip()
    if spoken := _SPOKEN.fullmatch(text):
        number, _, scales = spoken[1].lower().partition(" ")
        if number in NUMBERS and SCALES.keys() >= set(scales.split()):
            return f"{NUMBERS[number]} {scales}".strip()
        text = _NAMES.get(spoken[1].lower(), text)
    text = _LOWERED.sub(r"_{\g<0>}", _RAISED.sub(r"^{\g<0>}", text))
    text = unicodedata.normalize("NFKC", text.translate(_MAP)).translate(_MAP)
    text = "".join(c if unicodedata.category(c)[0] != "C" else " " if c in "\n\t\r" else "" for c in text)
    # long runs of spaces would cost the patterns below quadratic time
    text = _GROUPING.sub("", _SPACES.sub(" ", text))
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
    for pattern, new in _RESPELLED:
        text = re.sub(pattern, new, text)
    text = _COMMAND.sub(_respell, text)
    for pattern, new in _RESPELLED_LAST:
        text = re.sub(pattern, new, text)
    text = _SPACED_GROUPS.sub(lambda m: m.group().replace(" ", ""), text.strip())
    text = _unwrap(_MIXED.sub(r"\1\\frac{\2}{\3}", text))
    text = text if text.endswith("\\") else _unwrap(text.rstrip(" .,;:"))
    text = text.removeprefix("\\approx").strip()
    if based := _BASED.fullmatch(text):  # a numeral in another base: 2B_{16}
        digits, base = based[2].upper(), int(NUMBERS.get(based[3].lower(), based[3]))
        if all(char == "." or int(char, 36) < base for char in digits):
            return based[1] + (digits if base == 10 else f"{digits}_{{{base}}}")
    return text


def _listed(system: re.Match[str]) -> str:
    r"""Return equations below each other as a list; a row that begins with a sign goes on."""
    kind, rows = system[1], _ALIGNED.sub("", system[2]).split("\\\\")
    rows = [row.strip(" ,;.") for row in rows if row.strip()]
    is_list = not any("&" in row or "\\text" in row or "=" not in row for row in rows)
    if not is_list and "cases" in kind:
        return system[0].replace(f"{{{kind}}}", "{cases}")
    if not is_list and kind in ("array", "matrix"):
        return system[0]
    text = ", ".join(row.replace("&", " ").strip() for row in rows)
    return re.sub(r", (?==)", " ", text)


def _respell(command: re.Match[str]) -> str:
    if command[1] in _DROPPED:
        return " "
    name = _RENAMED.get(command[1], command[1])
    if name in ("or", "and"):
        return f" {name} "
    return name if name in _LITERAL else "\\" + name


def _unwrap(text: str) -> str:
    """Return a text without braces around the whole: `{5}` is `5`."""
    while text.startswith("{") and closes_at(text, "{}") == len(text) - 1:
        text = text[1:-1].strip()
    return text


def is_too_complex(text: str) -> bool:
    """Return whether a text is longer or deeper nested than any that is read."""
    depths = accumulate((char in "([{") - (char in ")]}") for char in text)
    # a character may stand for many
    return len(unicodedata.normalize("NFKC", text)) > MAX_ANSWER or max(depths, default=0) > MAX_DEPTH


def key(text: str) -> str:
    """Return the text without spacing, but between digits, as `1 2` is not 12."""
    return _NOT_BETWEEN_DIGITS.sub("", text)
