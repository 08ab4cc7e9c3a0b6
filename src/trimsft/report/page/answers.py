"""Answers of the page: what every problem came to under every run, what the models wrote, and how they voted.

    rows = problem_rows(runs, ["math500"])
    rows[0].outcomes[1]                  # Outcome(right=5, samples=8, vote=1.0, greedy=True) under the second run
    answer_parts(runs)["data"]
    # {"columns": ["math500"], "runs": [...], "evaluated": [0, 1], "pair": [0, 1], "packed": deflated JSON:
    #   {"problems": [[benchmark, number, id, [right, samples, vote, greedy] or null of each run], ...],
    #    "strings": [...], "answers": {"17": {"text": [0, 0], "answer": [1, 0], "runs": {"1": {...}}}}}}

Packed are the texts that the page has room for, each once however often it was written: problem by problem, those
first that changed most between the two runs of the pair. It ends where the budget is full; the page says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.metrics import ProblemScore, cluster, majority_curve, representatives
from trimsft.report.page.tokens import deflated
from trimsft.report.runs import Asked, Run, Written
from trimsft.report.score_tables import in_order

BUDGET = 4_000_000  # characters of all texts, before they are packed
LONGEST = 4000  # characters of one text
MOST = 1000  # problems whose texts are read


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
    number: int  # from 1, in the order in which the benchmark has them
    text: str
    answer: str
    outcomes: tuple[Outcome | None, ...]

    def change(self, a: int, b: int) -> tuple[bool, float]:
        """Return whether samples, vote or greedy answer changed, and by how much the share of right samples did."""
        before, after = self.outcomes[a], self.outcomes[b]
        if before is None or after is None:
            return False, 0.0
        differs = (before.share, before.vote, before.greedy) != (after.share, after.vote, after.greedy)
        return differs, abs(after.share - before.share)


def answer_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the data of the answers, and what the template says of them."""
    benchmarks = in_order({name for run in runs for name in run.scores})
    pair = default_pair(runs)
    if not benchmarks or pair is None:
        return {"data": None, "notes": []}
    rows = problem_rows(runs, benchmarks)
    packed = _pack(rows, runs, pair)
    without = {run.label: [name for name in run.scores if not run.has_samples(name)] for run in runs}
    notes = [
        f"{label}: counts of every problem, but no texts on {', '.join(names)}, since samples.jsonl is missing there."
        for label, names in without.items()
        if names
    ]
    asked = sum(any(run.scores and run.has_samples(row.benchmark) for run in runs) for row in rows)
    if asked > len(packed["answers"]):
        left_out = asked - len(packed["answers"])
        notes.append(f"The texts of {left_out:,} of {asked:,} problems are left out, those that changed least.")
    problems = [
        [benchmarks.index(row.benchmark), row.number, visible(row.name), *map(_outcome_data, row.outcomes)]
        for row in rows
    ]
    return {
        "data": {
            "runs": [visible(run.label) for run in runs],
            "evaluated": [place for place, run in enumerate(runs) if run.scores],
            "pair": pair,
            "columns": [visible(name) for name in benchmarks],
            "packed": deflated(json.dumps({"problems": problems, **packed}).encode()),
        },
        "notes": [visible(note) for note in notes],
        "has_latex": any("\\" in text or "$" in text for text in packed["strings"]),
    }


def _outcome_data(outcome: Outcome | None) -> list[Any] | None:
    if outcome is None:
        return None
    return [outcome.right, outcome.samples, outcome.vote, None if outcome.greedy is None else int(outcome.greedy)]


