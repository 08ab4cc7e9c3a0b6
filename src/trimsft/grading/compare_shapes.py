r"""Are a gold and an answer the same: lists, tuples, sets, intervals, matrices, equations, inequalities.

The outer shape is compared here, the values inside by `same_leaf`; both answer True, False or None (cannot tell).

    >>> compare("(1,\\frac{1}{2})", "(1, 0.5)", Rules())
    True
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

from trimsft.grading.answers import Choice, choice_of
from trimsft.grading.clean import clean, key
from trimsft.grading.expression import Tree
from trimsft.grading.rules import Rules
from trimsft.grading.sets import FLIPPED, same_set
from trimsft.grading.shapes import Shape, readings, shape_of
from trimsft.grading.single_values import either, points, same_leaf, same_value, tree_of, tree_readings, word_of
from trimsft.grading.values import (
    TooLarge,
    Undefined,
    Value,
    close,
    computing,
    divided,
    evaluate,
    names_in,
    one_comparison,
)

Verdict: TypeAlias = bool | None

MAX_ITEMS = 64


def compare(gold: str, answer: str, rules: Rules) -> Verdict:
    """Return whether two cleaned texts state the same; None where one cannot be read, or not within the limits."""
    if key(gold) == key(answer):
        return True
    gold, answer = _without_domains(gold, answer)
    with one_comparison():
        verdict = _same_text(gold, answer, rules)
        choices = choice_of(gold), choice_of(answer)
        if not verdict and choices != (None, None):
            chosen = _same_choice(gold, choices[0], answer, choices[1], rules)
            return verdict if chosen is None else chosen
        return verdict


def _same_text(gold: str, answer: str, rules: Rules) -> Verdict:
    return either(_same(shape_of(g), shape_of(a), rules) for g in readings(gold) for a in readings(answer))


def _same_choice(gold: str, wanted: Choice | None, answer: str, said: Choice | None, rules: Rules) -> Verdict:
    """A letter decides where both give one; else what it stands for. None where neither says what a letter means."""
    if wanted and said:
        if wanted.letter != said.letter or wanted.content is None or said.content is None:
            return wanted.letter == said.letter
        return _same_text(clean(wanted.content), clean(said.content), rules)
    contents = wanted.content if wanted else gold, said.content if said else answer
    if contents[0] is None or contents[1] is None:
        return None
    return _same_text(clean(contents[0]), clean(contents[1]), rules)


_KINDS = "real|positive|non-?negative|natural|integer|number|rational|complex"
_EVERY = rf"(?:all|any|every|each)(?: (?:{_KINDS})s?)*"
_DOMAIN = re.compile(
    rf"(?<=.)[,;]?\s*(?:\\forall|\\text\s*\{{\s*(?:(?:for )?{_EVERY}|for|where|with)\s*\}})?"
    r"\s*\(?\s*([a-z])\s*\\in\s*\\mathbb\{([RZNQC])\}\s*\)?$"
    rf"|\s*,?\s*\\text\s*\{{\s*for {_EVERY}\s*\}}\s*[a-z]$"
)
"""The numbers for which a formula is stated, at its end: `k\\in\\mathbb{Z}`, `for all real x`."""
_DESCRIPTION = re.compile(r"_\s*(?:\{\s*)?(?:\\text\s*\{\s*)?\\?[a-z]{3,}[\s}]*")


def _without_domains(gold: str, answer: str) -> tuple[str, str]:
    """Both texts without the domains at their ends, with the same letter for the integer."""
    first, second = _DOMAIN.search(gold), _DOMAIN.search(answer)
    if first and second and first[1] and second[1]:
        if first[2] != second[2]:
            return gold, answer
        if first[1] not in answer:
            answer = re.sub(rf"(?<![A-Za-z\\]){second[1]}(?![A-Za-z])", first[1], answer)
    return _DOMAIN.sub("", gold), _DOMAIN.sub("", answer)


def _same(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    if key(gold.text) == key(answer.text):
        return True
    verdict = _same_shape(gold, answer, rules)
    if verdict or (gold.kind, answer.kind) == ("leaf", "leaf"):
        return verdict
    as_sets = same_set(gold, answer)
    return verdict if as_sets is None else as_sets


def _same_shape(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    if len(gold.parts) > MAX_ITEMS or len(answer.parts) > MAX_ITEMS:
        return None
    kinds = gold.kind, answer.kind
    if "equation" in kinds:
        return _same_equation(gold, answer, rules)
    if kinds == ("leaf", "leaf"):
        return same_leaf(gold.text, answer.text, rules)
    if gold.kind != answer.kind:
        return _different_kinds(gold, answer, rules)
    if gold.kind == "brackets" and len(gold.parts) == 1 == len(answer.parts):
        return _same(gold.parts[0], answer.parts[0], rules)
    if gold.kind == "list" and _names_differ(gold, answer):
        return _in_order(gold, answer, rules)  # x=1, y=2 against 1, 2
    if gold.kind in ("list", "set", "union", "cases"):
        return _same_items(gold.parts, answer.parts, rules)
    if gold.kind == "inequality":
        return _same_inequality(gold, answer, rules)
    if gold.kind == "ratio":
        return _same_ratio(gold, answer, rules)
    return _in_order(gold, answer, rules)  # matrix, ratio, tuple or interval, whose brackets have to be the same


def _in_order(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    if gold.marks != answer.marks or len(gold.parts) != len(answer.parts):
        return False
    return _stop_early(zip(gold.parts, answer.parts, strict=True), rules)


def _same_ratio(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    """2:3 is 4:6. What has a part such as 03 is a time of day, and that as written."""
    if len(gold.parts) != len(answer.parts) or gold.is_time() or answer.is_time():
        return False
    first = gold.parts[0].text, answer.parts[0].text
    pairs = zip(gold.parts[1:], answer.parts[1:], strict=True)
    verdicts = [same_leaf(f"({g.text})*({first[1]})", f"({a.text})*({first[0]})", rules) for g, a in pairs]
    return None if None in verdicts else all(verdicts)


def _stop_early(pairs: zip[tuple[Shape, Shape]], rules: Rules) -> Verdict:
    verdict: Verdict = True
    for one, other in pairs:
        same = _same(one, other, rules)
        if same is False:
            return False
        verdict = None if same is None else verdict
    return verdict


def _different_kinds(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    kinds = {gold.kind, answer.kind}
    if kinds == {"list", "set"}:
        return _same_items(gold.parts, answer.parts, rules)
    if kinds & {"brackets", "union", "list"} and (gold.bounds() or answer.bounds() or kinds == {"list", "union"}):
        as_set = gold.interval(), answer.interval()
        if as_set[0] is None or as_set[1] is None:
            return None
        names = {side.variable() for side in (gold, answer) if side.bounds()}
        return _same(as_set[0], as_set[1], rules) if len(names) <= 1 else False
    if kinds == {"list", "brackets"} and len(gold.parts) == len(answer.parts):
        if ("(", ")") not in (gold.marks, answer.marks):
            return False  # two numbers are no interval
        if any(len(set(_names(side))) < len(_names(side)) for side in (gold, answer)):
            return False  # x = 1, x = 2 are two values and no point
        return _stop_early(zip(_point(gold), _point(answer), strict=True), rules)  # brackets left out
    if kinds == {"leaf", "brackets"} or kinds == {"leaf", "set"}:
        group, other = (answer, gold) if gold.kind == "leaf" else (gold, answer)
        if len(group.parts) != 1:
            return False
        if group.kind == "set" and key(other.text) == "\\emptyset":
            return group.parts[0].text == ""  # a set that holds the empty one is not empty
        return _same(group.parts[0], other, rules) if group is gold else _same(other, group.parts[0], rules)
    if kinds == {"ratio", "clock"}:
        return all(g.text == a.text for g, a in zip(gold.parts, answer.parts, strict=False))
    if "ratio" in kinds and "leaf" in kinds:
        gold_text, answer_text = (shape.as_fraction() for shape in (gold, answer))
        return same_leaf(gold_text, answer_text, rules) if gold_text and answer_text else False
    if "inequality" in kinds or "matrix" in kinds:
        return None if kinds & {"leaf", "set"} and not _plain(gold, answer) else False
    return False


def _names(shape: Shape) -> list[str]:
    return [key(part.parts[0].text) for part in shape.parts if part.kind == "equation"]


def _point(shape: Shape) -> tuple[Shape, ...]:
    """The parts of a point, where `y = 1, x = 2` is (2, 1)."""
    names = _names(shape)
    if len(names) < len(shape.parts) or not set(names) <= set("xyz"):
        return shape.parts
    return tuple(sorted(shape.parts, key=lambda part: key(part.parts[0].text)))


def _plain(gold: Shape, answer: Shape) -> bool:
    """Whether the leaf of the two is an expression or a word, which no inequality or matrix can equal."""
    text = gold.text if gold.kind == "leaf" else answer.text
    return word_of(text) is not None or tree_of(text) is not None


def _names_differ(gold: Shape, answer: Shape) -> bool:
    """Whether one list names different unknowns and the other gives values alone."""
    names = [{key(part.parts[0].text) for part in side.parts if part.kind == "equation"} for side in (gold, answer)]
    return min(map(len, names)) == 0 and max(map(len, names)) > 1


def _same_items(gold: Sequence[Shape], answer: Sequence[Shape], rules: Rules) -> Verdict:
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
        verdicts = [(_same(item, other, rules), at) for at, other in enumerate(left)]
        match = next((at for same, at in verdicts if same), None)
        if match is not None:
            del left[match]
        elif all(same is False for same, _ in verdicts):
            return False
        else:
            verdict = None
    return verdict


def _same_equation(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    """`x=5` is `5`; two equations are the same when one is a multiple of the other."""
    if answer.kind == "equation" and len(answer.parts) > 2 and answer.contradicts_itself():
        return False  # math-verify would take the last part, whatever stands before it
    if gold.kind == answer.kind == "equation":
        if len(gold.parts) + len(answer.parts) > 4:
            same_thing = gold.names_a_value() and answer.names_a_value() and gold.starts_like(answer)
            return same_thing and _same(gold.parts[-1], answer.parts[-1], rules)
        if gold.names_a_value() and _same_name(gold.parts[0].text, answer.parts[0].text):
            return _same(gold.parts[1], answer.parts[1], rules)
        return _multiple(gold, answer)
    equation, other = (gold, answer) if gold.kind == "equation" else (answer, gold)
    if (values := equation.values()) == ():
        return False if other.kind == "leaf" else None
    return either(_same(value, answer, rules) if equation is gold else _same(gold, value, rules) for value in values)


def _same_name(gold: str, answer: str) -> bool:
    r"""Whether two names are the same, where one may leave out a word: `m` and `m_{\max}`, not `m_{\min}`."""
    pairs = (gold, answer), (_DESCRIPTION.sub("", gold), answer), (gold, _DESCRIPTION.sub("", answer))
    return any(same_value(*pair, Rules()) for pair in pairs)


def _multiple(gold: Shape, answer: Shape) -> Verdict:
    """Whether (left - right) of one equation is a constant multiple of the other's; a tolerance would hide terms."""
    trees = [tree_of(f"({side.parts[0].text})-({side.parts[1].text})") for side in (gold, answer)]
    if trees[0] is None or trees[1] is None:
        return None
    return either(_constant_ratio(*pair) for pair in tree_readings(trees[0], trees[1]))


