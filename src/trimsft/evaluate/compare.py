"""Two runs on the same problems: how far apart, how sure, and which problems flipped.

    comparisons = compare_runs(baseline, {"trim": run, "dft": other})  # all benchmarks, their mean, Holm over all
    comparisons[0].difference                                          # candidate - baseline, with its interval
    comparisons[0].significant                                         # a small p-value and an interval without 0

The comparison is paired: what makes a problem hard is common to both runs. Were they equally good, each problem's
difference could as well have the other sign: p is the share of sign patterns whose sum is as far from 0.

    >>> sign_flip([0.5, 0.25, 0.25, 1.0, 0.0])      # all four changes point up: 2 of 16 sign patterns are as extreme
    0.125
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trimsft.evaluate.metrics import difference_bounds
from trimsft.evaluate.scores import BenchmarkScore, by_benchmark, require_same_problems
from trimsft.intervals import RESAMPLES, Array, Interval, mean_intervals

LEVEL = 0.05
AVERAGE = "average"  # stands for the mean over benchmarks where a benchmark is named
DRAWS = 20_000
_FEW = 16  # differences whose 65,536 sign patterns are enumerated
_CHUNK = 2**20


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline, on one benchmark or on the mean of several."""

    baseline: str
    candidate: str
    benchmark: str
    metric: str
    problems: int
    before: float
    after: float
    difference: Interval  # after - before
    p_value: float  # from the sign-flip test, for this comparison alone
    p_holm: float  # the same, corrected for all comparisons made together
    better: tuple[str, ...]  # problems from below one half to above it, as benchmark/id
    worse: tuple[str, ...]  # problems from above one half to below it

    @property
    def significant(self) -> bool:
        """Return whether the difference may be marked: corrected p below 0.05, and an interval that excludes 0."""
        return self.p_holm < LEVEL and self.difference.excludes_zero

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "significant": self.significant}


def compare_runs(
    baseline: Sequence[BenchmarkScore],
    candidates: Mapping[str, Sequence[BenchmarkScore]],
    metrics: Sequence[str] = (AVERAGE,),
    *,
    name: str = "baseline",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Comparison]:
    """Compare every candidate with the baseline by each metric, on every benchmark and on their mean.

    Holm's correction covers all of them.
    """
    reference, tables = by_benchmark(baseline), {run: by_benchmark(scores) for run, scores in candidates.items()}
    for table in tables.values():
        require_same_problems(reference, table)
    benchmarks = sorted(reference)
    places = {one: [one] for one in benchmarks} | ({AVERAGE: benchmarks} if len(benchmarks) > 1 else {})
    columns = list(itertools.product(metrics, tables))
    bounds, differences = [difference_bounds(metric) for metric, _ in columns], {}
    for place, within in places.items() if columns else ():  # on the same resamples, which are the dear part
        changes = (
            [tables[run][one].values(metric) - reference[one].values(metric) for metric, run in columns]
            for one in within
        )
        strata = [np.stack(columns_of, axis=1) for columns_of in changes]
        differences[place] = iter(mean_intervals(strata, bounds, resamples=resamples, seed=seed))
    compared = []
    for (metric, run), (place, within) in itertools.product(columns, places.items()):
        pairs = [(reference[one], tables[run][one]) for one in within]
        values = [(before.values(metric), after.values(metric)) for before, after in pairs]
        # as it enters the mean over benchmarks: a benchmark with few problems gives each of them more weight
        weighed = np.concatenate([(after - before) / (len(after) * len(pairs)) for before, after in values])
        p_value = sign_flip(weighed, seed=seed)
        flips = [
            (new > old, f"{scores.benchmark}/{problem.problem}")
            for (scores, _), (befores, afters) in zip(pairs, values, strict=True)
            for problem, old, new in zip(scores.per_problem, befores, afters, strict=True)
            if min(old, new) < 0.5 < max(old, new) and metric not in ("tokens", "diversity", "brier")
        ]
        one = Comparison(
            baseline=name,
            candidate=run,
            benchmark=place,
            metric=metric,
            problems=len(weighed),
            before=float(np.mean([before.mean() for before, _ in values])),
            after=float(np.mean([after.mean() for _, after in values])),
            difference=next(differences[place]),
            p_value=p_value,
            p_holm=p_value,
            better=tuple(problem for is_better, problem in flips if is_better),
            worse=tuple(problem for is_better, problem in flips if not is_better),
        )
        compared.append(one)
    return correct_for_many(compared)


def compare_at_equal_accuracy(
    baseline: Sequence[BenchmarkScore], candidates: Mapping[str, Sequence[BenchmarkScore]], *, name: str = "baseline"
) -> list[Comparison]:
    """Compare diversity and calibration on the problems of which both runs have as many right samples.

    Elsewhere both would only repeat the accuracy.
    """
    reference, compared = by_benchmark(baseline), list[Comparison]()
    for run, scores in candidates.items():
        pairs = []
        for a, b in ((reference[b.benchmark], b) for b in scores if reference[b.benchmark].samples == b.samples > 1):
            both = zip(a.per_problem, b.per_problem, strict=True)
            if equal := {ours.problem for ours, theirs in both if ours.correct == theirs.correct}:
                pairs.append((a.only(equal, resamples=1), b.only(equal, resamples=1)))  # no interval of theirs is asked
        if pairs:
            ours, theirs = zip(*pairs, strict=True)
            compared += compare_runs(ours, {run: theirs}, ("diversity", "brier"), name=name)
    return correct_for_many(compared)


def correct_for_many(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the same comparisons with `p_holm` over all of them."""
    corrected = holm([comparison.p_value for comparison in comparisons])
    return [replace(comparison, p_holm=p) for comparison, p in zip(comparisons, corrected, strict=True)]


# ---- significance


def sign_flip(differences: Sequence[float] | Array, *, draws: int = DRAWS, seed: int = 0) -> float:
    """Return the two-sided p-value of differences being as likely negative as positive.

    Up to 16 differences that are not 0 are enumerated; of more, `draws` patterns are drawn, and p is
    (1 + hits) / (1 + draws).
    """
    values = np.asarray(differences, dtype=np.float64)
    sizes = np.abs(values[values != 0])
    observed = abs(float(values.sum())) - 1e-9 * float(sizes.sum())  # sums in another order round otherwise
    if len(sizes) <= _FEW:
        patterns = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ sizes) >= observed))
    rng, hits, step = np.random.default_rng(seed), 0, max(1, _CHUNK // len(sizes))
    for start in range(0, draws, step):
        signs = rng.integers(2, size=(min(step, draws - start), len(sizes)), dtype=np.int8)
        sums = 2 * (signs.astype(np.float64) @ sizes) - sizes.sum()
        hits += int(np.count_nonzero(np.abs(sums) >= observed))
    return (1 + hits) / (1 + draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down correction for all of them."""
    order = np.argsort(p_values, kind="stable")
    corrected = np.empty(len(p_values))
    corrected[order] = np.maximum.accumulate((len(p_values) - np.arange(len(p_values))) * np.sort(p_values))
    return [min(1.0, p) for p in corrected.tolist()]
