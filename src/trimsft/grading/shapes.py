r"""Read the outer shape of an answer: `(1, 2]` is brackets around two leaves, `x = 5` an equation of two.

    >>> shape_of("(1, 2]").kind, [part.text for part in shape_of("(1, 2]").parts]
    ('brackets', ['1', '2'])

One pass over the text per level of nesting, and at most `MAX_DEPTH` levels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

from trimsft.grading.compare_values import is_numeric, rounds_to, same_leaf, same_value, tree_of
from trimsft.grading.kinds import Rules
from trimsft.grading.units import split_unit

_NAME = re.compile(
    r"(?:[A-Za-z]|\\[A-Za-z]+(?![A-Za-z])|[+\-*/|()\[\]{},'\s:^]|_\s*(?:\{(?:[^{}\\]|\\[a-z]+|\{[^{}]*\})*\}|\w)"
    r"|(?<=[A-Za-z]\^\{)-1(?=\}\s*\()|(?<=\()\s*\d+\s*(?=\)))+"
)
_NAME_OF_MATRIX = re.compile(r"(?:[A-Za-z]\s*(?:\^\s*(?:\{[^{}]*\}|\w)\s*)?)+")
"""A^{-1} is one matrix where the other side is one; x^{-1} = 5 does not say that x is 5."""
_NO_NAME = re.compile(
    r"^\s*-|\\(?:sqrt|ln|log|lg|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)|sinh|cosh|tanh)(?![A-Za-z])|\|"
    r"|\\not|\\text\s*\{[^{}]*\b(?:not?|non|never|nor|cannot)\b"
)
"""What makes of a letter another value: minus x, a function of x, the size of x."""
LETTER = re.compile(r"\s*(?!\\infty)(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w+\}?)?(?:\([a-z]\))?\s*")
_LENGTH = re.compile(r"\|[A-Z\s]+\|")  # of a segment or a set
_WORKING = re.compile(r"[\w)}]\s*(?:[+*-]|\\cdot|\\times)")
_CHAIN = Rules(tolerance=0.01)  # in a chain, as x = 1/3 = 0.33


@dataclass(frozen=True)
class Shape:
    """One level of an answer."""

    kind: str
    """leaf, list, set, brackets, union, intersection, difference, matrix, cases, equation, inequality or ratio"""
    text: str
    parts: tuple[Shape, ...] = ()
    marks: tuple[str, ...] = ()
    """Brackets, columns of a matrix, or what stands between the parts."""

    # ---- equations

    def names_a_value(self) -> bool:
        r"""Return whether an equation only names a value: x = 5, f(x) = ..., \frac{NO}{BO} = ..."""
        if len(self.parts) > 2:
            return is_numeric(self.parts[0].text) or _may_name(self.parts[0].text)
        side, value = self.parts
        name = side.text
        if side.kind == "matrix":
            return all(LETTER.fullmatch(part.text) for part in side.parts)
        if value.kind == "matrix" and len(name) <= 20 and _NAME_OF_MATRIX.fullmatch(name):
            return True
        if value.text == "0" and not LETTER.fullmatch(name.partition("(")[0]):
            return False  # an equation in its own right
        fits = len(name) <= 60 and _NAME.fullmatch(name) is not None and any(map(str.isalpha, name))
        return fits and _may_name(name) and not is_numeric(name)  # a circle's number has its value

    def values(self) -> tuple[Shape, ...]:
        """Return what an equation says its value is: one part, several spellings, or nothing."""
        last = self.parts[-1]
        if LETTER.fullmatch(last.text) and is_numeric(split_unit(self.parts[-2].text)[0]):  # 5 = x, 2 + 3 = 5 = x
            before = Shape("equation", self.text, self.parts[:-1], self.marks[:-1])
            return before.parts if len(before.parts) == 1 else before.values()
        if self.names_a_value():  # of x = 1/3 \approx 0.33 either
            return self.parts[-2:] if len(self.parts) > 2 and self.marks[-1] == "\\approx" else (last,)
        return self.parts[::-1] if self.is_true() else ()

    def is_true(self) -> bool:
        """Return whether an equation always holds: 80 + 150 = 230, n^2 + n = n(n+1), 1/3 = 0.33."""
        texts = [part.text for part in self.parts]
        if "\\to" in self.marks or len(set(texts)) == 1 or any(part.kind != "leaf" for part in self.parts):
            return False
        return all(same_leaf(one, other, Rules()) or rounds_to(one, other) for one, other in pairwise(texts))

    def contradicts_itself(self) -> bool:
        """Return whether a chain, which is no working, states two numbers: x = 5 = 3."""
        if any(_WORKING.search(part.text) for part in self.parts):
            return False
        values = [split_unit(part.text) for part in self.parts]
        numbers = [(value, unit) for value, unit in values if is_numeric(value)]
        return any(unit == numbers[0][1] and not same_value(numbers[0][0], value, _CHAIN) for value, unit in numbers)

    def bounds(self) -> bool:
        """Return whether this is an inequality, or a list with one."""
        return self.kind == "inequality" or (self.kind == "list" and any(part.bounds() for part in self.parts))


def _may_name(text: str) -> bool:
    return not _NO_NAME.search(_LENGTH.sub("", text))


# ---- reading shapes

_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|\s+|.", re.DOTALL)
_OPEN, _CLOSE = {"(", "[", "{", "\\{", "\\lfloor", "\\lceil"}, {")", "]", "}", "\\}", "\\rfloor", "\\rceil"}
_RELATIONS = {
    "equation": {"=", "\\to", "\\approx"}, "inequality": {"<", ">", "\\le", "\\ge", "\\ne"}, "union": {"\\cup"},
    "intersection": {"\\cap"}, "difference": {"\\setminus"},
}  # fmt: skip
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?!\d)")
_ZEROS_FIRST = re.compile(r"\d,0\d")
_MEMBER = re.compile(r"^(?!\s*\\not)\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*\\in(?![A-Za-z])")
_BUILDER = re.compile(r"\\\{\s*(?:[A-Za-z]|\\[a-z]+)\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(.+)\\\}", re.DOTALL)
_PLUS, _MINUS = (re.compile(rf"\\{name}(?![A-Za-z])") for name in ("pm", "mp"))
_MATRIX = re.compile(r"([^&]{0,80}?)\s*\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_CASES = re.compile(r"\\begin\{cases\}(.*)\\end\{cases\}", re.DOTALL)
_IF = re.compile(r"\s*(?=\\text\s*\{\s*,?\s*(?:if|for|when)(?![A-Za-z]))")


def readings(text: str) -> list[str]:
    """Return the texts to try: 1,000 is a number, then a list."""
    grouped = _GROUPED.sub(lambda m: m.group().replace(",", ""), text)
    if grouped == text or _ZEROS_FIRST.search(text):  # no list has an item like 080
        return [grouped]
    if shape_of(text).kind == "brackets" and "," not in grouped:  # [36,104] is no number
        return [text]
    return [grouped, text]


@lru_cache(maxsize=20_000)
def shape_of(text: str) -> Shape:
    """Return the shape of a cleaned text."""
    text = _MEMBER.sub("", text.strip()).strip()
    if (builder := _BUILDER.fullmatch(text)) and _wraps(text) and (inside := shape_of(builder[1])).bounds():
        return inside
    for separators in ({";"}, {","}):
        pieces, met = split_outside(text, separators)
        if met:
            items = [shape_of(piece) for piece in pieces if piece]
            flat = [part for item in items for part in (item.parts if item.kind == "list" else (item,))]
            return Shape("list", text, tuple(flat)) if len(flat) > 1 else items[0] if items else Shape("leaf", text)
    for kind, separators in _RELATIONS.items():
        pieces, met = split_outside(text, separators)
        if met and all(pieces):
            if kind == "equation" and "\\to" in met[:-1]:  # of 2x = 10 \to x = 5 the end
                after = len(met) - met[-2::-1].index("\\to") - 1
                pieces, met = pieces[after:], met[after:]
            parts, marks = tuple(map(shape_of, pieces)), tuple(met)
            if set(marks) <= {">", "\\ge"}:  # from the left to the right, as x < 3 for 3 > x
                parts, marks = parts[::-1], tuple("<" if mark == ">" else "\\le" for mark in marks[::-1])
            return Shape(kind, text, parts, marks)
    if shape := _matrix(text) or _cases(text) or _brackets(text):
        return shape
    pieces, met = split_outside(text, {":"})
    if met and all(pieces):
        if any(re.fullmatch(r"0\d", piece) for piece in pieces):
            return Shape("leaf", text)  # a time of day
        parts = tuple(Shape("leaf", f"({pieces[0]})/({piece})") for piece in pieces[1:])
        return parts[0] if len(parts) == 1 else Shape("ratio", text, parts)
    if _PLUS.search(text) or _MINUS.search(text):
        both = (_PLUS.sub(one, _MINUS.sub(other, text)).strip() for one, other in ("+-", "-+"))
        return Shape("list", text, tuple(Shape("leaf", sign) for sign in both))
    return Shape("leaf", text)


def split_outside(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Return the pieces between separators outside all brackets, and the separators met."""
    if not any(separator in text for separator in separators):
        return [text.strip()], []
    pieces, met = [], []
    depth = environments = start = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        environments += (mark == "\\begin") - (mark == "\\end")
        depth += (mark in _OPEN) - (mark in _CLOSE)
        if depth == 0 and environments == 0 and mark in separators:
            pieces.append(text[start : token.start()].strip())
            met.append(mark)
            start = token.end()
    pieces.append(text[start:].strip())
    return pieces, met


