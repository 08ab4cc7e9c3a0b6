"""95 % intervals of means: over problems by the bootstrap (`mean_intervals`), over trainings by Student's t
(`interval_over_runs`).

    >>> scores = np.array([[1.0], [0.0], [1.0], [1.0], [0.5], [0.0], [1.0], [0.5]])  # 8 problems, 1 run
    >>> interval_over_runs([scores], bounds=(0, 1))
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

Shapes: P problems, M columns (metrics), R resamples, S runs.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
        return asdict(self)


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


def mean_intervals(
    strata: Sequence[Array], bounds: Sequence[Bounds | None], *, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """The interval of each column's mean over strata (benchmarks) of the mean over problems; each stratum is [P, M].

    Problems are resampled within their stratum, and for all columns the same ones.
    """
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
    bias = _bias(value, draws_R, 1e-12)
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
    bias = _bias(mean, draws_R, rounding)
    levels = [_bca_level(outside, bias, acceleration) for outside in (_OUTSIDE / 2, 1 - _OUTSIDE / 2)]
    low, high = np.quantile(draws_R, levels)
    return Interval(mean, float(low), float(high))


def _bias(value: float, draws_R: Array, rounding: float) -> float:
    """The normal quantile of the share of draws below the value, those equal to it counted half."""
    below = (np.mean(draws_R < value - rounding) + np.mean(draws_R <= value + rounding)) / 2
    return _NORMAL.inv_cdf(min(max(float(below), 0.5 / len(draws_R)), 1 - 0.5 / len(draws_R)))


def _bca_level(level: float, bias: float, acceleration: float) -> float:
    """Which quantile of the draws stands for this level: Phi(b + (b + z) / (1 - a (b + z)))."""
    shifted = bias + _NORMAL.inv_cdf(level)
    return _NORMAL.cdf(bias + shifted / (1 - acceleration * shifted))


def interval_over_runs(
    strata: Sequence[Array], bounds: Bounds | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of the mean over strata (benchmarks), problems and runs; each stratum is [P, S], S runs in all.

    With one run it is the interval over problems alone, which knows nothing of what another training would score.

    The problems and the trainings would both come out differently another time. Scores averaged over the runs give the
    bootstrap interval over problems. Of the trainings there are only a handful of means, and resampling those shows no
    more spread than was seen, so they get Student's t with S - 1 degrees of freedom. The two half-widths are added in
    quadrature, as independent errors are:

        half = sqrt(half_problems^2 + (t_{0.975, S-1} * sd(run means) / sqrt(S))^2)

    With 2 runs t is 12.7 and the interval is wide: that is what two runs know. The chance differences of samples enter
    both parts, which errs on the wide side where the runs do not differ.

    Coverage of the true mean in % (mean width in points) over 1,000 simulated recipes (benchmarks/coverage.py,
    docs/results/coverage.json): average@8, difficulties N(0, 1.5) in log-odds, a problem's own change with the run
    N(0, 0.3), 500 resamples. "spread" is the standard deviation with which a training moves all log-odds; 0.1 is about
    2 points, 0.3 about 5. In brackets: the interval over problems alone.

        problems  spread               2 runs               3 runs               5 runs               8 runs
              83     0.0   [95.2] 99.0 (30.4)   [95.1] 97.4 (14.6)   [94.2] 95.8 (12.5)   [94.3] 94.9 (11.9)
              83     0.1   [94.1] 98.8 (38.0)   [94.0] 97.9 (16.7)   [92.9] 95.9 (13.3)   [94.8] 95.8 (12.3)
              83     0.3   [80.8] 97.9 (62.8)   [83.9] 97.7 (27.8)   [87.4] 97.5 (17.7)   [88.7] 95.9 (14.6)
             500     0.0   [93.6] 98.2 (12.0)    [93.5] 96.3 (5.9)    [94.4] 95.6 (5.1)    [93.4] 94.4 (4.9)
             500     0.1   [84.5] 98.7 (27.8)   [86.7] 98.1 (10.1)    [90.3] 97.2 (6.6)    [90.8] 94.8 (5.7)
             500     0.3   [48.1] 96.6 (59.9)   [54.2] 96.1 (23.5)   [65.6] 96.3 (13.2)    [68.7] 95.4 (9.7)

    With 30 problems it covers 93.9 to 99.2 %.
    """
    if len({stratum.shape[1] for stratum in strata}) != 1:
        shapes = [stratum.shape for stratum in strata]
        raise ValueError(f"strata: must be one or more arrays of [problems, runs] with equal runs, got {shapes}")
    averaged = [stratum.mean(axis=1, keepdims=True) for stratum in strata]
    (over_problems,) = mean_intervals(averaged, [bounds], resamples=resamples, seed=seed)
    runs_S = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    if len(runs_S) == 1:
        return over_problems
    half = student_t(len(runs_S) - 1) * float(runs_S.std(ddof=1)) / math.sqrt(len(runs_S))
    low = over_problems.value - math.hypot(over_problems.value - over_problems.low, half)
    high = over_problems.value + math.hypot(over_problems.high - over_problems.value, half)
    lowest, highest = bounds or (-math.inf, math.inf)
    return Interval(over_problems.value, max(low, lowest), min(high, highest))


@functools.cache
def student_t(degrees: int, outside: float = 0.05) -> float:
    """The 97.5 % quantile of Student's t: 12.71, 4.30, 3.18, ... down to 1.96; or with that much outside both ends."""
    import mpmath

    def above(t: float) -> float:
        """How much more than `outside` lies beyond t on both sides."""
        return float(mpmath.betainc(degrees / 2, 0.5, 0, degrees / (degrees + t * t), regularized=True)) - outside

    low, high = 0.0, 13.0
    while above(high) > 0:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > 0 else (low, middle)
    return low
