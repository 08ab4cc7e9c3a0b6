r"""Compare the outer shapes of a gold and an answer: lists, tuples, sets, intervals, matrices, equations, inequalities.

The values inside are compared by `same_leaf`; sets of real numbers as sets, however they are written.

    >>> compare("(1,\\frac{1}{2})", "(1, 0.5)", Rules())
    True
    >>> compare("(-\\infty,2)\\cup(2,\\infty)", "\\mathbb{R}\\setminus\\{2\\}", Rules())
    True
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from trimsft.grading import values
from trimsft.grading.answers import choice_of
from trimsft.grading.clean import clean, key
from trimsft.grading.compare_values import INFINITE, is_numeric, points, same_leaf, same_value, tree_of, word_of
from trimsft.grading.expression import Tree
from trimsft.grading.kinds import Rules
from trimsft.grading.shapes import Shape, readings, shape_of
from trimsft.grading.units import split_unit
from trimsft.grading.values import MP, TooLarge, Undefined, Value, names_in

MAX_ITEMS = 64
_KINDS = "real|positive|non-?negative|natural|integer|number|rational|complex"
_EVERY = rf"(?:all|any|every|each)(?: (?:{_KINDS})s?)*"
_DOMAIN = re.compile(
    rf"(?<=.)[,;]?\s*(?:\\forall|\\text\s*\{{\s*(?:(?:for )?{_EVERY}|for|where|with)\s*\}})?"
    r"\s*\(?\s*([a-z])\s*\\in\s*\\mathbb\{([RZNQC])\}\s*\)?$"
    rf"|\s*,?\s*\\text\s*\{{\s*for {_EVERY}\s*\}}\s*[a-z]$"
)
"""The numbers for which a formula is stated, at its end: `k\\in\\mathbb{Z}`, `for all real x`."""
_DESCRIPTION = re.compile(r"_\s*(?:\{\s*)?(?:\\text\s*\{\s*)?\\?[a-z]{3,}[\s}]*")


def compare(gold: str, answer: str, rules: Rules) -> bool:
    """Return whether two cleaned texts state the same, within the limits of what is computed."""
    ends = (_DOMAIN.search(text) for text in (gold, answer))
    (one, reals), (other, numbers) = (match.groups() if match else (None, None) for match in ends)
    if not (one and other) or reals == numbers:
        if one and other and one not in answer:  # the same letter for the integer
            answer = re.sub(rf"(?<![A-Za-z\\]){other}(?![A-Za-z])", one, answer)
        gold, answer = _DOMAIN.sub("", gold), _DOMAIN.sub("", answer)
    with values.one_comparison():
        return _same_text(gold, answer, rules) or _same_choice(gold, answer, rules)


def is_readable(text: str) -> bool:
    """Return whether all of a cleaned answer are expressions, quantities or words."""

    def is_known(shape: Shape) -> bool:
        if shape.parts:
            return all(map(is_known, shape.parts))
        return word_of(shape.text) is not None or tree_of(split_unit(shape.text)[0]) is not None

    return any(is_known(shape_of(reading)) for reading in readings(text))


def _same_text(gold: str, answer: str, rules: Rules) -> bool:
    return any(_same(shape_of(g), shape_of(a), rules) for g in readings(gold) for a in readings(answer))


def _same_choice(gold: str, answer: str, rules: Rules) -> bool:
    """Compare letters where both give one, else what they stand for."""
    wanted, said = choice_of(gold), choice_of(answer)
    one, other = wanted.content if wanted else gold, said.content if said else answer
    if wanted and said and (wanted.letter != said.letter or None in (one, other)):
        return wanted.letter == said.letter
    if not (wanted or said) or one is None or other is None:
        return False
    return _same_text(clean(one), clean(other), rules)


def _same(gold: Shape, answer: Shape, rules: Rules) -> bool:
    if key(gold.text) == key(answer.text):
        return True
    if max(len(gold.parts), len(answer.parts)) <= MAX_ITEMS and _same_shape(gold, answer, rules):
        return True
    return (_must_be_set(gold) or _must_be_set(answer)) and _same_set(gold, answer)


def _same_shape(gold: Shape, answer: Shape, rules: Rules) -> bool:
    kinds, names = {gold.kind, answer.kind}, [_names(gold), _names(answer)]
    if "equation" in kinds:
        return _same_equation(gold, answer, rules)
    if kinds == {"leaf"}:
        return same_leaf(gold.text, answer.text, rules)
    if kinds == {"list", "set"}:
        return _same_items(gold.parts, answer.parts, rules)
    if kinds == {"list", "brackets"}:  # brackets left out; two numbers are no interval
        is_point = ("(", ")") in (gold.marks, answer.marks)
        has_two_values = any(len(set(side)) < len(side) for side in names)  # x = 1, x = 2
        return is_point and not has_two_values and _all_same(_point(gold), _point(answer), rules)
    if "leaf" in kinds:
        group = answer if gold.kind == "leaf" else gold
        if group.kind not in ("brackets", "set") or len(group.parts) != 1:
            return False
        if group.kind == "set" and "\\emptyset" in (key(gold.text), key(answer.text)):
            return group.parts[0].text == ""  # a set that holds the empty one is not empty
        inside = group.parts[0]
        return _same(inside, answer, rules) if group is gold else _same(gold, inside, rules)
    if len(kinds) == 2:
        return False
    if kinds <= {"list", "set", "union", "cases"} and (all(names) or max(len(set(side)) for side in names) < 2):
        return _same_items(gold.parts, answer.parts, rules)
    # tuple or interval, with its brackets, matrix, inequality, and x=1, y=2 against 1, 2
    return gold.marks == answer.marks and _all_same(gold.parts, answer.parts, rules)


def _all_same(gold: Sequence[Shape], answer: Sequence[Shape], rules: Rules) -> bool:
    return len(gold) == len(answer) and all(_same(g, a, rules) for g, a in zip(gold, answer, strict=True))


def _same_items(gold: Sequence[Shape], answer: Sequence[Shape], rules: Rules) -> bool:
    """Compare items in any order, each as often on both sides."""
    left, texts = list(answer), {key(other.text) for other in answer}
    for item in sorted(gold, key=lambda one: key(one.text) not in texts):  # equal texts first
        left.sort(key=lambda other: key(other.text) != key(item.text))
        match = next((other for other in left if _same(item, other, rules)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _names(shape: Shape) -> list[str]:
    return [key(part.parts[0].text) for part in shape.parts if part.kind == "equation"]


def _point(shape: Shape) -> Sequence[Shape]:
    """Return the parts of a point, where `y = 1, x = 2` is (2, 1)."""
    names = _names(shape)
    if len(names) < len(shape.parts) or not set(names) <= set("xyz"):
        return shape.parts
    return sorted(shape.parts, key=lambda part: key(part.parts[0].text))


# ---- equations


def _same_equation(gold: Shape, answer: Shape, rules: Rules) -> bool:
    """Compare `x=5` and `5`; two equations are the same when one is a multiple of the other."""
    if answer.kind == "equation" and len(answer.parts) > 2 and answer.contradicts_itself():
        return False
    if gold.kind != answer.kind:
        golds, answers = (side.values() if side.kind == "equation" else (side,) for side in (gold, answer))
        return any(_same(one, other, rules) for one in golds for other in answers)
    if len(gold.parts) + len(answer.parts) > 4:
        first, other = gold.parts[0].text, answer.parts[0].text  # x, or 2 + 3
        is_of_one = key(first) == key(other) or is_numeric(first) or is_numeric(other)
        both_name = is_of_one and gold.names_a_value() and answer.names_a_value()
        return both_name and _same(gold.parts[-1], answer.parts[-1], rules)
    name, other = gold.parts[0].text, answer.parts[0].text
    # one may leave out a word: m and m_{\\max}, not m_{\\min}
    spellings = (name, other), (_DESCRIPTION.sub("", name), other), (name, _DESCRIPTION.sub("", other))
    if gold.names_a_value() and any(same_value(*pair, Rules()) for pair in spellings):
        return _same(gold.parts[1], answer.parts[1], rules)
    one, two = (tree_of(f"({side.parts[0].text})-({side.parts[1].text})") for side in (gold, answer))
    return one is not None and two is not None and _has_constant_ratio(one, two)


def _has_constant_ratio(gold: Tree, answer: Tree) -> bool:
    """Return whether one difference of sides is an exact multiple of the other."""
    seen: list[tuple[Value, Value, int]] = []
    for point, kind in points(names_in(gold, answer)):
        try:
            (first, second), precision = values.evaluate(gold, answer, point=point, kind=kind)
        except TooLarge:
            return False
        except Undefined:
            continue
        if not first or not second:
            return False
        with values.computing(precision):
            seen.append((first, values.inexact(first) / values.inexact(second), precision))
    differ = [any(not values.close(seen[0][at], one[at], min(seen[0][2], one[2])) for one in seen[1:]) for at in (0, 1)]
    return differ == [True, False]  # where nothing was varied, 1 = 0 is not 2 = 0


# ---- sets of real numbers: intervals, unions, differences, inequalities of one unknown

RealSet: TypeAlias = tuple[list[Value], Callable[[Value], bool]]
"""Its ends, and a test of membership: equal sets agree on all ends and between them."""
_BITS = 600  # of an end, so that a number computed in two ways is one
_TESTS = {"<": operator.lt, ">": operator.gt, "\\le": operator.le, "\\ge": operator.ge, "\\ne": operator.ne}
_REALS = ("\\mathbb{R}", "(-\\infty,\\infty)", "(-\\infty,+\\infty)")


def _same_set(gold: Shape, answer: Shape) -> bool:
    """Return whether two shapes are the same set of reals, False where one is none."""
    names = _unknowns(gold), _unknowns(answer)
    if all(names) and names[0] != names[1]:
        return False
    try:
        with values.computing(values.PRECISION):
            return _agree(_set_of(gold), _set_of(answer))
    except (TooLarge, Undefined):
        return False


def _agree(one: RealSet, other: RealSet) -> bool:
    ends = sorted({*one[0], *other[0]})
    if len(ends) > MAX_ITEMS:
        raise TooLarge("ends of sets")
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    outside = [ends[0] - 1, ends[-1] + 1] if ends else [MP.mpf(0)]
    return all(one[1](x) == other[1](x) for x in [*ends, *between, *outside])


def _must_be_set(shape: Shape) -> bool:
    """Return whether a shape is a set of reals and nothing else: (1, 2) may be a point."""
    if shape.kind == "brackets":
        return len(shape.parts) == 2 and shape.marks != ("(", ")")
    return shape.kind in ("union", "difference", "intersection") or shape.bounds() or key(shape.text) in _REALS


def _unknowns(shape: Shape) -> set[str]:
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in shape.parts]
        return names_in(*filter(None, trees)).symbols - {"\\infty"}
    return {name for part in shape.parts for name in _unknowns(part)}


def _set_of(shape: Shape) -> RealSet:
    """Return the set that a shape is; raise `Undefined` where it is none."""
    parts, marks = shape.parts, shape.marks
    if key(shape.text) in _REALS:
        return [], lambda x: True
    if shape.kind == "set":
        members = [_number(part.text) for part in parts]
        return members, lambda x: x in members
    if shape.kind == "brackets" and len(parts) == 2:
        low, high = (_number(part.text) for part in parts)
        closed = [end for end, mark in ((low, marks[0] == "["), (high, marks[1] == "]")) if mark]
        return [end for end in (low, high) if MP.isfinite(end)], lambda x: low < x < high or x in closed
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in parts]
        return _combine(all, (_relation(*relation) for relation in zip(trees, marks, trees[1:], strict=False)))
    if shape.kind == "list" and len(_unknowns(shape)) <= 1:
        # two bounds that together are no bound are meant at once, as x > 2, x < 5
        excluded = [_set_of(part) for part in parts if "\\ne" in part.marks]
        bounds = [_set_of(part) for part in parts if "\\ne" not in part.marks]
        are_together = len(bounds) == 2 and _agree(_combine(any, bounds), ([], lambda x: True))
        return _combine(all, [_combine(all if are_together or not bounds else any, bounds), *excluded])
    if shape.kind == "difference":
        (ends, is_first), rest = _set_of(parts[0]), _combine(any, map(_set_of, parts[1:]))
        return ends + rest[0], lambda x: is_first(x) and not rest[1](x)
    if shape.kind in ("union", "intersection"):
        return _combine(any if shape.kind == "union" else all, map(_set_of, parts))
    raise Undefined("no set")


def _combine(test: Callable[[Iterable[bool]], bool], sets: Iterable[RealSet]) -> RealSet:
    """Return the union of sets, for `any`, or their intersection, for `all`."""
    listed = list(sets)
    return [end for ends, _ in listed for end in ends], lambda x: test(contains(x) for _, contains in listed)


def _number(text: str) -> Value:
    """Return a real number, or an infinity."""
    tree = tree_of(text)
    if tree in INFINITE:
        return INFINITE[tree]
    if tree is None or not is_numeric(text) or MP.im(value := values.inexact(values.evaluate(tree)[0][0])) != 0:
        raise Undefined("no real number")
    with MP.workprec(_BITS):
        return +MP.re(value)


def _relation(left: Tree | None, mark: str, right: Tree | None) -> RealSet:
    """Solve `left mark right`, where it is linear in one unknown or its size."""
    if left is None or right is None or len(symbols := names_in(left, right).symbols) != 1:
        raise Undefined("not one unknown")
    for inside, other, is_left in ((left, right, True), (right, left, False)):
        if inside[:2] == ("call", "abs") and not names_in(other).has_unknowns:  # |x| < 3: x < 3 and -3 < x
            sides = [(inside[2], mark, other), (("neg", other), mark, inside[2])]
            test = all if mark == "\\ne" or (mark in ("<", "\\le")) == is_left else any
            return _combine(test, (_relation(*(side if is_left else side[::-1])) for side in sides))
    difference, (name,) = ("add", left, ("neg", right)), symbols
    at = [values.inexact(values.evaluate(difference, known={name: Fraction(x)})[0][0]) for x in (0, 1, 2, 5)]
    slope, noise = at[1] - at[0], MP.ldexp(max(map(abs, at)) + 1, -_BITS)
    is_line = all(abs(at[n] - at[0] - x * slope) <= noise for n, x in ((2, 2), (3, 5)))
    if any(MP.im(value) != 0 for value in at) or abs(slope) < MP.ldexp(1, -_BITS) or not is_line:
        raise Undefined("not linear")
    with MP.workprec(_BITS):
        bound = -at[0] / slope
    return [bound], lambda x: _TESTS[mark](slope * (x - bound), 0)
