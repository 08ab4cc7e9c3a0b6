"""The scores of a run on a benchmark, their file, and their mean over benchmarks and over runs, all with intervals.

result = score("gsm8k", samples, equivalent)          # samples: SampleResult, one for each response
result.average.value, result.pass_at[8].low, result.majority_at[8].high, result.greedy
macro([result, score("math500", ...)])                # mean over benchmarks; macros: of several metrics at once
over_runs([[seed_0_gsm8k], [seed_1_gsm8k]])           # mean over runs
load_run("runs/trim")                                 # of a run directory

`scores.json` is the last file of an evaluation:

    {"grader": {"kind": "strict", "version": "7", "ignored_rules": [], ...}, "benchmark": "math500", "problems": 500,
     "average": {"value": 0.61, "low": 0.57, "high": 0.65}, ..., "per_problem": [...]}
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.metrics import (
    Equivalent,
    ProblemScore,
    SampleResult,
    cluster,
    metric_bounds,
    metric_names,
    metric_values,
    parted,
    summarize,
)
from trimsft.intervals import RESAMPLES, Array, Interval, interval_over_runs, mean_intervals
from trimsft.runs import RunDirectory, write_whole
from trimsft.runs.parsing import parse_json, read_json

SCORES = "scores.json"


@dataclass(frozen=True)
class BenchmarkScore:
    """The scores of a run on one benchmark."""

    benchmark: str
    problems: int
    samples: int
    """Drawn for each problem; greedy decoding not counted. With 0, only `greedy` is known."""
    average: Interval | None  # average@k, the mean correctness of all samples
    pass_at: dict[int, Interval]  # pass@k for every k up to `samples`: the chance that one of k samples is correct
    majority_at: dict[int, Interval]
    """majority@k for every k up to `samples`: the chance that the vote of k samples is correct."""
    greedy: Interval | None
    no_answer_rate: Interval | None  # share of samples without an answer, whatever the reason
    truncation_rate: Interval | None  # share of samples that ended at the length limit
    mean_tokens: Interval | None
    statuses: dict[str, int]  # how many samples were graded how
    mixed_problems: int  # problems where answers that voted together were graded differently; see `summarize`
    per_problem: tuple[ProblemScore, ...]  # sorted by id; every metric can be had again from these
    all_right: Interval | None = None  # share of problems with all samples correct
    temperature: float = 1.0  # of the samples that all of the above are of
    temperature_samples: int = 0  # of each problem at each further temperature
    at_temperature: dict[float, Interval] = field(default_factory=dict)
    """The average at each further temperature."""

    @property
    def metrics(self) -> list[str]:
        """Return the names of all metrics that it has."""
        return metric_names(self.samples, greedy=self.greedy is not None, temperatures=self.at_temperature)

    def values(self, metric: str) -> Array:
        """Return the metric of each problem, in the order of `per_problem`."""
        return metric_values(self.per_problem, self.known_as(metric))

    def known_as(self, metric: str) -> str:
        """Return the name of a metric by temperature here: T=0 is greedy, T=1 the average where samples are at 1."""
        if metric in ("T=0", f"T={self.temperature:g}"):
            return "greedy" if metric == "T=0" else "average"
        return metric

    def interval(self, metric: str) -> Interval:
        """Return the interval of a metric by its name, for instance "pass@4"."""
        self.values(metric)  # an unknown name ends here, with the known ones
        metric = self.known_as(metric)
        if metric.startswith("T="):
            return next(found for at, found in self.at_temperature.items() if f"T={at:g}" == metric)
        kind, _, k = metric.partition("@")
        fields = {"no_answer": "no_answer_rate", "truncated": "truncation_rate", "tokens": "mean_tokens"}
        interval: Interval = getattr(self, f"{kind}_at")[int(k)] if k else getattr(self, fields.get(metric, metric))
        return interval

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON, whose keys are texts."""
        record = asdict(self)
        for one in (record, *record["per_problem"]):
            for name in ("pass_at", "majority_at", "at_temperature", "correct_at"):
                if name in one:
                    one[name] = {f"{key:g}": value for key, value in one[name].items()}
        return record


