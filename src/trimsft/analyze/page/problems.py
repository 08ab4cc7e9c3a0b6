"""A few problems with all samples of a few runs side by side, chosen by a rule that is stated on the page.

The rule: of all problems, the two that the last of the shown runs gained most on against the one before it, and the two
it lost most on; ties go to the first benchmark and the first problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimsft.analyze.page.sources import Run
from trimsft.analyze.page.visible import visible

EACH = 2
"""Gains, and losses, that are shown."""
LONGEST = 2000
"""Characters of a sample that are shown."""


@dataclass(frozen=True)
class Answer:
    """One sample as it is shown."""

    name: str
    text: str
    left_out: int
    """Characters beyond those shown."""
    status: str
    """As it was graded: correct, wrong, no_answer, ..."""


@dataclass(frozen=True)
class ShownProblem:
    """One problem, and for each run its samples, greedy first."""

    benchmark: str
    name: str
    text: str
    answer: str
    why: str
    runs: list[tuple[str, list[Answer]]]


def side_by_side(runs: Sequence[Run]) -> list[Run]:
    """Base, SFT and TrimSFT where they are; else the first, the second and the last."""
    with_scores = [run for run in runs if run.scores]
    if not with_scores:
        return []
    by_objective = {run.objective: run for run in with_scores[1:]}
    named = [by_objective.get("sft"), by_objective.get("trim")]
    chosen = [with_scores[0], *(run for run in named if run is not None)]
    if len(chosen) < 3:
        chosen = [with_scores[0], *with_scores[1:2], with_scores[-1]]
    return list({run.label: run for run in chosen}.values())


def shown_problems(runs: Sequence[Run], benchmarks: Sequence[str], each: int = EACH) -> list[ShownProblem]:
    """The problems that the last run gained most on, then those it lost most on, over all benchmarks."""
    if not runs:
        return []
    before, after = runs[max(0, len(runs) - 2)], runs[-1]
    gains = {
        (benchmark, problem): gain
        for benchmark in benchmarks
        if all(benchmark in run.scores for run in runs)
        for problem, gain in _gains(before, after, benchmark).items()
    }
    best = sorted(gains, key=lambda which: -gains[which])[:each]
    worst = [which for which in sorted(gains, key=lambda which: gains[which]) if which not in best][:each]
    said = f"samples right under {after.label} than under {before.label}"
    return [
        _problem(runs, *which, f"{abs(gains[which])} {'fewer' if gains[which] < 0 else 'more'} {said}")
        for which in best + worst
    ]


def _gains(before: Run, after: Run, benchmark: str) -> dict[str, int]:
    """By how many right samples each problem differs, in the order of the file."""
    was, now = (
        {problem["problem"]: int(problem["correct"]) for problem in run.scores[benchmark]["per_problem"]}
        for run in (before, after)
    )
    return {name: now[name] - was[name] for name in was if name in now}


def _problem(runs: Sequence[Run], benchmark: str, name: str, why: str) -> ShownProblem:
    asked = next((row for row in runs[0].problems(benchmark) if row.get("id") == name), {})
    return ShownProblem(
        benchmark=benchmark,
        name=visible(name),
        text=visible(asked.get("problem", "")),
        answer=visible(asked.get("answer", "")),
        why=why,
        runs=[(run.label, _answers(run, benchmark, name)) for run in runs],
    )


def _answers(run: Run, benchmark: str, problem: str) -> list[Answer]:
    samples = [sample for sample in run.samples(benchmark) if sample["problem"] == problem]
    return [
        Answer(
            name="greedy" if sample["sample"] < 0 else f"sample {sample['sample'] + 1}",
            text=visible(sample["text"][:LONGEST]),
            left_out=max(0, len(sample["text"]) - LONGEST),
            status=str(sample.get("status", "not graded")),
        )
        for sample in sorted(samples, key=lambda sample: int(sample["sample"]))
    ]
