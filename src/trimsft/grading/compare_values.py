r"""Compare two single values: `\frac{1}{2}` and `0.5`, `x^2-1` and `(x-1)(x+1)`, `36 km/h` and `10 m/s`."""

import re
from fractions import Fraction
from functools import lru_cache

from trimsft.grading.clean import key
from trimsft.grading.expression import Tree, Unreadable, read
from trimsft.grading.kinds import DECIMAL_TOLERANCE, Rules
from trimsft.grading.units import PERCENT, name_of_words, split_unit, unit_of
from trimsft.grading.values import MP, Names, TooLarge, Undefined, close, evaluate, names_in

# ---- words

_WORD = re.compile(r"\\text\s*\{([^{}]*)\}|(?=(?:[A-Za-z]{1,2}[ '-]+)*[A-Za-z]*[aeiouAEIOU])([A-Za-z][A-Za-z '-]{2,})")
_DATE = re.compile(r"(?:\\text\s*\{\s*)?([A-Za-z]{3,})\.?(?:\s*\}\s*|\s+)(\d{1,4})(?:st|nd|rd|th)?\s*\}?")
_ANY_WORD = re.compile("[A-Za-z]{3}")
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|sqrt|exp|gcd|lcm|max|min)h? ")
_ARTICLE = re.compile(r"^(?:an?|the)\s+")


def word_of(text: str) -> str | None:
    r"""Return the word that an answer is, in lower case; None for mathematics."""
    text = text.strip()
    if _FUNCTION.match(text):
        return None
    if date := _DATE.fullmatch(text):
        return f"{date[1]} {date[2]}".lower()
    match = _WORD.fullmatch(text)
    if not match or not (match[1] or _ANY_WORD.search(text)):
        return None
    word = (match[1] or match[2] or "").strip().rstrip(".").lower()
    if not any(map(str.isalpha, word)):
        return None
    word = _ARTICLE.sub("", word)
    return name_of_words(word) if re.fullmatch("[a-z .]+", word) else word


# ---- values with units

_LETTER_UNIT = re.compile(r"\\text\s*\{\s*([A-Za-z])\s*\}")
_BARE_UNIT = re.compile(r"(-?\d+(?:\.\d+)?)\s*[mgs]")
_RATE = re.compile(r"(\\text\s*\{[^{}]*(?:dollars|cents|euros|sterling|yuan))\s*(?:per (?!cent)|each|/)[^{}]*\}$")
_PERCENT = re.compile(r"\\?%\s*$")


def same_leaf(gold: str, answer: str, rules: Rules) -> bool:
    """Return whether two single values are the same; units and percent signs are taken off first."""
    letters = _LETTER_UNIT.sub(r" \1", gold), _LETTER_UNIT.sub(r" \1", answer)
    if letters != (gold, answer) and same_value(*letters, rules):
        return True  # 5\text{m} and 5m, whatever m is
    words = word_of(gold), word_of(answer)
    if words != (None, None):
        bare = [re.sub(r"\\text|[\s{}()]", "", side) for side in (gold, answer)]
        if None in words and max(map(len, bare)) > 1:
            bare = [side.lower() for side in bare]
        return (words[0] or bare[0]) == (words[1] or bare[1])
    if None in (_RATE.search(gold), _RATE.search(answer)):  # dollars answer dollars per pound
        gold, answer = _RATE.sub(r"\1}", gold), _RATE.sub(r"\1}", answer)
    if (measured := _BARE_UNIT.fullmatch(answer)) and number_of(gold) is not None:  # which no product with m is
        answer = measured[1]
    gold, gold_unit = split_unit(gold)
    answer, answer_unit = split_unit(answer)
    if rules.unit and gold_unit is None:
        gold_unit = unit_of(rules.unit.replace("$", ""))
    if gold_unit == answer_unit or not (gold_unit and answer_unit):
        if PERCENT in (gold_unit, answer_unit):
            return _same_percent(gold, answer, gold_unit == PERCENT, answer_unit == PERCENT, rules)
        return same_value(gold, answer, rules)
    if PERCENT in (gold_unit, answer_unit):
        return False
    ratio = answer_unit.factor / gold_unit.factor
    converted = f"({answer})*({ratio.numerator}/{ratio.denominator})"
    return gold_unit.dimensions == answer_unit.dimensions and same_value(gold, converted, rules)


