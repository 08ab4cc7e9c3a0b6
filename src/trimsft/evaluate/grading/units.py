r"""Units at the end of a value: `12 \text{ cm}^2` is the value `12` and the unit `cm^2`.

A unit may be missing on either side, but two known units that differ make the answer wrong.
"""

from __future__ import annotations

import re

from trimsft.evaluate.grading.numerals import SCALES

_SPELLINGS = {
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "inch": "in inch inches",
    "ft": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "degree": "degree degrees deg °",
    "radian": "rad radian radians",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr year years",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "lb": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "ton": "ton tons",
    "liter": "l liter liters litre litres",
    "gallon": "gal gallon gallons",
    "quart": "quart quarts",
    "acre": "acre acres",
    "dollar": "dollar dollars usd",
    "cent": "cent cents",
    "km/hour": "km/h kmh kph km/hr",
    "mile/hour": "mph miles/hour",
    "m/second": "m/s",
    "%": "% percent percentage pct",
    "people": "people",
    "": "unit units",  # of whatever the problem measures in
}
UNIT_OF = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}

_SCALE_WORDS = SCALES | {"dozen": 12}
_CHANGES_THE_VALUE = {
    "squared", "cubed", "factorial", "tens", "hundreds", "thousands", "millions", "billions", "dozens", "halves",
    "half", "thirds", "quarters", "fourths", "fifths", "tenths", "base", "mod", "modulo", "over", "times", "plus",
    "minus", "not", *_SCALE_WORDS,
}  # fmt: skip
_POWER = r"(?:\s*\^\s*\{?\s*([23])\s*\}?)?"
_MEASURE = r"(?:(square|sq\.?|cubic|cu\.?)\s+)?"
_WORDS = "|".join(sorted((re.escape(u) for u in UNIT_OF if len(u) > 1 and u != "in"), key=len, reverse=True))
_TEXT_UNIT = re.compile(r"\\text\{\s*([^{}]{1,60}?)\s*\}" + _POWER + r"\s*$")
_BARE_UNIT = re.compile(
    r"(?<![A-Za-z\\{_])" + _MEASURE + rf"({_WORDS})\.?(?:\s+per\s+({_WORDS}))?" + _POWER + r"\s*$",
    re.IGNORECASE,
)
_SCALED = re.compile(
    rf"(?<=[\d}})])\s*(?:\\text\{{\s*)?({'|'.join(_SCALE_WORDS)})(?:\s+([A-Za-z]+))?\s*\}}?\s*$",
    re.IGNORECASE,
)
_DEGREE = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*$")
_MEASURED = re.compile(r"^" + _MEASURE + r"([A-Za-z/%°]+)\.?" + _POWER + r"$", re.IGNORECASE)
_LOOK = 90


def canonical_unit(text: str) -> str | None:
    """One name per unit, None for what is no known unit: `square inches` is `inch^2`."""
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text.replace("$", "")).strip()
    if len(ratio := re.split(r"\s+per\s+", text)) == 2:
        names = [canonical_unit(part) for part in ratio]
        return "/".join(name for name in names if name) if all(names) else None
    found = _MEASURED.match(text)
    if not found:
        return "degree" if "\\circ" in text else None
    unit = UNIT_OF.get(found[2]) or UNIT_OF.get(found[2].lower())
    power = found[3] or {"s": "2", "c": "3"}.get((found[1] or " ")[0].lower(), "")
    return (f"{unit}^{power}" if power else unit) if unit else None


def split_unit(text: str) -> tuple[str, str | None]:
    """The value without its unit, and the unit's canonical name where it is a known one."""
    tail = text[-_LOOK:]
    if found := _SCALED.search(tail):
        scale = _SCALE_WORDS[found[1].lower()]
        return f"({_cut(text, tail, found)})*{scale}", canonical_unit(found[2] or "")
    if found := _DEGREE.search(tail):
        return _cut(text, tail, found), "degree"
    if (found := _TEXT_UNIT.search(tail)) and _cut(text, tail, found) and _only_names(found[1]):
        power = f"^{found[2]}" if found[2] else ""
        return _cut(text, tail, found), canonical_unit(found[1] + power)
    if (found := _BARE_UNIT.search(tail)) and _ends_a_value(_cut(text, tail, found)):
        return _cut(text, tail, found), canonical_unit(found.group().strip())
    return text, None


def _only_names(words: str) -> bool:
    """Whether a text after a value says what is counted, and does not change how much."""
    return "," not in words and not _CHANGES_THE_VALUE & set(re.findall("[a-z]+", words.lower()))


def _cut(text: str, tail: str, found: re.Match[str]) -> str:
    return text[: len(text) - len(tail) + found.start()].rstrip()


def _ends_a_value(text: str) -> bool:
    return text[-1:].isdigit() or text.endswith(("}", ")", "\\pi"))