def _wraps(text: str) -> bool:
    """Return whether the first bracket is closed by the last."""
    marks = _TOKEN.findall(text)
    depths = list(accumulate((mark in _OPEN) - (mark in _CLOSE) for mark in marks))
    return depths[-1] == 0 and min(depths[:-1]) > 0


def _matrix(text: str) -> Shape | None:
    match = _MATRIX.fullmatch(text)
    if not match or "\\begin" in match[2]:
        return None
    factor, cells = match[1], [split_outside(row, {"&"})[0] for row in split_outside(match[2], {"\\\\"})[0] if row]
    factor = "-1" if factor == "-" else factor
    if len({len(row) for row in cells}) != 1 or (factor and tree_of(factor) is None):
        return None
    flat = [f"({factor})*({cell})" if factor else cell for row in cells for cell in row]
    return Shape("matrix", text, tuple(map(shape_of, flat)), (str(len(cells[0])),))


def _cases(text: str) -> Shape | None:
    """Return values and their conditions, in any order."""
    match = _CASES.fullmatch(text)
    if not match or "\\begin" in match[1]:
        return None
    rows = []
    for row in filter(None, split_outside(match[1], {"\\\\"})[0]):
        cells = split_outside(row if "&" in row else _IF.sub("&", row, 1), {"&"})[0]
        if len(cells) != 2:
            return None
        condition = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", cells[1]).rstrip(" .,;")
        condition = re.sub(r"^(?:\s|,|(?:if|for|when|where)(?![A-Za-z]))+|\s+is(?![A-Za-z])", "", condition)
        condition = "otherwise" if condition.strip() in ("else", "otherwise") else condition
        rows.append(Shape("row", row, (shape_of(cells[0].rstrip(" ,;")), shape_of(condition))))
    return Shape("cases", text, tuple(rows))


def _brackets(text: str) -> Shape | None:
    if text.startswith("{") and text.endswith("}") and "," in text:  # the backslashes of \{ and \} are lost
        text = "\\{" + text[1:-1] + "\\}"
    opener = next((mark for mark in ("\\{", "(", "[") if text.startswith(mark)), None)
    closer = next((mark for mark in ("\\}", ")", "]") if text.endswith(mark)), None)
    if opener is None or closer is None or not _wraps(text):
        return None
    inside = text[len(opener) : -len(closer)]
    if opener == "\\{" and closer == "\\}":
        items = shape_of(inside) if inside.strip() else Shape("leaf", "")
        parts = items.parts if items.kind == "list" else (items,)
        return Shape("set", text, tuple({part.text: part for part in parts}.values()))
    parts = tuple(shape_of(piece) for piece in split_outside(inside, {",", ";"})[0])
    if len(parts) == 1 and parts[0].kind != "leaf":
        return parts[0]  # brackets around a matrix, or doubled ones
    return Shape("brackets", text, parts, (opener, closer) if len(parts) > 1 else ())
