r"""Compare sets of real numbers, however they are written: intervals, unions, differences, inequalities of one unknown.

    >>> from trimsft.grading.shapes import shape_of
    >>> same_set(shape_of("(-\\infty,2)\\cup(2,\\infty)"), shape_of("\\mathbb{R}\\setminus\\{2\\}"))
    True

A set is its ends and a test of membership. Two sets are equal when they agree on all their ends and between them.
What is no set raises `Undefined`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

from trimsft.grading.clean import key
from trimsft.grading.expression import Tree
from trimsft.grading.shapes import Shape
from trimsft.grading.single_values import tree_of
from trimsft.grading.values import MP, PRECISION, TooLarge, Undefined, Value, computing, evaluate, inexact, names_in

RealSet: TypeAlias = tuple[list[Value], Callable[[Value], bool]]

_BITS = 600  # to which ends are rounded, so that one number computed in two ways is one end
_MOST_ENDS = 64
_TESTS = {"<": operator.lt, ">": operator.gt, "\\le": operator.le, "\\ge": operator.ge, "\\ne": operator.ne}
_INFINITE = {("sym", "\\infty"): MP.inf, ("neg", ("sym", "\\infty")): -MP.inf}
_REALS = ("\\mathbb{R}", "(-\\infty,\\infty)", "(-\\infty,+\\infty)")


def same_set(gold: Shape, answer: Shape) -> bool:
    """Return whether two shapes are the same set of reals, False where one is no set or both may be points."""
    names = _unknowns(gold), _unknowns(answer)
    if not (_must_be_set(gold) or _must_be_set(answer)) or (all(names) and names[0] != names[1]):
        return False
    try:
        with computing(PRECISION):
            return _agree(_set_of(gold), _set_of(answer))
    except (TooLarge, Undefined):
        return False


def _agree(one: RealSet, other: RealSet) -> bool:
    ends = sorted({*one[0], *other[0]})
    if len(ends) > _MOST_ENDS:
        raise TooLarge("ends of sets")
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    outside = [ends[0] - 1, ends[-1] + 1] if ends else [MP.mpf(0)]
    return all(one[1](x) == other[1](x) for x in [*ends, *between, *outside])


def _must_be_set(shape: Shape) -> bool:
    if shape.kind == "brackets":
        return len(shape.parts) == 2 and shape.marks != ("(", ")")
    return shape.kind in ("union", "difference", "intersection") or shape.bounds() or key(shape.text) in _REALS


def _unknowns(shape: Shape) -> set[str]:
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in shape.parts]
        return names_in(*filter(None, trees)).symbols - {"\\infty"}
    return {name for part in shape.parts for name in _unknowns(part)}


def _set_of(shape: Shape) -> RealSet:
    parts, marks = shape.parts, shape.marks
    if key(shape.text) in _REALS:
        return [], lambda x: True
    if shape.kind == "set":
        points = [_number(part.text) for part in parts]
        return points, lambda x: x in points
    if shape.kind == "brackets" and len(parts) == 2:
        low, high = (_number(part.text) for part in parts)
        closed = [end for end, mark in ((low, marks[0] == "["), (high, marks[1] == "]")) if mark]
        return [end for end in (low, high) if MP.isfinite(end)], lambda x: low < x < high or x in closed
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in parts]
        return _combine(all, (_relation(*relation) for relation in zip(trees, marks, trees[1:], strict=False)))
    if shape.kind == "list" and len(_unknowns(shape)) <= 1:
        # values that are excluded always are; two bounds that hold everywhere are meant together, as x > 2, x < 5
        excluded = [_set_of(part) for part in parts if "\\ne" in part.marks]
        bounds = [_set_of(part) for part in parts if "\\ne" not in part.marks]
        are_together = len(bounds) == 2 and _agree(_combine(any, bounds), ([], lambda x: True))
        return _combine(all, [_combine(all if are_together or not bounds else any, bounds), *excluded])
    if shape.kind not in ("union", "intersection", "difference"):
        raise Undefined("no set")
    (ends, is_first), rest = _set_of(parts[0]), _combine(any, map(_set_of, parts[1:]))
    if shape.kind == "difference":
        return ends + rest[0], lambda x: is_first(x) and not rest[1](x)
    return _combine(any if shape.kind == "union" else all, map(_set_of, parts))


def _combine(test: Callable[[Iterable[bool]], bool], sets: Iterable[RealSet]) -> RealSet:
    """Return the union of sets, for `any`, or their intersection, for `all`."""
    listed = list(sets)
    return [end for ends, _ in listed for end in ends], lambda x: test(contains(x) for _, contains in listed)


def _number(text: str) -> Value:
    """Return a real number, or an infinity."""
    tree = tree_of(text)
    if tree in _INFINITE:
        return _INFINITE[tree]
    if tree is None or names_in(tree).has_unknowns or MP.im(value := inexact(evaluate(tree)[0][0])) != 0:
        raise Undefined("no real number")
    with MP.workprec(_BITS):
        return +MP.re(value)


def _relation(left: Tree | None, mark: str, right: Tree | None) -> RealSet:
    """Solve `left mark right`, where that is linear in one unknown or in the size of such a thing."""
    if left is None or right is None or len(symbols := names_in(left, right).symbols) != 1:
        raise Undefined("not one unknown")
    for inside, other, is_left in ((left, right, True), (right, left, False)):
        if inside[:2] == ("call", "abs") and not names_in(other).has_unknowns:  # |x| < 3: x < 3 and -3 < x
            sides = [(inside[2], mark, other), (("neg", other), mark, inside[2])]
            sides = sides if is_left else [side[::-1] for side in sides]
            return _combine(all if mark == "\\ne" or (mark in ("<", "\\le")) == is_left else any, (
                _relation(*side) for side in sides
            ))  # fmt: skip
    difference, (name,) = ("add", left, ("neg", right)), symbols
    at = [inexact(evaluate(difference, known={name: Fraction(x)})[0][0]) for x in (0, 1, 2, 5)]
    slope, noise = at[1] - at[0], MP.ldexp(max(map(abs, at)) + 1, -_BITS)
    is_line = all(abs(at[n] - at[0] - x * slope) <= noise for n, x in ((2, 2), (3, 5)))
    if any(MP.im(value) != 0 for value in at) or abs(slope) < MP.ldexp(1, -_BITS) or not is_line:
        raise Undefined("not linear")
    with MP.workprec(_BITS):
        bound = -at[0] / slope
    return [bound], lambda x: _TESTS[mark](slope * (x - bound), 0)
