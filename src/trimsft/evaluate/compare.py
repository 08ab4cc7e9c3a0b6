"""Two runs on the same problems: how far apart, how sure, and which problems flipped.

    comparisons = compare_runs(baseline, {"trim": run, "dft": other})  # all benchmarks, their mean, Holm over all
    comparisons[0].difference                                          # candidate - baseline, with its interval
    comparisons[0].significant                                         # a small p-value and an interval without 0

The comparison is paired: what makes a problem hard is common to both runs and drops out of the difference. Were the two
runs equally good, each problem's difference could as well have had the other sign: the p-value of the sign-flip test is
the share of all sign patterns whose sum is at least as far from 0 as the one observed.

    >>> sign_flip([0.5, 0.25, 0.25, 1.0, 0.0])      # all four changes point up: 2 of 16 sign patterns are as extreme
    0.125
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.evaluate.metrics import difference_bounds
from trimsft.evaluate.scores import BenchmarkScore, by_benchmark, require_same_problems
from trimsft.intervals import RESAMPLES, Array, Interval, mean_intervals

Pair: TypeAlias = tuple[BenchmarkScore, BenchmarkScore]

LEVEL = 0.05
AVERAGE = "average"  # stands for the mean over benchmarks where a benchmark is named
DRAWS = 20_000
_FEW = 16  # differences whose 65,536 sign patterns are enumerated
_MOST_STEPS = 2 * 10**8  # additions that the exact count may take: about half a second
_CHUNK = 2**20


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
    after: float
    difference: Interval  # after - before
    p_value: float  # from the sign-flip test, for this comparison alone
    p_holm: float  # the same, corrected for all comparisons made together
    better: tuple[Flip, ...]  # problems from below one half to above it, largest change first
    worse: tuple[Flip, ...]  # problems from above one half to below it

    @property
    def significant(self) -> bool:
        """Return whether the difference may be marked: corrected p below 0.05, and an interval that excludes 0."""
        return self.p_holm < LEVEL and self.difference.excludes_zero

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "significant": self.significant}


def compare_runs(
    baseline: Sequence[BenchmarkScore],
    candidates: Mapping[str, Sequence[BenchmarkScore]],
    metric: str = "average",
    *,
    name: str = "baseline",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[Comparison]:
    """Compare every candidate with the baseline on every benchmark, and on their mean where there are several.

    Holm's correction covers all of them, so that the more is tested, the less is called significant.
    """
    names = [(name, candidate) for candidate in candidates]
    pairs = [(baseline, scores) for scores in candidates.values()]
    each = compare_pairs(pairs, [metric], names=names, resamples=resamples, seed=seed) if pairs else []
    return correct_for_many([comparison for one in each for comparison in one[metric]])


def compare_pairs(
    pairs: Sequence[tuple[Sequence[BenchmarkScore], Sequence[BenchmarkScore]]],
    metrics: Sequence[str],
    *,
    names: Sequence[tuple[str, str]],
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> list[dict[str, list[Comparison]]]:
    """Compare pairs of baseline and candidate as `compare_runs` does one alone, by metric, on the same resamples."""
    tables = [(by_benchmark(a), by_benchmark(b)) for a, b in pairs]
    for a, b in tables:
        require_same_problems(a, b)
    benchmarks = sorted(tables[0][0])
    places = {name: [name] for name in benchmarks} | ({AVERAGE: benchmarks} if len(benchmarks) > 1 else {})
    compared: list[dict[str, list[Comparison]]] = [{metric: [] for metric in metrics} for _ in pairs]
    bounds = [difference_bounds(metric) for metric in metrics]
    for place, within in places.items():
        strata = [
            np.stack([b[name].values(metric) - a[name].values(metric) for a, b in tables for metric in metrics], axis=1)
            for name in within
        ]
        differences = iter(mean_intervals(strata, bounds * len(pairs), resamples=resamples, seed=seed))
        for (a, b), of_pair, by_metric in zip(tables, names, compared, strict=True):
            for metric in metrics:
                sides = [(a[name], b[name]) for name in within]
                by_metric[metric].append(_with_difference(next(differences), sides, place, metric, of_pair, seed))
    return [{metric: correct_for_many(each) for metric, each in by_metric.items()} for by_metric in compared]


def correct_for_many(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the same comparisons with `p_holm` over all of them."""
    corrected = holm([comparison.p_value for comparison in comparisons])
    return [replace(comparison, p_holm=p) for comparison, p in zip(comparisons, corrected, strict=True)]


