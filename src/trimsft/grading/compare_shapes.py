r"""Compare the outer shapes of a gold and an answer: lists, tuples, sets, intervals, matrices, equations, inequalities.

The values inside are compared by `same_leaf`.

    >>> compare("(1,\\frac{1}{2})", "(1, 0.5)", Rules())
    True
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimsft.grading.answers import Choice, choice_of
from trimsft.grading.clean import clean, key
from trimsft.grading.expression import Tree
from trimsft.grading.rules import Rules
from trimsft.grading.sets import same_set
from trimsft.grading.shapes import LETTER, Shape, readings, shape_of
from trimsft.grading.single_values import points, same_leaf, same_value, tree_of, word_of
from trimsft.grading.units import split_unit
from trimsft.grading.values import TooLarge, Undefined, close, computing, divided, evaluate, names_in, one_comparison

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
    if key(gold) == key(answer):
        return True
    ends = (_DOMAIN.search(text) for text in (gold, answer))
    (one, reals), (other, numbers) = (match.groups() if match else (None, None) for match in ends)
    if not (one and other) or reals == numbers:
        if one and other and one not in answer:  # the same letter for the integer
            answer = re.sub(rf"(?<![A-Za-z\\]){other}(?![A-Za-z])", one, answer)
        gold, answer = _DOMAIN.sub("", gold), _DOMAIN.sub("", answer)
    with one_comparison():
        if _same_text(gold, answer, rules):
            return True
        return _same_choice(gold, choice_of(gold), answer, choice_of(answer), rules)


def is_readable(text: str) -> bool:
    """Return whether all values of a cleaned answer are expressions, quantities or words."""

    def is_known(shape: Shape) -> bool:
        if shape.parts:
            return all(map(is_known, shape.parts))
        return word_of(shape.text) is not None or tree_of(split_unit(shape.text)[0]) is not None

    return any(is_known(shape_of(reading)) for reading in readings(text))


def _same_text(gold: str, answer: str, rules: Rules) -> bool:
    return any(_same(shape_of(g), shape_of(a), rules) for g in readings(gold) for a in readings(answer))


def _same_choice(gold: str, wanted: Choice | None, answer: str, said: Choice | None, rules: Rules) -> bool:
    """Compare letters where both give one; else what they stand for, where that is said."""
    if wanted is None and said is None:
        return False
    contents = wanted.content if wanted else gold, said.content if said else answer
    if wanted and said and (wanted.letter != said.letter or None in contents):
        return wanted.letter == said.letter
    if contents[0] is None or contents[1] is None:
        return False
    return _same_text(clean(contents[0]), clean(contents[1]), rules)


def _same(gold: Shape, answer: Shape, rules: Rules) -> bool:
    if key(gold.text) == key(answer.text) or _same_shape(gold, answer, rules):
        return True
    return gold.kind + answer.kind != "leafleaf" and same_set(gold, answer)


def _same_shape(gold: Shape, answer: Shape, rules: Rules) -> bool:
    kinds = gold.kind, answer.kind
    if max(len(gold.parts), len(answer.parts)) > MAX_ITEMS:
        return False
    if "equation" in kinds:
        return _same_equation(gold, answer, rules)
    if kinds == ("leaf", "leaf"):
        return same_leaf(gold.text, answer.text, rules)
    if gold.kind != answer.kind:
        return _same_across_kinds(gold, answer, rules)
    names = [len(set(_names(side))) for side in (gold, answer)]
    if gold.kind == "list" and min(names) == 0 and max(names) > 1:
        return _in_order(gold, answer, rules)  # x=1, y=2 against 1, 2
    if gold.kind in ("list", "set", "union", "cases"):
        return _same_items(gold.parts, answer.parts, rules)
    return _in_order(gold, answer, rules)  # tuple or interval, whose brackets have to be the same, matrix, inequality


def _same_across_kinds(gold: Shape, answer: Shape, rules: Rules) -> bool:
    kinds = {gold.kind, answer.kind}
    if kinds == {"list", "set"}:
        return _same_items(gold.parts, answer.parts, rules)
    if kinds == {"inequality", "brackets"}:
        chain, interval = (gold, answer) if gold.kind == "inequality" else (answer, gold)
        marks = {"<": "(", "\\le": "["}.get(chain.marks[0]), {"<": ")", "\\le": "]"}.get(chain.marks[-1])
        if len(chain.parts) != 3 or marks != interval.marks or not LETTER.fullmatch(chain.parts[1].text):
            return False
        ends = chain.parts[0], chain.parts[2]  # a < x < b, whatever a and b are
        return _all_same(ends, interval.parts, rules) if chain is gold else _all_same(interval.parts, ends, rules)
    if kinds == {"list", "brackets"}:
        if ("(", ")") not in (gold.marks, answer.marks):
            return False  # two numbers are no interval
        if any(len(set(_names(side))) < len(_names(side)) for side in (gold, answer)):
            return False  # x = 1, x = 2 are two values and no point
        return _all_same(_point(gold), _point(answer), rules)  # brackets left out
    if kinds in ({"leaf", "brackets"}, {"leaf", "set"}):
        group, other = (answer, gold) if gold.kind == "leaf" else (gold, answer)
        if len(group.parts) != 1:
            return False
        if group.kind == "set" and key(other.text) == "\\emptyset":
            return group.parts[0].text == ""  # a set that holds the empty one is not empty
        return _same(group.parts[0], other, rules) if group is gold else _same(other, group.parts[0], rules)
    return False


def _in_order(gold: Shape, answer: Shape, rules: Rules) -> bool:
    return gold.marks == answer.marks and _all_same(gold.parts, answer.parts, rules)


def _all_same(gold: Sequence[Shape], answer: Sequence[Shape], rules: Rules) -> bool:
    return len(gold) == len(answer) and all(_same(g, a, rules) for g, a in zip(gold, answer, strict=True))


def _same_items(gold: Sequence[Shape], answer: Sequence[Shape], rules: Rules) -> bool:
    """Compare items in any order, each as often on both sides."""
    if len(gold) != len(answer):
        return False
    left, others = list(answer), []
    for item in gold:  # equal texts first: one item may equal several
        exact = next((other for other in left if key(other.text) == key(item.text)), None)
        others.append(item) if exact is None else left.remove(exact)
    for item in others:
        match = next((other for other in left if _same(item, other, rules)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _names(shape: Shape) -> list[str]:
    return [key(part.parts[0].text) for part in shape.parts if part.kind == "equation"]


def _point(shape: Shape) -> tuple[Shape, ...]:
    """Return the parts of a point, where `y = 1, x = 2` is (2, 1)."""
    names = _names(shape)
    if len(names) < len(shape.parts) or not set(names) <= set("xyz"):
        return shape.parts
    return tuple(sorted(shape.parts, key=lambda part: key(part.parts[0].text)))


# ---- equations


def _same_equation(gold: Shape, answer: Shape, rules: Rules) -> bool:
    """Compare `x=5` and `5`; two equations are the same when one is a multiple of the other."""
    if answer.kind == "equation" and len(answer.parts) > 2 and answer.contradicts_itself():
        return False
    if gold.kind != answer.kind:
        equation, other = (gold, answer) if gold.kind == "equation" else (answer, gold)
        pairs = ((value, other) if equation is gold else (other, value) for value in equation.values())
        return any(_same(*pair, rules) for pair in pairs)
    if len(gold.parts) + len(answer.parts) > 4:
        same_thing = gold.names_a_value() and answer.names_a_value() and gold.starts_like(answer)
        return same_thing and _same(gold.parts[-1], answer.parts[-1], rules)
    if gold.names_a_value() and _same_name(gold.parts[0].text, answer.parts[0].text):
        return _same(gold.parts[1], answer.parts[1], rules)
    one, two = (tree_of(f"({side.parts[0].text})-({side.parts[1].text})") for side in (gold, answer))
    return one is not None and two is not None and _has_constant_ratio(one, two)


def _same_name(gold: str, answer: str) -> bool:
    r"""Compare two names, of which one may leave out a word: `m` and `m_{\max}`, not `m_{\min}`."""
    pairs = (gold, answer), (_DESCRIPTION.sub("", gold), answer), (gold, _DESCRIPTION.sub("", answer))
    return any(same_value(*pair, Rules()) for pair in pairs)


def _has_constant_ratio(gold: Tree, answer: Tree) -> bool:
    """Return whether one difference of sides is a multiple of the other; a tolerance would hide small terms."""
    ratios, firsts = [], []
    for point, kind in points(names_in(gold, answer)):
        try:
            (first, second), precision = evaluate(gold, answer, point=point, kind=kind)
        except TooLarge:
            return False
        except Undefined:
            continue
        if not first or not second:
            return False
        with computing(precision):
            ratios.append((divided(first, second), precision))
        firsts.append((first, precision))
    differ = [
        any(not close(values[0][0], value, min(values[0][1], precision)) for value, precision in values[1:])
        for values in (firsts, ratios)
    ]
    return differ == [True, False]  # where nothing was varied, 1 = 0 is not 2 = 0
