"""The task of the lab: a number, a few steps with small whole numbers, one answer.

    LabProblem("lab-easy-0", "lab-easy", "Start with 7. Add 5. Multiply by 3. What is the result?",
               start=7, steps=(Step("+", 5), Step("*", 3)))          # .results (12, 36), .answer "36"

Problems are drawn from seeded streams without end. Which arithmetic belongs to benchmarks and which to training is
decided by a hash of the numbers and operations, whatever words they are dressed in: no stream can cross over.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trimsft.errors import UsageError
from trimsft.lab import stories
from trimsft.options import unknown_name

Side = Literal["training", "benchmark"]
SIDES: tuple[Side, ...] = ("training", "benchmark")
LARGEST_FACTOR = 9


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
    """How hard the problems of a benchmark are."""

    name: str
    description: str
    fewest_steps: int
    most_steps: int
    largest: int  # no value on the way exceeds it
    largest_term: int  # no number added or subtracted exceeds it
    story_share: float  # share of word problems; the others are bare chains


_LEVELS = (
    Tier("lab-easy", "Lab, easy: 2 steps up to 50, mostly bare chains", 2, 2, 50, 20, story_share=0.25),
    Tier("lab-medium", "Lab, medium: 3 steps up to 99, half of them word problems", 3, 3, 99, 50, story_share=0.5),
    Tier("lab-hard", "Lab, hard: 4 or 5 steps up to 199, mostly word problems", 4, 5, 199, 99, story_share=0.75),
)
TIERS: dict[str, Tier] = {tier.name: tier for tier in _LEVELS}


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


def follow(start: int, steps: tuple[Step, ...]) -> tuple[int, ...]:
    """Return the value after each step, from `start` on."""
    values = [start]
    for step in steps:
        values.append(step.apply(values[-1]))
    return tuple(values[1:])


def side_of(start: int, steps: tuple[Step, ...]) -> Side:
    """To which side a computation belongs, for good: one in eight to the benchmarks."""
    text = f"{start}" + "".join(f" {step.operator}{step.operand}" for step in steps)
    return "training" if hashlib.sha256(text.encode()).digest()[0] % 8 else "benchmark"


def draw_problems(tier: str, seed: int | str, side: Side) -> Iterator[LabProblem]:
    """Problems of a tier without end, the same ones for the same seed; some may repeat."""
    level = find_tier(tier)
    if side not in SIDES:
        raise unknown_name("side", side, SIDES)
    rng = random.Random(f"{tier}/{side}/{seed}")
    number = 0
    while True:
        start, steps = _draw_computation(level, rng)
        if side_of(start, steps) == side:
            operations = [(step.operator, step.operand) for step in steps]
            text = stories.tell(start, operations, level.story_share, rng)
            yield LabProblem(f"{tier}-{number}", tier, text, start, steps)
            number += 1


def find_tier(name: str) -> Tier:
    if name not in TIERS:
        raise unknown_name("tier", name, TIERS)
    return TIERS[name]


def _draw_computation(tier: Tier, rng: random.Random) -> tuple[int, tuple[Step, ...]]:
    value = start = rng.randint(2, tier.largest_term)
    steps: list[Step] = []
    for _ in range(rng.randint(tier.fewest_steps, tier.most_steps)):
        step = _draw_step(value, tier, rng)
        steps.append(step)
        value = step.apply(value)
    return start, tuple(steps)


def _draw_step(value: int, tier: Tier, rng: random.Random) -> Step:
    """Draw one operation that keeps the value whole and between 1 and the tier's largest; each kind equally often."""
    choices = {
        "+": range(1, min(tier.largest_term, tier.largest - value) + 1),
        "-": range(1, min(tier.largest_term, value - 1) + 1),
        "*": range(2, min(LARGEST_FACTOR, tier.largest // value) + 1),
        "/": [divisor for divisor in range(2, LARGEST_FACTOR + 1) if value % divisor == 0],
    }
    operator = rng.choice([name for name, operands in choices.items() if operands])
    return Step(operator, rng.choice(choices[operator]))
