r"""Are two single values the same: `\frac{1}{2}` and `0.5`, `x^2-1` and `(x-1)(x+1)`?

Three answers: True, False, and None where this module cannot tell (math-verify is asked then).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

from trimsft.grading.clean import key
from trimsft.grading.expression import Tree, Unreadable, read
from trimsft.grading.rules import DECIMAL_TOLERANCE, Rules
from trimsft.grading.units import PERCENT, Unit, name_of_words, split_unit, unit_of
from trimsft.grading.values import Names, TooLarge, Undefined, close, evaluate, inexact, names_in, one_comparison

_INTEGER = re.compile(r"[+-]?\s*\d+")
_DECIMAL = re.compile(r"\d\.\d|(?<!\d)\.\d|\d[eE][+-]?\d")
_PERCENT = re.compile(r"\\?%\s*$")
_LETTER_UNIT = re.compile(r"\\text\s*\{\s*([A-Za-z])\s*\}")
_WORD = re.compile(r"\\text\s*\{([^{}]*)\}|(?=(?:[A-Za-z]{1,2}[ '-]+)*[A-Za-z]*[aeiouAEIOU])([A-Za-z][A-Za-z '-]{2,})")
_DATE = re.compile(r"(?:\\text\s*\{\s*)?([A-Za-z]{3,})\.?(?:\s*\}\s*|\s+)(\d{1,4})(?:st|nd|rd|th)?\s*\}?")
_ANY_WORD = re.compile("[A-Za-z]{3}")
_BARE_UNIT = re.compile(r"(-?\d+(?:\.\d+)?)\s*[mgs]")
_RATE = re.compile(r"(\\text\s*\{[^{}]*(?:dollars|cents|euros|sterling|yuan))\s*(?:per (?!cent)|each|/)[^{}]*\}$")
_CHOICE = re.compile(r"\(?\s*([A-J])\s*\)?\.?")
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|sqrt|exp|gcd|lcm|max|min)h? ")
_ARTICLE = re.compile(r"^(?:an?|the)\s+")
_KNOWN = {"pi", "sin", "cos", "tan", "inf", "infinity"}
_COUNTING = {"factorial", "binom", "gcd", "lcm", "sum"}
_DISCRETE = _COUNTING | {"floor", "ceil"}
_REALS = set("xyzt")
"""By custom no integers, so that a floor of them is tried between integers too; an n is an integer."""
_MOST_DECIMALS = 12
SIDE_BY_SIDE = re.compile(r"(?<![\^_\d.])\d+ +\.?\d")  # two numbers, which are neither a product nor one number


def word_of(text: str) -> str | None:
    r"""The word that an answer is, in lower case: `\text{Even}` and `even`; None for mathematics."""
    text = text.strip()
    if choice := _CHOICE.fullmatch(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip()):
        return choice[1] if len(text) > 1 else None
    if (date := _DATE.fullmatch(text)) and not _FUNCTION.match(text):
        return f"{date[1]} {date[2]}".lower()
    match = _WORD.fullmatch(text)
    if not match or _FUNCTION.match(text) or not (match[1] or _ANY_WORD.search(text)):
        return None
    word = (match[1] or match[2] or "").strip().rstrip(".").lower()
    if word in _KNOWN or not any(c.isalpha() for c in word):
        return None
    word = _ARTICLE.sub("", word)
    return name_of_words(word) if re.fullmatch("[a-z .]+", word) else word


def same_leaf(gold: str, answer: str, rules: Rules) -> bool | None:
    """Whether two single values are the same; units and percent signs are taken off first."""
    if key(gold) == key(answer):
        return True
    letters = _LETTER_UNIT.sub(r" \1", gold), _LETTER_UNIT.sub(r" \1", answer)
    if letters != (gold, answer) and same_value(*letters, rules):
        return True  # 5\text{m} and 5m, whatever m is
    words = [word_of(side) for side in (gold, answer)]
    if words != [None, None]:
        bare = [re.sub(r"\\text|[\s{}()]", "", side) for side in (gold, answer)]
        if None in words and max(map(len, bare)) > 1:
            bare = [side.lower() for side in bare]
        return (bare[0] if words[0] is None else words[0]) == (bare[1] if words[1] is None else words[1])
    rates = _RATE.search(gold), _RATE.search(answer)
    if None in rates:  # dollars are an answer to how many dollars per pound
        gold, answer = _RATE.sub(r"\1}", gold), _RATE.sub(r"\1}", answer)
    if (measured := _BARE_UNIT.fullmatch(answer)) and number_of(gold) is not None:  # which no product with m is
        answer = measured[1]
    gold_value, gold_unit = split_unit(gold)
    answer_value, answer_unit = split_unit(answer)
    if rules.unit and gold_unit is None:
        gold_unit = unit_of(rules.unit.replace("$", ""))
    if PERCENT in (gold_unit, answer_unit):
        if gold_unit and answer_unit and gold_unit != answer_unit:
            return False
        return _same_percent(gold_value, answer_value, gold_unit == PERCENT, answer_unit == PERCENT, rules)
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return _same_quantity(gold_value, gold_unit, answer_value, answer_unit, rules)
    return same_value(gold_value, answer_value, rules)


def _same_quantity(gold: str, gold_unit: Unit, answer: str, answer_unit: Unit, rules: Rules) -> bool | None:
    """Whether 36 km/h is 10 m/s: the dimensions have to be the same, the values as their factors say."""
    if gold_unit.may_measure(answer_unit):
        return same_value(gold, answer, rules)
    if gold_unit.dimensions != answer_unit.dimensions:
        return False
    ratio = answer_unit.factor / gold_unit.factor
    return same_value(gold, f"({answer})*({ratio.numerator}/{ratio.denominator})", rules)


def _same_percent(gold: str, answer: str, gold_is: bool, answer_is: bool, rules: Rules) -> bool | None:
    """`50%` is 0.5. A missing sign is forgiven above 1, where the bare number cannot be the ratio itself."""
    gold, answer = _PERCENT.sub("", gold), _PERCENT.sub("", answer)
    same = same_value(gold, answer, rules)
    if gold_is and answer_is:
        return same
    if same:
        number = number_of(gold)
        return number is not None and (abs(number) > 1 or rules.unit is not None)
    if same is None:
        return None
    scaled = Rules(tolerance=rules.tolerance)  # an absolute tolerance is in percent points
    return same_value(f"({gold})/100", answer, scaled) if gold_is else same_value(gold, f"({answer})/100", scaled)


@lru_cache(maxsize=20_000)
def tree_of(text: str) -> Tree | None:
    """The tree of a single value, None where the reader does not know the notation."""
    try:
        return read(text)
    except (Unreadable, RecursionError):
        return None


@lru_cache(maxsize=20_000)
def number_of(text: str) -> Fraction | None:
    """The exact rational value, where there is one."""
    tree = tree_of(text)
    if tree is None or names_in(tree).has_unknowns:
        return None
    try:
        with one_comparison():  # what is cached must not depend on what was compared before
            (value,), _ = evaluate(tree)
    except (TooLarge, Undefined):
        return None
    return value if isinstance(value, Fraction) else None


def same_value(gold: str, answer: str, rules: Rules) -> bool | None:
    """Whether two expressions have the same value, within the tolerance that their notation allows."""
    if key(gold) == key(answer):
        return True
    trees = tree_of(gold), tree_of(answer)
    if trees[0] is None or trees[1] is None:
        unread = [text for text, tree in zip((gold, answer), trees, strict=True) if tree is None]
        return False if any(SIDE_BY_SIDE.search(text) for text in unread) else None
    if "\\infty" in names_in(trees[0], trees[1]).symbols:
        return _infinite(trees[0]) == _infinite(trees[1]) != 0
    relative = _tolerance(gold, answer, rules)
    return either(agree(*pair, relative, rules.absolute or 0.0) for pair in tree_readings(trees[0], trees[1]))


def rounds_to(exact: str, decimal: str) -> bool:
    """Whether a decimal is another value, rounded: `0.33` for `1/3`."""
    trees = tree_of(exact), tree_of(decimal)
    if trees[0] is None or trees[1] is None or trees[1][0] != "num" or len(trees[1]) < 3:
        return False
    is_close = agree(trees[0], trees[1], absolute=float(trees[1][2])) is True
    return is_close and agree(trees[0], trees[1], relative=0.01) is True  # 0.8 is not 3/4


def _infinite(tree: Tree) -> int:
    """1 and -1 for the two infinities, 0 for all else: infinity is no number to compute with."""
    if tree[0] == "neg":
        return -_infinite(tree[1])
    return int(tree == ("sym", "\\infty"))


def either(verdicts: Iterable[bool | None]) -> bool | None:
    """True where one verdict is, else None where one cannot tell, else False."""
    is_unsure = False
    for verdict in verdicts:
        if verdict:
            return True
        is_unsure |= verdict is None
    return None if is_unsure else False


def tree_readings(gold: Tree, answer: Tree) -> Iterator[tuple[Tree, Tree]]:
    r"""Both trees as read, then as they may also be meant: \log to base 10, h(a+b) a product, two roots as one."""
    yield gold, answer
    names = names_in(gold, answer)
    if "log" in names.calls:
        yield _reread(gold, _decimal_log), _reread(answer, _decimal_log)
    has_root = "sqrt" in names.calls and names.symbols
    for may_differ, change in ((names.functions, _product), (has_root, _one_root)):
        if may_differ and (changed := (_reread(gold, change), _reread(answer, change))) != (gold, answer):
            yield changed


def _reread(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    return change(tuple(_reread(part, change) if isinstance(part, tuple) else part for part in tree))


def _decimal_log(tree: Tree) -> Tree:
    return ("call", "log10", *tree[2:]) if tree[:2] == ("call", "log") else tree


def _product(tree: Tree) -> Tree:
    application = tree[0] == "fn" and len(tree) == 3 and tree[2][0] != "num"
    return ("mul", ("sym", tree[1]), tree[2]) if application else tree


def _one_root(tree: Tree) -> Tree:
    r"""`\sqrt a \sqrt b` as `\sqrt{ab}`, the same where each root is real; `\sqrt a \sqrt a` is `a` and stays."""
    if tree[0] not in ("mul", "div"):
        return tree
    (left, left_root), (right, right_root) = map(_root_and_rest, tree[1:])
    if left_root is None or right_root is None or left_root == right_root:
        return tree
    root: Tree = ("call", "sqrt", (tree[0], left_root, right_root))
    rest = (tree[0], left, right) if right != _UNIT else left
    return root if rest == _UNIT else ("mul", rest, root)


_UNIT: Tree = ("num", Fraction(1))


def _root_and_rest(tree: Tree) -> tuple[Tree, Tree | None]:
    """A product as its other factors and the radicand of its last root."""
    if tree[:2] == ("call", "sqrt"):
        return _UNIT, tree[2]
    if tree[0] == "mul":
        for rest, root in ((tree[1], tree[2]), (tree[2], tree[1])):
            other, radicand = _root_and_rest(root)
            if radicand is not None:
                return (rest if other == _UNIT else ("mul", rest, other)), radicand
    return tree, None


def _tolerance(gold: str, answer: str, rules: Rules) -> float:
    if all(_INTEGER.fullmatch(side.strip()) for side in (gold, answer)):
        return 0.0
    if rules.tolerance is not None:
        return rules.tolerance
    exact = [side for side in (gold, answer) if not _DECIMAL.search(side)]
    if len(exact) != 1 or _needs_no_rounding(exact[0]):
        return 0.0
    tree = tree_of(answer if exact[0] is gold else gold)
    return 0.0 if tree is not None and _computes_with_decimals(tree) else DECIMAL_TOLERANCE


def _needs_no_rounding(text: str) -> bool:
    """Whether a decimal for this would need no rounding: an integer, and `n^2+1`."""
    tree, number = tree_of(text), number_of(text)
    if tree is not None and names_in(tree).has_unknowns:
        return not _has_parts(tree)
    return number is not None and number.denominator == 1


def _has_parts(tree: Tree) -> bool:
    r"""Whether coefficients other than integers occur: a quotient, a root, a negative power, \pi or e."""
    if tree[0] in ("div", "call") or tree in (("sym", "\\pi"), ("sym", "e")):
        return True
    if tree[0] == "pow" and tree[2][0] == "neg":
        return True
    return any(_has_parts(part) for part in tree if isinstance(part, tuple))


def _computes_with_decimals(tree: Tree) -> bool:
    """Whether a function is applied to decimals, or a power taken: such a decimal is meant, not rounded."""
    inside = [part for part in tree if isinstance(part, tuple)]
    is_decimal = tree[0] in ("call", "pow") and any(part[0] == "num" and len(part) > 2 for part in inside)
    return is_decimal or any(map(_computes_with_decimals, inside))


def points(names: Names) -> Iterator[tuple[int, str]]:
    """Sample points: where symbols are counts, only integers; else positive reals, then any sign."""
    if not names.has_unknowns:
        yield 0, "positive"
    elif names.calls & _DISCRETE:
        yield from ((point, "integer") for point in range(40))
        if not names.calls & _COUNTING and names.symbols <= _REALS:
            yield from ((point, "positive") for point in range(4))
    else:
        yield from ((point, kind) for kind in ("positive", "mixed") for point in range(2))


def agree(gold: Tree, answer: Tree, relative: float = 0.0, absolute: float = 0.0) -> bool | None:
    """Return whether two trees agree at all sample points; None where no point tells.

    Beside symbols the last digit of each decimal may be rounded, but there is no tolerance of the whole, which would
    hide small terms: `1000000x + 0.9` is not `1000000x + 1/3`.
    """
    names = names_in(gold, answer)
    shifted: list[tuple[int, Tree]] = []
    if names.has_unknowns:
        if relative:
            shifted = [(side, tree) for side, whole in enumerate((gold, answer)) for tree in _shifted(whole, relative)]
        relative = absolute = 0.0
    is_defined = False
    for point, kind in points(names):
        try:
            values, precision = evaluate(gold, answer, *(tree for _, tree in shifted), point=point, kind=kind)
        except TooLarge:
            return None
        except Undefined:
            continue
        shifts = (
            abs(inexact(values[side]) - inexact(value)) for (side, _), value in zip(shifted, values[2:], strict=True)
        )
        if not close(values[0], values[1], precision, relative, absolute + float(sum(shifts))):
            return False
        is_defined = True
    return True if is_defined else None


def _shifted(tree: Tree, relative: float) -> list[Tree]:
    """For each decimal that may be rounded: the tree with that one moved as far as rounding may have moved it."""
    if tree[0] == "num":
        _, value, last = (*tree, None)[:3]
        is_rounded = last is not None and abs(value) >= 10**5 * last and value / last % 10  # 0.500000 is exact
        step = last * Fraction(51, 100) if is_rounded else Fraction(0)
        if last is not None and relative > DECIMAL_TOLERANCE:
            step = max(step, Fraction(repr(relative)) * abs(value))
        return [("num", value + step)] if step else []
    return [
        (*tree[:at], other, *tree[at + 1 :])
        for at, part in enumerate(tree)
        if isinstance(part, tuple)
        for other in _shifted(part, relative)
    ][:_MOST_DECIMALS]