def _same_percent(gold: str, answer: str, gold_is: bool, answer_is: bool, rules: Rules) -> bool:
    """Compare `50%` and 0.5; a missing sign is forgiven above 1, where no ratio is meant."""
    gold, answer = _PERCENT.sub("", gold), _PERCENT.sub("", answer)
    if gold_is and answer_is:
        return same_value(gold, answer, rules)
    number = number_of(gold)
    if number is not None and (abs(number) > 1 or rules.unit is not None) and same_value(gold, answer, rules):
        return True
    sides = (f"({gold})/100", answer) if gold_is else (gold, f"({answer})/100")
    return same_value(*sides, Rules(tolerance=rules.tolerance))  # an absolute tolerance is in percent points


# ---- values

INFINITE = {("sym", "\\infty"): MP.inf, ("neg", ("sym", "\\infty")): -MP.inf}
"""The two infinities, which are no numbers to compute with."""


@lru_cache(maxsize=20_000)
def tree_of(text: str) -> Tree | None:
    """Return the tree of a single value, None where the reader does not know the notation."""
    try:
        return read(text)
    except (Unreadable, RecursionError):
        return None


def number_of(text: str) -> Fraction | None:
    """Return the exact rational value, where there is one."""
    if not is_numeric(text):
        return None
    try:
        (value,), _ = evaluate(read(text))
    except (TooLarge, Undefined):
        return None
    return value if isinstance(value, Fraction) else None


def is_numeric(text: str) -> bool:
    """Return whether a text is an expression without unknowns."""
    tree = tree_of(text)
    return tree is not None and not names_in(tree).has_unknowns


def same_value(gold: str, answer: str, rules: Rules) -> bool:
    """Return whether two expressions have one value, within what their notation allows."""
    if key(gold) == key(answer):
        return True
    trees = tree_of(gold), tree_of(answer)
    if trees[0] is None or trees[1] is None:
        return False
    if "\\infty" in names_in(trees[0], trees[1]).symbols:
        return trees[0] == trees[1] and trees[0] in INFINITE
    return agree(trees[0], trees[1], _tolerance(gold, answer, rules), rules.absolute or 0.0)


def rounds_to(exact: str, decimal: str) -> bool:
    """Return whether a decimal is another value, rounded: `0.33` for `1/3`."""
    tree, rounded = tree_of(exact), tree_of(decimal)
    if tree is None or rounded is None or rounded[0] != "num" or len(rounded) < 3:
        return False
    return agree(tree, rounded, absolute=float(rounded[2])) and agree(tree, rounded, relative=0.01)  # 0.8 is not 3/4


# ---- tolerance

_INTEGER = re.compile(r"[+-]?\s*\d+")
_DECIMAL = re.compile(r"\d\.\d|(?<!\d)\.\d|\d[eE][+-]?\d")


def _tolerance(gold: str, answer: str, rules: Rules) -> float:
    """Return the tolerance between a rounded decimal and an exact value, 0 between others."""
    if all(_INTEGER.fullmatch(side.strip()) for side in (gold, answer)):
        return 0.0
    if rules.tolerance is not None:
        return rules.tolerance
    texts = sorted((gold, answer), key=lambda side: _DECIMAL.search(side) is not None)
    if [_DECIMAL.search(side) is None for side in texts] != [True, False]:
        return 0.0
    decimal, number = tree_of(texts[1]), number_of(texts[0])
    is_integer = number is not None and number.denominator == 1
    is_rounded = decimal is not None and not names_in(decimal).calls  # sin 1.1 is meant as it is
    return DECIMAL_TOLERANCE if is_rounded and not is_integer else 0.0


# ---- sampling

_COUNTING = {"factorial", "binom", "gcd", "lcm"}
_DISCRETE = _COUNTING | {"floor", "ceil"}
_REALS = set("xyzt")
"""By custom no integers: their floor is tried between integers too."""


def points(names: Names) -> list[tuple[int, str]]:
    """Return sample points: integers where symbols are counts, else positive, then any sign."""
    if not names.has_unknowns:
        return [(0, "positive")]
    if names.calls & _DISCRETE:
        between = 0 if names.calls & _COUNTING or names.symbols - _REALS else 4
        return [(point, kind) for kind, most in (("integer", 40), ("positive", between)) for point in range(most)]
    return [(point, kind) for kind in ("positive", "mixed") for point in range(2)]


def agree(gold: Tree, answer: Tree, relative: float = 0.0, absolute: float = 0.0) -> bool:
    """Return whether two trees agree wherever both have a value, and at one point at least."""
    names, is_defined = names_in(gold, answer), False
    if names.has_unknowns:  # a tolerance would hide small terms
        relative = absolute = 0.0
    for point, kind in points(names):
        try:
            (one, other), precision = evaluate(gold, answer, point=point, kind=kind)
        except TooLarge:
            return False
        except Undefined:
            continue
        if not close(one, other, precision, relative, absolute):
            return False
        is_defined = True
    return is_defined