def score(
    benchmark: str,
    samples: Sequence[SampleResult],
    equivalent: Equivalent,
    *,
    temperature: float = 1.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BenchmarkScore:
    """Score a benchmark's samples, in whatever order they come.

    Args:
        samples: every problem with the same number of samples, which may be 0 beside greedy decoding; that for all
            problems or none.
        equivalent: whether two answers say the same; asked in both directions.
    """
    by_problem: dict[str, dict[tuple[float | None, int], SampleResult]] = {}
    for sample in samples:
        number = -1 if sample.greedy else sample.sample
        if by_problem.setdefault(sample.problem, {}).setdefault((sample.temperature, number), sample) is not sample:
            raise ValueError(f"{benchmark}: problem {sample.problem!r} has sample {number} twice; keep one")
        if sample.correct and sample.answer is None:
            raise ValueError(f"{benchmark}: problem {sample.problem!r} is graded correct without an answer")
    if (
        len(
            {
                tuple(sorted(Counter((at, number < 0) for at, number in drawn).items(), key=str))
                for drawn in by_problem.values()
            }
        )
        != 1
    ):
        raise ValueError(f"{benchmark}: all problems must have the same samples, and there must be some")
    problems = []
    for name, drawn in sorted(by_problem.items()):
        results = list(drawn.values())
        sampled, _, _ = parted(results)
        problems.append(summarize(name, results, cluster([sample.answer for sample in sampled], equivalent)))
    statuses = Counter(sample.status for sample in samples if not sample.greedy and sample.temperature is None)
    return score_counts(benchmark, problems, statuses, temperature=temperature, resamples=resamples, seed=seed)


def score_counts(
    benchmark: str,
    problems: Sequence[ProblemScore],
    statuses: Mapping[str, int],
    *,
    temperature: float = 1.0,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BenchmarkScore:
    """Return the scores that follow from the counts of all problems, which are sorted by id."""
    first = problems[0]
    k, temperatures = first.samples, list(first.correct_at)
    names = metric_names(k, greedy=first.greedy is not None, temperatures=temperatures)
    values_PM = np.stack([metric_values(problems, name) for name in names], axis=1)
    bounds = [metric_bounds(name) for name in names]
    intervals = dict(zip(names, mean_intervals([values_PM], bounds, resamples=resamples, seed=seed), strict=True))
    return BenchmarkScore(
        benchmark=benchmark,
        problems=len(problems),
        samples=k,
        average=intervals.get("average"),
        pass_at={n: intervals[f"pass@{n}"] for n in range(1, k + 1)},
        majority_at={n: intervals[f"majority@{n}"] for n in range(1, k + 1)},
        greedy=intervals.get("greedy"),
        no_answer_rate=intervals.get("no_answer"),
        truncation_rate=intervals.get("truncated"),
        mean_tokens=intervals.get("tokens"),
        statuses=dict(sorted(statuses.items())),
        mixed_problems=sum(problem.mixed for problem in problems),
        per_problem=tuple(problems),
        all_right=intervals.get("all_right"),
        temperature=temperature,
        temperature_samples=first.samples_at,
        at_temperature={at: intervals[f"T={at:g}"] for at in temperatures},
    )


# ---- accuracy over temperature


def temperatures_of(scores: Sequence[BenchmarkScore]) -> list[float]:
    """Return the temperatures at which all of these were sampled, from the lowest on; 0 is the greedy answer."""
    sampled = [
        {*one.at_temperature, *([one.temperature] if one.samples else []), *([0.0] if one.greedy else [])}
        for one in scores
    ]
    return sorted(set.intersection(*sampled)) if sampled else []


def best_temperature(scores: Sequence[BenchmarkScore]) -> float:
    """Return the temperature at which a run is right most often, in the mean over benchmarks; of equals the lowest.

    Its score there is a little better than it would be on other problems, since it was chosen on these: as a reference
    it is not given less than it deserves.
    """
    means = {at: np.mean([one.interval(f"T={at:g}").value for one in scores]) for at in temperatures_of(scores)}
    if not means:
        raise UsageError("have no temperature in common", field="benchmarks")
    return max(means, key=lambda at: (round(float(means[at]), 12), -at))


# ---- means of several


def macro(
    scores: Sequence[BenchmarkScore], metric: str = "average", *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean over benchmarks, each counting the same; problems are resampled within their benchmark."""
    return macros(scores, [metric], resamples=resamples, seed=seed)[metric]


def macros(
    scores: Sequence[BenchmarkScore], metrics: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """Return `macro` of each of these metrics, for the price of one."""
    if not scores:
        raise ValueError("scores: must be of one benchmark or more, got none")
    by_name = sorted(_by_benchmark(scores).items())
    strata = [np.stack([table.values(metric) for metric in metrics], axis=1) for _, table in by_name]
    intervals = mean_intervals(strata, [metric_bounds(metric) for metric in metrics], resamples=resamples, seed=seed)
    return dict(zip(metrics, intervals, strict=True))


def over_runs(
    runs: Sequence[Sequence[BenchmarkScore]], metric: str = "average", *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean over runs (seeds) of the mean over benchmarks, with an interval for other problems and runs."""
    if not runs or not runs[0]:
        raise ValueError("runs: must be one or more, each with one benchmark or more, got none")
    tables = [_by_benchmark(scores) for scores in runs]
    for table in tables[1:]:
        for name in sorted(tables[0].keys() | table.keys()):
            require_same_problems(tables[0].get(name), table.get(name), name)
    strata = [np.stack([table[name].values(metric) for table in tables], axis=1) for name in sorted(tables[0])]
    return interval_over_runs(strata, metric_bounds(metric), resamples=resamples, seed=seed)


def require_same_problems(a: BenchmarkScore | None, b: BenchmarkScore | None, benchmark: str) -> None:
    """Refuse runs with different problems: their scores cannot be set side by side."""
    if a is None or b is None:
        raise UsageError(f"only one of the runs has {benchmark!r}", field="benchmarks")
    ids_a, ids_b = ({problem.problem for problem in side.per_problem} for side in (a, b))
    if ids_a != ids_b:
        sides = ((ids_a - ids_b, "only in the first"), (ids_b - ids_a, "only in the second"))
        differing = [f"{len(ids)} {where} (such as {min(ids)!r})" for ids, where in sides if ids]
        raise UsageError(
            f"the runs have different problems of {benchmark!r}: {', '.join(differing)}", field="benchmarks"
        )


def _by_benchmark(scores: Sequence[BenchmarkScore]) -> dict[str, BenchmarkScore]:
    table = {result.benchmark: result for result in scores}
    if len(table) < len(scores):
        repeated = Counter(result.benchmark for result in scores).most_common(1)[0][0]
        raise UsageError(f"{repeated!r} is there twice", field="benchmarks", hint="give each once")
    return table


# ---- scores.json


@dataclass(frozen=True)
class GradedBy:
    """The grader of a benchmark; scores by different ones do not compare."""

    kind: str
    version: str
    ignored_rules: tuple[str, ...] = ()
    grading: str = ""  # how answers are found and compared, where that is not boxed mathematics
    notes: tuple[str, ...] = field(default=(), compare=False)  # what it noticed, such as samples that are all alike
    problems_sha256: str = field(default="", compare=False)
    samples_bytes: int = field(default=0, compare=False)
    samples_sha256: str = field(default="", compare=False)
    """What the scores were made of: a record that has grown begins with these bytes."""

    def __str__(self) -> str:
        without = f" without {', '.join(self.ignored_rules)}" if self.ignored_rules else ""
        grading = f" ({self.grading})" if self.grading else ""
        return f"{self.kind} {self.version}{without}{grading}"


@dataclass(frozen=True, kw_only=True)
class _File(BenchmarkScore):
    grader: GradedBy
    sha256: str | None = None  # of all else in the file


class Recorded(NamedTuple):
    """Scores as they were recorded, with their grader."""

    scores: BenchmarkScore
    grader: GradedBy


def write_scores(folder: Path, scores: BenchmarkScore, grader: GradedBy) -> None:
    """Write the scores of a benchmark, and how its samples were graded, into its folder."""
    content = {"grader": asdict(grader), **scores.as_dict()}
    write_whole(folder / SCORES, (json.dumps({**content, "sha256": _fingerprint(content)}, indent=1) + "\n").encode())


def read_scores(folder: Path) -> Recorded:
    """Read the scores in the folder of a benchmark, with the grader that gave them."""
    path = folder / SCORES
    again = "it is damaged or of another version: make it again with trimsft eval, which generates nothing anew"
    try:
        file = read_json(path, _File, hint=again)
    except FileNotFoundError:
        raise RunError(f"{folder}: holds no scores", hint="finish it with trimsft eval") from None
    if file.benchmark != folder.name:
        raise RunError(f"{path}: these are scores of {file.benchmark!r}", hint=again)
    content = parse_json(path.read_bytes())
    if content.pop("sha256", None) not in (None, _fingerprint(content)):
        raise RunError(f"{path}: was changed after it was written", hint=again)
    scores = BenchmarkScore(**{one.name: getattr(file, one.name) for one in fields(BenchmarkScore)})
    return Recorded(scores, file.grader)


def _fingerprint(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def load_run(path: str | Path, benchmarks: Sequence[str] = ()) -> list[BenchmarkScore]:
    """Read the scores of a run directory, of these benchmarks or of all; refuse scores by different graders."""
    run = RunDirectory(path)
    if not run.eval_dir.is_dir():
        raise RunError(f"{path}: holds no evaluation", hint="make one with trimsft eval")
    evaluated = run.evaluations()
    if not evaluated:
        raise RunError(f"{path}: holds no scores", hint="finish its evaluation with trimsft eval")
    names = list(benchmarks) or evaluated
    if missing := next((name for name in names if name not in evaluated), None):
        raise RunError(f"{path}: holds no scores of {missing!r}", hint=f"it has {', '.join(evaluated)}")
    read = [read_scores(run.eval_dir / name) for name in names]
    graders = sorted({f"{one.grader.kind} {one.grader.version}" for one in read})
    if len(graders) > 1:
        raise RunError(f"{path}: was graded by {' and '.join(graders)}", hint="grade it again with one of them")
    return [recorded.scores for recorded in read]
