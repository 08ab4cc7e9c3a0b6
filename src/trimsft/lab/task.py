"""The task of the lab: a number, a few steps with small whole numbers, one answer; and the files made of it.

    LabProblem("lab-easy-0", "lab-easy", "Start with 7. Add 5. Multiply by 3. What is the result?",
               start=7, steps=(Step("+", 5), Step("*", 3)))          # .results (12, 36), .answer "36"

Problems are drawn from seeded streams without end. Which arithmetic belongs to benchmarks and which to training is
decided by a hash of the numbers and operations, whatever words they are dressed in: no stream can cross over.

A row of training says what was done to it; spans are of characters in the solution. Slips are wrong results that the
following steps carry on with, fillers are sentences that say nothing:

    {"problem": "Start with 7. Add 5. ...", "solution": "Step 1: 7 + 5 = 13.\\n...", "answer": "36", "tier": "lab-easy",
     "style": "steps", "slips": 1, "slip_spans": [[16, 18]], "fillers": 0, "filler_spans": []}
"""

import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trimsft.errors import UsageError
from trimsft.lab.wording import FILLER, STYLES, TARGET, UNFAMILIAR, word_problem
from trimsft.options import check_options, option, unknown_name
from trimsft.runs.files import write_whole

Side = Literal["training", "benchmark"]
Span = tuple[int, int]
BENCHMARK_COUNT = 100
LARGEST_FACTOR = 9
NEAR = {1: 4, -1: 4, 10: 1, -10: 1}  # slips of the base's own kind, and how often each is made
FAR = {offset: 1 for size in range(2, 20) for offset in (size, -size) if size != 10}  # those of a careless author


# ---- problems


@dataclass(frozen=True)
class Step:
    """One operation: `+`, `-`, `*` or `/`, and the number it takes."""

    operator: str
    operand: int

    def apply(self, value: int) -> int:
        """Return the result; a division must leave nothing over."""
        if self.operator == "/":
            if rest := value % self.operand:
                raise UsageError(f"{value} / {self.operand} leaves {rest}; divisions must be exact", field="step")
            return value // self.operand
        if self.operator == "+":
            return value + self.operand
        return value - self.operand if self.operator == "-" else value * self.operand


@dataclass(frozen=True)
class Tier:
    """The difficulty of the problems of a benchmark are."""

    fewest_steps: int
    most_steps: int
    largest: int  # no value on the way exceeds it
    largest_term: int  # no number added or subtracted exceeds it
    story_share: float  # share of word problems; the others are bare chains


TIERS = {  # those of the base's own training
    "lab-easy": Tier(2, 2, 50, 20, story_share=0.25),
    "lab-medium": Tier(3, 3, 99, 50, story_share=0.5),
    "lab-hard": Tier(4, 5, 199, 99, story_share=0.75),
}
LONG = "lab-long"
ALL_TIERS = TIERS | {LONG: Tier(7, 8, 99, 50, story_share=0.25)}  # chains longer than any that the base has seen


