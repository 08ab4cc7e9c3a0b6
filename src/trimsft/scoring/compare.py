"""Two runs on the same problems: how far apart, how sure, and which problems flipped.

    found = compare(baseline, candidate, "average")       # BenchmarkScore of each, same benchmark
    found.difference                                      # candidate - baseline, with its interval
    found.significant                                     # only with a small p-value and an interval without 0
    compare_runs(baseline_run, {"trim": run, "dft": other})   # all benchmarks, their mean, Holm over all of them

The comparison is paired: what makes a problem hard is common to both runs and drops out of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from trimsft.scoring.bootstrap import RESAMPLES, Array, Interval, mean_intervals
from trimsft.scoring.problems import metric_bounds
from trimsft.scoring.scores import BenchmarkScore, require_same_problems
from trimsft.scoring.significance import holm, sign_flip

LEVEL = 0.05
AVERAGE = "average"
"""Stands for the mean over benchmarks where a benchmark is named."""


@dataclass(frozen=True)
class Flip:
    """A problem that one run mostly solved and the other mostly did not."""

    benchmark: str
    problem: str
    before: float
    after: float


@dataclass(frozen=True)
class Comparison:
    """A candidate against a baseline, on one benchmark or on the mean of several."""

    baseline: str
    candidate: str
    benchmark: str
    metric: str
    problems: int
    before: float
    """The baseline's score."""
    after: float
    """The candidate's."""
    difference: Interval
    """after - before."""
    p_value: float
    """Of the sign-flip test, for this comparison alone."""
    p_holm: float
    """The same, corrected for all comparisons made together."""
    higher: int
    """Problems on which the candidate scores more, by however little."""
    lower: int
    better: tuple[Flip, ...]
    """Problems from below one half to above it, largest change first."""
    worse: tuple[Flip, ...]
    """Problems from above one half to below it."""

    @property
    def significant(self) -> bool:
        """Whether the difference may be marked: corrected p below 0.05, and an interval that excludes 0."""
        return self.p_holm < LEVEL and self.difference.excludes_zero

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "significant": self.significant}