def problem_rows(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[ProblemRow]:
    """Return all problems of all runs, benchmark by benchmark, in the order in which they were asked."""
    rows = []
    for benchmark in benchmarks:
        asked_by_run = [run.problems.get(benchmark, {}) for run in runs]
        of_runs = [_outcomes(run, benchmark) for run in runs]
        known: dict[str, Asked] = {}
        for asked in reversed(asked_by_run):
            known |= asked
        # scores.json alone names the problems too, without their texts
        unknown = (known.get(name, Asked(name)) for outcomes in of_runs for name in outcomes)
        every = dict.fromkeys([*(one for asked in asked_by_run for one in asked.values()), *unknown])
        number = 0
        for problem in every:
            outcomes = tuple(
                # under the same id another run may have been asked something else
                outcomes.get(problem.id) if asked.get(problem.id, known.get(problem.id, problem)) == problem else None
                for asked, outcomes in zip(asked_by_run, of_runs, strict=True)
            )
            if any(outcomes):
                number += 1
                answer = problem.answer if isinstance(problem.answer, str) else " or ".join(problem.answer)
                rows.append(ProblemRow(benchmark, problem.id, number, problem.problem, answer, outcomes))
    return rows


def _outcomes(run: Run, benchmark: str) -> dict[str, Outcome]:
    if benchmark not in run.scores:
        return {}
    return {
        one.problem: Outcome(right=one.correct, samples=one.samples, vote=_vote(one), greedy=one.greedy)
        for one in run.scores[benchmark].per_problem
    }


def _vote(problem: ProblemScore) -> float | None:
    """Return majority@n of the n samples: the share of right ones among the largest clusters."""
    curve = majority_curve(problem.right, problem.wrong, problem.samples)
    return float(curve[-1]) if problem.samples else None


def default_pair(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the places of the reference of all comparisons, and of the run that is held against it first.

    The reference is the first run of SFT if there is another, else the first run; None for fewer than two.
    """
    scored = [place for place, run in enumerate(runs) if run.scores]
    if len(scored) < 2:
        return None
    reference = next((place for place in scored if runs[place].objective == "sft"), scored[0])
    others = [place for place in scored if place != reference]
    trimmed = [place for name in ("trim", "auto-trim") for place in others if runs[place].objective == name]
    return reference, [*trimmed, others[-1]][0]


# ---- votes and texts


@dataclass(frozen=True)
class Vote:
    """Answers that say the same."""

    answer: str  # the one that stands for them
    size: int
    right: bool
    wins: bool  # whether none has more votes; several may


def votes_of(samples: Sequence[Written]) -> tuple[list[Vote], list[int | None], bool]:
    """Return the votes of samples, the cluster of each, and whether the evaluation recorded who voted together.

    Greedy and those that abstain have no cluster. Where nothing was recorded, equal texts vote together.
    """
    drawn = [sample.grade for sample in samples if sample.sample >= 0]
    texts, numbers = [grade.answer for grade in drawn], [grade.cluster for grade in drawn]
    pairs = set(zip(texts, numbers, strict=True))
    recorded = all((answer is None) == (number is None) for answer, number in pairs) and len(pairs) == len(set(texts))
    if not recorded:
        numbers = cluster(texts, lambda a, b: False)
    right = {grade.answer for grade in drawn if grade.status == "correct"}
    sizes = [numbers.count(number) for number in sorted({n for n in numbers if n is not None})]
    votes = [
        Vote(answer, size, answer in right, size == max(sizes))
        for answer, size in zip(representatives(texts, numbers), sizes, strict=True)
    ]
    greedy: list[int | None] = [None] * (len(samples) - len(drawn))
    return votes, greedy + numbers, recorded


def _pack(rows: Sequence[ProblemRow], runs: Sequence[Run], pair: tuple[int, int]) -> dict[str, Any]:
    """Return the strings, each once, and the answers to as many problems as there is room for."""

    def rank(place: int) -> tuple[bool, float]:
        differs, change = rows[place].change(*pair)
        return not differs, -change

    order = sorted(range(len(rows)), key=rank)[:MOST]
    written = [_read(run, [rows[place] for place in order]) for run in runs]
    strings: dict[str, int] = {}
    answers: dict[int, dict[str, Any]] = {}
    size = 0

    def cut(text: str) -> list[int]:
        """Return the number of the text, as far as it is shown, and how many characters are left out."""
        nonlocal size
        shown = visible(text[:LONGEST])
        if shown not in strings:
            size += len(shown)
        return [strings.setdefault(shown, len(strings)), max(0, len(text) - LONGEST)]

    for place in order:
        row = rows[place]
        key = (row.benchmark, row.name)
        of_runs = {
            str(number): _entry(by_problem[key], cut)
            for number, by_problem in enumerate(written)
            if by_problem.get(key) and row.outcomes[number]
        }
        if of_runs:
            answers[place] = {"text": cut(row.text), "answer": cut(row.answer), "runs": of_runs}
        if size > BUDGET:
            break
    return {"strings": list(strings), "answers": answers}


def _read(run: Run, rows: Sequence[ProblemRow]) -> dict[tuple[str, str], list[Written]]:
    """Return the samples of a run on these problems, greedy (-1) first."""
    by_problem: dict[tuple[str, str], list[Written]] = {}
    for benchmark in dict.fromkeys(row.benchmark for row in rows):
        if benchmark in run.scores and run.has_samples(benchmark):
            for sample in run.samples(benchmark, {row.name for row in rows if row.benchmark == benchmark}):
                by_problem.setdefault((benchmark, sample.problem), []).append(sample)
    return {key: sorted(samples, key=lambda sample: sample.sample) for key, samples in by_problem.items()}


def _entry(samples: Sequence[Written], cut: Callable[[str], list[int]]) -> Mapping[str, Any]:
    """votes: [answer, size, right, wins]; samples: [number, status, cluster, tokens, text, characters left out]."""
    votes, clusters, recorded = votes_of(samples)
    return {
        "recorded": recorded,
        "votes": [[cut(vote.answer)[0], vote.size, int(vote.right), int(vote.wins)] for vote in votes],
        "samples": [
            [sample.sample, visible(sample.grade.status), number, sample.tokens, *cut(sample.text)]
            for sample, number in zip(samples, clusters, strict=True)
        ],
    }
