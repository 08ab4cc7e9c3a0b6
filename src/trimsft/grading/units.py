r"""Units at the end of a value: products of physical units, money, and whatever else is counted.

    >>> split_unit("12 \\text{ cm}^{2}")
    ('12', Unit(factor=Fraction(1, 10000), dimensions=frozenset({('m', 2)})))
    >>> unit_of("J/(mol K)") == unit_of("\\text{J mol}^{-1}\\text{ K}^{-1}"), unit_of("N/kg") == unit_of("m s^{-2}")
    (True, True)
    >>> split_unit("5\\text{ million dollars}")
    ('(5)*1000000', Unit(factor=Fraction(1, 1), dimensions=frozenset({('dollar', 1)})))

A unit is a factor and powers of base units, so that 36 km/h is 10 m/s; what is merely counted ("apples") is a base
unit of its own. A unit may be missing on either side, but two of different dimensions make an answer wrong. The table
is our own: a units library reads `c`, `e`, `k` and `G` as constants, knows neither dollars nor apples, and computes
towers of powers.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Unit:
    """A factor and powers of base units."""

    factor: Fraction
    dimensions: frozenset[tuple[str, int]]

    def may_measure(self, other: "Unit") -> bool:
        """Whether one of two is in `units` of whatever is measured, `square units` for cm^2."""
        powers = [sum(power for _, power in side.dimensions) for side in (self, other)]
        return powers[0] == powers[1] and any({base for base, _ in u.dimensions} == {"unit"} for u in (self, other))

    def __mul__(self, other: "Unit") -> "Unit":
        powers = Counter(dict(self.dimensions))
        for base, power in other.dimensions:
            powers[base] += power
        return Unit(self.factor * other.factor, frozenset((base, power) for base, power in powers.items() if power))

    def __pow__(self, power: int) -> "Unit":
        return Unit(self.factor**power, frozenset((base, old * power) for base, old in self.dimensions if power))


ONE = Unit(Fraction(1), frozenset())
PERCENT = Unit(Fraction(1), frozenset({("%", 1)}))
DEGREE = Unit(Fraction(1), frozenset({("degree", 1)}))

# ---- the table: symbols | words | what it is, in units above it

_SI = """
m | meter metre |
g | gram gramme |
s | second |
A | ampere amp |
K | kelvin |
mol | mole |
cd | candela |
rad | radian |
bit | bit |
B | byte |
N | newton | 1000 g m / s^2
J | joule | N m
W | watt | J / s
Pa | pascal | N / m^2
V | volt | W / A
C | coulomb | A s
F | farad | C / V
Ω ohm | ohm | V / A
S | siemens | A / V
T | tesla | V s / m^2
Wb | weber | V s
H | henry | Wb / A
Hz | hertz | 1 / s
L l | liter litre | 1/1000 m^3
eV | electronvolt | 1602176634/10000000000000000000000000000 J
cal | calorie | 523/125 J
bar | bar | 100000 Pa
pc | parsec | 30856775814913673 m
M | molar | mol / L
Wh | watthour | 3600 J
yr | year |
"""
_OTHERS = """
min mins | minute | 60 s
h hr hrs | hour | 3600 s
sec secs | sec | s
day | day | 86400 s
wk | week | 604800 s
mo | month | 1/12 yr
cc | cc | 1/1000000 m^3
Å | angstrom | 1/10000000000 m
in | inch inche | 127/5000 m
ft | foot feet | 381/1250 m
yd | yard | 1143/1250 m
mi | mile | 201168/125 m
AU | AU | 149597870700 m
ly lyr | lightyear | 9460730472580800 m
lb lbs | pound | 45359237/100000 g
oz | ounce | 45359237/1600000 g
ton | ton |
tonne | tonne | 1000000 g
erg | erg | 1/10000000 J
dyn | dyne | 1/100000 N
atm | atmosphere | 101325 Pa
torr Torr mmHg | torr | 20265/152 Pa
G | gauss | 1/10000 T
gal | gallon |
qt | quart | 1/4 gal
pt | pint | 1/8 gal
cup | cup | 1/16 gal
ha | hectare | 10000 m^2
unit | unit |
acre | acre | 316160658/78125 m^2
mph | mph | mi / h
kmh kph kmph | kmh | 1000 m / h
deg | degree |
°C | celsius centigrade |
°F | fahrenheit |
mag | magnitude |
% | percent percentage pct | %
usd USD | dollar buck |
cent | cent ¢ | 1/100 dollar
eur EUR | euro |
gbp GBP | sterling |
cny CNY RMB rmb | yuan |
am | am |
pm | pm |
"""
_SYMBOL_PREFIXES = {
    "f": -15, "p": -12, "n": -9, "µ": -6, "u": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3, "M": 6, "G": 9, "T": 12,
}  # fmt: skip
_WORD_PREFIXES = {
    "femto": -15, "pico": -12, "nano": -9, "micro": -6, "milli": -3, "centi": -2, "deci": -1, "kilo": 3, "mega": 6,
    "giga": 9, "tera": 12,
}  # fmt: skip
_CHINESE = {
    "元": "yuan", "美元": "dollar", "欧元": "euro", "分钟": "min", "小时": "h", "秒": "s", "天": "day", "周": "week",
    "年": "yr", "月": "month", "米": "m", "千米": "km", "公里": "km", "厘米": "cm", "毫米": "mm", "分米": "dm",
    "平方米": "m^2", "平方厘米": "cm^2", "平方千米": "km^2", "立方米": "m^3", "立方厘米": "cm^3", "克": "g",
    "千克": "kg", "公斤": "kg", "吨": "tonne", "升": "L", "毫升": "mL", "度": "degree", "伏": "V", "安": "A",
    "瓦": "W", "牛": "N", "米/秒": "m/s", "千米/时": "km/h", "千米/小时": "km/h",
}  # fmt: skip
_CHINESE_SCALES = {"百": 100, "千": 1000, "万": 10**4, "百万": 10**6, "千万": 10**7, "亿": 10**8}
_CHANGES_CHINESE = set("之半多余上下内外以不无没非或和与至到第负比分约几各百千万亿")
NEEDS_SPACE = set("KACFTHSMGB")  # 70K is no temperature, 5M no concentration: 70 K, 5 M are
_NEVER_FACTORS = "cm mm km kg ft yd lb lbs oz hr hrs sec secs min mins yr mph kph kmh kmph deg dm kWh"
_BARE_SYMBOLS = set(_NEVER_FACTORS.split())
_BARE_RATIO = re.compile(
    r"(?:[ckm]?m|mi|ft|in)\s*/\s*(?:s|sec|h|hr|min)(?:\^\{?2\}?)?|k?g\s*/\s*(?:c?m\^\{?3\}?|m?L)", re.IGNORECASE
)


_LINE = re.compile(r"(.*) \| (.*) \|\s*([\d/]*)\s*(.*)")


def _read_table() -> dict[str, Unit]:
    units = {"%": PERCENT}
    for lines, has_prefixes in ((_SI, True), (_OTHERS, False)):
        for line in lines.strip().splitlines():
            symbols, words, factor, definition = _LINE.findall(line)[0]
            base = words.split()[0] if not has_prefixes else symbols.split()[0]
            unit = _product(definition, units) if definition else Unit(Fraction(1), frozenset({(base, 1)}))
            unit *= Unit(Fraction(factor or 1), frozenset())
            spelled = [word + ending for word in words.split() for ending in ("", "s")]
            for name in [*symbols.split(), *spelled]:  # a minute is no milli-inch
                units[name] = units.get(name, unit) if has_prefixes else unit
            for prefixes, names in ((_SYMBOL_PREFIXES, symbols.split()), (_WORD_PREFIXES, spelled)):
                for prefix, power in prefixes.items() if has_prefixes else ():
                    for name in names:
                        units.setdefault(prefix + name, Unit(Fraction(10) ** power, frozenset()) * unit)
    return units


# ---- a unit in text

_TOKEN = re.compile(
    r"\s*(?:(?P<power>\^\s*\{?\s*(-?\d)\s*\}?)|(?P<over>/|per(?![A-Za-z]))|(?P<times>\\cdot|\\times|\*|·)"
    r"|(?P<open>\()|(?P<close>\))|(?P<word>[A-Za-zµΩÅ°¢]+|%)\.?)\s*"
)
_FLATTENED = (
    (re.compile(r"\\text\s*\{"), " {"),
    (re.compile(r"\\mu(?![A-Za-z])\s*\{?\s*"), " µ"),
    (re.compile(r"(?<![A-Za-z])([kMm])?\s*\}?\s*\\Omega(?![A-Za-z])"), r" \1Ω"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?\s*\{?\s*(?=[CF](?![A-Za-z]))|degrees?\s+(?=[CF](?![A-Za-z]))"), " °"),
    (re.compile(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})"), " deg "),
    (re.compile(r"degrees?\s+(?=celsius|fahrenheit)", re.IGNORECASE), " "),
    (re.compile(r"light[- ]years?"), " lightyear "),
    (re.compile(r"electron[- ]volts?"), " electronvolt "),
    (re.compile(r"percent(?:age)? points?|per cent"), " percent "),
    (re.compile(r"(?<=[a-z]) (?:old|tall|high|long|wide|deep)(?![a-z])"), ""),
    (re.compile(r"\b([ap])\.\s?m\b\.?", re.IGNORECASE), r" \1m "),
    (re.compile(r"(?<=[A-Za-z])-(?=[A-Za-z])"), " "),
    (re.compile(r"(?<!\^)\{(?!\s*-?\d)|(?<![\d\s])\s*\}|\}(?=\s*[\^/\\A-Za-z({µΩ]|\s*$)"), " "),
)
_BEFORE = {"square": 2, "sq": 2, "Square": 2, "cubic": 3, "cu": 3, "Cubic": 3}
_AFTER = {"squared": "2", "cubed": "3"}
_LONGEST = 80


def unit_of(text: str) -> Unit | None:
    """The unit that a text is, None for anything else."""
    if len(text) > _LONGEST:
        return None
    for pattern, flat in _FLATTENED:
        text = pattern.sub(flat, text)
    try:
        return _product(text.strip(), UNITS) if text.strip() else None
    except ValueError:
        return None


def _product(text: str, units: dict[str, Unit]) -> Unit:
    """What a product of units comes to; all that follows a slash is below it, as in J/mol K."""
    total, last, sign, power, at = ONE, None, 1, 1, 0
    opened: list[int] = []  # the signs outside the brackets that are open
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(text)
        at = token.end()
        kind, word = token.lastgroup, (token["word"] or "")
        raised = token[2] or _AFTER.get(word)
        if raised and last is not None:
            total, last = total * last ** (int(raised) - 1), None
        elif word in _BEFORE and power == 1:
            power = _BEFORE[word]
        elif word and not raised:
            last = _look_up(word, units) ** (sign * power)
            total, power = total * last, 1
        elif kind == "over":
            sign, last = -opened[-1] if opened else -1, None
        elif kind == "open":
            opened.append(sign)
        elif kind == "close" and opened:
            sign, last = opened.pop(), None
        elif kind != "times" or last is None:
            raise ValueError(text)
    if opened or power != 1:
        raise ValueError(text)
    return total


def _look_up(word: str, units: dict[str, Unit]) -> Unit:
    if word in units:
        return units[word]
    lowered = word.lower()
    if len(word) > 1 and lowered in units and (len(word) > 2 or lowered in _BARE_SYMBOLS | {"am", "pm", "in", "ml"}):
        return units[lowered]
    raise ValueError(word)


UNITS = _read_table()

# ---- what is counted

SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ONES = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBERS = {word: value for value, word in enumerate(_ONES.split())}
for _ten, _word in enumerate(_TENS.split(), 2):
    NUMBERS[_word] = 10 * _ten
    NUMBERS |= {f"{_word}-{one}": 10 * _ten + NUMBERS[one] for one in _ONES.split()[1:10]}
_CHANGING = """
halves score scores gross grand mil mn bn
squared cubed factorial power powers exponent root sqrt pi inverse reciprocal over plus minus divided multiplied mod
modulo base remainder choose doubled tripled quadrupled halved twice thrice double triple negative log ln sin cos tan
not no non never nor cannot cant impossible undefined invalid wrong incorrect false is isn are aren was were be been
does doesn if unless except excluding without instead to through until between below under above least most than or and
"""
_NUMBER_WORDS = {*NUMBERS, *SCALES, "half", "third", "quarter"}
_CHANGES_A_VALUE = {*_CHANGING.split(), *_NUMBER_WORDS, *(f"{word}s" for word in _NUMBER_WORDS)}
_PART = re.compile(r"(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|teen|tie|dred|sand|lion|zen)ths?$")
_PROSE = re.compile(r"[A-Za-z]+\.?(?:[ /'-] ?[A-Za-z]+\.?)*")
_LETTERS = re.compile("[A-Za-z]+")


def _says_what_is_counted(words: str) -> bool:
    """Whether words after a value leave it as it is: letters alone, and none that changes how much it says."""
    lowered = _LETTERS.findall(words.lower())
    if not _PROSE.fullmatch(words.strip()) or max(map(len, lowered)) < 3 or lowered[-1] in ("of", "from"):
        return False  # two letters that are no known unit may be factors
    return not (_CHANGES_A_VALUE & set(lowered) or any(map(_PART.search, lowered)))


def name_of_words(words: str) -> str:
    """One spelling for what is counted: `Red  apples.` is `red apple`."""
    lowered = _LETTERS.findall(words.replace(".", "").lower())
    return " ".join(w[:-1] if len(w) > 3 and w.endswith("s") and not w.endswith("ss") else w for w in lowered)


def closes_at(text: str, brackets: str) -> int:
    """Where the bracket that a text begins with is closed; -1 where it never is."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char == brackets[0]) - (char == brackets[1])
        if depth == 0:
            return at
    return -1


