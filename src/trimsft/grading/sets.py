r"""Sets of real numbers, however they are written: intervals, unions, differences, inequalities of one unknown.

    >>> from trimsft.grading.shapes import shape_of
    >>> same_set(shape_of("(-\\infty,2)\\cup(2,\\infty)"), shape_of("\\mathbb{R}\\setminus\\{2\\}"))
    True
    >>> from trimsft.grading.shapes import shape_of
    >>> same_set(shape_of("(-3,3)"), shape_of("|x|\\le 3"))
    False

A set is its ends and a test of membership. Two sets are equal when they agree on all their ends and between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from trimsft.grading.expression import Tree
from trimsft.grading.shapes import Shape
from trimsft.grading.single_values import tree_of
from trimsft.grading.values import MP, PRECISION, TooLarge, Undefined, Value, computing, evaluate, inexact, names_in

_BITS = 600  # to which ends are rounded, so that one number computed in two ways is one end
FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}
_MOST_ENDS = 64


@dataclass(frozen=True)
class RealSet:
    """A set of real numbers."""

    ends: tuple[Value, ...]
    contains: Callable[[Value], bool]


_REALS = RealSet((), lambda x: True)


def same_set(gold: Shape, answer: Shape) -> bool | None:
    """Whether two shapes are the same set of real numbers; None where one is no set, or both may be points."""
    if not (_must_be_set(gold) or _must_be_set(answer)):
        return None
    names = [_unknowns(side) for side in (gold, answer)]
    if names[0] and names[1] and names[0] != names[1]:
        return None
    try:
        with computing(PRECISION):
            sets = _set_of(gold), _set_of(answer)
            return None if sets[0] is None or sets[1] is None else _equal(sets[0], sets[1])
    except (TooLarge, Undefined):
        return None


def _equal(one: RealSet, other: RealSet) -> bool | None:
    ends = sorted(set(one.ends) | set(other.ends))
    if len(ends) > _MOST_ENDS:
        return None
    tried = [*ends, *((low + high) / 2 for low, high in pairwise(ends))]
    tried += [ends[0] - 1, ends[-1] + 1] if ends else [MP.mpf(0)]
    return all(one.contains(x) == other.contains(x) for x in tried)


def _must_be_set(shape: Shape) -> bool:
    if shape.kind == "brackets":
        return len(shape.parts) == 2 and shape.marks != ("(", ")")
    return shape.kind in ("union", "difference", "intersection", "inequality") or shape.bounds() or _is_reals(shape)


def _is_reals(shape: Shape) -> bool:
    return shape.text.replace(" ", "") in ("\\mathbb{R}", "(-\\infty,\\infty)", "(-\\infty,+\\infty)")


def _unknowns(shape: Shape) -> set[str]:
    if shape.kind == "inequality":
        trees = [tree_of(part.text) for part in shape.parts]
        return set(names_in(*filter(None, trees)).symbols) - {"\\infty"}
    return {name for part in shape.parts for name in _unknowns(part)}


# ---- from shapes


def _set_of(shape: Shape) -> RealSet | None:
    if _is_reals(shape):
        return _REALS
    if shape.kind == "brackets" and len(shape.parts) == 2:
        ends = [_end(part.text) for part in shape.parts]
        return None if None in ends else _interval(ends[0], shape.marks[0] == "[", ends[1], shape.marks[1] == "]")
    if shape.kind == "set":
        points = [_end(part.text) for part in shape.parts]
        return None if None in points else RealSet(tuple(points), lambda x: x in points)
    if shape.kind == "inequality":
        steps = zip(shape.parts, shape.marks, shape.parts[1:], strict=False)
        return _all(_relation(tree_of(left.text), mark, tree_of(right.text)) for left, mark, right in steps)
    if shape.kind == "list" and shape.bounds():
        return _listed(shape)
    parts = [_set_of(part) for part in shape.parts]
    if shape.kind == "union":
        return _any(parts)
    if shape.kind == "intersection":
        return _all(parts)
    return _all([parts[0], *map(_complement, parts[1:])]) if shape.kind == "difference" else None


def _listed(shape: Shape) -> RealSet | None:
    """Bounds in a list: values that are excluded always are; other bounds as `Shape.interval` joins them."""
    excluded = [part for part in shape.parts if "\\ne" in part.marks]
    bounds = tuple(part for part in shape.parts if part.kind == "inequality" and "\\ne" not in part.marks)
    if len(excluded) + len(bounds) < len(shape.parts):
        return None
    joined = bounds[0] if len(bounds) == 1 else Shape("list", shape.text, bounds).interval() if bounds else None
    if bounds and joined is None:
        return None
    return _all([_set_of(joined) if joined else _REALS, *map(_set_of, excluded)])


def _end(text: str) -> Value | None:
    tree = tree_of(text)
    if tree is None:
        return None
    if (infinite := {("sym", "\\infty"): 1, ("neg", ("sym", "\\infty")): -1}.get(tree)) is not None:
        return infinite * MP.inf
    return _number(tree)


def _number(tree: Tree) -> Value | None:
    if names_in(tree).has_unknowns:
        return None
    value = inexact(evaluate(tree)[0][0])
    return _rounded(MP.re(value)) if MP.im(value) == 0 else None


def _rounded(value: Value) -> Value:
    with MP.workprec(_BITS):
        return +value


# ---- from sets and relations


def _interval(low: Value, has_low: bool, high: Value, has_high: bool) -> RealSet:
    ends = tuple(end for end in (low, high) if MP.isfinite(end))
    return RealSet(ends, lambda x: (low < x < high) or (x == low and has_low) or (x == high and has_high))


def _any(sets: Iterable[RealSet | None]) -> RealSet | None:
    known = list(sets)
    if any(each is None for each in known):
        return None
    return RealSet(
        tuple(end for each in known if each for end in each.ends), lambda x: any(s.contains(x) for s in known if s)
    )


def _complement(one: RealSet | None) -> RealSet | None:
    return None if one is None else RealSet(one.ends, lambda x: not one.contains(x))


def _all(sets: Iterable[RealSet | None]) -> RealSet | None:
    return _complement(_any(_complement(each) for each in sets))


def _relation(left: Tree | None, mark: str, right: Tree | None) -> RealSet | None:
    """The solutions of `left mark right`, where that is linear in one unknown or in the size of such a thing."""
    if left is None or right is None:
        return None
    if right[:2] == ("call", "abs"):
        left, mark, right = right, FLIPPED[mark], left
    if left[:2] == ("call", "abs") and _number(right) is not None:
        mirrored = _relation(left[2], FLIPPED[mark], ("neg", right))
        sides = [_relation(left[2], mark, right), mirrored]
        return _any(sides) if mark in (">", "\\ge") else _all(sides)
    symbols = names_in(left, right).symbols
    if len(symbols) != 1:
        return None
    line = _line(("add", left, ("neg", right)), *symbols)
    if line is None:
        return None
    slope, constant = line
    bound = _rounded(-constant / slope)
    mark = FLIPPED[mark] if slope < 0 else mark
    if mark == "\\ne":
        return _complement(RealSet((bound,), lambda x: x == bound))
    ends = (-MP.inf, bound) if mark in ("<", "\\le") else (bound, MP.inf)
    has_bound = mark in ("\\le", "\\ge")
    return _interval(ends[0], has_bound, ends[1], has_bound)


def _line(tree: Tree, name: str) -> tuple[Value, Value] | None:
    """Slope and constant of a tree that is linear in a symbol."""
    at = [inexact(evaluate(_put(tree, name, Fraction(x)))[0][0]) for x in (0, 1, 2, 5)]
    slope = at[1] - at[0]
    if any(MP.im(value) != 0 for value in at) or abs(slope) < MP.ldexp(1, -_BITS):
        return None
    noise = MP.ldexp(max(map(abs, at)) + 1, -_BITS)
    is_line = all(abs(at[n] - at[0] - x * slope) <= noise for n, x in ((2, 2), (3, 5)))
    return (slope, at[0]) if is_line else None


def _put(tree: Tree, name: str, value: Fraction) -> Tree:
    if tree == ("sym", name):
        return ("num", value)
    return tuple(_put(part, name, value) if isinstance(part, tuple) else part for part in tree)