@dataclass(frozen=True)
class LabProblem:
    """A problem in words, and the computation behind it."""

    id: str
    tier: str
    problem: str
    start: int
    steps: tuple[Step, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """Return the value after each step."""
        return follow(self.start, self.steps)

    @property
    def answer(self) -> str:
        return str(self.results[-1])


def follow(start: int, steps: Sequence[Step]) -> tuple[int, ...]:
    """Return the value after each step, from `start` on."""
    return tuple(itertools.accumulate(steps, lambda value, step: step.apply(value), initial=start))[1:]


def side_of(start: int, steps: Sequence[Step]) -> Side:
    """Return the side that a computation belongs to, for good: one in eight to the benchmarks."""
    text = f"{start}" + "".join(f" {step.operator}{step.operand}" for step in steps)
    return "training" if hashlib.sha256(text.encode()).digest()[0] % 8 else "benchmark"


def draw_problems(tier: str, seed: int | str, side: Side) -> Iterator[LabProblem]:
    """Yield problems of a tier without end, the same ones for the same seed; some may repeat."""
    if tier not in ALL_TIERS:
        raise unknown_name("tier", tier, ALL_TIERS)
    level, rng, number = ALL_TIERS[tier], random.Random(f"{tier}/{side}/{seed}"), 0
    while True:
        start, steps = _draw_computation(level, rng)
        if side_of(start, steps) == side:
            operations = [(step.operator, step.operand) for step in steps]
            text = word_problem(start, operations, level.story_share, rng)
            yield LabProblem(f"{tier}-{number}", tier, text, start, steps)
            number += 1


def _draw_computation(tier: Tier, rng: random.Random) -> tuple[int, tuple[Step, ...]]:
    """Draw steps that keep the value whole and between 1 and the tier's largest; each operator equally often."""
    value = start = rng.randint(2, tier.largest_term)
    steps: list[Step] = []
    for _ in range(rng.randint(tier.fewest_steps, tier.most_steps)):
        choices = {
            "+": range(1, min(tier.largest_term, tier.largest - value) + 1),
            "-": range(1, min(tier.largest_term, value - 1) + 1),
            "*": range(2, min(LARGEST_FACTOR, tier.largest // value) + 1),
            "/": [divisor for divisor in range(2, LARGEST_FACTOR + 1) if value % divisor == 0],
        }
        operator = rng.choice([name for name, operands in choices.items() if operands])
        steps.append(Step(operator, rng.choice(choices[operator])))
        value = steps[-1].apply(value)
    return start, tuple(steps)


def benchmark(tier: str, count: int = BENCHMARK_COUNT) -> list[LabProblem]:
    """Return the problems of a benchmark, all different; a longer one begins with the shorter."""
    seen: dict[str, LabProblem] = {}
    for problem in draw_problems(tier, "benchmark", "benchmark"):
        if len(seen) >= count:
            break
        seen.setdefault(problem.problem, problem)
    return [replace(problem, id=f"{tier}-{number}") for number, problem in enumerate(seen.values())]


# ---- solutions


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
    """Write the solution in a style; each step, from `slips_from` on, slips at a rate, or is followed by filler."""
    form, rng = STYLES[style], rng or random.Random(problem.problem)
    values, slipped = [problem.start], set[int]()
    for index, step in enumerate(problem.steps):
        values.append(step.apply(values[-1]))
        if slip_rate and index >= slips_from and rng.random() < slip_rate:
            wrong = [values[-1] + offset for offset in offsets]
            later = problem.steps[index + 1 :]
            ways = [times if _can_follow(v, later) else 0 for v, times in zip(wrong, offsets.values(), strict=True)]
            if any(ways):
                values[-1] = rng.choices(wrong, ways)[0]
                slipped.add(index)
    text, slips, fillers = form.first, [], []
    for index, (step, left, result) in enumerate(zip(problem.steps, values, values[1:], strict=False)):
        before, after = form.steps[step.operator].split("{result}")
        text += form.between if index else ""
        text += before.format(number=index + 1, left=left, right=step.operand)
        if index in slipped:
            slips.append((len(text), len(text) + len(str(result))))
        text += f"{result}{after}"
        if filler_rate and rng.random() < filler_rate:
            filler = rng.choice(FILLER)
            fillers.append((len(text) + 1, len(text) + 1 + len(filler)))
            text += f" {filler}"
    return Solution(text + form.end.format(answer=values[-1]), style, str(values[-1]), tuple(slips), tuple(fillers))


def _can_follow(value: int, steps: Sequence[Step]) -> bool:
    """Return whether the remaining steps are possible from here: whole and positive all the way."""
    try:
        return value > 0 and all(result > 0 for result in follow(value, steps))
    except UsageError:
        return False


# ---- files


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """A fine-tuning set and its imperfections."""

    rows: int = option(1200, help="Rows of the set.", least=1)
    seed: int = 0
    slip_rate: float = option(0.05, help="Chance of a step to end in a wrong result, carried on.", least=0, most=1)
    filler_rate: float = option(0.1, help="Chance of a step to be followed by an empty phrase.", least=0, most=1)
    unfamiliar_share: float = option(0.0, help="Share of solutions in a format new to the base.", least=0, most=1)
    tiers: tuple[str, ...] = tuple(TIERS)  # drawn from equally often

    def __post_init__(self) -> None:
        check_options(self)


def training_rows(settings: FineTuning) -> Iterator[dict[str, Any]]:
    """Yield the rows of a fine-tuning set.

    Problem, style, slips and filler are drawn apart: sets that differ in one setting have the same problems.
    """
    streams = {tier: draw_problems(tier, f"fine-tuning/{settings.seed}", "training") for tier in settings.tiers}
    rng = random.Random(f"fine-tuning/{settings.seed}")
    for number in range(settings.rows):
        problem = next(streams[rng.choice(settings.tiers)])
        style = UNFAMILIAR if rng.random() < settings.unfamiliar_share else TARGET
        row_rng = random.Random(f"fine-tuning/{settings.seed}/{number}")
        slip_rate, filler_rate = settings.slip_rate, settings.filler_rate
        solution = write_solution(problem, style, row_rng, slip_rate=slip_rate, offsets=FAR, filler_rate=filler_rate)
        yield {
            "problem": problem.problem,
            "solution": solution.text,
            "answer": problem.answer,
            "tier": problem.tier,
            "style": style,
            "slips": len(solution.slips),
            "slip_spans": [list(span) for span in solution.slips],
            "fillers": len(solution.fillers),
            "filler_spans": [list(span) for span in solution.fillers],
        }


def write_training(path: str | Path, settings: FineTuning) -> Path:
    """Write a fine-tuning set as JSON Lines, for `trimsft train --data`."""
    lines = (json.dumps(row) + "\n" for row in training_rows(settings))
    return write_whole(Path(path), "".join(lines).encode())
