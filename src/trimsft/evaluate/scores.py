"""The scores of a run on a benchmark, their file, and their mean over benchmarks and over runs, all with intervals.

gsm8k, math500 = load_run("runs/trim")               # of a run directory
gsm8k.metrics["pass@8"].low, gsm8k.average.value      # an interval of every metric, by name
macro([gsm8k, math500])                               # mean over benchmarks
over_runs([[seed_0_gsm8k], [seed_1_gsm8k]])           # mean over runs

`scores.json`, the last file of an evaluation, holds a `BenchmarkScore`.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.benchmarks import Problem
from trimsft.evaluate.metrics import GradeLine, ProblemScore, metric_bounds, metric_names, metric_values, summarize
from trimsft.evaluate.samples import SampleRecord
from trimsft.grading import Grader, Grading
from trimsft.intervals import RESAMPLES, Array, Interval, interval_over_runs, mean_intervals
from trimsft.runs import RunDirectory, write_whole
from trimsft.runs.files import written_beside
from trimsft.runs.parsing import read_json

GRADES = "grades.jsonl"
SCORES = "scores.json"


@dataclass(frozen=True, kw_only=True)
class BenchmarkScore:
    """The scores of a run on one benchmark, as scores.json has them."""

    grader: str  # its kind and version, and how answers are found where not in a box; scores by others do not compare
    benchmark: str
    problems: int
    samples: int
    """Drawn for each problem; greedy decoding not counted. With 0, only `greedy` is known."""
    temperature: float  # of these samples
    temperature_samples: int  # of each problem at each further temperature
    metrics: dict[str, Interval]  # by the names that `trimsft.evaluate.metrics` lists
    statuses: dict[str, int]  # how many samples were graded how
    per_problem: tuple[ProblemScore, ...]  # sorted by id; every metric can be had again from these

    @property
    def average(self) -> Interval | None:
        """Return the mean correctness of all samples."""
        return self.metrics.get("average")

    @property
    def greedy(self) -> Interval | None:
        return self.metrics.get("greedy")

    @property
    def at_temperature(self) -> dict[float, Interval]:
        """Return the average at each further temperature."""
        return {at: self.metrics[f"T={at:g}"] for at in self.per_problem[0].correct_at}

    def known_as(self, metric: str) -> str:
        """Return the name here of a metric by temperature: of T=0 it is greedy."""
        return {"T=0": "greedy", f"T={self.temperature:g}": "average"}.get(metric, metric)

    def values(self, metric: str) -> Array:
        """Return the metric of each problem, in the order of `per_problem`."""
        return metric_values(self.per_problem, self.known_as(metric))

    def interval(self, metric: str) -> Interval:
        """Return the interval of a metric by its name, for instance "pass@4"."""
        self.values(metric)  # an unknown name ends here, with the known ones
        return self.metrics[self.known_as(metric)]

    def only(self, problems: Collection[str], resamples: int = RESAMPLES) -> "BenchmarkScore":
        """Return the scores on these problems alone; how they were graded is not known by problem."""
        kept, temperature = [one for one in self.per_problem if one.problem in problems], self.temperature
        return score_counts(self.benchmark, kept, {}, grader=self.grader, temperature=temperature, resamples=resamples)


def score_counts(
    benchmark: str,
    problems: Sequence[ProblemScore],
    statuses: Mapping[str, int],
    *,
    grader: str,
    temperature: float = 1.0,
    resamples: int = RESAMPLES,
) -> BenchmarkScore:
    """Return the scores that follow from the counts of all problems, which are sorted by id."""
    first = problems[0]
    names = metric_names(first.samples, greedy=first.greedy is not None, temperatures=first.correct_at)
    values_PM = np.stack([metric_values(problems, name) for name in names], axis=1)
    intervals = mean_intervals([values_PM], [metric_bounds(name) for name in names], resamples=resamples)
    return BenchmarkScore(
        grader=grader,
        benchmark=benchmark,
        problems=len(problems),
        samples=first.samples,
        temperature=temperature,
        temperature_samples=first.samples_at,
        metrics=dict(zip(names, intervals, strict=True)),
        statuses=dict(sorted(statuses.items())),
        per_problem=tuple(problems),
    )


# ---- accuracy over temperature


def temperatures_of(scores: Sequence[BenchmarkScore]) -> list[float]:
    """Return the temperatures at which all of these were sampled; 0 is the greedy answer."""
    sampled = [
        {*one.at_temperature, *([one.temperature] if one.samples else []), *([0.0] if one.greedy else [])}
        for one in scores
    ]
    return sorted(set.intersection(*sampled)) if sampled else []


def best_temperature(scores: Sequence[BenchmarkScore]) -> float:
    """Return the temperature at which a run is right most often; of equals the lowest."""
    means = {at: np.mean([one.interval(f"T={at:g}").value for one in scores]) for at in temperatures_of(scores)}
    return max(means, key=lambda at: (round(float(means[at]), 12), -at))


# ---- means of several


def macro(scores: Sequence[BenchmarkScore], metric: str = "average", *, resamples: int = RESAMPLES) -> Interval:
    """Return the mean over benchmarks, each counting the same."""
    strata = [table.values(metric)[:, None] for _, table in sorted(by_benchmark(scores).items())]
    return mean_intervals(strata, [metric_bounds(metric)], resamples=resamples)[0]


def over_runs(
    runs: Sequence[Sequence[BenchmarkScore]], metric: str = "average", *, resamples: int = RESAMPLES
) -> Interval:
    """Return the mean over runs (seeds) of the mean over benchmarks."""
    tables = [by_benchmark(scores) for scores in runs]
    for table in tables[1:]:
        require_same_problems(tables[0], table)
    strata = [np.stack([table[name].values(metric) for table in tables], axis=1) for name in sorted(tables[0])]
    return interval_over_runs(strata, metric_bounds(metric), resamples=resamples)


def require_same_problems(a: Mapping[str, BenchmarkScore], b: Mapping[str, BenchmarkScore]) -> None:
    """Refuse runs with different benchmarks or problems: their scores cannot be set side by side."""
    if a.keys() != b.keys():
        problem = f"must be the same for both runs, got {sorted(a)} and {sorted(b)}"
        raise UsageError(problem, field="benchmarks")
    for name in a:
        ids_a, ids_b = ({problem.problem for problem in side[name].per_problem} for side in (a, b))
        if differing := ids_a ^ ids_b:
            problem = f"the runs have different problems of {name!r}: {len(differing)}, such as {min(differing)!r}"
            raise UsageError(problem, field="benchmarks")


def by_benchmark(scores: Sequence[BenchmarkScore]) -> dict[str, BenchmarkScore]:
    """Return the scores by the name of their benchmark; refuse none, and one that is there twice."""
    table = {result.benchmark: result for result in scores}
    if len(table) < len(scores) or not table:
        names = [result.benchmark for result in scores]
        raise UsageError("must be one or more, each once", field="benchmarks", value=names)
    return table


# ---- grades


def grade_record(record: SampleRecord, grader: Grader, problems: Sequence[Problem], grading: Grading) -> BenchmarkScore:
    """Grade and score a complete record of these problems; raises `IncompleteEvaluation` where samples are missing."""
    with record.lock():  # it may not grow meanwhile: the scores would be those of a part
        protocol = record.protocol()
        wanted = protocol.keys(problems)
        record.require_complete(wanted)
        by = f"{grader.name} {grader.version}"
        by += f" ({grading})" if grader.uses_rules and grading != Grading() else ""
        rules = {one.id: replace(one.rules, grading=grading) for one in problems}
        golds, results = {one.id: one.answer for one in problems}, {one.id: list[GradeLine]() for one in problems}
        for one in (one for one in record if one.key in wanted):
            is_cut = one.finish == "length"
            grade = grader.grade(one.text, golds[one.problem], rules[one.problem], truncated=is_cut)
            how: dict[str, Any] = {"temperature": one.temperature, "tokens": one.tokens, "truncated": is_cut}
            line = GradeLine(one.problem, one.sample, grade.status, grade.answer, **how)
            results[one.problem].append(line)
        counts, statuses = [], Counter[str]()
        with written_beside(record.folder / GRADES) as beside, open(beside, "wb") as file:
            for name, lines in results.items():
                lines.sort(key=lambda one: (one.temperature is not None, one.temperature, one.sample))
                score, voted = summarize(name, lines, partial(grader.equivalent, rules=rules[name]))
                counts.append(score)
                statuses.update(one.status for one in voted if one.votes)
                file.writelines((json.dumps(asdict(one)) + "\n").encode() for one in voted)
        counts.sort(key=attrgetter("problem"))
        temperature = float(protocol.sampling["temperature"])
        scores = score_counts(protocol.benchmark, counts, statuses, grader=by, temperature=temperature)
        write_scores(record.folder, scores)
        return scores


# ---- scores.json


def write_scores(folder: Path, scores: BenchmarkScore) -> None:
    """Write the scores of a benchmark into its folder."""
    write_whole(folder / SCORES, (json.dumps(asdict(scores), indent=1) + "\n").encode())


def read_scores(folder: Path) -> BenchmarkScore:
    """Read the scores in the folder of a benchmark."""
    path = folder / SCORES
    again = "it is damaged or of another version: make it again with trimsft eval, which generates nothing anew"
    try:
        scores = read_json(path, BenchmarkScore, hint=again)
    except FileNotFoundError:
        raise RunError(f"{folder}: holds no scores", hint="finish it with trimsft eval") from None
    if scores.benchmark != folder.name:
        raise RunError(f"{path}: these are scores of {scores.benchmark!r}", hint=again)
    return scores


def load_run(path: str | Path, benchmarks: Sequence[str] = ()) -> list[BenchmarkScore]:
    """Read the scores of a run directory, of these benchmarks or of all; refuse scores by different graders."""
    run = RunDirectory(path)
    evaluated = run.evaluations()
    if not evaluated:
        raise RunError(f"{path}: holds no scores; make or finish an evaluation with trimsft eval")
    names = list(benchmarks) or evaluated
    scores = [read_scores(run.eval_dir / name) for name in names]
    graders = sorted({one.grader.partition(" (")[0] for one in scores})
    if len(graders) > 1:
        raise RunError(f"{path}: was graded by {' and '.join(graders)}", hint="grade it again with one of them")
    return scores
