r"""Read units at the end of a value: products of physical units, money, and whatever else is counted.

    >>> split_unit("12 \\text{ cm}^{2}")
    ('12', Unit(factor=Fraction(1, 10000), dimensions=frozenset({('meter', 2)})))
    >>> unit_of("J/(mol K)") == unit_of("\\text{J mol}^{-1}\\text{ K}^{-1}"), unit_of("N/kg") == unit_of("m s^{-2}")
    (True, True)
    >>> split_unit("5\\text{ million dollars}")
    ('(5)*1000000', Unit(factor=Fraction(1, 1), dimensions=frozenset({('dollar', 1)})))

A unit is a factor and powers of base units, so that 36 km/h is 10 m/s; what is merely counted ("apples") is a base
unit of its own. A unit may be missing on either side, but two of different dimensions make an answer wrong. The table
is units.txt: a units library reads `c`, `e` and `k` as constants, and knows neither dollars nor apples.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path


@dataclass(frozen=True)
class Unit:
    """A factor and powers of base units."""

    factor: Fraction
    dimensions: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def named(cls, name: str, power: int = 1) -> "Unit":
        """Return a base unit, or a power of it."""
        return cls(Fraction(1), frozenset({(name, power)}))

    def times(self, other: "Unit", power: int = 1) -> "Unit":
        """Return the product with a power of another unit."""
        powers = Counter(dict(self.dimensions))
        for base, exponent in other.dimensions:
            powers[base] += power * exponent
        dimensions = frozenset((base, exponent) for base, exponent in powers.items() if exponent)
        return Unit(self.factor * other.factor**power, dimensions)


ONE = Unit(Fraction(1))
PERCENT = Unit.named("%")
DEGREE = Unit.named("degree")

# ---- a unit in text

_FACTOR = re.compile(
    r"(?:\\cdot|\\times|[*·])?\s*(?:(square|sq|cubic|cu)\b\.?\s*)?([A-Za-zµΩÅ°¢\u4e00-\u9fff]+|%)\.?"
    r"(?:\s*\^\s*\{?\s*(-?\d)\s*\}?|\s*\b(squared|cubed)\b)?\s*",
    re.IGNORECASE,
)
_OVER = re.compile(r"/|\bper\b")
_FLATTENED = (
    (re.compile(r"\\text\s*\{"), " {"),
    (re.compile(r"\\mu(?![A-Za-z])\s*\{?\s*"), " µ"),
    (re.compile(r"(?<![A-Za-z])([kMm])?\s*\}?\s*\\Omega(?![A-Za-z])"), r" \1Ω"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?\s*\{?\s*(?=[CF](?![A-Za-z]))|degrees?\s+(?=[CF](?![A-Za-z]))"), " °"),
    (re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})"), " deg "),
    (re.compile(r"degrees?\s+(?=celsius|fahrenheit)", re.IGNORECASE), " "),
    (re.compile(r"electron[- ]volts?"), " electronvolt "),
    (re.compile(r"percent(?:age)? points?|per cent"), " percent "),
    (re.compile(r"(?<=[a-z]) (?:old|tall|high|long|wide|deep)(?![a-z])"), ""),
    (re.compile(r"\b([ap])\.\s?m\b\.?", re.IGNORECASE), r" \1m "),
    (re.compile(r"(?<!\^)\{(?!\s*-?\d)|(?<![\d\s])\s*\}|\}(?=\s*[\^/\\A-Za-z({µΩ]|\s*$)"), " "),
)
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
NEEDS_SPACE = set("KACFTHSMGB")  # 70K is no temperature, 5M no concentration: 70 K, 5 M are
_NEVER_FACTORS = "cm mm km kg ft yd lb lbs oz hr hrs sec secs min mins yr mph kph kmh kmph deg dm kWh am pm in ml"
_BARE_SYMBOLS = set(_NEVER_FACTORS.split())


def unit_of(text: str) -> Unit | None:
    """Return the unit that a text is, None for anything else."""
    for pattern, flat in _FLATTENED:
        text = pattern.sub(flat, text)
    return _product(text, UNITS) if text.strip() else None


def _product(text: str, units: dict[str, Unit]) -> Unit | None:
    """Multiply units; all that follows a slash is below it, as in J/mol K."""
    total, sign = ONE, 1
    for part in _OVER.split(text):
        inside, at = part.strip(" ()"), 0
        if part.count("(") != part.count(")"):
            return None
        while at < len(inside):
            factor = _FACTOR.match(inside, at)
            word = factor[2] if factor else ""
            may_lower = len(word) > 2 or word.lower() in _BARE_SYMBOLS
            unit = units.get(word) or (units.get(word.lower()) if may_lower else None)
            if factor is None or unit is None:
                return None
            power = factor[3] or _POWERS.get((factor[1] or factor[4] or "").lower(), 1)
            total, at = total.times(unit, sign * int(power)), factor.end()
        sign = -1
    return total


# ---- the table

_LINE = re.compile(r"(.*) \| (.*) \|\s*([\d/]*)\s*(.*)")
_PARTS = Path(__file__).with_name("units.txt").read_text("utf-8").split("\n\n")
_SECTIONS = (part.splitlines()[1:] for part in _PARTS)
_PREFIXES, _WITH_PREFIXES, _WITHOUT, _CHINESE, _POWERS_OF_TEN, (_ONES, _TENS), _CHANGING, _QWEN = _SECTIONS
HARNESS_UNITS = " ".join(_QWEN).split()


def _read_table() -> dict[str, Unit]:
    """Return the units of units.txt by all their names."""
    units = {"%": PERCENT}
    for line in (*_WITH_PREFIXES, *_WITHOUT):
        symbols, words, factor, definition = _LINE.findall(line)[0]
        spelled = [word + ending for word in words.split() for ending in ("", "s")]
        unit = (_product(definition, units) if definition else None) or Unit.named(spelled[0])
        unit = unit.times(Unit(Fraction(factor or 1)))
        if line in _WITHOUT:  # a minute is no milli-inch
            units |= dict.fromkeys([*symbols.split(), *spelled], unit)
            continue
        for *signs, word, power in [["", "", "0"], *map(str.split, _PREFIXES)]:
            scaled = unit.times(Unit(Fraction(10) ** int(power)))
            names = [sign + symbol for sign in signs for symbol in symbols.split()]
            for name in [*names, *(word + one for one in spelled)]:
                units.setdefault(name, scaled)
    return units | {name: _product(unit, units) or ONE for name, unit in map(str.split, _CHINESE)}


UNITS = _read_table()

# ---- numbers in words, and what is counted

SCALES = {word: 10 ** int(power) for word, power in map(str.split, _POWERS_OF_TEN)} | {"dozen": 12}
NUMBERS = {word: value for value, word in enumerate(_ONES.split())}
for _ten, _word in enumerate(_TENS.split(), 2):
    NUMBERS[_word] = 10 * _ten
    NUMBERS |= {f"{_word}-{one}": 10 * _ten + NUMBERS[one] for one in _ONES.split()[1:10]}
_NUMBER_WORDS = [*NUMBERS, *SCALES, "half", "third", "quarter"]
_CHANGES_A_VALUE = {*" ".join(_CHANGING).split(), *_NUMBER_WORDS, *(f"{word}s" for word in _NUMBER_WORDS)}
_PART = re.compile(r"(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|teen|tie|dred|sand|lion|zen)ths?$")
_PROSE = re.compile(r"[A-Za-z]+\.?(?:[ /'-] ?[A-Za-z]+\.?)*")
_LETTERS, _CHINESE_WORD = re.compile("[A-Za-z]+"), re.compile("[\u4e00-\u9fff]+")


def _counted(words: str, power: int = 1) -> Unit | None:
    """Return what is counted, as a unit: `red apples`; None where words change a value."""
    if unit := unit_of(words):
        return ONE.times(unit, power)
    if _CHINESE_WORD.fullmatch(words):
        return None if _CHANGES_A_VALUE & set(words) else Unit.named(words, power)
    lowered = _LETTERS.findall(words.lower())
    if not _PROSE.fullmatch(words.strip()) or max(map(len, lowered)) < 3 or lowered[-1] in ("of", "from"):
        return None  # two letters that are no known unit may be factors
    if _CHANGES_A_VALUE & set(lowered) or any(map(_PART.search, lowered)):
        return None
    return Unit.named(name_of_words(words), power)


def name_of_words(words: str) -> str:
    """Return one spelling for what is counted: `Red  apples.` is `red apple`."""
    lowered = _LETTERS.findall(words.replace(".", "").lower())
    return " ".join(w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in lowered)


def closes_at(text: str, brackets: str) -> int:
    """Return where the first bracket of a text is closed; -1 where it never is."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == brackets[0]) - (char == brackets[1])
        if depth == 0:
            return at
    return -1