# ---- a unit after a value

_START = re.compile(r"\\text\s*\{|\\mu(?![A-Za-z])|\\Omega(?![A-Za-z])|\^\s*\{?\s*\\circ|\\?%|[A-Za-z]+")
_ORDINAL = re.compile(r"(?<=\d)\s*(?:\^\s*\{?\s*)?(?:\\text\s*\{\s*)?(?:st|nd|rd|th)\s*\}?\s*\}?$")
_DEGREES = re.compile(r"(-?\d+)\s*\^\s*\{?\s*\\circ\s*\}?\s*(\d{1,2})\s*'\s*(?:(\d{1,2})\s*'\s*'\s*)?")
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_ONE_TEXT = re.compile(r"\\text\s*\{\s*([^{}]{1,60}?)\s*\}(?:\s*\^\s*\{?\s*([23])\s*\}?)?\s*")
_NOUNS = re.compile(
    r"(?:[A-Za-z][a-z]{2,} ){0,4}(?:(?=[a-z]*[aeiouy])[A-Za-z][a-z]{2,}s|people|men|women|children|sheep|fish)"
)
_MEASURE_WORD = re.compile(r"\s*(?:\\text\s*\{\s*)?([\u4e00-\u9fff]+(?:/[\u4e00-\u9fff]+)?)\s*\}?\s*$")
_SCALE = "|".join(SCALES)
_SCALED = re.compile(
    rf"(?<=[\d}})])\s*(?:\\text\{{\s*)?((?:{_SCALE})(?:\s+(?:{_SCALE}))*)(?:\s+([A-Za-z ]+?))?\s*\}}?\s*$",
    re.IGNORECASE,
)
_ONE_NUMBER = re.compile(
    r"[+-]?\s*(?:\d+(?:\.\d+)?|\.\d+|\d+\s*/\s*\d+|(?:\d+\s*)?\\frac\s*(?:\{\d+\}|\d)\s*(?:\{\d+\}|\d))"
)
_LOOK = 120


