"""What the models wrote, as far as the page has room for it: samples of a problem, and how they voted.

    packed = pack_answers(rows, runs, (1, 4), BUDGET)
    packed.data()         # {"strings": [...], "problems": {"17": {"text": 0, "answer": 1, "runs": {"1": {...}}}}}

The two runs of the pair come first, problem by problem, those with the largest change before the others; then all other
runs. It ends where the budget is full, and the page says what is left out. Each text is held once, however often it was
written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimsft.report.page.problems import ProblemRow, flips
from trimsft.report.page.sources import Run
from trimsft.scoring.metrics import cluster, representatives
from trimsft.text.visible import visible

BUDGET = 2_500_000
"""Bytes for all texts."""
LONGEST = 4000
"""Characters of one text."""

Samples = Sequence[Mapping[str, Any]]
Index = Callable[[str], int]


@dataclass(frozen=True)
class Vote:
    """Answers that say the same."""

    answer: str
    """The one that stands for them."""
    size: int
    right: bool
    wins: bool
    """Whether none has more votes; several may."""


@dataclass(frozen=True)
class Answers:
    """What one run wrote on one problem: its samples by number, greedy (-1) first."""

    samples: Samples
    votes: list[Vote]
    clusters: list[int | None]
    """Of each sample; None for greedy and for those that abstain."""
    recorded: bool
    """Whether the evaluation recorded who voted together; else equal texts do."""


def answers_of(samples: Samples) -> Answers:
    """Samples with their grades, as `Run.samples` has them, as one vote."""
    ordered = sorted(samples, key=lambda sample: int(sample["sample"]))
    drawn = [sample for sample in ordered if sample["sample"] >= 0]
    texts: list[str | None] = [sample.get("answer") for sample in drawn]
    recorded = all((sample.get("cluster") is None) == (sample.get("answer") is None) for sample in drawn)
    numbers: list[int | None] = (
        [sample.get("cluster") for sample in drawn] if recorded else cluster(texts, lambda a, b: False)
    )
    right = {sample.get("answer") for sample in drawn if sample.get("status") == "correct"}
    sizes = [numbers.count(number) for number in sorted({n for n in numbers if n is not None})]
    votes = [
        Vote(answer, size, answer in right, size == max(sizes))
        for answer, size in zip(representatives(texts, numbers), sizes, strict=True)
    ]
    greedy: list[int | None] = [None] * (len(ordered) - len(drawn))
    return Answers(ordered, votes, greedy + numbers, recorded)


@dataclass
class Packed:
    """The texts that fit, each once."""

    strings: dict[str, int] = field(default_factory=dict)
    problems: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By the place of the problem among the rows."""
    size: int = 0

    def data(self) -> dict[str, Any]:
        """For the page's script; see evaluation_problem.js."""
        return {"strings": list(self.strings), "problems": self.problems}

    def add(self, place: int, row: ProblemRow, answers: Mapping[int, Answers], budget: int) -> bool:
        """Take one problem with these runs in; false, and nothing taken, where it does not fit."""
        fresh: dict[str, int] = {}

        def index(text: str) -> int:
            known = self.strings.get(text)
            return fresh.setdefault(text, len(self.strings) + len(fresh)) if known is None else known

        entry = self.problems.get(place) or {
            "text": _cut(row.text, index),
            "answer": _cut(row.answer, index),
            "runs": {},
        }
        runs = {str(run): _entry(found, index) for run, found in answers.items()}
        size = len(json.dumps(runs)) + sum(len(json.dumps(text)) for text in fresh) + 64
        if self.size + size > budget:
            return False
        self.strings |= fresh
        self.problems[place] = {**entry, "runs": entry["runs"] | runs}
        self.size += size
        return True


def pack_answers(rows: Sequence[ProblemRow], runs: Sequence[Run], pair: tuple[int, int] | None, budget: int) -> Packed:
    """As many problems with all samples as the budget has room for."""
    scored = [place for place, run in enumerate(runs) if run.scores]
    groups = [list(pair), [place for place in scored if place not in pair]] if pair else [scored]
    first = flips(rows, *pair) if pair else []
    changed = {(row.benchmark, row.name) for row in first}
    order = first + [row for row in rows if (row.benchmark, row.name) not in changed]
    places = {(row.benchmark, row.name): place for place, row in enumerate(rows)}
    packed = Packed()
    for group in groups:
        read = {place: _Samples(runs[place]) for place in group}
        for row in order:
            answers = {place: answers_of(read[place].of(row)) for place in group if recorded(runs, row, place)}
            if answers and not packed.add(places[row.benchmark, row.name], row, answers, budget):
                return packed
    return packed


def recorded(runs: Sequence[Run], row: ProblemRow, place: int) -> bool:
    """Whether a run was asked a problem and its directory still has what it wrote."""
    return row.outcomes[place] is not None and runs[place].has_samples(row.benchmark)


class _Samples:
    """The samples of a run by problem, each benchmark read once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._read: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def of(self, row: ProblemRow) -> Samples:
        if row.benchmark not in self._read:
            found = self._read[row.benchmark] = {}
            for sample in self._run.samples(row.benchmark):
                found.setdefault(str(sample["problem"]), []).append(sample)
        return self._read[row.benchmark].get(row.name, [])


def _entry(found: Answers, index: Index) -> dict[str, Any]:
    """votes: [answer, size, right, wins]; samples: [number, status, cluster, tokens, text, characters left out]."""
    return {
        "recorded": found.recorded,
        "votes": [[_cut(vote.answer, index)[0], vote.size, int(vote.right), int(vote.wins)] for vote in found.votes],
        "samples": [
            [
                int(sample["sample"]),
                visible(sample.get("status", "not graded")),
                number,
                sample.get("tokens"),
                *_cut(str(sample["text"]), index),
            ]
            for sample, number in zip(found.samples, found.clusters, strict=True)
        ],
    }


def _cut(text: str, index: Index) -> list[int]:
    """The number of the text, as far as it is shown, and how many characters are left out."""
    return [index(visible(text[:LONGEST])), max(0, len(text) - LONGEST)]
