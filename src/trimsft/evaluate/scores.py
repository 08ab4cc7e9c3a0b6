"""The scores of a run on a benchmark, and their mean over benchmarks and over runs; every one with its interval.

result = score("gsm8k", samples, equivalent)          # samples: SampleResult, one for each response
result.average.value, result.pass_at[8].low, result.majority_at[8].high, result.greedy
macro([result, score("math500", ...)])                # mean over benchmarks; macros: of several metrics at once
over_runs([[seed_0_gsm8k], [seed_1_gsm8k]])           # mean over runs
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from trimsft.errors import UsageError
from trimsft.evaluate.metrics import (
    Equivalent,
    ProblemScore,
    SampleResult,
    metric_bounds,
    metric_names,
    metric_values,
    summarize,
)
from trimsft.intervals import RESAMPLES, Array, Interval, interval_over_runs, mean_intervals


@dataclass(frozen=True)
class GroupScore:
    """The problems of one subject, or of one level."""

    problems: int
    average: Interval | None
    greedy: Interval | None


@dataclass(frozen=True)
class BenchmarkScore:
    """What `scores.json` holds."""

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
    groups: dict[str, dict[str, GroupScore]] = field(default_factory=dict)
    """What the benchmark tells problems apart by, such as subject or level -> its value -> the score there."""

    def values(self, metric: str) -> Array:
        """The metric of each problem, in the order of `per_problem`."""
        return metric_values(self.per_problem, metric)

    def interval(self, metric: str) -> Interval:
        """The interval of a metric by its name, for instance "pass@4"."""
        self.values(metric)  # an unknown name ends here, with the known ones
        kind, _, k = metric.partition("@")
        fields = {"no_answer": "no_answer_rate", "truncated": "truncation_rate", "tokens": "mean_tokens"}
        interval: Interval = getattr(self, f"{kind}_at")[int(k)] if k else getattr(self, fields.get(metric, metric))
        return interval

    def as_dict(self) -> dict[str, Any]:
        """For JSON, whose keys are texts."""
        record = asdict(self)
        for name in ("pass_at", "majority_at"):
            record[name] = {str(k): interval for k, interval in record[name].items()}
        return record


def score(
    benchmark: str,
    samples: Sequence[SampleResult],
    equivalent: Equivalent,
    *,
    by_problem: Callable[[str], Equivalent] | None = None,
    expected: Collection[str] | None = None,
    groups: Mapping[str, Mapping[str, str]] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BenchmarkScore:
    """Score a benchmark's samples, in whatever order they come.

    Args:
        samples: every problem with the same number of samples, which may be 0 beside greedy decoding; that for all
            problems or none.
        equivalent: whether two answers say the same; asked in both directions.
        by_problem: the same for one problem, by its id, where problems have rules of their own.
        expected: ids of the problems that must all be there, and no others.
        groups: what problems are told apart by, such as {"subject": {"p1": "Algebra", ...}}.
    """
    sampled, greedy = _by_problem(benchmark, samples, expected)
    same = by_problem or (lambda name: equivalent)
    problems = [
        summarize(name, sampled.get(name, []), greedy.get(name), same(name)) for name in sorted({**sampled, **greedy})
    ]
    statuses = dict(sorted(Counter(sample.status for sample in samples if not sample.greedy).items()))
    result = score_counts(benchmark, problems, statuses, resamples=resamples, seed=seed)
    return replace(result, groups=_by_group(problems, groups or {}, resamples, seed))


def score_counts(
    benchmark: str,
    problems: Sequence[ProblemScore],
    statuses: Mapping[str, int],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> BenchmarkScore:
    """The scores that follow from the counts of all problems, which are sorted by id."""
    k, greedy = problems[0].samples, problems[0].greedy is not None
    names = metric_names(k, greedy=greedy)
    intervals = _intervals(problems, names, resamples, seed)
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
        statuses=dict(statuses),
        mixed_problems=sum(problem.mixed for problem in problems),
        per_problem=tuple(problems),
    )


def _intervals(
    problems: Sequence[ProblemScore], metrics: Sequence[str], resamples: int, seed: int
) -> dict[str, Interval]:
    values_PM = np.stack([metric_values(problems, name) for name in metrics], axis=1)
    bounds = [metric_bounds(name) for name in metrics]
    return dict(zip(metrics, mean_intervals([values_PM], bounds, resamples=resamples, seed=seed), strict=True))


def _by_group(
    problems: Sequence[ProblemScore], groups: Mapping[str, Mapping[str, str]], resamples: int, seed: int
) -> dict[str, dict[str, GroupScore]]:
    metrics = [name for name in ("average", "greedy") if name in metric_names(problems[0].samples, greedy=True)]
    metrics = metrics if problems[0].greedy is not None else metrics[:1]
    scores: dict[str, dict[str, GroupScore]] = {}
    for column, value_of in groups.items():
        for value in sorted(set(value_of.values())):
            members = [problem for problem in problems if value_of.get(problem.problem) == value]
            found = _intervals(members, metrics, resamples, seed)
            group = GroupScore(len(members), found.get("average"), found.get("greedy"))
            scores.setdefault(column, {})[value] = group
    return scores


def macro(
    scores: Sequence[BenchmarkScore], metric: str = "average", *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean over benchmarks, each counting the same; problems are resampled within their benchmark."""
    return macros(scores, [metric], resamples=resamples, seed=seed)[metric]


