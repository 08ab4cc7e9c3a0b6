"""What every problem came to under every run: which flipped between two runs, what the models wrote, how they voted.

    rows = problem_rows(runs, ["math500"])
    rows[0].outcomes[1]                  # Outcome(right=5, samples=8, vote=1.0, greedy=True) under the second run
    flips(rows, 0, 1)                    # those that differ between the first two runs, largest change first
    pack_answers(rows, runs, (0, 1), BUDGET).data()
    # {"strings": [...], "problems": {"17": {"text": [0, 0], "answer": [1, 0], "runs": {"1": {...}}}}}

Packed are the texts that the page has room for, each once however often it was written: the two runs of the pair first,
problem by problem, those with the largest change before the others; then all other runs. It ends where the budget is
full, and the page says what is left out.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from trimsft.data.visible import visible
from trimsft.evaluate.metrics import ProblemScore, cluster, majority_curve, representatives
from trimsft.report.runs import Asked, Run, Written

BUDGET = 2_500_000  # bytes for all texts
LONGEST = 4000  # characters of one text
AT_ONCE = 16_384  # samples of a run whose texts are in memory together

Samples = Sequence[Written]


# ---- problems


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

    def change(self, a: int, b: int) -> float:
        """Return the share of right samples of run b minus that of run a; 0 where one was not asked."""
        before, after = self.outcomes[a], self.outcomes[b]
        return 0.0 if before is None or after is None else after.share - before.share

    def differs(self, a: int, b: int) -> bool:
        """Tell whether samples, vote or greedy answer changed."""
        before, after = self.outcomes[a], self.outcomes[b]
        if before is None or after is None:
            return False
        return (before.share, before.vote, before.greedy) != (after.share, after.vote, after.greedy)


def problem_rows(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[ProblemRow]:
    """All problems of all runs, benchmark by benchmark, in the order in which they were asked."""
    return [row for benchmark in benchmarks for row in _rows_of(runs, benchmark)]


def _rows_of(runs: Sequence[Run], benchmark: str) -> list[ProblemRow]:
    asked_by_run = [run.problems.get(benchmark, {}) for run in runs]
    of_runs = [_outcomes(run, benchmark) for run in runs]
    known: dict[str, Asked] = {}
    for asked in reversed(asked_by_run):
        known |= asked
    # scores.json alone names the problems too, without their texts
    unknown = (known.get(name, Asked(name)) for outcomes in of_runs for name in outcomes)
    every = dict.fromkeys([*(one for asked in asked_by_run for one in asked.values()), *unknown])
    rows: list[ProblemRow] = []
    for problem in every:
        outcomes = tuple(
            outcomes.get(problem.id) if asked.get(problem.id, known.get(problem.id, problem)) == problem else None
            for asked, outcomes in zip(asked_by_run, of_runs, strict=True)
        )
        if any(outcomes):
            place = len(rows) + 1
            answer = problem.answer if isinstance(problem.answer, str) else " or ".join(problem.answer)
            rows.append(ProblemRow(benchmark, problem.id, place, problem.problem, answer, outcomes))
    return rows


def _outcomes(run: Run, benchmark: str) -> dict[str, Outcome]:
    if benchmark not in run.scores:
        return {}
    return {
        one.problem: Outcome(right=one.correct, samples=one.samples, vote=_vote(one), greedy=one.greedy)
        for one in run.scores[benchmark].per_problem
    }


def _vote(problem: ProblemScore) -> float | None:
    """majority@n of the n samples: the share of right ones among the largest clusters."""
    curve = majority_curve(problem.right, problem.wrong, problem.samples)
    return float(curve[-1]) if problem.samples else None


def default_pair(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the places of the reference of all comparisons, and of the run that is held against it first.

    The reference is the first run of SFT if another follows the base, else the first run; None for fewer than two.
    """
    scored = [place for place, run in enumerate(runs) if run.scores]
    if len(scored) < 2:
        return None
    sft = next((place for place in scored if runs[place].objective == "sft"), scored[0])
    reference = sft if any(place != sft for place in scored[1:]) else scored[0]
    others = [place for place in scored if place != reference]
    trimmed = [place for name in ("trim", "auto-trim") for place in others if runs[place].objective == name]
    return reference, [*trimmed, others[-1]][0]


def flips(rows: Sequence[ProblemRow], a: int, b: int) -> list[ProblemRow]:
    """The problems that differ between two runs, the largest change first; equal ones in their order."""
    return sorted((row for row in rows if row.differs(a, b)), key=lambda row: -abs(row.change(a, b)))


# ---- votes


@dataclass(frozen=True)
class Vote:
    """Answers that say the same."""

    answer: str  # the one that stands for them
    size: int
    right: bool
    wins: bool  # whether none has more votes; several may


@dataclass(frozen=True)
class Answers:
    """The samples of one run on one problem by number, greedy (-1) first."""

    samples: Samples
    votes: list[Vote]
    clusters: list[int | None]  # of each sample; None for greedy and for those that abstain
    recorded: bool  # whether the evaluation recorded who voted together; else equal texts do


def answers_of(samples: Samples) -> Answers:
    """Samples with their grades, as `Run.samples` has them, as one vote."""
    ordered = sorted(samples, key=lambda sample: sample.sample)
    drawn = [sample.grade for sample in ordered if sample.sample >= 0]
    texts = [grade.answer for grade in drawn]
    numbers = [grade.cluster for grade in drawn]
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
    greedy: list[int | None] = [None] * (len(ordered) - len(drawn))
    return Answers(ordered, votes, greedy + numbers, recorded)