def split_unit(text: str) -> tuple[str, Unit | None]:
    """The value without its unit, and the unit; None for no unit."""
    tail = text[-_LOOK:]
    head = text[: len(text) - len(tail)]
    if parts := _DEGREES.fullmatch(text.strip()):
        return f"({parts[1]}+{parts[2]}/60+{parts[3] or 0}/3600)", DEGREE
    if match := _ORDINAL.search(tail):
        return head + tail[: match.start()], None
    for pattern, split in ((_SCALED, _scaled), (_MEASURE_WORD, _chinese)):
        if (match := pattern.search(tail)) and (result := split(head + tail[: match.start()].rstrip(), match)):
            return result
    for match in _START.finditer(tail):
        value = head + tail[: match.start()].rstrip()
        if value and value[-1] not in "+-*/=^_(,{|:" and (unit := _tail_unit(value, tail[match.start() :], match)):
            if unit in (DEGREE, PERCENT):  # of each term: 30° + 45°
                value = re.sub(r"\^\s*\{?\s*\\circ\s*\}?|\\?%", "", value)
            return value, unit
    return text, None


def _tail_unit(value: str, rest: str, start: re.Match[str]) -> Unit | None:
    is_bare = start.group()[0].isalpha()
    if is_bare and not (_may_stand_bare(rest) and re.search(r"(?:[\d})]|\\pi)$", value)):
        return None
    if start.group().startswith("^") and _TRIGONOMETRY.search(value):
        return None  # sin 30 degrees is a number
    spaced = start.start() > 0 and start.string[start.start() - 1].isspace()
    letter = re.match(r"\\text\s*\{(\s*)([A-Z])[\s.]*\}", rest)
    if letter and letter[2] in NEEDS_SPACE and not (spaced or letter[1]):
        return None
    if (unit := unit_of(rest)) is not None:
        return unit
    if is_bare:
        words = rest.strip(" .")
        is_counted = spaced and _NOUNS.fullmatch(words) and _ONE_NUMBER.fullmatch(value)
        return _counted(words, 1) if is_counted else None
    text = _ONE_TEXT.fullmatch(rest)
    return _counted(re.sub(r"^\(([^()]*)\)$", r"\1", text[1]), int(text[2] or 1)) if text else None