def _with_difference(
    difference: Interval, pairs: Sequence[Pair], benchmark: str, metric: str, names: tuple[str, str], seed: int
) -> Comparison:
    values = [(a.values(metric), b.values(metric)) for a, b in pairs]
    # as it enters the mean over benchmarks: a benchmark with few problems gives each of them more weight
    weighed = np.concatenate([(after - before) / (len(after) * len(pairs)) for before, after in values])
    steps = _steps(metric, *pairs[0]) if len(pairs) == 1 else None
    p_value = sign_flip(weighed if steps is None else values[0][1] - values[0][0], steps=steps, seed=seed)
    flips = [
        Flip(a.benchmark, problem.problem, float(before), float(after))
        for (a, _), (befores, afters) in zip(pairs, values, strict=True)
        for problem, before, after in zip(a.per_problem, befores, afters, strict=True)
        if min(before, after) < 0.5 < max(before, after) and metric != "tokens"
    ]
    flips.sort(key=lambda flip: (-abs(flip.after - flip.before), flip.benchmark, flip.problem))
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
        better=tuple(flip for flip in flips if flip.after > flip.before),
        worse=tuple(flip for flip in flips if flip.after < flip.before),
    )


def _steps(metric: str, *scores: BenchmarkScore) -> int | None:
    """Return s such that every value is a multiple of 1/s and the test can count exactly; None if not known."""
    kind, _, k = metric.partition("@")
    if kind in ("majority", "tokens"):
        return None
    counts = []
    for score in scores:
        name = score.known_as(metric)
        drawn = score.temperature_samples if name.startswith("T=") else score.samples
        counts.append(math.comb(drawn, int(k)) if k else 1 if name in ("greedy", "all_right") else drawn)
    return math.lcm(*counts)


# ---- significance


def sign_flip(
    differences: Sequence[float] | Array, *, steps: int | None = None, draws: int = DRAWS, seed: int = 0
) -> float:
    """Return the two-sided p-value of the hypothesis that each difference is as likely to be negative as positive.

    Args:
        differences: one for each problem; those that are 0 change nothing.
        steps: where all differences are multiples of 1/steps, the exact p-value follows by counting sums.
        draws: patterns drawn where neither counting nor enumeration is possible; p is then (1 + hits) / (1 + draws).
    """
    values = np.asarray(differences, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("differences: must be finite numbers, got NaN or infinity")
    sizes = np.abs(values[values != 0])
    if not len(sizes):
        return 1.0
    if steps is not None and steps <= _MOST_STEPS and steps * sizes.sum() * len(sizes) <= _MOST_STEPS:
        whole = np.rint(values * steps).astype(np.int64)
        if np.abs(whole - values * steps).max() > 1e-6:
            raise ValueError(f"steps: the differences are not multiples of 1/{steps}")
        return _by_counting(np.abs(whole[whole != 0]), abs(int(whole.sum())))
    observed = abs(float(values.sum())) - 1e-9 * float(sizes.sum())  # sums in another order round otherwise
    if len(sizes) <= _FEW:
        patterns = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ sizes) >= observed))
    return _by_drawing(sizes, observed, draws, np.random.default_rng(seed))


def _by_counting(sizes: NDArray[np.int64], observed: int) -> float:
    """Grow the distribution of the sum of the positive ones by one difference at a time; 2x - total is the sum."""
    total = int(sizes.sum())
    chance = np.zeros(total + 1)
    chance[0] = 1
    reached = 0
    for size in sizes.tolist():
        grown = chance[: reached + size + 1] / 2
        grown[size:] += chance[: reached + 1] / 2
        reached += size
        chance[: reached + 1] = grown
    extreme = np.abs(2 * np.arange(total + 1) - total) >= observed
    return min(1.0, float(chance[extreme].sum()))


def _by_drawing(sizes: Array, observed: float, draws: int, rng: np.random.Generator) -> float:
    hits = 0
    step = max(1, _CHUNK // len(sizes))
    for start in range(0, draws, step):
        signs = rng.integers(2, size=(min(step, draws - start), len(sizes)), dtype=np.int8)
        sums = 2 * (signs.astype(np.float64) @ sizes) - sizes.sum()
        hits += int(np.count_nonzero(np.abs(sums) >= observed))
    return (1 + hits) / (1 + draws)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down correction: the chance of any false claim among all of them stays below the level."""
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError(f"p_values: must be from 0 to 1, got {list(p_values)}")
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