# ---- a unit after a value

_START = re.compile(
    r"\\text\s*\{|\\mu(?![A-Za-z])|\\Omega(?![A-Za-z])|\^\s*\{?\s*\\circ|\\?%|[A-Za-z]+|[\u4e00-\u9fff]"
)
_ORDINAL = re.compile(r"(?<=\d)\s*(?:\^\s*\{?\s*)?(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?$")
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_ONE_TEXT = re.compile(r"\\text\s*\{\s*\(?([^{}()]{1,60}?)\)?\s*\}(?:\s*\^\s*\{?\s*([23])\s*\}?)?\s*")
_NOUNS = re.compile(
    r"(?:[A-Za-z][a-z]{2,} ){0,4}(?:(?=[a-z]*[aeiouy])[A-Za-z][a-z]{2,}s|people|men|women|children|sheep|fish)"
)
_BARE_RATIO = re.compile(
    r"(?:[ckm]?m|mi|ft|in)\s*/\s*(?:s|sec|h|hr|min)(?:\^\{?2\}?)?|k?g\s*/\s*(?:c?m\^\{?3\}?|m?L)", re.IGNORECASE
)
_SCALE = "|".join(SCALES)
_SCALED = re.compile(
    rf"(?<=[\d}})])\s*(?:\\text\{{\s*)?((?:{_SCALE})(?:\s+(?:{_SCALE}))*)"
    r"\s*((?<=\s)[A-Za-z ]+?|[\u4e00-\u9fff]+)?\s*\}?\s*$",
    re.IGNORECASE,
)
_ONE_NUMBER = re.compile(
    r"[+-]?\s*(?:\d+(?:\.\d+)?|\.\d+|\d+\s*/\s*\d+|(?:\d+\s*)?\\frac\s*(?:\{\d+\}|\d)\s*(?:\{\d+\}|\d))"
)
_LOOK = 120  # characters at the end of a text


