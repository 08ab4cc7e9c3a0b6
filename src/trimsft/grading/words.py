r"""Words in an answer: numbers in words, units by name, words of scale, and words that change a value or deny it.

    >>> number_in_words("one hundred and five"), number_in_words("high five")
    (105, None)
    >>> split_unit("12 \\text{ cm}^2"), split_unit("5\\text{ million dollars}")
    (('12', 'cm^2'), ('(5)*1000000', 'dollar'))
    >>> UNIT_OF["centimetres"], says_what_is_counted("red apples"), says_what_is_counted("sixths")
    ('cm', True, False)

A unit may be missing on either side, but two that differ make the answer wrong.
"""

import math
import re

# ---- numbers in words

_ONES = "zero one two three four five six seven eight nine"
_TEENS = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {word: value for value, word in enumerate([*_ONES.split(), *_TEENS.split()])}
_TEN = {word: 10 * value for value, word in enumerate(_TENS.split(), 2)}
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
NUMBER_WORDS = (*_SMALL, *_TEN)
_WORD = re.compile("[A-Za-z]+")
_SPELLED = re.compile(r"[A-Za-z]+(?:(?: |-)[A-Za-z]+)*")  # a hyphen elsewhere is a minus
_LONGEST_NUMBER = 200


def number_in_words(text: str, whole: bool = True) -> int | None:
    """The number that a text is in words, None for anything else.

    `whole` asks that nothing else stands there; otherwise other words are passed over, as the lenient grader does.
    """
    if len(text) > _LONGEST_NUMBER or (whole and not _SPELLED.fullmatch(text.strip())):
        return None
    known = _SMALL.keys() | _TEN.keys() | SCALES.keys()
    words = [word for word in _WORD.findall(text.lower()) if whole or word in known]
    return _value(words)


def _value(words: list[str]) -> int | None:
    """Strictly: units after tens, hundreds below thousands, thousands below millions, each at most once."""
    total, group, last_scale, before = 0, 0, 10**15, ""
    for word in words:
        if word == "and":
            fits = before in SCALES
        elif word in _SMALL:
            tens = before in _TEN and 0 < _SMALL[word] < 10
            fits = tens or before in ("", "and") or before in SCALES
            group += _SMALL[word]
        elif word in _TEN:
            fits = before in ("", "and") or before in SCALES
            group += _TEN[word]
        elif word == "hundred":
            fits = 0 < group < 100 and before not in SCALES
            group *= 100
        elif word in SCALES:
            fits = 0 < group < 1000 and SCALES[word] < last_scale and before != "and"
            total, group, last_scale = total + group * SCALES[word], 0, SCALES[word]
        else:
            return None
        if not fits:
            return None
        before = word
    return total + group if words and before != "and" else None


# ---- units by name, and words that change a value

_SPELLINGS = {
    "cm": "cm centimeter centimeters centimetre centimetres",
    "mm": "mm millimeter millimeters millimetre millimetres", "nm": "nm nanometer nanometers nanometre nanometres",
    "m": "m meter meters metre metres", "km": "km kilometer kilometers kilometre kilometres",
    "inch": "in inch inches", "ft": "ft foot feet", "yard": "yd yard yards", "mile": "mi mile miles", "AU": "AU",
    "parsec": "pc parsec parsecs", "lightyear": "ly lightyear lightyears", "degree": "degree degrees deg °",
    "radian": "rad radian radians", "second": "s sec secs second seconds", "ms": "ms millisecond milliseconds",
    "minute": "min mins minute minutes", "hour": "h hr hrs hour hours", "day": "day days", "week": "week weeks",
    "month": "month months", "year": "yr year years", "g": "g gram grams", "mg": "mg milligram milligrams",
    "kg": "kg kilogram kilograms", "lb": "lb lbs pound pounds", "ounce": "oz ounce ounces", "ton": "ton tons",
    "liter": "l L liter liters litre litres", "ml": "ml mL milliliter milliliters millilitre millilitres",
    "gallon": "gal gallon gallons", "quart": "quart quarts", "acre": "acre acres", "joule": "J joule joules",
    "kilojoule": "kJ kilojoule kilojoules", "newton": "N newton newtons", "watt": "W watt watts",
    "kilowatt": "kW kilowatt kilowatts", "volt": "V volt volts", "kelvin": "K kelvin kelvins",
    "pascal": "Pa pascal pascals", "hertz": "Hz hertz", "electronvolt": "eV electronvolt electronvolts",
    "dollar": "dollar dollars usd", "cent": "cent cents", "km/hour": "km/h kmh kph km/hr",
    "mile/hour": "mph miles/hour", "m/second": "m/s", "%": "% percent percentage pct", "am": "am", "pm": "pm",
    "ordinal": "st nd rd th", "people": "people",
    "": "unit units",  # of whatever the problem measures in
}  # fmt: skip
UNIT_OF = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
SCALE_WORDS = SCALES | {"dozen": 12}

_IRREGULAR = {"five": "fif", "eight": "eigh", "nine": "nin", "twelve": "twelf"}
_ORDINALS = {(_IRREGULAR.get(word) or re.sub("y$", "ie", word)) + "th" for word in [*NUMBER_WORDS, *SCALE_WORDS]}
_PARTS = _ORDINALS | {"half", "third", "quarter"}
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
_DENYING = {"not", "no", "non", "never", "nor", "cannot", "cant", "isn", "aren", "doesn"}
_LINKS = frozenset(_RELATIONS.split())
_PROSE = re.compile(r"[A-Za-z]+\.?(?:[ /'-] ?[A-Za-z]+\.?)*")
_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")


