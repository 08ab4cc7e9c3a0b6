"""What every problem came to under every run, and which of them flipped between two.

    rows = problem_rows(runs, ["math500"])
    rows[0].outcomes[1]                  # Outcome(right=5, samples=8, vote=1.0, greedy=True) under the second run
    flips(rows, 0, 1)                    # those that differ between the first two runs, largest change first

The pair that is shown first is SFT and TrimSFT where both are there, else the first run and the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.report.page.sources import Run
from trimsft.scoring.metrics import majority_curve


@dataclass(frozen=True)
class Outcome:
    """One problem under one run."""

    right: int
    samples: int
    vote: float | None
    """Whether the vote of all samples is right: 1 or 0, between them for ties; None where that is not recorded."""
    greedy: bool | None

    @property
    def share(self) -> float:
        return self.right / self.samples if self.samples else 0.0


@dataclass(frozen=True)
class ProblemRow:
    """One problem, with an outcome for each run that was asked it."""

    benchmark: str
    name: str
    number: int
    """From 1, in the order in which the benchmark has them."""
    text: str
    answer: str
    outcomes: tuple[Outcome | None, ...]

    def change(self, a: int, b: int) -> float:
        """By how much of its samples run b is right more often than run a; 0 where one was not asked."""
        before, after = self.outcomes[a], self.outcomes[b]
        return 0.0 if before is None or after is None else after.share - before.share

    def differs(self, a: int, b: int) -> bool:
        """Whether anything changed: samples, vote or greedy answer."""
        before, after = self.outcomes[a], self.outcomes[b]
        if before is None or after is None:
            return False
        return (before.share, before.vote, before.greedy) != (after.share, after.vote, after.greedy)


def default_pair(runs: Sequence[Run]) -> tuple[int, int] | None:
    """The places of the two runs to compare first; none where fewer than two are evaluated."""
    scored = [place for place, run in enumerate(runs) if run.scores]
    if len(scored) < 2:
        return None
    by_objective = {runs[place].objective: place for place in scored[1:]}
    if {"sft", "trim"} <= by_objective.keys():
        return by_objective["sft"], by_objective["trim"]
    return scored[0], scored[-1]


def problem_rows(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[ProblemRow]:
    """All problems of all runs, benchmark by benchmark, in the order in which they were asked."""
    rows = []
    for benchmark in benchmarks:
        asked: dict[str, Mapping[str, Any]] = {}
        for run in runs:
            asked = {str(row.get("id")): row for row in run.problems(benchmark)} | asked
        found = [_outcomes(run, benchmark) for run in runs]
        # scores.json alone names the problems too, without their texts
        named = dict.fromkeys([*asked, *(name for outcomes in found for name in outcomes)])
        names = [name for name in named if any(name in outcomes for outcomes in found)]
        rows += [
            ProblemRow(
                benchmark=benchmark,
                name=name,
                number=number,
                text=str(asked.get(name, {}).get("problem", "")),
                answer=str(asked.get(name, {}).get("answer", "")),
                outcomes=tuple(outcomes.get(name) for outcomes in found),
            )
            for number, name in enumerate(names, start=1)
        ]
    return rows


def flips(rows: Sequence[ProblemRow], a: int, b: int) -> list[ProblemRow]:
    """The problems that differ between two runs, the largest change first; equal ones in their order."""
    return sorted((row for row in rows if row.differs(a, b)), key=lambda row: -abs(row.change(a, b)))


def _outcomes(run: Run, benchmark: str) -> dict[str, Outcome]:
    score = run.scores.get(benchmark, {})
    return {
        str(record["problem"]): Outcome(
            right=int(record["correct"]),
            samples=int(record.get("samples", score["samples"])),
            vote=_vote(record),
            greedy=record.get("greedy"),
        )
        for record in score.get("per_problem", ())
    }


def _vote(record: Mapping[str, Any]) -> float | None:
    """majority@n of the n samples: the share of right ones among the largest clusters."""
    if not record.get("samples") or "right" not in record or "wrong" not in record:
        return None
    samples = int(record["samples"])
    return float(majority_curve(tuple(record["right"]), tuple(record["wrong"]), samples)[samples - 1])