def _may_stand_bare(rest: str) -> bool:
    r"""Whether letters outside a \text may be a unit: spelled words, and symbols that nobody takes for factors."""
    words = re.findall("[A-Za-z]+", rest)
    return _BARE_RATIO.fullmatch(rest.strip(" .")) is not None or all(len(w) > 2 or w in _BARE_SYMBOLS for w in words)


def _counted(words: str, power: int) -> Unit | None:
    """What is counted, as a unit of its own: `red apples`."""
    if unit := unit_of(words):
        return unit**power
    return Unit(Fraction(1), frozenset({(name_of_words(words), power)})) if _says_what_is_counted(words) else None


def _chinese(value: str, match: re.Match[str]) -> tuple[str, Unit | None] | None:
    words, scale = match[1], 1
    for name in sorted(_CHINESE_SCALES, key=len, reverse=True):
        if words.startswith(name) and words not in _CHINESE:
            words, scale = words[len(name) :], _CHINESE_SCALES[name]
            break
    if not value or (words and words not in _CHINESE and _CHANGES_CHINESE & set(words)):
        return None
    unit = UNITS.get(words) if words in UNITS else unit_of(_CHINESE[words]) if words in _CHINESE else None
    if words and unit is None:
        unit = Unit(Fraction(1), frozenset({(words, 1)}))
    return (f"({value})*{scale}" if scale > 1 else value), unit


def _scaled(value: str, match: re.Match[str]) -> tuple[str, Unit | None] | None:
    """`5` and `hundred thousand dollars`: one value, scales that multiply, and a known unit or none."""
    words, rest = match.groups()
    unit = unit_of(rest) if rest else ONE
    # a scale means all of a number, of a fraction, or of what stands in brackets
    is_one = _ONE_NUMBER.fullmatch(value) or (value[:1] == "(" and closes_at(value, "()") == len(value) - 1)
    if unit is None and rest:
        unit = _counted(rest, 1)
    if unit is None or not is_one:
        return None
    scale = math.prod(SCALES[word] for word in words.lower().split())
    return f"({value})*{scale}", unit if unit.dimensions else None
