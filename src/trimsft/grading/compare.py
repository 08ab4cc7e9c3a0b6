r"""Are a gold and an answer the same: lists, tuples, sets, intervals, matrices, equations, inequalities.

The outer shape is compared here; the values inside by a `leaf` function, which answers True, False
or None (cannot tell). The result has the same three values.

    >>> from trimsft.grading.leaves import same_leaf
    >>> compare("(1,\\frac{1}{2})", "(1, 0.5)", Rules(), same_leaf)
    True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from trimsft.grading.expression import Tree
from trimsft.grading.leaves import close, either, points, tree_of, tree_readings, word_of
from trimsft.grading.normalize import key
from trimsft.grading.rules import Rules
from trimsft.grading.shapes import Shape, readings, shape_of
from trimsft.grading.values import Evaluation, TooLarge, Undefined, divided, kinds_of

Verdict: TypeAlias = bool | None
Leaf: TypeAlias = Callable[[str, str, Rules], Verdict]

MAX_ITEMS = 64


def compare(gold: str, answer: str, rules: Rules, leaf: Leaf) -> Verdict:
    """Whether two cleaned texts state the same; None where nobody could tell."""
    if key(gold) == key(answer):
        return True
    context = _Context(rules, leaf)
    return either(_same(shape_of(g), shape_of(a), context) for g in readings(gold) for a in readings(answer))


@dataclass(frozen=True)
class _Context:
    rules: Rules
    leaf: Leaf


def _same(gold: Shape, answer: Shape, ctx: _Context) -> Verdict:
    if key(gold.text) == key(answer.text):
        return True
    if len(gold.parts) > MAX_ITEMS or len(answer.parts) > MAX_ITEMS:
        return None
    kinds = gold.kind, answer.kind
    if "equation" in kinds:
        return _same_equation(gold, answer, ctx)
    if kinds == ("leaf", "leaf"):
        return ctx.leaf(gold.text, answer.text, ctx.rules)
    if gold.kind != answer.kind:
        return _different_kinds(gold, answer, ctx)
    if gold.kind == "brackets" and len(gold.parts) == 1 == len(answer.parts):
        return _same(gold.parts[0], answer.parts[0], ctx)
    if gold.kind == "list" and _names_differ(gold, answer):
        return _in_order(gold, answer, ctx)  # x=1, y=2 against 1, 2
    if gold.kind in ("list", "set", "union"):
        return _same_items(gold.parts, answer.parts, ctx)
    if gold.kind == "inequality":
        return _same_inequality(gold, answer, ctx)
    return _in_order(gold, answer, ctx)  # matrix, ratio, tuple or interval, whose brackets have to be the same


def _in_order(gold: Shape, answer: Shape, ctx: _Context) -> Verdict:
    if gold.marks != answer.marks or len(gold.parts) != len(answer.parts):
        return False
    return _stop_early(zip(gold.parts, answer.parts, strict=True), ctx)


def _stop_early(pairs: zip[tuple[Shape, Shape]], ctx: _Context) -> Verdict:
    verdict: Verdict = True
    for one, other in pairs:
        same = _same(one, other, ctx)
        if same is False:
            return False
        verdict = None if same is None else verdict
    return verdict


def _different_kinds(gold: Shape, answer: Shape, ctx: _Context) -> Verdict:
    kinds = {gold.kind, answer.kind}
    if kinds == {"list", "set"}:
        return _same_items(gold.parts, answer.parts, ctx)
    if kinds & {"brackets", "union", "list"} and (gold.bounds() or answer.bounds() or kinds == {"list", "union"}):
        as_set = gold.interval(), answer.interval()
        if as_set[0] is None or as_set[1] is None:
            return None
        names = {side.variable() for side in (gold, answer) if side.bounds()}
        return _same(as_set[0], as_set[1], ctx) if len(names) <= 1 else False
    if kinds == {"list", "brackets"} and len(gold.parts) == len(answer.parts):
        return _stop_early(zip(gold.parts, answer.parts, strict=True), ctx)  # brackets left out
    if kinds == {"leaf", "brackets"} or kinds == {"leaf", "set"}:
        group, other = (answer, gold) if gold.kind == "leaf" else (gold, answer)
        if len(group.parts) != 1:
            return False
        if group.kind == "set" and key(other.text) == "\\emptyset":
            return group.parts[0].text == ""  # a set that holds the empty one is not empty
        return _same(group.parts[0], other, ctx) if group is gold else _same(other, group.parts[0], ctx)
    if "ratio" in kinds and "leaf" in kinds:
        gold_text, answer_text = (shape.as_fraction() for shape in (gold, answer))
        return ctx.leaf(gold_text, answer_text, ctx.rules) if gold_text and answer_text else False
    if "inequality" in kinds or "matrix" in kinds:
        return None if kinds & {"leaf", "set"} and not _plain(gold, answer) else False
    return False


def _plain(gold: Shape, answer: Shape) -> bool:
    """Whether the leaf of the two is a number or a word, which no inequality or matrix can equal."""
    text = gold.text if gold.kind == "leaf" else answer.text
    tree = tree_of(text)
    return word_of(text) is not None or (tree is not None and not kinds_of(tree))


def _names_differ(gold: Shape, answer: Shape) -> bool:
    """Whether one list names different unknowns and the other gives values alone."""
    names = [{key(part.parts[0].text) for part in side.parts if part.kind == "equation"} for side in (gold, answer)]
    return min(map(len, names)) == 0 and max(map(len, names)) > 1


def _same_items(gold: Sequence[Shape], answer: Sequence[Shape], ctx: _Context) -> Verdict:
    """In any order, each item as often on both sides."""
    if len(gold) != len(answer):
        return False
    left = list(answer)
    unsure: list[Shape] = []
    for item in gold:
        exact = next((other for other in left if key(other.text) == key(item.text)), None)
        if exact is None:
            unsure.append(item)
        else:
            left.remove(exact)
    verdict: Verdict = True
    for item in unsure:
        verdicts = [(_same(item, other, ctx), at) for at, other in enumerate(left)]
        match = next((at for same, at in verdicts if same), None)
        if match is not None:
            del left[match]
        elif all(same is False for same, _ in verdicts):
            return False
        else:
            verdict = None
    return verdict


def _same_equation(gold: Shape, answer: Shape, ctx: _Context) -> Verdict:
    """`x=5` is `5`; two equations are the same when one is a multiple of the other."""
    if answer.kind == "equation" and len(answer.parts) > 2 and answer.contradicts_itself():
        return False  # math-verify would take the last part, whatever stands before it
    if gold.kind == answer.kind == "equation":
        if len(gold.parts) == 2 == len(answer.parts):
            if key(gold.parts[0].text) == key(answer.parts[0].text) and gold.names_a_value():
                return _same(gold.parts[1], answer.parts[1], ctx)
            multiple = _multiple(gold, answer, ctx.rules)
            if multiple is not None:
                return multiple
        return None
    equation, other = (gold, answer) if gold.kind == "equation" else (answer, gold)
    if not equation.names_a_value():
        return False if other.kind == "leaf" else None
    return _same(gold.parts[-1], answer, ctx) if equation is gold else _same(gold, answer.parts[-1], ctx)


def _multiple(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    """Whether (left - right) of one equation is a constant multiple of the other's."""
    trees = [tree_of(f"({side.parts[0].text})-({side.parts[1].text})") for side in (gold, answer)]
    if trees[0] is None or trees[1] is None:
        return None
    return either(_constant_ratio(*pair, rules) for pair in tree_readings(trees[0], trees[1]))


def _constant_ratio(gold: Tree, answer: Tree, rules: Rules) -> Verdict:
    ratios = []
    for point, kind in points(kinds_of(gold) | kinds_of(answer)):
        at = Evaluation(point, kind)
        try:
            first, second = at(gold), at(answer)
        except TooLarge:
            return None
        except Undefined:
            continue
        if not first or not second:
            return None if first == second else False
        ratios.append(divided(first, second))
    if len(ratios) < 2:
        return None
    return all(close(ratios[0], ratio, rules.tolerance or 0.0, 0.0, Fraction(0)) for ratio in ratios[1:])


_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le", "\\ne": "\\ne"}


def _same_inequality(gold: Shape, answer: Shape, ctx: _Context) -> Verdict:
    """The same chain, read from the left or from the right, or the same interval."""
    if _in_order(gold, answer, ctx):
        return True
    marks = tuple(_FLIPPED.get(mark, mark) for mark in reversed(answer.marks))
    if _in_order(gold, Shape("inequality", answer.text[::-1], answer.parts[::-1], marks), ctx):
        return True
    intervals = gold.interval(), answer.interval()
    if intervals[0] is None or intervals[1] is None or gold.variable() != answer.variable():
        return None
    return _same(intervals[0], intervals[1], ctx)
