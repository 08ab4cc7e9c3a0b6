"""Answers of the page: what every problem came to under every run, what models wrote, how they voted.

    answer_parts(runs)["data"]
    # {"columns": ["math500"], "runs": [...], "evaluated": [0, 1], "pair": [0, 1], "packed": deflated JSON:
    #   {"problems": [[benchmark, number, id, [right, samples, vote, greedy] or null of each run], ...],
    #    "strings": [...], "answers": {"17": {"text": [0, 0], "answer": [1, 0], "runs": {"1": {...}}}}}}

Packed are the texts that the page has room for, each once however often it was written: problem by problem, those
first that changed most between the two runs of the pair. It ends where the budget is full; the page says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from trimsft.data.visible import visible
from trimsft.evaluate.benchmarks import Problem
from trimsft.evaluate.metrics import GradeLine, majority, representatives
from trimsft.report.page.tokens import deflated
from trimsft.report.runs import Run
from trimsft.report.score_tables import in_order

BUDGET = 4_000_000  # characters of all texts, before they are packed
LONGEST = 4000  # characters of one text
MOST = 1000  # problems whose texts are read


class Outcome(NamedTuple):
    """One problem under one run."""

    right: int
    samples: int
    vote: float | None  # 1 where the vote of all samples is right, between 0 and 1 for ties
    greedy: int | None  # 1 where the greedy answer is right


class Row(NamedTuple):
    """One problem, with an outcome for each run that was asked it."""

    benchmark: str
    number: int  # from 1, in the order in which the benchmark has them
    problem: Problem
    outcomes: list[Outcome | None]

    def stillness(self, a: int, b: int) -> tuple[bool, float]:
        """Return what puts the problem that changed most between two runs first."""
        before, after = self.outcomes[a], self.outcomes[b]
        if before is None or after is None:
            return True, 0.0
        was, now = (one.right / (one.samples or 1) for one in (before, after))
        return (was, *before[2:]) == (now, *after[2:]), -abs(now - was)


def answer_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the data of the answers, and what the template says of them."""
    benchmarks = in_order({name for run in runs for name in run.scores})
    pair = default_pair(runs)
    if pair is None:
        return {"data": None, "notes": [], "has_latex": False}
    rows = rows_of(runs, benchmarks)
    packed = _pack(rows, runs, pair)
    without = {run.label: [name for name in run.scores if not run.has_samples(name)] for run in runs}
    notes = [
        f"{label}: counts of every problem, but no texts on {', '.join(names)}, since samples.jsonl is missing there."
        for label, names in without.items()
        if names
    ]
    written = sum(any(run.scores and run.has_samples(row.benchmark) for run in runs) for row in rows)
    if left_out := written - len(packed["answers"]):
        notes.append(f"The texts of {left_out:,} of {written:,} problems are left out, those that changed least.")
    problems = []
    for row in rows:
        problems.append([benchmarks.index(row.benchmark), row.number, visible(row.problem.id), *row.outcomes])
    data = {
        "runs": [visible(run.label) for run in runs],
        "evaluated": [place for place, run in enumerate(runs) if run.scores],
        "pair": pair,
        "columns": [visible(name) for name in benchmarks],
        "packed": deflated(json.dumps({"problems": problems, **packed}).encode()),
    }
    has_latex = any("\\" in text or "$" in text for text in packed["strings"])
    return {"data": data, "notes": [visible(note) for note in notes], "has_latex": has_latex}


def rows_of(runs: Sequence[Run], benchmarks: Sequence[str]) -> list[Row]:
    """Return all problems of all runs, benchmark by benchmark, in the order in which they were asked."""
    rows = []
    for benchmark in benchmarks:
        asked_by_run = [run.problems.get(benchmark, {}) for run in runs]
        of_runs = [_outcomes(run, benchmark) for run in runs]
        known: dict[str, Problem] = {}
        for asked in reversed(asked_by_run):
            known |= asked
        # scores.json alone names the problems too, without their texts
        nameless = (known.get(name, Problem(name, "", "")) for outcomes in of_runs for name in outcomes)
        every = dict.fromkeys([*(one for asked in asked_by_run for one in asked.values()), *nameless])
        number = 0
        for problem in every:
            outcomes = [
                # under the same id another run may have been asked something else
                outcomes.get(problem.id) if asked.get(problem.id, known.get(problem.id, problem)) == problem else None
                for asked, outcomes in zip(asked_by_run, of_runs, strict=True)
            ]
            if any(outcomes):
                number += 1
                rows.append(Row(benchmark, number, problem, outcomes))
    return rows


def _outcomes(run: Run, benchmark: str) -> dict[str, Outcome]:
    outcomes = {}
    for one in run.scores[benchmark].per_problem if benchmark in run.scores else ():
        vote = majority(one.right, one.wrong) if one.samples else None
        outcomes[one.problem] = Outcome(one.correct, one.samples, vote, None if one.greedy is None else int(one.greedy))
    return outcomes


def default_pair(runs: Sequence[Run]) -> tuple[int, int] | None:
    """Return the places of the reference of all comparisons, and of the run held against it first.

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


def votes_of(grades: Sequence[GradeLine]) -> list[tuple[str, int, bool, bool]]:
    """Return the answer of each cluster, its votes, whether it is right, and whether it wins.

    Its place is the number of the cluster. The greedy answer has no vote, nor has a sample without an answer.
    """
    drawn = [one for one in grades if one.sample >= 0 and one.answer is not None and one.cluster is not None]
    sizes = Counter(one.cluster or 0 for one in drawn)
    right = {one.cluster for one in drawn if one.status == "correct"}
    answers = representatives([one.answer for one in drawn], [one.cluster for one in drawn])
    return [
        (answer, sizes[number], number in right, sizes[number] == max(sizes.values()))
        for answer, number in zip(answers, sorted(sizes), strict=False)
    ]


def _pack(rows: Sequence[Row], runs: Sequence[Run], pair: tuple[int, int]) -> dict[str, Any]:
    """Return the strings, each once, and the answers to as many problems as there is room for.

    Votes are [answer, size, right, wins], samples [number, status, cluster, tokens, text, characters left out].
    """
    order = sorted(range(len(rows)), key=lambda place: rows[place].stillness(*pair))[:MOST]
    written = []
    for run in runs:
        asked = {name: {rows[at].problem.id for at in order if rows[at].benchmark == name} for name in run.scores}
        written.append({name: run.samples(name, ids) for name, ids in asked.items()})
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
        benchmark, _, problem, outcomes = rows[place]
        of_runs = {}
        for number, samples in enumerate(written):
            if outcomes[number] and (graded := samples.get(benchmark, {}).get(problem.id)):
                votes = votes_of([grade for _, grade in graded])
                of_runs[str(number)] = {
                    "votes": [[cut(answer)[0], *vote] for answer, *vote in votes],
                    "samples": [
                        [one.sample, visible(grade.status), grade.cluster, one.tokens, *cut(one.text)]
                        for one, grade in graded
                    ],
                }
        if of_runs:
            answer = problem.answer if isinstance(problem.answer, str) else " or ".join(problem.answer)
            answers[place] = {"text": cut(problem.question), "answer": cut(answer), "runs": of_runs}
        if size > BUDGET:
            break
    return {"strings": list(strings), "answers": answers}
