"""The gaps of a table: their kernel density (Figure 4 of the paper), and how training moved them.

f(x) = sum_i K((x - gap_i) / h) / (N h), K the standard normal density, h by Silverman's rule

moved = movement(before, after, margin=1.5, bandwidth=0.8)
moved.moved_percent[0, 2]      # of all tokens, those that were low and are high now
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimsft.tokens.statistics.weighting import Array, region_of
from trimsft.tokens.table import TokenTable, same_tokens

QUANTILES = (5, 25, 50, 75, 95)
_BINS_PER_BANDWIDTH = 20
"""A bin stands at the mean of its gaps, so a kernel is off by (1/40)^2 / 2 of its peak at most."""
_MOST_BINS = 20_000  # whatever the bandwidth: the kernel of 300 points by so many takes 48 MB


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
    densities: Array = kernel @ counts[kept] / (len(values) * width * np.sqrt(2 * np.pi))
    return densities


def range_of(groups: list[Array], lowest: float = -12.0, highest: float = 40.0) -> tuple[float, float]:
    """Where nearly all gaps lie: from the 0.5th to the 99.5th percentile of all groups, in whole numbers."""
    filled = [values for values in groups if len(values)]
    if not filled:
        return -4.0, 8.0
    low = min(float(np.percentile(values, 0.5)) for values in filled)
    high = max(float(np.percentile(values, 99.5)) for values in filled)
    return float(max(lowest, np.floor(low) - 1)), float(min(highest, np.ceil(high) + 1))


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Before against after, for the same tokens."""

    tokens: int
    moved_percent: Array  # [3, 3], of all tokens: from a region (row) to a region (column), low, middle, high
    became_first_percent: float  # tokens that are the model's first choice now and were not
    ceased_first_percent: float  # tokens that were the model's first choice and are not now
    mean_gap_change: float
    gap_change: Mapping[int, float]  # percentiles of the change
    mean_nll_change: float


def movement(before: TokenTable, after: TokenTable, *, margin: float, bandwidth: float) -> Movement:
    """The two tables must be about the same tokens of the same data."""
    same_tokens({"before": before, "after": after})
    gaps = [table["gap"].astype(np.float64) for table in (before, after)]
    was, now = (region_of(gap, margin, bandwidth) for gap in gaps)
    counts = np.bincount(3 * was + now, minlength=9).reshape(3, 3)
    first, then = (table["rank"] == 1 for table in (before, after))
    change = gaps[1] - gaps[0]
    return Movement(
        tokens=len(before),
        moved_percent=100 * counts / len(before),
        became_first_percent=100 * float(np.mean(then & ~first)),
        ceased_first_percent=100 * float(np.mean(first & ~then)),
        mean_gap_change=float(change.mean()),
        gap_change=dict(zip(QUANTILES, np.percentile(change, QUANTILES).tolist(), strict=True)),
        mean_nll_change=float(np.mean(after["nll"].astype(np.float64) - before["nll"])),
    )