def has_answers(run: Run, row: ProblemRow, place: int) -> bool:
    """Tell whether the run, at that place of the rows, was asked a problem and its directory has its samples."""
    return row.outcomes[place] is not None and run.has_samples(row.benchmark)


class RunAnswers:
    """The samples of a run on problems, asked for in the order of these rows; it holds about `AT_ONCE` of them."""

    def __init__(self, run: Run, rows: Iterable[ProblemRow]) -> None:
        self._run, self._rows = run, iter(rows)
        self._held: dict[str, dict[str, list[Written]]] = {}

    def __call__(self, row: ProblemRow) -> Answers:
        while row.name not in self._held.get(row.benchmark, {}):
            samples = max(outcome.samples for outcome in row.outcomes if outcome)
            if not (following := list(islice(self._rows, AT_ONCE // (samples + 1)))):
                raise ValueError(f"row: {row.name!r} comes out of order")
            if row in following:
                self._held = self._read(following)
        return answers_of(self._held[row.benchmark][row.name])

    def _read(self, rows: Sequence[ProblemRow]) -> dict[str, dict[str, list[Written]]]:
        """Read samples by benchmark and problem, each file once."""
        held: dict[str, dict[str, list[Written]]] = {}
        for row in rows:
            held.setdefault(row.benchmark, {})[row.name] = []
        for benchmark, problems in held.items():
            for sample in self._run.samples(benchmark, problems):
                problems[sample.problem].append(sample)
        return held


# ---- packed for the page's script


@dataclass
class Packed:
    """The texts that fit, each once."""

    strings: dict[str, int] = field(default_factory=dict)
    problems: dict[int, dict[str, Any]] = field(default_factory=dict)  # by the place of the problem among the rows
    size: int = 0

    def data(self) -> dict[str, Any]:
        """For the page's script; see evaluation.js."""
        return {"strings": list(self.strings), "problems": self.problems}

    def add(self, place: int, row: ProblemRow, answers: Mapping[int, Answers], budget: int) -> bool:
        """Take one problem with these runs in; false, and nothing taken, where it does not fit."""
        fresh: dict[str, int] = {}

        def cut(text: str) -> list[int]:
            """The number of the text, as far as it is shown, and how many characters are left out."""
            shown = visible(text[:LONGEST])
            known = self.strings.get(shown)
            index = fresh.setdefault(shown, len(self.strings) + len(fresh)) if known is None else known
            return [index, max(0, len(text) - LONGEST)]

        entry = self.problems.get(place) or {"text": cut(row.text), "answer": cut(row.answer), "runs": {}}
        runs = {str(run): _entry(written, cut) for run, written in answers.items()}
        size = len(json.dumps(runs)) + sum(len(json.dumps(text)) for text in fresh) + 64
        if self.size + size > budget:
            return False
        self.strings |= fresh
        self.problems[place] = {**entry, "runs": entry["runs"] | runs}
        self.size += size
        return True

    def left_out(self, rows: Sequence[ProblemRow], runs: Sequence[Run]) -> dict[str, int]:
        """Count the problems with answers, and those without any, or without those of every run, on the page."""
        counts = [sum(has_answers(run, row, number) for number, run in enumerate(runs)) for row in rows]
        there = {place: count for place, count in enumerate(counts) if count}
        packed = {place: len(problem["runs"]) for place, problem in self.problems.items()}
        written = [run for problem in self.problems.values() for run in problem["runs"].values()]
        return {
            "problems": len(there),
            "none": sum(place not in packed for place in there),
            "partly": sum(packed[place] < count for place, count in there.items() if place in packed),
            "cut": sum(left_out > 0 for run in written for *_, left_out in run["samples"]),
        }


def _entry(answers: Answers, cut: Callable[[str], list[int]]) -> dict[str, Any]:
    """votes: [answer, size, right, wins]; samples: [number, status, cluster, tokens, text, characters left out]."""
    return {
        "recorded": answers.recorded,
        "votes": [[cut(vote.answer)[0], vote.size, int(vote.right), int(vote.wins)] for vote in answers.votes],
        "samples": [
            [sample.sample, visible(sample.grade.status), number, sample.tokens, *cut(sample.text)]
            for sample, number in zip(answers.samples, answers.clusters, strict=True)
        ],
    }


def pack_answers(rows: Sequence[ProblemRow], runs: Sequence[Run], pair: tuple[int, int] | None, budget: int) -> Packed:
    """Pack as many problems with all samples as the budget has room for."""
    scored = [place for place, run in enumerate(runs) if run.scores]
    groups = [list(pair), [place for place in scored if place not in pair]] if pair else [scored]
    order, packed = list(range(len(rows))), Packed()
    if pair is not None:
        order.sort(key=lambda place: (not rows[place].differs(*pair), -abs(rows[place].change(*pair))))
    for group in groups:
        written = {place: RunAnswers(runs[place], (rows[at] for at in order)) for place in group}
        for place in order:
            row = rows[place]
            answers = {number: written[number](row) for number in group if has_answers(runs[number], row, number)}
            if answers and not packed.add(place, row, answers, budget):
                return packed
    return packed
