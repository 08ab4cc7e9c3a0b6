"""95 % intervals of means over problems, by the bootstrap.

    >>> import numpy as np
    >>> scores = np.array([[1.0], [0.0], [1.0], [1.0], [0.5], [0.0], [1.0], [0.5]])  # 8 problems, 1 run
    >>> mean_interval([scores], bounds=(0, 1))
    Interval(value=0.625, low=0.3125, high=0.875)

Problems are resampled, never samples: the samples of a problem share its difficulty. The interval is BCa (bias-
corrected and accelerated). Where all problems agree no resample differs, and the rule of three takes over: after n
problems without an exception, exceptions are fewer than 3 in n with 95 % confidence.

Coverage of the true mean in % (mean width in points) over 1,500 simulated evaluations, 2,000 resamples each (made by
benchmarks/coverage.py, docs/results/coverage.json; standard error 0.6); the percentile bootstrap falls short where
scores are near 0 or 1, which is why it is not used here. "binary" is one sample a problem; "of 8" is average@8 with
difficulties drawn from Beta(p, 1 - p):

    problems  true mean  binary: percentile  BCa + rule of three   of 8: percentile  BCa + rule of three
          30       0.05         78.7 (11.9)          98.3 (17.9)        85.5 (10.2)          90.1 (12.6)
          30       0.50         95.8 (33.8)          96.7 (34.5)        94.7 (26.2)          95.6 (26.2)
          30       0.95         77.6 (11.9)          98.7 (17.8)        83.3 (10.0)          88.8 (12.4)
          83       0.05          90.7 (8.7)           97.2 (9.7)         90.8 (6.6)           93.4 (7.2)
          83       0.50         94.7 (21.4)          94.9 (21.3)        94.7 (16.0)          95.1 (16.0)
          83       0.95          91.3 (8.8)           96.7 (9.9)         91.1 (6.7)           93.9 (7.3)
         500       0.05          95.2 (3.8)           95.9 (3.9)         94.5 (2.8)           95.1 (2.9)
         500       0.50          95.3 (8.7)           95.4 (8.7)         95.7 (6.6)           95.6 (6.6)
         500       0.95          94.5 (3.8)           94.9 (3.8)         95.0 (2.8)           95.1 (2.9)

These intervals say how far another draw of problems would differ; for what another training would score see
`run_intervals`.

Shapes: P problems, M columns (metrics), R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TypeAlias

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

    def as_dict(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high}


def column_intervals(
    values_PM: Array, bounds: Sequence[Bounds | None], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """The interval of each column's mean, all from the same resampled problems."""
    draws_RM = resampled_means(values_PM, resamples, np.random.default_rng(seed))
    means_M = values_PM.mean(axis=0)
    return [
        _interval(float(mean), draws_R, values_P - mean, _slack(len(values_PM), 1), bound)
        for mean, draws_R, values_P, bound in zip(means_M, draws_RM.T, values_PM.T, bounds, strict=True)
    ]


def mean_interval(
    strata: Sequence[Array], bounds: Bounds | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of the mean over strata (benchmarks) of the mean over problems; each stratum is [P, 1].

    Problems are resampled within their stratum.
    """
    if not strata or any(stratum.ndim != 2 or stratum.shape[1] != 1 for stratum in strata):
        shapes = [stratum.shape for stratum in strata]
        raise ValueError(f"strata: must be one or more arrays of [problems, 1], got {shapes}")
    return mean_intervals(strata, [bounds], resamples=resamples, seed=seed)[0]


def mean_intervals(
    strata: Sequence[Array], bounds: Sequence[Bounds | None], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """The same for each column of strata that are [P, M], all from the same resampled problems."""
    rng = np.random.default_rng(seed)
    share = 1 / len(strata)
    draws_RM = np.sum([share * resampled_means(stratum, resamples, rng) for stratum in strata], axis=0)
    means_M = np.sum([share * stratum.mean(axis=0) for stratum in strata], axis=0)
    influence_PM = np.concatenate([share * (stratum - stratum.mean(axis=0)) / len(stratum) for stratum in strata])
    slack = _slack(min(len(stratum) for stratum in strata), len(strata))
    return [
        _interval(float(mean), draws_R, influence_P, slack, bound)
        for mean, draws_R, influence_P, bound in zip(means_M, draws_RM.T, influence_PM.T, bounds, strict=True)
    ]


def resampled_means(values_PM: Array, resamples: int, rng: np.random.Generator) -> Array:
    """The means of each column over problems drawn with replacement; [R, M]."""
    problems = len(values_PM)
    if problems == 0 or not np.isfinite(values_PM).all():
        raise ValueError(f"values: must be finite, for one problem or more, got shape {values_PM.shape}")
    if resamples < 1:
        raise ValueError(f"resamples: must be 1 or more, got {resamples}")
    draws_RM = np.empty((resamples, values_PM.shape[1]))
    step = max(1, _CHUNK // problems)
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(problems, size=(rows, problems)) + problems * np.arange(rows)[:, None]
        times_RP = np.bincount(drawn.ravel(), minlength=rows * problems).reshape(rows, problems)
        draws_RM[start : start + rows] = times_RP.astype(np.float64) @ values_PM / problems
    return draws_RM


def bias_corrected(value: float, draws_R: Array) -> Interval:
    """The interval of any statistic from its resamples, by the bias-corrected percentile method.

    Resamples without a value (NaN) do not count; without any there is no interval but the value.
    """
    draws_R = draws_R[np.isfinite(draws_R)]
    if math.isnan(value) or not len(draws_R):
        return Interval(value, value, value)
    rounding, count = 1e-12, len(draws_R)
    below = (np.mean(draws_R < value - rounding) + np.mean(draws_R <= value + rounding)) / 2
    bias = _NORMAL.inv_cdf(min(max(float(below), 0.5 / count), 1 - 0.5 / count))
    levels = [_NORMAL.cdf(2 * bias + _NORMAL.inv_cdf(level)) for level in (_OUTSIDE / 2, 1 - _OUTSIDE / 2)]
    low, high = np.quantile(draws_R, levels)
    return Interval(value, min(value, float(low)), max(value, float(high)))


def _slack(problems: int, strata: int) -> float:
    """The rule of three: how far, in units of the range, a mean may be from what all problems agreed on."""
    return min(1.0, -math.log(_OUTSIDE) / problems) / strata


def _interval(mean: float, draws_R: Array, influence: Array, slack: float, bounds: Bounds | None) -> Interval:
    rounding = 1e-12 * max(1.0, abs(mean))
    if np.abs(influence).max() <= rounding:
        low, high = bounds or (mean, mean)
        return Interval(mean, mean - slack * (mean - low), mean + slack * (high - mean))
    acceleration = float((influence**3).sum() / (6 * (influence**2).sum() ** 1.5))
    below = (np.mean(draws_R < mean - rounding) + np.mean(draws_R <= mean + rounding)) / 2
    bias = _NORMAL.inv_cdf(min(max(float(below), 0.5 / len(draws_R)), 1 - 0.5 / len(draws_R)))
    levels = [_bca_level(outside, bias, acceleration) for outside in (_OUTSIDE / 2, 1 - _OUTSIDE / 2)]
    low, high = np.quantile(draws_R, levels)
    return Interval(mean, float(low), float(high))


def _bca_level(level: float, bias: float, acceleration: float) -> float:
    """Which quantile of the draws stands for this level: Phi(b + (b + z) / (1 - a (b + z)))."""
    shifted = bias + _NORMAL.inv_cdf(level)
    return _NORMAL.cdf(bias + shifted / (1 - acceleration * shifted))
