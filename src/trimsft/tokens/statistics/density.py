"""Kernel density of gaps (Figure 4 of the paper), from fine bins: millions of tokens cost what thousands do.

f(x) = sum_i K((x - gap_i) / h) / (N h), K the standard normal density, h by Silverman's rule.
"""

from __future__ import annotations

import numpy as np

from trimsft.tokens.statistics.weighting import Array

_BINS_PER_BANDWIDTH = 20
"""A bin stands at the mean of its gaps, so a kernel is off by (1/40)^2 / 2 of its peak at most."""
_MOST_BINS = 20_000
"""Whatever the bandwidth: the kernel of 300 points by so many takes 48 MB."""


def silverman(values: Array) -> float:
    """0.9 min(s, IQR / 1.34) N^(-1/5), and something above 0 where all values are equal."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    quartiles = np.percentile(values, [25, 75])
    between = float(quartiles[1] - quartiles[0]) / 1.34
    width = min(spread, between) if between > 0 else spread
    return 0.9 * width * len(values) ** -0.2 or 0.1


def density(values: Array, grid: Array, bandwidth: float | None = None) -> Array:
    """The density at the points of `grid`; zero everywhere without values."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0:
        return np.zeros(len(grid))
    width = silverman(values) if bandwidth is None else bandwidth
    # what lies beyond the grid by more than 8 bandwidths adds nothing to it
    near = values[(values > grid[0] - 8 * width) & (values < grid[-1] + 8 * width)]
    if len(near) == 0:
        return np.zeros(len(grid))
    bins = int(np.clip(np.ptp(near) / width * _BINS_PER_BANDWIDTH, 1, _MOST_BINS))
    counts, edges = np.histogram(near, bins=bins)
    sums, _ = np.histogram(near, bins=edges, weights=near)
    kept = counts > 0
    means = sums[kept] / counts[kept]
    kernel = np.exp(-0.5 * np.square((grid[:, None] - means[None, :]) / width))
    found: Array = kernel @ counts[kept] / (len(values) * width * np.sqrt(2 * np.pi))
    return found


def range_of(groups: list[Array], lowest: float = -12.0, highest: float = 40.0) -> tuple[float, float]:
    """Where nearly all gaps lie: from the 0.5th to the 99.5th percentile of all groups, in whole numbers."""
    filled = [values for values in groups if len(values)]
    if not filled:
        return -4.0, 8.0
    low = min(float(np.percentile(values, 0.5)) for values in filled)
    high = max(float(np.percentile(values, 99.5)) for values in filled)
    return float(max(lowest, np.floor(low) - 1)), float(min(highest, np.ceil(high) + 1))
