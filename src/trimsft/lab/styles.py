"""How a solution is written: six styles that the base model knows, and one that it has never seen.

`steps`, the format of fine-tuning:          `arrows`, the unfamiliar one:

    Step 1: 7 + 5 = 12.                          [7 + 5 -> 12] [12 * 3 -> 36] => \\boxed{36}
    Step 2: 12 * 3 = 36.
    The answer is \\boxed{36}.

A solution may contain slips, wrong results that the following steps carry on with, and filler, sentences that say
nothing. `Solution` knows where they stand.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from trimsft.errors import UsageError
from trimsft.lab.arithmetic import LabProblem, Step, follow
from trimsft.options import unknown_name

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Style:
    """Patterns of a step and of the end; {result} occurs once in a step."""

    steps: dict[str, str]  # operator -> pattern with {number}, {left}, {right} and {result}
    end: str  # pattern with {answer}
    between: str  # what stands between steps
    first: str = ""  # what stands before the first step


def _alike(pattern: str) -> dict[str, str]:
    """Return one pattern for all operators, whose sign stands at {operator}."""
    return {operator: pattern.replace("{operator}", operator) for operator in "+-*/"}


EQUATION = "{left} {operator} {right} = {result}"
STYLES: dict[str, Style] = {
    "steps": Style(
        steps=_alike(f"Step {{number}}: {EQUATION}."), between="\n", end="\nThe answer is \\boxed{{{answer}}}."
    ),
    "prose": Style(
        steps=_alike(f"{EQUATION}."), first="First, ", between=" Then, ", end=" So we get \\boxed{{{answer}}}."
    ),
    "lines": Style(steps=_alike(EQUATION), between="\n", end="\n= \\boxed{{{answer}}}"),
    "words": Style(
        steps={
            "+": "Adding {right} to {left} gives {result}.",
            "-": "Taking {right} from {left} gives {result}.",
            "*": "Multiplying {left} by {right} gives {result}.",
            "/": "Dividing {left} by {right} gives {result}.",
        },
        between=" ",
        end=" Therefore the result is \\boxed{{{answer}}}.",
    ),
    "bullets": Style(
        steps=_alike("- {left} {operator} {right} is {result}"), between="\n", end="\nFinal: \\boxed{{{answer}}}"
    ),
    "plain": Style(steps=_alike(EQUATION), first="We have ", between=", ", end=". Answer: {answer}"),
    "arrows": Style(
        steps=_alike("[{left} {operator} {right} -> {result}]"), between=" ", end=" => \\boxed{{{answer}}}"
    ),
}
TARGET = "steps"  # the format of fine-tuning
UNFAMILIAR = "arrows"  # the format that pre-training never shows
FAMILIAR = tuple(name for name in STYLES if name != UNFAMILIAR)

FILLER = (
    "Let us go on.",
    "This is easy to see.",
    "We keep this number in mind.",
    "Numbers are useful.",
    "So far so good.",
)

NEAR = {1: 4, -1: 4, 10: 1, -10: 1}
"""Slips of the base's own kind, with how often each is made: off by one, sometimes by ten."""
FAR = {offset: 1 for size in range(2, 20) for offset in (size, -size) if size != 10}
"""Slips of a careless author: off by anything else."""


@dataclass(frozen=True)
class Solution:
    """A written solution, and where it was spoilt (spans of characters)."""

    text: str
    style: str
    answer: str  # what it arrives at
    slips: tuple[Span, ...] = ()  # the wrong results; what follows from them is not listed
    fillers: tuple[Span, ...] = ()


def write_solution(
    problem: LabProblem,
    style: str,
    rng: random.Random | None = None,
    *,
    slip_rate: float = 0.0,
    offsets: dict[int, int] = NEAR,
    filler_rate: float = 0.0,
    slips_from: int = 0,
) -> Solution:
    """Write the solution in a style; each step slips, and is followed by filler, with the given probabilities.

    No step before `slips_from` slips.
    """
    if style not in STYLES:
        raise unknown_name("style", style, STYLES)
    form, rng = STYLES[style], rng or random.Random(problem.problem)
    results, slipped = draw_results(problem, rng, slip_rate, offsets, slips_from)
    text, left, slips, fillers = form.first, problem.start, [], []
    for index, (step, result) in enumerate(zip(problem.steps, results, strict=True)):
        before, after = form.steps[step.operator].split("{result}")
        text += form.between if index else ""
        text += before.format(number=index + 1, left=left, right=step.operand)
        if index in slipped:
            slips.append((len(text), len(text) + len(str(result))))
        text += f"{result}{after}"
        if filler_rate and rng.random() < filler_rate:
            text += " "
            filler = rng.choice(FILLER)
            fillers.append((len(text), len(text) + len(filler)))
            text += filler
        left = result
    return Solution(text + form.end.format(answer=left), style, str(left), tuple(slips), tuple(fillers))


def draw_results(
    problem: LabProblem, rng: random.Random, slip_rate: float, offsets: dict[int, int], slips_from: int = 0
) -> tuple[tuple[int, ...], frozenset[int]]:
    """Return the value after each step as written, and which steps slipped; the author goes on from a slip."""
    results: list[int] = []
    slipped = set()
    value = problem.start
    for index, step in enumerate(problem.steps):
        value = step.apply(value)
        if slip_rate and index >= slips_from and rng.random() < slip_rate:
            wrong = [value + offset for offset in offsets]
            later = problem.steps[index + 1 :]
            ways = [times if _can_follow(v, later) else 0 for v, times in zip(wrong, offsets.values(), strict=True)]
            if any(ways):
                value = rng.choices(wrong, ways)[0]
                slipped.add(index)
        results.append(value)
    return tuple(results), frozenset(slipped)


def _can_follow(value: int, steps: Sequence[Step]) -> bool:
    """Return whether the remaining steps are possible from here: whole and positive all the way."""
    try:
        return value > 0 and all(result > 0 for result in follow(value, tuple(steps)))
    except UsageError:
        return False