def split_unit(text: str) -> tuple[str, Unit | None]:
    """Return the value without its unit, and the unit; None for no unit."""
    first = max(0, len(text) - _LOOK)
    if ordinal := _ORDINAL.search(text, first):
        return text[: ordinal.start()], None
    if (match := _SCALED.search(text, first)) and (scaled := _scaled(text[: match.start()].rstrip(), match)):
        return scaled
    for match in _START.finditer(text, first):
        value = text[: match.start()].rstrip()
        if value and value[-1] not in "+-*/=^_(,{|:" and (unit := _tail_unit(value, match)):
            if unit in (DEGREE, PERCENT):  # of each term: 30° + 45°
                value = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\?%", "", value)
            return value, unit
    return text, None


def _tail_unit(value: str, start: re.Match[str]) -> Unit | None:
    """Return the unit that a text is from a match on, after a value."""
    rest = start.string[start.start() :]
    words, is_spaced = rest.strip(" ."), start.string[start.start() - 1].isspace()
    if rest[0].isalpha():  # spelled words, and symbols that are not taken for factors
        may_stand = all(len(word) > 2 or word in _BARE_SYMBOLS for word in _LETTERS.findall(rest))
        if not (may_stand or _BARE_RATIO.fullmatch(words)) or not re.search(r"(?:[\d})]|\\pi)$", value):
            return None
        is_noun = is_spaced and _NOUNS.fullmatch(words) and _ONE_NUMBER.fullmatch(value)
        return unit_of(rest) or (_counted(words) if is_noun or not rest.isascii() else None)
    if rest[0] == "^" and _TRIGONOMETRY.search(value):
        return None  # sin 30 degrees is a number
    letter = re.match(r"\\text\s*\{(\s*)([A-Z])[\s.]*\}", rest)
    if letter and letter[2] in NEEDS_SPACE and not (is_spaced or letter[1]):
        return None
    text = _ONE_TEXT.fullmatch(rest)
    return unit_of(rest) or (_counted(text[1], int(text[2] or 1)) if text else None)


def _scaled(value: str, match: re.Match[str]) -> tuple[str, Unit | None] | None:
    """Split `5` and `hundred thousand dollars`: a value, scales, and a known unit or none."""
    words, rest = match[1], match[2] or ""
    unit = _counted(rest) if rest else ONE
    # a scale means all of a number, of a fraction, or of what stands in brackets
    is_one = _ONE_NUMBER.fullmatch(value) or (value[:1] == "(" and closes_at(value, "()") == len(value) - 1)
    if unit is None or not is_one or words + rest in UNITS:  # 千克 is one unit
        return None
    scale = math.prod(SCALES[word] for word in words.lower().split())
    return f"({value})*{scale}", unit if unit.dimensions else None
