r"""Are two single values the same: `\frac{1}{2}` and `0.5`, `x^2-1` and `(x-1)(x+1)`?

Three answers: True, False, and None where this module cannot tell (math-verify is asked then).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

from trimsft.grading.expression import Tree, Unreadable, read
from trimsft.grading.normalize import key
from trimsft.grading.rules import DECIMAL_TOLERANCE, Rules
from trimsft.grading.values import MP, Evaluation, TooLarge, Undefined, Value, kinds_of
from trimsft.grading.words import canonical_unit, split_unit

_INTEGER = re.compile(r"[+-]?\s*\d+")
_DECIMAL = re.compile(r"\d\.\d|(?<!\d)\.\d|\d[eE][+-]?\d")
_PERCENT = re.compile(r"\\?%\s*$")
_LETTER_UNIT = re.compile(r"\\text\s*\{\s*([A-Za-z])\s*\}")
_WORD = re.compile(r"\\text\s*\{([^{}]*)\}|([A-Za-z][A-Za-z '\-]{2,})")
_CHOICE = re.compile(r"\(?\s*([A-J])\s*\)?\.?")
_KNOWN = {"pi", "sin", "cos", "tan", "inf", "infinity"}
_DISCRETE = {f"call:{name}" for name in ("floor", "ceil", "factorial", "binom", "gcd", "lcm")}
_COUNTING = _DISCRETE - {"call:floor", "call:ceil"}
_REALS = {f"sym:{name}" for name in "xyzt"}
"""By custom no integers, so that a floor of them is tried between integers too; an n is an integer."""
_SAME = MP.mpf(10) ** -24  # relative; two evaluations to 33 digits that differ by less are equal
_CANCELLED = MP.mpf(10) ** -28
"""Relative to the largest term of a sum; a difference below is the rounding of that sum."""


def word_of(text: str) -> str | None:
    r"""The word that an answer is, in lower case: `\text{Even}` and `even`; None for mathematics."""
    text = text.strip()
    if choice := _CHOICE.fullmatch(re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip()):
        return choice[1] if len(text) > 1 else None
    match = _WORD.fullmatch(text)
    if not match:
        return None
    word = (match[1] or match[2] or "").strip().rstrip(".").lower()
    return None if word in _KNOWN or not any(c.isalpha() for c in word) else word


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
        return (bare[0] if words[0] is None else words[0]) == (bare[1] if words[1] is None else words[1])
    gold_value, gold_unit = split_unit(gold)
    answer_value, answer_unit = split_unit(answer)
    if rules.unit and gold_unit is None:
        gold_unit = canonical_unit(rules.unit)
    gold_unit = "%" if _PERCENT.search(gold) else gold_unit
    answer_unit = "%" if _PERCENT.search(answer) else answer_unit
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return False
    if "%" in (gold_unit, answer_unit):
        return _same_percent(gold_value, answer_value, gold_unit == "%", answer_unit == "%", rules)
    return same_value(gold_value, answer_value, rules)


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
    if tree is None or kinds_of(tree):
        return None
    try:
        value = Evaluation()(tree)
    except (TooLarge, Undefined):
        return None
    return value if isinstance(value, Fraction) else None


def same_value(gold: str, answer: str, rules: Rules) -> bool | None:
    """Whether two expressions have the same value, within the tolerance that their notation allows."""
    if key(gold) == key(answer):
        return True
    trees = tree_of(gold), tree_of(answer)
    if trees[0] is None or trees[1] is None:
        return None
    relative = _tolerance(gold, answer, rules)
    return either(agree(*pair, relative, rules.absolute or 0.0) for pair in tree_readings(trees[0], trees[1]))


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
    kinds = kinds_of(gold) | kinds_of(answer)
    if "call:log" in kinds:
        yield _reread(gold, _decimal_log), _reread(answer, _decimal_log)
    has_root = "call:sqrt" in kinds and any(kind.startswith("sym:") for kind in kinds)
    for may_differ, change in ((any(kind.startswith("fn:") for kind in kinds), _product), (has_root, _one_root)):
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
    return DECIMAL_TOLERANCE if len(exact) == 1 and _may_be_rounded(exact[0]) else 0.0


def _may_be_rounded(text: str) -> bool:
    """Whether writing an exact value as a decimal may need rounding: not an integer, nor `n^2+1`."""
    tree = tree_of(text)
    if tree is None:
        return True
    if any(kind.startswith(("sym", "fn")) for kind in kinds_of(tree)):
        return _has_parts(tree)
    try:
        value = Evaluation()(tree)
    except (TooLarge, Undefined):
        return True
    if isinstance(value, Fraction):
        return value.denominator != 1
    return bool(abs(value) > 10**20 or abs(value - MP.nint(MP.re(value))) > _SAME * abs(value))


def _has_parts(tree: Tree) -> bool:
    r"""Whether coefficients other than integers occur: a quotient, a root, a negative power, \pi or e."""
    if tree[0] in ("div", "call") or tree in (("sym", "\\pi"), ("sym", "e")):
        return True
    if tree[0] == "pow" and tree[2][0] == "neg":
        return True
    return any(_has_parts(part) for part in tree if isinstance(part, tuple))


def points(kinds: set[str]) -> Iterator[tuple[int, str]]:
    """Sample points: where symbols are counts, only integers; else positive reals, then any sign."""
    if not any(kind.startswith(("sym", "fn")) for kind in kinds):
        yield 0, "positive"
    elif kinds & _DISCRETE:
        yield from ((point, "integer") for point in range(12))
        if not kinds & _COUNTING and {kind for kind in kinds if kind.startswith("sym")} <= _REALS:
            yield from ((point, "positive") for point in range(4))
    else:
        yield from ((point, kind) for kind in ("positive", "mixed") for point in range(2))


def agree(gold: Tree, answer: Tree, relative: float, absolute: float) -> bool | None:
    """Whether two trees agree at all sample points; None where no point tells."""
    kinds = kinds_of(gold) | kinds_of(answer)
    seen = 0
    for point, kind in points(kinds):
        at = Evaluation(point, kind)
        try:
            first, second = at(gold), at(answer)
        except TooLarge:
            return None
        except Undefined:
            continue
        verdict = close(first, second, relative, absolute, at.scale)
        if verdict is None or (not verdict and kind == "mixed"):
            return None
        if not verdict:
            return False
        seen += 1
    return True if seen else None


def close(first: Value, second: Value, relative: float, absolute: float, scale: Value) -> bool | None:
    """Equality of two values; always relative to their size, unless an absolute tolerance was asked for."""
    if isinstance(first, Fraction) and isinstance(second, Fraction):
        allowed = max(Fraction(repr(relative)) * max(abs(first), abs(second)), Fraction(repr(absolute)))
        return abs(first - second) <= allowed
    first, second = (MP.mpf(v.numerator) / v.denominator if isinstance(v, Fraction) else v for v in (first, second))
    size = max(abs(first), abs(second))
    difference = abs(first - second)
    if difference <= max((_SAME + relative) * size, MP.mpf(absolute)):
        return True
    return None if difference <= _CANCELLED * scale else False