def _constant_ratio(gold: Tree, answer: Tree) -> Verdict:
    ratios, firsts = [], []
    for point, kind in points(names_in(gold, answer)):
        try:
            (first, second), precision = evaluate(gold, answer, point=point, kind=kind)
        except TooLarge:
            return None
        except Undefined:
            continue
        if not first or not second:
            return None if first == second else False
        firsts.append((first, precision))
        with computing(precision):
            ratios.append((divided(first, second), precision))
    if len(ratios) < 2 or _all_close(firsts):
        return None  # nothing was varied: 1 = 0 is not 2 = 0
    return _all_close(ratios)


def _all_close(values: list[tuple[Value, int]]) -> bool:
    (first, precision), *others = values
    return all(close(first, other, min(precision, enough)) for other, enough in others)


def _same_inequality(gold: Shape, answer: Shape, rules: Rules) -> Verdict:
    """The same chain, read from the left or from the right, or the same interval."""
    if _in_order(gold, answer, rules):
        return True
    marks = tuple(FLIPPED.get(mark, mark) for mark in reversed(answer.marks))
    if _in_order(gold, Shape("inequality", answer.text[::-1], answer.parts[::-1], marks), rules):
        return True
    intervals = gold.interval(), answer.interval()
    if intervals[0] is None or intervals[1] is None or gold.variable() != answer.variable():
        return None
    return _same(intervals[0], intervals[1], rules)
