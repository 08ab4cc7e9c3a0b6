r"""The outer shape of an answer: `(1, 2]` is brackets around two leaves, `x = 5` an equation of two.

    >>> shape_of("(1, 2]").kind, [part.text for part in shape_of("(1, 2]").parts]
    ('brackets', ['1', '2'])

One pass over the text per level of nesting, and at most `MAX_DEPTH` levels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from trimsft.grading.clean import key
from trimsft.grading.rules import Rules
from trimsft.grading.single_values import number_of, rounds_to, same_leaf, same_value, tree_of
from trimsft.grading.units import split_unit
from trimsft.grading.values import names_in

_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|\s+|.", re.DOTALL)
_OPEN, _CLOSE = {"(", "[", "{", "\\{", "\\lfloor", "\\lceil"}, {")", "]", "}", "\\}", "\\rfloor", "\\rceil"}
_RELATIONS = {
    "equation": {"=", "\\to", "\\approx"}, "inequality": {"<", ">", "\\le", "\\ge", "\\ne"}, "union": {"\\cup"},
    "intersection": {"\\cap"}, "difference": {"\\setminus"},
}  # fmt: skip
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_LOOSE_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?!\d)")
_MATRIX = re.compile(r"([^&]{0,80}?)\s*\\begin\{(p|v)matrix\}(.*)\\end\{\2matrix\}", re.DOTALL)
_CASES = re.compile(r"\\begin\{cases\}(.*)\\end\{cases\}", re.DOTALL)
_IF = re.compile(r"\s*(?=\\text\s*\{\s*,?\s*(?:if|for|when)(?![A-Za-z]))")
_MOST_ROWS = 4  # of a determinant
_BUILDER = re.compile(r"\\\{\s*(?:[A-Za-z]|\\[a-z]+)\s*(?:\\in\s*\\mathbb\{R\}\s*)?[|:]\s*(.+)\\\}", re.DOTALL)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)\s*(?:\\text\s*\{)?\s*([AaPp])\.?\s?[Mm]\.?\s*\}?")
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
_LENGTH = re.compile(r"\|[A-Z\s]+\|")  # of a segment or a set, which are no numbers themselves
_CHAIN = Rules(tolerance=0.01)  # for the parts of a chain, where x = 1/3 = 0.33 is no contradiction
_EXACTLY = Rules()
_WORKING = re.compile(r"[\w)}]\s*(?:[+*-]|\\cdot|\\times)")
_ZEROS_FIRST = re.compile(r"\d,0\d")
_MEMBER = re.compile(r"^(?!\s*\\not)\s*\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*\\in(?![A-Za-z])")
_INFINITY = "\\infty"


@dataclass(frozen=True)
class Shape:
    """One level of an answer."""

    kind: str
    """leaf, list, set, brackets, union, intersection, difference, matrix, equation, inequality, ratio or clock"""
    text: str
    parts: tuple[Shape, ...] = ()
    marks: tuple[str, ...] = ()
    """Brackets of `brackets`, what stands between the parts of equation, inequality and union, columns of `matrix`."""

    def names_a_value(self) -> bool:
        r"""Whether this equation only gives a value its name: x = 5, f(x) = ..., \frac{NO}{BO} = ..., a chain."""
        if len(self.parts) > 2:
            first = self._statement()[0].text
            return _numeric(first) or _may_name(first)
        name = self.parts[0].text
        if self.parts[0].kind == "matrix":
            return all(_is_name(part.text) for part in self.parts[0].parts)
        if self.parts[1].kind == "matrix" and len(name) <= 20 and _NAME_OF_MATRIX.fullmatch(name):
            return True
        if self.parts[1].text == "0" and not _is_name(name.partition("(")[0]):
            return False  # an equation in its own right
        fits = len(name) <= 60 and _NAME.fullmatch(name) is not None and any(map(str.isalpha, name))
        return fits and _may_name(name) and not _numeric(name)  # a circle's number has its value

    def values(self) -> tuple[Shape, ...]:
        """What this equation says its value is: one part, several spellings of one value, or nothing."""
        if _is_name(self.parts[-1].text) and _numeric(split_unit(self.parts[-2].text)[0]):  # 5 = x, 2 + 3 = 5 = x
            before = Shape("equation", self.text, self.parts[:-1], self.marks[:-1])
            return before.parts if len(before.parts) == 1 else before.values()
        if self.names_a_value():  # of x = 1/3 \approx 0.33 either
            return self.parts[-2:] if len(self.parts) > 2 and self.marks[-1] == "\\approx" else self.parts[-1:]
        return self.parts[::-1] if self.is_true() else ()

    def starts_like(self, other: Shape) -> bool:
        """Whether two equations name the same thing, or one of them names nothing."""
        names = [side._statement()[0].text for side in (self, other)]
        return key(names[0]) == key(names[1]) or any(map(_numeric, names))

    def is_time(self) -> bool:
        """Whether a ratio is a time of day, such as 1:03."""
        return any(re.fullmatch(r"0\d", part.text) for part in self.parts)

    def is_true(self) -> bool:
        """Whether this equation holds whatever its letters are: 80 + 150 = 230, n^2 + n = n(n+1), 1/3 = 0.33."""
        texts = [part.text for part in self.parts]
        if "\\to" in self.marks or len(set(texts)) == 1 or any(part.kind != "leaf" for part in self.parts):
            return False
        return all(same_leaf(one, other, _EXACTLY) or rounds_to(one, other) for one, other in pairwise(texts))

    def contradicts_itself(self) -> bool:
        """Whether this chain states two different numbers: x = 5 = 3. Of a working the last part counts."""
        if any(_WORKING.search(part.text) for part in self._statement()):
            return False
        values = [split_unit(part.text) for part in self._statement()]
        numbers = [(value, unit) for value, unit in values if _numeric(value)]
        first = numbers[0] if numbers else None
        return any(
            same_value(first[0], value, _CHAIN) is False for value, unit in numbers if first and unit == first[1]
        )

    def _statement(self) -> tuple[Shape, ...]:
        r"""The parts that belong together: of `2x = 10 \to x = 5` the last two."""
        after = max((at + 1 for at, mark in enumerate(self.marks) if mark == "\\to"), default=0)
        return self.parts[after:] if len(self.parts) - after > 1 else self.parts

    def as_fraction(self) -> str | None:
        """`7:32` as `(7)/(32)`, unless it looks like a time of day."""
        if self.kind != "ratio":
            return self.text
        texts = [part.text for part in self.parts]
        if len(texts) != 2 or any(len(text) > 1 and text.startswith("0") for text in texts):
            return None
        return f"({texts[0]})/({texts[1]})"

    def variable(self) -> str | None:
        """The unknown that an inequality bounds, or that all inequalities of a list do."""
        if self.kind == "list":
            variables = {part.variable() for part in self.parts}
            return variables.pop() if len(variables) == 1 else None
        if len(self.parts) == 3 and _is_name(self.parts[1].text):
            return self.parts[1].text
        names = [part.text for part in self.parts if _is_name(part.text)]
        if len(names) == 2:
            names = [name for name in names if name.strip() in ("x", "y", "z", "t")]
        return names[0] if len(names) == 1 else None

    def bounds(self) -> bool:
        """Whether this is an inequality, or a list with one."""
        return self.kind == "inequality" or (self.kind == "list" and any(part.bounds() for part in self.parts))

    def interval(self) -> Shape | None:
        """An inequality as the interval it describes; a list of them as one interval or as a union."""
        if self.kind in ("brackets", "union"):
            return self
        if self.kind == "list":
            if self.bounds() and self.variable() is None:
                return None
            parts = [part.interval() for part in self.parts]
            intervals = tuple(part for part in parts if part is not None)
            if len(intervals) < len(parts):
                return None
            return _overlap(intervals) or Shape("union", self.text, intervals)
        if self.kind != "inequality" or self.variable() is None or "\\ne" in self.marks:
            return None
        return _interval(self)


def _interval(shape: Shape) -> Shape | None:
    parts, marks = shape.parts, shape.marks
    at = next(n for n, part in enumerate(parts) if part.text == shape.variable())
    rising = {mark in ("<", "\\le") for mark in marks}
    if len(rising) != 1 or len(parts) > 3 or (len(parts) == 3 and at != 1):
        return None
    if rising == {False}:
        parts, marks, at = parts[::-1], marks[::-1], len(parts) - 1 - at
    low = (parts[at - 1], marks[at - 1]) if at else None
    high = (parts[at + 1], marks[at]) if at + 1 < len(parts) else None
    opener = "[" if low and low[1] in ("\\le", "\\ge") else "("
    closer = "]" if high and high[1] in ("\\le", "\\ge") else ")"
    ends = (low[0] if low else Shape("leaf", "-" + _INFINITY), high[0] if high else Shape("leaf", _INFINITY))
    return Shape("brackets", f"{opener}{ends[0].text},{ends[1].text}{closer}", ends, (opener, closer))


def _overlap(parts: tuple[Shape, ...]) -> Shape | None:
    """`x > 2, x < 5` as (2, 5): joined by "or" these two would be every number, which no answer means."""
    if len(parts) != 2 or any(part.kind != "brackets" or len(part.parts) != 2 for part in parts):
        return None
    upper = next((part for part in parts if part.parts[0].text == "-" + _INFINITY), None)
    lower = next((part for part in parts if part.parts[1].text == _INFINITY), None)
    if upper is None or lower is None or upper is lower:
        return None
    low, high = number_of(lower.parts[0].text), number_of(upper.parts[1].text)
    if low is None or high is None or low >= high:
        return None
    marks = lower.marks[0], upper.marks[1]
    ends = lower.parts[0], upper.parts[1]
    return Shape("brackets", f"{marks[0]}{ends[0].text},{ends[1].text}{marks[1]}", ends, marks)


def _may_name(text: str) -> bool:
    return not _NO_NAME.search(_LENGTH.sub("", text))


def _numeric(text: str) -> bool:
    tree = tree_of(text)
    return tree is not None and not names_in(tree).has_unknowns


def _is_name(text: str) -> bool:
    name = r"\s*(?:[A-Za-z]|\\[a-z]+)(?:_\{?\w+\}?)?(?:\([a-z]\))?\s*"
    return re.fullmatch(name, text) is not None and "infty" not in text


def readings(text: str) -> list[str]:
    """A comma between digits groups thousands, or separates: 1,000 is tried as a number, then as a list."""
    grouped = _GROUPED.sub(lambda m: m.group().replace(",", ""), text)
    loose = _LOOSE_GROUPED.sub(lambda m: m.group().replace(",", ""), text)
    if loose == text:
        return [text]
    # no list has an item like 080
    if _ZEROS_FIRST.search(text):
        return list(dict.fromkeys([grouped, loose]))
    texts = [grouped, text, loose]
    if shape_of(text).kind == "brackets":  # [36,104] is no number
        texts = [reading for reading in texts if "," in reading]
    return list(dict.fromkeys(texts))


@lru_cache(maxsize=20_000)
def shape_of(text: str) -> Shape:
    """The shape of a cleaned text."""
    text = _MEMBER.sub("", text.strip()).strip()
    if (builder := _BUILDER.fullmatch(text)) and _wraps(text) and (inside := shape_of(builder[1])).bounds():
        return inside
    for divide in (_list, _relation, _matrix, _cases, _brackets, _ratio, _plus_minus):
        if (shape := divide(text)) is not None:
            return shape
    return Shape("leaf", text)


def split_outside(text: str, separators: set[str]) -> tuple[list[str], list[str]]:
    """Pieces between separators that stand outside all brackets, and the separators met."""
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


def _list(text: str) -> Shape | None:
    for separators in ({";"}, {","}):
        pieces, met = split_outside(text, separators)
        if met:
            items = [shape_of(piece) for piece in pieces if piece]
            flat = [part for item in items for part in (item.parts if item.kind == "list" else (item,))]
            return Shape("list", text, tuple(flat)) if len(flat) > 1 else items[0] if items else None
    return None


def _relation(text: str) -> Shape | None:
    for kind, separators in _RELATIONS.items():
        pieces, met = split_outside(text, separators)
        if met and all(pieces):
            return Shape(kind, text, tuple(map(shape_of, pieces)), tuple(met))
    return None


def _matrix(text: str) -> Shape | None:
    match = _MATRIX.fullmatch(text)
    if not match or "\\begin" in match[3]:
        return None
    factor, kind, inside = match.groups()
    rows = [row for row in split_outside(inside, {"\\\\"})[0] if row]
    cells = [split_outside(row, {"&"})[0] for row in rows]
    factor = "-1" if factor == "-" else factor
    if len({len(row) for row in cells}) != 1 or (factor and tree_of(factor) is None):
        return None
    if kind == "v":
        is_square = len(cells) == len(cells[0]) <= _MOST_ROWS
        return Shape("leaf", f"{factor}({_determinant(cells)})") if is_square else None
    flat = [f"({factor})*({cell})" if factor else cell for row in cells for cell in row]
    return Shape("matrix", text, tuple(map(shape_of, flat)), (str(len(cells[0])),))


def _cases(text: str) -> Shape | None:
    """Values and their conditions, in any order."""
    match = _CASES.fullmatch(text)
    if not match or "\\begin" in match[1]:
        return None
    rows = [row if "&" in row else _IF.sub("&", row, 1) for row in split_outside(match[1], {"\\\\"})[0] if row]
    cells = [split_outside(row, {"&"})[0] for row in rows]
    if any(len(row) != 2 for row in cells):
        return None
    pairs = [(shape_of(value.rstrip(" ,;")), shape_of(_condition(condition))) for value, condition in cells]
    return Shape("cases", text, tuple(Shape("row", row, pair) for row, pair in zip(rows, pairs, strict=True)))


def _condition(text: str) -> str:
    """A condition without the words around it."""
    words = re.sub(r"\\text\s*\{([^{}]*)\}", r" \1 ", text).rstrip(" .,;")
    words = re.sub(r"^(?:\s|,|(?:if|for|when|where)(?![A-Za-z]))+|\s+is(?![A-Za-z])", "", words)
    return "otherwise" if words.strip() in ("else", "otherwise") else words


def _determinant(rows: list[list[str]]) -> str:
    """The determinant as an expression, by its first row."""
    if len(rows) == 1:
        return rows[0][0]
    minors = ([row[:at] + row[at + 1 :] for row in rows[1:]] for at in range(len(rows)))
    terms = [f"({cell})*({_determinant(minor)})" for cell, minor in zip(rows[0], minors, strict=True)]
    return "".join(("-" if at % 2 else "+") + term for at, term in enumerate(terms))


def _brackets(text: str) -> Shape | None:
    opener = next((mark for mark in ("\\{", "(", "[") if text.startswith(mark)), None)
    closer = next((mark for mark in ("\\}", ")", "]") if text.endswith(mark)), None)
    if opener is None or closer is None or not _wraps(text):
        lost_backslashes = text.startswith("{") and text.endswith("}") and "," in text and _wraps(text)
        return _brackets("\\{" + text[1:-1] + "\\}") if lost_backslashes else None
    inside = text[len(opener) : -len(closer)]
    pieces = split_outside(inside, {",", ";"})[0]
    if opener == "\\{" and closer == "\\}":
        items = shape_of(inside) if inside.strip() else Shape("leaf", "")
        parts = items.parts if items.kind == "list" else (items,)
        return Shape("set", text, tuple({part.text: part for part in parts}.values()))
    parts = tuple(shape_of(piece) for piece in pieces)
    if len(parts) == 1 and parts[0].kind != "leaf":
        return parts[0]  # brackets around a matrix, or doubled ones
    return Shape("brackets", text, parts, (opener, closer) if len(parts) > 1 else ())


def _wraps(text: str) -> bool:
    """Whether the first bracket is closed by the last."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token.group() in _OPEN) - (token.group() in _CLOSE)
        if depth <= 0:
            return depth == 0 and token.end() == len(text)
    return False


def _ratio(text: str) -> Shape | None:
    if clock := _CLOCK.fullmatch(text):
        return Shape("clock", text, (Shape("leaf", clock[1]), Shape("leaf", clock[2])), (clock[3].lower(),))
    pieces, met = split_outside(text, {":"})
    return Shape("ratio", text, tuple(Shape("leaf", p) for p in pieces)) if met and all(pieces) else None


def _plus_minus(text: str) -> Shape | None:
    if not re.search(r"\\(?:pm|mp)(?![A-Za-z])", text):
        return None
    signs = [re.sub(r"\\pm(?![A-Za-z])", a, re.sub(r"\\mp(?![A-Za-z])", b, text)) for a, b in ("+-", "-+")]
    return Shape("list", text, tuple(Shape("leaf", sign.strip()) for sign in signs))
