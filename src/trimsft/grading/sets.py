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


class RealSet(NamedTuple):
    """A set of real numbers."""

    ends: tuple[Value, ...]
    contains: Callable[[Value], bool]


_REALS = RealSet((), lambda x: True)


def same_set(gold: Shape, answer: Shape) -> bool | None:
    """Return whether two shapes are the same set of reals; None where one is no set, or both may be points."""
    if not (_must_be_set(gold) or _must_be_set(answer)):
        return None
    names = [_unknowns(side) for side in (gold, answer)]
    if names[0] and names[1] and names[0] != names[1]:
        return None
    try:
        with computing(PRECISION):
            return _agree(_set_of(gold), _set_of(answer))
    except (TooLarge, Undefined):
        return None


def _agree(one: RealSet, other: RealSet) -> bool:
    ends = sorted({*one.ends, *other.ends})
    if len(ends) > _MOST_ENDS:
        raise TooLarge("ends of sets")
    tried = [*ends, *((low + high) / 2 for low, high in pairwise(ends))]
    tried += [ends[0] - 1, ends[-1] + 1] if ends else [MP.mpf(0)]
    return all(one.contains(x) == other.contains(x) for x in tried)


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
        low, high = (_end(part.text) for part in parts)
        return _interval(low, marks[0] == "[", high, marks[1] == "]")
    if shape.kind == "set":
        points = tuple(_end(part.text) for part in parts)
        return RealSet(points, lambda x: x in points)
    if shape.kind == "inequality":
        trees = [_tree(part.text) for part in parts]
        return _all(_relation(*relation) for relation in zip(trees, marks, trees[1:], strict=False))
    if shape.kind == "list":
        if len(_unknowns(shape)) > 1:
            raise Undefined("bounds of two unknowns")
        # values that are excluded always are; two bounds that hold everywhere are meant together, as x > 2, x < 5
        excluded = [_set_of(part) for part in parts if "\\ne" in part.marks]
        bounds = [_set_of(part) for part in parts if "\\ne" not in part.marks]
        together = len(bounds) == 2 and _agree(_any(bounds), _REALS)
        return _all([_all(bounds) if together or not bounds else _any(bounds), *excluded])
    if shape.kind == "union":
        return _any(map(_set_of, parts))
    if shape.kind == "intersection":
        return _all(map(_set_of, parts))
    if shape.kind == "difference":
        first, *others = map(_set_of, parts)
        return _all([first, *map(_complement, others)])
    raise Undefined("no set")


def _tree(text: str) -> Tree:
    if (tree := tree_of(text)) is None:
        raise Undefined("no expression")
    return tree


def _end(text: str) -> Value:
    tree = _tree(text)
    if (sign := {("sym", "\\infty"): 1, ("neg", ("sym", "\\infty")): -1}.get(tree)) is not None:
        return sign * MP.inf
    return _number(tree)


def _number(tree: Tree) -> Value:
    value = inexact(evaluate(tree)[0][0])
    if names_in(tree).has_unknowns or MP.im(value) != 0:
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


def _relation(left: Tree, mark: str, right: Tree) -> RealSet:
    """Solve `left mark right`, where that is linear in one unknown or in the size of such a thing."""
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
    slope = at[1] - at[0]
    noise = MP.ldexp(max(map(abs, at)) + 1, -_BITS)
    is_line = all(abs(at[n] - at[0] - x * slope) <= noise for n, x in ((2, 2), (3, 5)))
    if any(MP.im(value) != 0 for value in at) or abs(slope) < MP.ldexp(1, -_BITS) or not is_line:
        raise Undefined("not linear")
    bound = -at[0] / slope
    with MP.workprec(_BITS):
        bound = +bound
    mark = _FLIPPED[mark] if slope < 0 else mark
    if mark == "\\ne":
        return _complement(RealSet((bound,), lambda x: x == bound))
    ends = (-MP.inf, bound) if mark in ("<", "\\le") else (bound, MP.inf)
    has_bound = mark in ("\\le", "\\ge")
    return _interval(ends[0], has_bound, ends[1], has_bound)
