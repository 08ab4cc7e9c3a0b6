r"""Compare sets of real numbers, however they are written: intervals, unions, differences, inequalities of one unknown.

    >>> from trimsft.grading.shapes import shape_of
    >>> same_set(shape_of("(-\\infty,2)\\cup(2,\\infty)"), shape_of("\\mathbb{R}\\setminus\\{2\\}"))
    True

A set is its ends and a test of membership. Two sets are equal when they agree on all their ends and between them.
What is no set raises `Undefined`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from trimsft.grading.expression import Tree
from trimsft.grading.shapes import Shape
from trimsft.grading.single_values import tree_of
from trimsft.grading.values import MP, PRECISION, TooLarge, Undefined, Value, computing, evaluate, inexact, names_in

_BITS = 600  # to which ends are rounded, so that one number computed in two ways is one end
_MOST_ENDS = 64
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}
_INFINITE = {("sym", "\\infty"): MP.inf, ("neg", ("sym", "\\infty")): -MP.inf}


class RealSet(NamedTuple):
    """A set of real numbers."""

    ends: tuple[Value, ...]
    contains: Callable[[Value], bool]


_REALS = RealSet((), lambda x: True)


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
    ends = sorted({*one.ends, *other.ends})
    if len(ends) > _MOST_ENDS:
        raise TooLarge("ends of sets")
    between = [(low + high) / 2 for low, high in pairwise(ends)]
    outside = [ends[0] - 1, ends[-1] + 1] if ends else [MP.mpf(0)]
    return all(one.contains(x) == other.contains(x) for x in [*ends, *between, *outside])


def _must_be_set(shape: Shape) -> bool:
    if shape.kind == "brackets":
        return len(shape.parts) == 2 and shape.marks != ("(", ")")
    return shape.kind in ("union", "difference", "intersection") or shape.bounds() or _is_reals(shape)


def _is_reals(shape: Shape) -> bool:
    return shape.text.replace(" ", "") in ("\\mathbb{R}", "(-\\infty,\\infty)", "(-\\infty,+\\infty)")


def _unknowns(shape: Shape) -> set[str]:
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in shape.parts]
        return set(names_in(*filter(None, trees)).symbols) - {"\\infty"}
    return {name for part in shape.parts for name in _unknowns(part)}


def _set_of(shape: Shape) -> RealSet:
    parts, marks = shape.parts, shape.marks
    if _is_reals(shape):
        return _REALS
    if shape.kind == "brackets" and len(parts) == 2:
        return _interval(_number(parts[0].text), marks[0] == "[", _number(parts[1].text), marks[1] == "]")
    if shape.kind == "set":
        points = tuple(_number(part.text) for part in parts)
        return RealSet(points, lambda x: x in points)
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in parts]
        return _all(_relation(*relation) for relation in zip(trees, marks, trees[1:], strict=False))
    if shape.kind == "list":
        if len(_unknowns(shape)) > 1:
            raise Undefined("bounds of two unknowns")
        # values that are excluded always are; two bounds that hold everywhere are meant together, as x > 2, x < 5
        excluded = [_set_of(part) for part in parts if "\\ne" in part.marks]
        bounds = [_set_of(part) for part in parts if "\\ne" not in part.marks]
        together = len(bounds) == 2 and _agree(_any(bounds), _REALS)
        return _all([_all(bounds) if together or not bounds else _any(bounds), *excluded])
    if shape.kind not in ("union", "intersection", "difference"):
        raise Undefined("no set")
    sets = list(map(_set_of, parts))
    if shape.kind == "difference":
        return _all([sets[0], *map(_complement, sets[1:])])
    return _any(sets) if shape.kind == "union" else _all(sets)


def _number(text: str) -> Value:
    """Return a real number, or an infinity."""
    tree = tree_of(text)
    if tree in _INFINITE:
        return _INFINITE[tree]
    if tree is None or names_in(tree).has_unknowns:
        raise Undefined("no number")
    value = inexact(evaluate(tree)[0][0])
    if MP.im(value) != 0:
        raise Undefined("no real number")
    with MP.workprec(_BITS):
        return +MP.re(value)


def _interval(low: Value, has_low: bool, high: Value, has_high: bool) -> RealSet:
    ends = tuple(end for end in (low, high) if MP.isfinite(end))
    return RealSet(ends, lambda x: (low < x < high) or (x == low and has_low) or (x == high and has_high))


def _any(sets: Iterable[RealSet]) -> RealSet:
    listed = list(sets)
    return RealSet(tuple(end for one in listed for end in one.ends), lambda x: any(one.contains(x) for one in listed))


def _complement(one: RealSet) -> RealSet:
    return RealSet(one.ends, lambda x: not one.contains(x))


def _all(sets: Iterable[RealSet]) -> RealSet:
    return _complement(_any(map(_complement, sets)))


def _relation(left: Tree | None, mark: str, right: Tree | None) -> RealSet:
    """Solve `left mark right`, where that is linear in one unknown or in the size of such a thing."""
    if left is None or right is None:
        raise Undefined("no expression")
    if right[:2] == ("call", "abs"):
        left, mark, right = right, _FLIPPED[mark], left
    if left[:2] == ("call", "abs") and not names_in(right).has_unknowns:
        sides = [_relation(left[2], mark, right), _relation(left[2], _FLIPPED[mark], ("neg", right))]
        return _any(sides) if mark in (">", "\\ge") else _all(sides)
    symbols = names_in(left, right).symbols
    if len(symbols) != 1:
        raise Undefined("unknowns")
    difference, (name,) = ("add", left, ("neg", right)), symbols
    at = [inexact(evaluate(difference, known={name: Fraction(x)})[0][0]) for x in (0, 1, 2, 5)]
    slope, noise = at[1] - at[0], MP.ldexp(max(map(abs, at)) + 1, -_BITS)
    is_line = all(abs(at[n] - at[0] - x * slope) <= noise for n, x in ((2, 2), (3, 5)))
    if any(MP.im(value) != 0 for value in at) or abs(slope) < MP.ldexp(1, -_BITS) or not is_line:
        raise Undefined("not linear")
    with MP.workprec(_BITS):
        bound = -at[0] / slope
    if mark == "\\ne":
        return RealSet((bound,), lambda x: x != bound)
    has_bound, mark = mark in ("\\le", "\\ge"), _FLIPPED[mark] if slope < 0 else mark
    return _interval(
        *((-MP.inf, False, bound, has_bound) if mark in ("<", "\\le") else (bound, has_bound, MP.inf, False))
    )