def says_what_is_counted(words: str) -> bool:
    """Whether words after a value leave it as it is: letters alone, and none that changes how much it says."""
    lowered = _WORD.findall(words.lower())
    if not _PROSE.fullmatch(words.strip()) or max(map(len, lowered)) < 3:
        return False  # two letters that are no known unit may be factors
    # `to`, `least` and the like anywhere, but `of` and `from` only where something would have to follow
    is_linked = (_LINKS - {"of", "from"}) & set(lowered) or lowered[-1] in _LINKS
    return not is_linked and not _CHANGES_THE_VALUE & set(lowered)


def denies(text: str) -> bool:
    r"""Whether a text says `\text{not}`, `\not` or the like."""
    return "\\not" in text or any(_DENYING & set(_WORD.findall(m[1].lower())) for m in _TEXT.finditer(text))


def changes_a_value(text: str) -> bool:
    r"""Whether a \text{...} anywhere changes a value: a parser that drops texts would misread it."""
    for match in _TEXT.finditer(text):
        words = set(_WORD.findall(match[1].lower()))
        if words & (_CHANGES_THE_VALUE | _LINKS) or re.search(r"[\d+*^!=<>]", match[1]):
            return True
    return False


def name_of_words(words: str) -> str:
    """One spelling for what is counted: `Red  apples.` is `red apple`."""
    lowered = _WORD.findall(words.replace(".", "").lower())
    return " ".join(w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in lowered)


# ---- units at the end of a value

_POWER = r"(?:\s*\^\s*\{?\s*([23])\s*\}?)?"
_MEASURE = r"(?:(square|sq\.?|cubic|cu\.?)\s+)?"
_WORDS_AND_PRODUCTS = "in am pm st nd rd th ms pc ly nm mg ml au ev hz pa kj kw"
_NOT_BARE = set(_WORDS_AND_PRODUCTS.split())  # these are units within a \text alone
_UNIT_WORDS = "|".join(
    sorted((re.escape(u) for u in UNIT_OF if len(u) > 1 and u.lower() not in _NOT_BARE), key=len, reverse=True)
)
_TEXT_UNIT = re.compile(r"\\text\{\s*([^{}]{1,60}?)\s*\}" + _POWER + r"\s*$")
_BARE_UNIT = re.compile(
    r"(?<![A-Za-z\\{_])" + _MEASURE + rf"({_UNIT_WORDS})\.?(?:\s+per\s+({_UNIT_WORDS}))?" + _POWER + r"\s*$",
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
    measured = _MEASURED.match(text)
    if not measured:
        return "degree" if "\\circ" in text else None
    unit = UNIT_OF.get(measured[2])
    if unit is None and len(measured[2]) > 1:  # M is no metre
        unit = UNIT_OF.get(measured[2].lower())
    power = measured[3] or {"s": "2", "c": "3"}.get((measured[1] or " ")[0].lower(), "")
    return f"{unit}^{power}" if unit and power else unit


def split_unit(text: str) -> tuple[str, str | None]:
    """The value without its unit, and one name for the unit; None for no unit, or for one of whatever is measured."""
    tail = text[-_LOOK:]
    if (match := _SCALED.search(tail)) and (scaled := _scaled(_cut(text, tail, match), match)):
        return scaled
    if match := _DEGREE.search(tail):
        return _cut(text, tail, match), "degree"
    if (match := _TEXT_UNIT.search(tail)) and _cut(text, tail, match):
        words, power = _BRACKETED.sub(r"\1", match[1]), f"^{match[2]}" if match[2] else ""
        name = canonical_unit(words + power)
        if name is None and says_what_is_counted(words):
            name = name_of_words(words) + power
        if name is not None:
            return _cut(text, tail, match), name or None
    if match := _BARE_UNIT.search(tail):
        value = _cut(text, tail, match)
        if value[-1:].isdigit() or value.endswith(("}", ")", "\\pi")):
            return value, canonical_unit(match.group().strip()) or None
    return text, None


def _scaled(value: str, match: re.Match[str]) -> tuple[str, str | None] | None:
    """`5` and `hundred thousand dollars`: one value, scales that multiply, and a known unit or none."""
    words, rest = match.groups()
    unit = canonical_unit(rest) if rest else ""
    # a scale means all of a number, of a fraction, or of what stands in brackets
    is_one = _ONE_NUMBER.fullmatch(value) or (value[:1] == "(" and closes_at(value, "()") == len(value) - 1)
    if unit is None or not is_one:
        return None
    scale = math.prod(SCALE_WORDS[word] for word in words.lower().split())
    return f"({value})*{scale}", unit or None


def closes_at(text: str, brackets: str) -> int:
    """Where the bracket that a text begins with is closed; -1 where it never is."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == brackets[0]) - (char == brackets[1])
        if depth == 0:
            return at
    return -1


def _cut(text: str, tail: str, match: re.Match[str]) -> str:
    return text[: len(text) - len(tail) + match.start()].rstrip()
