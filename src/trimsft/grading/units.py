r"""Units at the end of a value: `12 \text{ cm}^2` is the value `12` and the unit `cm^2`.

A unit may be missing on either side, but two that differ make the answer wrong. Words of scale belong to the
value: `5\text{ million dollars}` is `(5)*1000000` and `dollar`.
"""

from __future__ import annotations

import re

from trimsft.grading.unit_words import SCALE_WORDS, UNIT_OF, name_of_words, says_what_is_counted

_POWER = r"(?:\s*\^\s*\{?\s*([23])\s*\}?)?"
_MEASURE = r"(?:(square|sq\.?|cubic|cu\.?)\s+)?"
_WORDLIKE = "in am pm st nd rd th"
_PRODUCTS = "ms pc ly nm mg ml au ev hz pa kj kw"
_NOT_BARE = {*_WORDLIKE.split(), *_PRODUCTS.split()}  # these are units within a \text alone
_WORDS = "|".join(
    sorted((re.escape(u) for u in UNIT_OF if len(u) > 1 and u.lower() not in _NOT_BARE), key=len, reverse=True)
)
_TEXT_UNIT = re.compile(r"\\text\{\s*([^{}]{1,60}?)\s*\}" + _POWER + r"\s*$")
_BARE_UNIT = re.compile(
    r"(?<![A-Za-z\\{_])" + _MEASURE + rf"({_WORDS})\.?(?:\s+per\s+({_WORDS}))?" + _POWER + r"\s*$",
    re.IGNORECASE,
)
_SCALE = "|".join(SCALE_WORDS)
_SCALED = re.compile(
    rf"(?<=[\d}})])\s*(?:\\text\{{\s*)?((?:{_SCALE})(?:\s+(?:{_SCALE}))*)(?:\s+([A-Za-z ]+?))?\s*\}}?\s*$",
    re.IGNORECASE,
)
_ONE_NUMBER = re.compile(
    r"[+-]?\s*(?:\d+(?:\.\d+)?|\.\d+|\d+\s*/\s*\d+|(?:\d+\s*)?\\frac\s*(?:\{\d+\}|\d)\s*(?:\{\d+\}|\d))"
)
_DEGREE = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*$")
_MEASURED = re.compile(r"^" + _MEASURE + r"([A-Za-z/%°]+)\.?" + _POWER + r"$", re.IGNORECASE)
_POINTS = re.compile(r"percent(?:age)? points?")
_CLOCK = re.compile(r"^([aApP])\.\s?[mM]\.?$")
_BRACKETED = re.compile(r"^\(([^()]*)\)$")
_LOOK = 90


def canonical_unit(text: str) -> str | None:
    """One name per known unit, None for others: `square inches` is `inch^2`; "" for units of whatever is measured."""
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text.replace("$", "")).strip()
    text = _CLOCK.sub(r"\1m", _POINTS.sub("percent", text))
    if len(ratio := re.split(r"\s+per\s+", text)) == 2:
        names = [canonical_unit(part) for part in ratio]
        return "/".join(name for name in names if name) if all(names) else None
    found = _MEASURED.match(text)
    if not found:
        return "degree" if "\\circ" in text else None
    unit = UNIT_OF.get(found[2])
    if unit is None and len(found[2]) > 1:  # M is no metre
        unit = UNIT_OF.get(found[2].lower())
    power = found[3] or {"s": "2", "c": "3"}.get((found[1] or " ")[0].lower(), "")
    return f"{unit}^{power}" if unit and power else unit


def split_unit(text: str) -> tuple[str, str | None]:
    """The value without its unit, and one name for the unit; None for no unit, or for one of whatever is measured."""
    tail = text[-_LOOK:]
    if (found := _SCALED.search(tail)) and (scaled := _scaled(_cut(text, tail, found), found)):
        return scaled
    if found := _DEGREE.search(tail):
        return _cut(text, tail, found), "degree"
    if (found := _TEXT_UNIT.search(tail)) and _cut(text, tail, found):
        words, power = _BRACKETED.sub(r"\1", found[1]), f"^{found[2]}" if found[2] else ""
        name = canonical_unit(words + power)
        if name is None and says_what_is_counted(words):
            name = name_of_words(words) + power
        if name is not None:
            return _cut(text, tail, found), name or None
    if (found := _BARE_UNIT.search(tail)) and _ends_a_value(_cut(text, tail, found)):
        return _cut(text, tail, found), canonical_unit(found.group().strip()) or None
    return text, None


def _scaled(value: str, found: re.Match[str]) -> tuple[str, str | None] | None:
    """`5` and `hundred thousand dollars`: one value, scales that multiply, and a known unit or none."""
    words, rest = found.groups()
    unit = canonical_unit(rest) if rest else ""
    if unit is None or not _is_one_value(value):
        return None
    scale = 1
    for word in words.lower().split():
        scale *= SCALE_WORDS[word]
    return f"({value})*{scale}", unit or None


def _is_one_value(text: str) -> bool:
    """Whether a scale after it can only mean all of it: a number, a fraction, or something in brackets."""
    return _ONE_NUMBER.fullmatch(text) is not None or (text[:1] == "(" and _closing(text) == len(text) - 1)


def _closing(text: str) -> int:
    depth = 0
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at
    return -1


def _cut(text: str, tail: str, found: re.Match[str]) -> str:
    return text[: len(text) - len(tail) + found.start()].rstrip()


def _ends_a_value(text: str) -> bool:
    return text[-1:].isdigit() or text.endswith(("}", ")", "\\pi"))
