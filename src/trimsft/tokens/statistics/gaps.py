"""The gaps of a table: their kernel density (Figure 4 of the paper), and how training moved them.

f(x) = sum_i K((x - gap_i) / h) / (N h), K the standard normal density, h by Silverman's rule

moved = movement(before, after, margin=1.5, bandwidth=0.8)
moved.moved_percent[0, 2]      # of all tokens, those that were low and are high now
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimsft.intervals import Array
from trimsft.tokens.statistics.weighting import region_of
from trimsft.tokens.table import TokenTable, same_tokens

QUANTILES = (5, 25, 50, 75, 95)
_BINS_PER_BANDWIDTH = 20
"""A bin stands at the mean of its gaps, so a kernel is off by (1/40)^2 / 2 of its peak at most."""
_MOST_BINS = 20_000  # whatever the bandwidth: the kernel of 300 points by so many takes 48 MB


def silverman(values: Array) -> float:
    """Return 0.9 min(s, IQR / 1.34) N^(-1/5), and something above 0 where all values are equal."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    low, high = np.quantile(values, [0.25, 0.75])
    between = (high - low) / 1.34
    width = min(spread, between) if between > 0 else spread
    return float(0.9 * width * len(values) ** -0.2) or 0.1


def density(values: Array, grid: Array, bandwidth: float | None = None) -> Array:
    """Return the density at the points of `grid`; zero everywhere without values."""
    values = values.astype(np.float64)
    if not len(values):
        return np.zeros(len(grid))
    width = silverman(values) if bandwidth is None else bandwidth
    # what lies beyond the grid by more than 8 bandwidths adds nothing to it
    near = values[(values > grid[0] - 8 * width) & (values < grid[-1] + 8 * width)]
    if not len(near):
        return np.zeros(len(grid))
    bins = int(np.clip(np.ptp(near) / width * _BINS_PER_BANDWIDTH, 1, _MOST_BINS))
    counts, edges = np.histogram(near, bins=bins)
    sums, _ = np.histogram(near, bins=edges, weights=near)
    kept = counts > 0
    means = sums[kept] / counts[kept]
    kernel = np.exp(-0.5 * np.square((grid[:, None] - means[None, :]) / width))
    densities: Array = kernel @ counts[kept].astype(np.float64) / (len(values) * width * np.sqrt(2 * np.pi))
    return densities


def range_of(groups: Sequence[Array], lowest: float = -12.0, highest: float = 40.0) -> tuple[float, float]:
    """Return where nearly all gaps lie: the 0.5th to the 99.5th percentile of all groups, in whole numbers.

    It ends at `lowest` and `highest`, unless all of it lies beyond one of them.
    """
    ends = [np.quantile(values.astype(np.float64), [0.005, 0.995]) for values in groups if len(values)]
    if not ends:
        return -4.0, 8.0
    low, high = float(np.floor(np.min(ends)) - 1), float(np.ceil(np.max(ends)) + 1)
    return (low, high) if high <= lowest or low >= highest else (max(lowest, low), min(highest, high))


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
    """Compare two tables, which must be about the same tokens of the same data."""
    same_tokens({"before": before, "after": after})
    was, now = (region_of(table["gap"], margin, bandwidth) for table in (before, after))
    first, then = (table["rank"] == 1 for table in (before, after))
    gap_change, nll_change = (after[name].astype(np.float64) - before[name] for name in ("gap", "nll"))
    percentiles = np.quantile(gap_change, np.array(QUANTILES) / 100).tolist()
    return Movement(
        tokens=len(before),
        moved_percent=100 * np.bincount(3 * was + now, minlength=9).reshape(3, 3) / len(before),
        became_first_percent=100 * float(np.mean(then & ~first)),
        ceased_first_percent=100 * float(np.mean(first & ~then)),
        mean_gap_change=float(gap_change.mean()),
        gap_change=dict(zip(QUANTILES, percentiles, strict=True)),
        mean_nll_change=float(nll_change.mean()),
    )