def macros(
    scores: Sequence[BenchmarkScore], metrics: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Interval]:
    """`macro` of each of these metrics, for the price of one."""
    if not scores:
        raise ValueError("scores: must be of one benchmark or more, got none")
    by_name = sorted(_by_benchmark(scores).items())
    strata = [np.stack([table.values(metric) for metric in metrics], axis=1) for _, table in by_name]
    intervals = mean_intervals(strata, [metric_bounds(metric) for metric in metrics], resamples=resamples, seed=seed)
    return dict(zip(metrics, intervals, strict=True))


def over_runs(
    runs: Sequence[Sequence[BenchmarkScore]], metric: str = "average", *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The mean over runs (seeds) of the mean over benchmarks; the interval is for other problems and trainings."""
    if not runs or not runs[0]:
        raise ValueError("runs: must be one or more, each with one benchmark or more, got none")
    tables = [_by_benchmark(scores) for scores in runs]
    for table in tables[1:]:
        for name in sorted(tables[0].keys() | table.keys()):
            require_same_problems(tables[0].get(name), table.get(name), name)
    strata = [np.stack([table[name].values(metric) for table in tables], axis=1) for name in sorted(tables[0])]
    return interval_over_runs(strata, metric_bounds(metric), resamples=resamples, seed=seed)


def require_same_problems(a: BenchmarkScore | None, b: BenchmarkScore | None, benchmark: str) -> None:
    """Only the same problems can be set side by side."""
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


def _by_problem(
    benchmark: str, samples: Sequence[SampleResult], expected: Collection[str] | None
) -> tuple[dict[str, list[SampleResult]], dict[str, SampleResult]]:
    """The samples and the greedy answer of each problem, complete, or an error that counts what is missing."""
    sampled: dict[str, dict[int, SampleResult]] = {}
    greedy: dict[str, dict[int, SampleResult]] = {}
    for sample in samples:
        drawn = (greedy if sample.greedy else sampled).setdefault(sample.problem, {})
        number = 0 if sample.greedy else sample.sample
        if number in drawn:
            kind = "greedy answer" if sample.greedy else f"sample {number}"
            raise ValueError(f"{benchmark}: problem {sample.problem!r} has {kind} twice; keep one")
        if sample.correct and sample.answer is None:
            raise ValueError(f"{benchmark}: problem {sample.problem!r} is graded correct without an answer")
        drawn[number] = sample
    _require_complete(benchmark, {name: len(drawn) for name, drawn in sampled.items()}, greedy, expected)
    samples_of = {name: list(drawn.values()) for name, drawn in sampled.items()}
    return samples_of, {name: drawn[0] for name, drawn in greedy.items()}


def _require_complete(
    benchmark: str, counts: dict[str, int], greedy: Collection[str], expected: Collection[str] | None
) -> None:
    if not counts and not greedy:
        raise ValueError(f"{benchmark}: no samples; at least one for each problem is needed, or greedy decoding")
    most = max(counts.values(), default=0)
    wanted = {*counts, *greedy} if expected is None else set(expected)
    if strangers := sorted({*counts, *greedy} - wanted):
        raise ValueError(f"{benchmark}: {len(strangers)} problems are not of the benchmark, such as {strangers[0]!r}")
    if short := sorted(name for name in wanted if counts.get(name, 0) < most):
        missing = sum(most - counts.get(name, 0) for name in short)
        raise ValueError(
            f"{benchmark}: {missing} of {most * len(wanted)} samples are missing: {len(short)} of {len(wanted)} "
            f"problems have fewer than {most}, such as {short[0]!r} with {counts.get(short[0], 0)}; "
            "finish the evaluation first"
        )
    if greedy and (without := sorted(wanted - set(greedy))):
        raise ValueError(
            f"{benchmark}: {len(without)} of {len(wanted)} greedy answers are missing, such as {without[0]!r}; "
            "finish the evaluation first"
        )
