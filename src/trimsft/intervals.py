"""95 % intervals of means: over problems (`mean_intervals`), also over trainings (`interval_over_runs`).

    >>> scores = np.array([[1.0], [0.0], [1.0], [1.0], [0.5], [0.0], [1.0], [0.5]])  # 8 problems, 1 run
    >>> found = interval_over_runs([scores], bounds=(0, 1))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.625, 0.278, 0.888)

Problems are weighed anew, never samples: the samples of a problem share its difficulty. Each draw gives
every problem a random weight, exponentially distributed, and adds ONE problem that nobody has seen, at
the worst score for the end in question: 0 for the lower end, 1 for the upper. The ends are the 2.5 % and
97.5 % quantiles of the weighted means (Learned-Miller and Thomas, "A new confidence interval for the mean
of a bounded random variable", 2019). With one answer a problem these are the limits of Clopper and
Pearson. All columns share the weights, so that pass@k and both its ends never fall as k grows. Of a
difference the unseen problem is as far from 0 as the largest one seen, of a length it is the shortest
and the longest seen. docs/evaluation.md has the simulated coverage.

Shapes: P problems, M columns (metrics), R resamples, S runs.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Bounds: TypeAlias = tuple[float, float]

RESAMPLES = 10_000
_OUTSIDE = 0.05
_CHUNK = 2**18  # indices drawn at once: they stay in the cache, and memory stays small
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def mean_intervals(
    strata: Sequence[Array], bounds: Sequence[Bounds], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """Return the interval of each column's mean over strata, each [P, M], of the mean over problems.

    The bounds of a problem's value are (0, 1) for shares, (-1, 1) for differences, infinite for lengths.
    """
    rng = np.random.default_rng(seed)
    ends_RM = zip(*(_weighted_means(stratum, bounds, resamples, rng) for stratum in strata), strict=True)
    below_RM, above_RM = (np.mean(draws, axis=0) for draws in ends_RM)
    means_M = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    lows_M, highs_M = np.quantile(below_RM, _OUTSIDE / 2, axis=0), np.quantile(above_RM, 1 - _OUTSIDE / 2, axis=0)
    ends = zip(means_M, np.minimum(lows_M, means_M), np.maximum(highs_M, means_M), strict=True)
    return [Interval(*map(float, one)) for one in ends]


def _weighted_means(
    values_PM: Array, bounds: Sequence[Bounds], resamples: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Means of the problems and one more at the lower end, and at the upper end; each [R, M]."""
    _require_values(values_PM)
    problems = len(values_PM)
    least_M, most_M = np.transpose([_ends(*one) for one in zip(values_PM.T, bounds, strict=True)])
    below_RM, above_RM = np.empty((2, resamples, values_PM.shape[1]))
    step = max(1, _CHUNK // (problems + 1))
    for start in range(0, resamples, step):
        rows = slice(start, min(start + step, resamples))
        weights_RP = rng.standard_exponential((rows.stop - start, problems + 1))
        weights_RP /= weights_RP.sum(axis=1, keepdims=True)
        seen_RM = weights_RP[:, :-1] @ values_PM
        below_RM[rows] = seen_RM + weights_RP[:, -1:] * least_M
        above_RM[rows] = seen_RM + weights_RP[:, -1:] * most_M
    # weights that add up to 1 only nearly must not lead out of the range of the values
    return np.clip(below_RM, least_M, most_M), np.clip(above_RM, least_M, most_M)


def _ends(values_P: Array, bounds: Bounds) -> Bounds:
    """Return the least and the most that a problem which nobody has seen is taken to have."""
    low, high = bounds
    if low < 0:
        farthest = float(np.abs(values_P).max()) or (high if math.isfinite(high) else 0.0)
        return -farthest, farthest
    return bounds if math.isfinite(high) else (float(values_P.min()), float(values_P.max()))


def resampled_means(values_PM: Array, resamples: int, rng: np.random.Generator) -> Array:
    """Return the means of each column over problems drawn with replacement; [R, M]."""
    _require_values(values_PM)
    problems = len(values_PM)
    draws_RM = np.empty((resamples, values_PM.shape[1]))
    step = max(1, _CHUNK // problems)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(problems, size=(rows, problems)) + problems * np.arange(rows)[:, None]
        times_RP = np.bincount(drawn.ravel(), minlength=rows * problems).reshape(rows, problems)
        draws_RM[start : start + rows] = times_RP.astype(np.float64) @ values_PM / problems
    return draws_RM


def _require_values(values_PM: Array) -> None:
    if len(values_PM) == 0 or not np.isfinite(values_PM).all():
        raise ValueError(f"values: must be finite, of one problem or more; got an array of {values_PM.shape}")


def bias_corrected(value: float, draws_R: Array) -> Interval:
    """Return the interval of a statistic from its resamples, by bias-corrected percentiles.

    Resamples without a value (NaN) do not count; without any there is no interval but the value.
    """
    draws_R = draws_R[np.isfinite(draws_R)]
    if math.isnan(value) or not len(draws_R):
        return Interval(value, value, value)
    # the normal quantile of the share of draws below the value, those equal to it counted half
    below = float((np.mean(draws_R < value - 1e-12) + np.mean(draws_R <= value + 1e-12)) / 2)
    bias = _NORMAL.inv_cdf(min(max(below, 0.5 / len(draws_R)), 1 - 0.5 / len(draws_R)))
    levels = [_NORMAL.cdf(2 * bias + _NORMAL.inv_cdf(level)) for level in (_OUTSIDE / 2, 1 - _OUTSIDE / 2)]
    low, high = np.quantile(draws_R, levels)
    return Interval(value, min(value, float(low)), max(value, float(high)))


def interval_over_runs(
    strata: Sequence[Array], bounds: Bounds, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the interval of the mean over benchmarks, problems and S runs; each stratum is [P, S].

    With one run it is the interval over problems alone. Of more, scores averaged over the runs give
    the interval over problems. Of the trainings there are only a handful of means, and resampling
    those shows no more spread than was seen, so they get Student's t with S - 1 degrees of freedom.
    The two half-widths are added in quadrature, as independent errors are:

        half = sqrt(half_problems^2 + (t_{0.975, S-1} * sd(run means) / sqrt(S))^2)

    The chance differences of samples enter both, which errs on the wide side.
    """
    averaged = [stratum.mean(axis=1, keepdims=True) for stratum in strata]
    (over_problems,) = mean_intervals(averaged, [bounds], resamples=resamples, seed=seed)
    runs_S = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    if len(runs_S) == 1:
        return over_problems
    half = student_t(len(runs_S) - 1) * float(runs_S.std(ddof=1)) / math.sqrt(len(runs_S))
    low = over_problems.value - math.hypot(over_problems.value - over_problems.low, half)
    high = over_problems.value + math.hypot(over_problems.high - over_problems.value, half)
    return Interval(over_problems.value, max(low, bounds[0]), min(high, bounds[1]))


@functools.cache
def student_t(degrees: int) -> float:
    """Return the quantile of Student's t with 5 % outside both ends: 12.71, 4.30, ... 1.96."""
    import mpmath

    def outside(t: float) -> Any:
        return mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)

    return float(mpmath.findroot(lambda t: outside(t) - _OUTSIDE, (1, 20), solver="anderson"))
