"""The interval of a mean over several trainings (seeds) of the same recipe.

    >>> import numpy as np
    >>> scores = np.array([[1.0, 0.5], [0.0, 0.0], [1.0, 1.0], [0.5, 0.0]])  # 4 problems, 2 runs
    >>> interval_over_runs([scores], bounds=(0, 1), resamples=200).value
    0.5

Two things would come out differently another time: the problems and the trainings. For the problems there is the
bootstrap (`bootstrap`), on scores averaged over the runs. For the trainings there are only a handful of means, and
resampling those is no help: of 2 runs, every second resample has none of one of them, and the spread that it shows is
bounded by what was seen. So they get Student's t with runs - 1 degrees of freedom, which knows how little a standard
deviation of 2 or 3 values says. The two half-widths are added in quadrature, as independent errors are:

    half = sqrt(half_problems^2 + (t_{0.975, S-1} * sd(run means) / sqrt(S))^2)

With 2 runs t is 12.7 and the interval is wide: that is what two runs know. The chance differences of samples enter both
parts, which errs on the wide side where the runs do not differ.

Coverage of the true mean in % (mean width in points) over 1,000 simulated recipes (benchmarks/coverage.py,
docs/results/coverage.json): average@8, difficulties N(0, 1.5) in log-odds, a problem's own change with the run
N(0, 0.3), 500 resamples. "spread" is the standard deviation with which a training moves all log-odds; 0.1 is about 2
points, 0.3 about 5. In brackets: the interval over problems alone.

    problems  spread               2 runs               3 runs               5 runs               8 runs
          83     0.0   [95.2] 99.0 (30.4)   [95.1] 97.4 (14.6)   [94.2] 95.8 (12.5)   [94.3] 94.9 (11.9)
          83     0.1   [94.1] 98.8 (38.0)   [94.0] 97.9 (16.7)   [92.9] 95.9 (13.3)   [94.8] 95.8 (12.3)
          83     0.3   [80.8] 97.9 (62.8)   [83.9] 97.7 (27.8)   [87.4] 97.5 (17.7)   [88.7] 95.9 (14.6)
         500     0.0   [93.6] 98.2 (12.0)    [93.5] 96.3 (5.9)    [94.4] 95.6 (5.1)    [93.4] 94.4 (4.9)
         500     0.1   [84.5] 98.7 (27.8)   [86.7] 98.1 (10.1)    [90.3] 97.2 (6.6)    [90.8] 94.8 (5.7)
         500     0.3   [48.1] 96.6 (59.9)   [54.2] 96.1 (23.5)   [65.6] 96.3 (13.2)    [68.7] 95.4 (9.7)

With 30 problems it covers 93.9 to 99.2 %.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from trimsft.scoring.bootstrap import RESAMPLES, Array, Bounds, Interval, mean_interval


def interval_over_runs(
    strata: Sequence[Array], bounds: Bounds | None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of the mean over strata (benchmarks), problems and runs; each stratum is [P, S], S runs in all.

    With one run it is the interval over problems alone, which knows nothing of what another training would score.
    """
    if len({stratum.shape[1] for stratum in strata}) > 1:
        shapes = [stratum.shape for stratum in strata]
        raise ValueError(f"strata: must be arrays of [problems, runs] with equal runs, got {shapes}")
    found = mean_interval(
        [stratum.mean(axis=1, keepdims=True) for stratum in strata], bounds, resamples=resamples, seed=seed
    )
    runs_S = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    if len(runs_S) == 1:
        return found
    half = student_t(len(runs_S) - 1) * float(runs_S.std(ddof=1)) / math.sqrt(len(runs_S))
    low = found.value - math.hypot(found.value - found.low, half)
    high = found.value + math.hypot(found.high - found.value, half)
    return Interval(found.value, *(low, high) if bounds is None else (max(low, bounds[0]), min(high, bounds[1])))


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
