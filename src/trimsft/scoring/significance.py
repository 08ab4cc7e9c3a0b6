"""How surprising a paired difference is: the sign-flip test, and Holm's correction where many are tested.

    >>> sign_flip([0.5, 0.25, 0.25, 1.0, 0.0])      # all four changes point up: 2 of 16 sign patterns are as extreme
    0.125
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

Were the two runs equally good, each problem's difference could as well have had the other sign. The p-value is the
share of all sign patterns whose sum is at least as far from 0 as the one observed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trimsft.scoring.bootstrap import Array

DRAWS = 20_000
_FEW = 16  # differences whose 65,536 sign patterns are enumerated
_MOST_STEPS = 2 * 10**8  # additions that the exact count may take: about half a second
_CHUNK = 2**20


def sign_flip(
    differences: Sequence[float] | Array,
    *,
    steps: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> float:
    """The two-sided p-value of the hypothesis that each difference is as likely to be negative as positive.

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
    """The distribution of the sum of the positive ones, grown by one difference at a time; 2x - total is the sum."""
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
    """Holm's step-down correction: the chance of any false claim among all of them stays below the level."""
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError(f"p_values: must be from 0 to 1, got {list(p_values)}")
    corrected = [0.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
