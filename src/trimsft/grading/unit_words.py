r"""The words that may stand after a value: units by name, and words that change the value or deny it.

>>> UNIT_OF["centimetres"], says_what_is_counted("red apples"), says_what_is_counted("sixths")
('cm', True, False)
"""

from __future__ import annotations

import re

from trimsft.grading.numerals import NUMBER_WORDS, SCALES

_SPELLINGS = {
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "nm": "nm nanometer nanometers nanometre nanometres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "inch": "in inch inches",
    "ft": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "AU": "AU",
    "parsec": "pc parsec parsecs",
    "lightyear": "ly lightyear lightyears",
    "degree": "degree degrees deg °",
    "radian": "rad radian radians",
    "second": "s sec secs second seconds",
    "ms": "ms millisecond milliseconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr year years",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "kg": "kg kilogram kilograms",
    "lb": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "ton": "ton tons",
    "liter": "l L liter liters litre litres",
    "ml": "ml mL milliliter milliliters millilitre millilitres",
    "gallon": "gal gallon gallons",
    "quart": "quart quarts",
    "acre": "acre acres",
    "joule": "J joule joules",
    "kilojoule": "kJ kilojoule kilojoules",
    "newton": "N newton newtons",
    "watt": "W watt watts",
    "kilowatt": "kW kilowatt kilowatts",
    "volt": "V volt volts",
    "kelvin": "K kelvin kelvins",
    "pascal": "Pa pascal pascals",
    "hertz": "Hz hertz",
    "electronvolt": "eV electronvolt electronvolts",
    "dollar": "dollar dollars usd",
    "cent": "cent cents",
    "km/hour": "km/h kmh kph km/hr",
    "mile/hour": "mph miles/hour",
    "m/second": "m/s",
    "%": "% percent percentage pct",
    "am": "am",
    "pm": "pm",
    "ordinal": "st nd rd th",
    "people": "people",
    "": "unit units",  # of whatever the problem measures in
}
UNIT_OF = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
SCALE_WORDS = SCALES | {"dozen": 12}

_IRREGULAR = {"five": "fif", "eight": "eigh", "nine": "nin", "twelve": "twelf"}
_PARTS = {(_IRREGULAR.get(word) or re.sub("y$", "ie", word)) + "th" for word in [*NUMBER_WORDS, *SCALE_WORDS]} | {
    "half",
    "third",
    "quarter",
}
_ARITHMETIC = """
squared cubed factorial power powers exponent root sqrt pi inverse reciprocal over plus minus divided multiplied mod
modulo base remainder choose doubled tripled quadrupled halved halves halfs twice thrice double triple negative
log ln sin cos tan
"""
_DENIALS = """
not no non never nor cannot cant impossible undefined invalid wrong incorrect false is isn are aren was were be been
does doesn if unless except excluding without instead
"""
_RELATIONS = "to through until between below under above least most than or and of from"
_AMOUNTS = "dozens score scores gross grand mil mn bn"
_CHANGES_THE_VALUE = frozenset(
    [*f"{_ARITHMETIC} {_DENIALS} {_AMOUNTS}".split(), *NUMBER_WORDS, *SCALE_WORDS, *_PARTS]
    + [f"{word}s" for word in [*NUMBER_WORDS, *SCALE_WORDS, *_PARTS]]
)
_DENYING = frozenset(["not", "no", "non", "never", "nor", "cannot", "cant", "isn", "aren", "doesn"])
_LINKS = frozenset(_RELATIONS.split())
_WORD = re.compile("[A-Za-z]+")
_PROSE = re.compile(r"[A-Za-z]+\.?(?:[ /'-] ?[A-Za-z]+\.?)*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


def says_what_is_counted(words: str) -> bool:
    """Whether words after a value leave it as it is: letters alone, and none that changes how much it says."""
    found = _WORD.findall(words.lower())
    if not _PROSE.fullmatch(words.strip()) or max(map(len, found)) < 3:
        return False  # two letters that are no known unit may be factors
    return not _CHANGES_THE_VALUE & set(found) and not _is_linked(found)


def _is_linked(words: list[str]) -> bool:
    """`to`, `least` and the like anywhere, but `of` and `from` only where something would have to follow."""
    return bool((_LINKS - {"of", "from"}) & set(words)) or words[-1] in _LINKS


def denies(text: str) -> bool:
    r"""Whether a text says `\text{not}`, `\not` or the like."""
    return "\\not" in text or any(_DENYING & set(_WORD.findall(m[1].lower())) for m in _TEXT.finditer(text))


def changes_a_value(text: str) -> bool:
    r"""Whether a \text{...} anywhere changes a value: a parser that drops texts would misread it."""
    for found in _TEXT.finditer(text):
        words = set(_WORD.findall(found[1].lower()))
        if words & (_CHANGES_THE_VALUE | _LINKS) or re.search(r"[\d+*^!=<>]", found[1]):
            return True
    return False


def name_of_words(words: str) -> str:
    """One spelling for what is counted: `Red  apples.` is `red apple`."""
    found = _WORD.findall(words.replace(".", "").lower())
    return " ".join(w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in found)