def compare(
    a: BenchmarkScore,
    b: BenchmarkScore,
    metric: str = "average",
    *,
    names: tuple[str, str] = ("a", "b"),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """b against a, paired by problem."""
    if a.benchmark != b.benchmark:
        raise ValueError(f"benchmark: must be the same for both runs, got {a.benchmark!r} and {b.benchmark!r}")
    return _compare([(a, b)], a.benchmark, metric, names, resamples, seed)


def compare_macro(
    a: Sequence[BenchmarkScore],
    b: Sequence[BenchmarkScore],
    metric: str = "average",
    *,
    names: tuple[str, str] = ("a", "b"),
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """The mean over benchmarks of b against that of a; problems are resampled within their benchmark."""
    return _compare(_paired(a, b), AVERAGE, metric, names, resamples, seed)


def compare_runs(
    baseline: Sequence[BenchmarkScore],
    candidates: Mapping[str, Sequence[BenchmarkScore]],
    metric: str = "average",
    *,
    name: str = "baseline",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Comparison]:
    """Every candidate against the baseline on every benchmark, and on their mean where there are several.

    Holm's correction covers all of them, so that the more is tested, the less is called significant.
    """
    found: list[Comparison] = []
    for candidate, scores in candidates.items():
        names = (name, candidate)
        pairs = _paired(baseline, scores)
        found += [_compare([pair], pair[0].benchmark, metric, names, resamples, seed) for pair in pairs]
        if len(pairs) > 1:
            found.append(_compare(pairs, AVERAGE, metric, names, resamples, seed))
    return correct_for_many(found)


def compare_pairs(
    pairs: Sequence[tuple[Sequence[BenchmarkScore], Sequence[BenchmarkScore]]],
    metrics: Sequence[str],
    *,
    names: Sequence[tuple[str, str]],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, list[Comparison]]]:
    """What `compare_runs` finds of each pair alone, by metric; they share the resampled problems, and so the time.

    Args:
        pairs: baseline and candidate, all with the same benchmarks and problems.
        names: of each pair.
    """
    paired = [_paired(*pair) for pair in pairs]
    places = [[of_pair[place : place + 1] for of_pair in paired] for place in range(len(paired[0]))]
    names_of = [place[0][0][0].benchmark for place in places]
    if len(places) > 1:
        places, names_of = [*places, paired], [*names_of, AVERAGE]
    found = [
        _compare_each(place, benchmark, metrics, names, resamples, seed)
        for place, benchmark in zip(places, names_of, strict=True)
    ]
    return [
        {
            metric: correct_for_many([of_place[pair][number] for of_place in found])
            for number, metric in enumerate(metrics)
        }
        for pair in range(len(pairs))
    ]


def correct_for_many(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with `p_holm` over all of them."""
    corrected = holm([comparison.p_value for comparison in comparisons])
    return [replace(comparison, p_holm=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _paired(a: Sequence[BenchmarkScore], b: Sequence[BenchmarkScore]) -> list[tuple[BenchmarkScore, BenchmarkScore]]:
    of_a, of_b = ({score.benchmark: score for score in side} for side in (a, b))
    if len(of_a) < len(a) or len(of_b) < len(b) or not of_a or of_a.keys() != of_b.keys():
        raise ValueError(
            f"benchmarks: must be the same for both runs, each once, got {[score.benchmark for score in a]} and "
            f"{[score.benchmark for score in b]}"
        )
    return [(of_a[name], of_b[name]) for name in sorted(of_a)]


def _compare(
    pairs: Sequence[tuple[BenchmarkScore, BenchmarkScore]],
    benchmark: str,
    metric: str,
    names: tuple[str, str],
    resamples: int,
    seed: int,
) -> Comparison:
    return _compare_each([pairs], benchmark, [metric], [names], resamples, seed)[0][0]


def _compare_each(
    place: Sequence[Sequence[tuple[BenchmarkScore, BenchmarkScore]]],
    benchmark: str,
    metrics: Sequence[str],
    names: Sequence[tuple[str, str]],
    resamples: int,
    seed: int,
) -> list[list[Comparison]]:
    """One comparison for each pair of runs and each metric, with intervals from the same resampled problems."""
    for a, b in (pair for pairs in place for pair in pairs):
        require_same_problems(a, b, a.benchmark)
    bounds = [None if metric_bounds(metric) is None else (-1.0, 1.0) for metric in metrics]
    strata = [
        np.stack([b.values(metric) - a.values(metric) for a, b in sides for metric in metrics], axis=1)
        for sides in zip(*place, strict=True)
    ]
    differences = iter(mean_intervals(strata, bounds * len(place), resamples=resamples, seed=seed))
    return [
        [_with_difference(next(differences), pairs, benchmark, metric, of_pair, seed) for metric in metrics]
        for pairs, of_pair in zip(place, names, strict=True)
    ]


def _with_difference(
    difference: Interval,
    pairs: Sequence[tuple[BenchmarkScore, BenchmarkScore]],
    benchmark: str,
    metric: str,
    names: tuple[str, str],
    seed: int,
) -> Comparison:
    values = [(a.values(metric), b.values(metric)) for a, b in pairs]
    # as it enters the mean over benchmarks: a benchmark with few problems gives each of them more weight
    weighed = np.concatenate([(after - before) / (len(after) * len(pairs)) for before, after in values])
    steps = _steps(metric, *pairs[0]) if len(pairs) == 1 else None
    p_value = sign_flip(weighed if steps is None else values[0][1] - values[0][0], steps=steps, seed=seed)
    flips = _flips(pairs, values) if metric_bounds(metric) else []
    return Comparison(
        baseline=names[0],
        candidate=names[1],
        benchmark=benchmark,
        metric=metric,
        problems=len(weighed),
        before=float(np.mean([before.mean() for before, _ in values])),
        after=float(np.mean([after.mean() for _, after in values])),
        difference=difference,
        p_value=p_value,
        p_holm=p_value,
        higher=int((weighed > 0).sum()),
        lower=int((weighed < 0).sum()),
        better=tuple(flip for flip in flips if flip.after > flip.before),
        worse=tuple(flip for flip in flips if flip.after < flip.before),
    )


def _steps(metric: str, a: BenchmarkScore, b: BenchmarkScore) -> int | None:
    """The s for which every value is a multiple of 1/s, so that the test can count exactly; None if not known."""
    both = (a.samples, b.samples)
    kind, _, k = metric.partition("@")
    if kind == "pass":
        return math.lcm(*(math.comb(samples, int(k)) for samples in both))
    if metric == "greedy":
        return 1
    return None if kind in ("majority", "tokens") else math.lcm(*both)


def _flips(pairs: Sequence[tuple[BenchmarkScore, BenchmarkScore]], values: Sequence[tuple[Array, Array]]) -> list[Flip]:
    flips = [
        Flip(a.benchmark, problem.problem, float(before), float(after))
        for (a, _), (befores, afters) in zip(pairs, values, strict=True)
        for problem, before, after in zip(a.per_problem, befores, afters, strict=True)
        if min(before, after) < 0.5 < max(before, after)
    ]
    return sorted(flips, key=lambda flip: (-abs(flip.after - flip.before), flip.benchmark, flip.problem))
