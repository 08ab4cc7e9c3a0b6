"""The gaps of a table: their kernel density (Figure 4 of the paper), and how training moved them.

f(x) = sum_i K((x - gap_i) / h) / (N h), K the standard normal density, h by Silverman's rule

moved = movement(before, after, margin=1.5, bandwidth=0.8)
moved.moved_percent[0, 2]      # of all tokens, those that were low and are high now
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimsft.tokens.statistics.quantiles import Array, Values, pieces_of, quantiles
from trimsft.tokens.statistics.weighting import region_of
from trimsft.tokens.table import TokenTable, aligned, same_tokens

QUANTILES = (5, 25, 50, 75, 95)
_BINS_PER_BANDWIDTH = 20
"""A bin stands at the mean of its gaps, so a kernel is off by (1/40)^2 / 2 of its peak at most."""
_MOST_BINS = 20_000  # whatever the bandwidth: the kernel of 300 points by so many takes 48 MB


def silverman(values: Values) -> float:
    """0.9 min(s, IQR / 1.34) N^(-1/5), and something above 0 where all values are equal."""
    count, spread = _spread(values)
    low, high = quantiles(values, [0.25, 0.75]).tolist()
    between = (high - low) / 1.34
    width = min(spread, between) if between > 0 else spread
    return float(0.9 * width * count**-0.2) or 0.1


def _spread(values: Values) -> tuple[int, float]:
    """How many there are, and their standard deviation."""
    count, mean, squares = 0, 0.0, 0.0
    for piece in _doubles(values):
        of_piece = float(piece.mean()) if len(piece) else 0.0
        apart, both = of_piece - mean, count + len(piece)
        squares += float(np.square(piece - of_piece).sum()) + apart**2 * count * len(piece) / max(1, both)
        mean += apart * len(piece) / max(1, both)
        count = both
    return count, math.sqrt(squares / (count - 1)) if count > 1 else 0.0


def density(values: Values, grid: Array, bandwidth: float | None = None) -> Array:
    """The density at the points of `grid`; zero everywhere without values."""
    total = sum(map(len, pieces_of(values)))
    if total == 0:
        return np.zeros(len(grid))
    width = silverman(values) if bandwidth is None else bandwidth

    def near() -> Iterator[Array]:
        """What lies beyond the grid by more than 8 bandwidths adds nothing to it."""
        for piece in _doubles(values):
            yield piece[(piece > grid[0] - 8 * width) & (piece < grid[-1] + 8 * width)]

    ends = [(float(piece.min()), float(piece.max())) for piece in near() if len(piece)]
    if not ends:
        return np.zeros(len(grid))
    reach = min(low for low, _ in ends), max(high for _, high in ends)
    bins = int(np.clip((reach[1] - reach[0]) / width * _BINS_PER_BANDWIDTH, 1, _MOST_BINS))
    counts, sums = np.zeros((2, bins))
    for piece in near():
        of_piece, edges = np.histogram(piece, bins=bins, range=reach)
        counts += of_piece
        sums += np.histogram(piece, bins=edges, weights=piece)[0]
    kept = counts > 0
    means = sums[kept] / counts[kept]
    kernel = np.exp(-0.5 * np.square((grid[:, None] - means[None, :]) / width))
    densities: Array = kernel @ counts[kept] / (total * width * np.sqrt(2 * np.pi))
    return densities


def _doubles(values: Values) -> Iterator[Array]:
    return (piece.astype(np.float64) for piece in pieces_of(values))


def range_of(groups: Sequence[Values], lowest: float = -12.0, highest: float = 40.0) -> tuple[float, float]:
    """Where nearly all gaps lie: from the 0.5th to the 99.5th percentile of all groups, in whole numbers.

    It ends at `lowest` and `highest`, unless all of it lies beyond one of them.
    """
    filled = [values for values in groups if any(map(len, pieces_of(values)))]
    if not filled:
        return -4.0, 8.0
    lows, highs = np.array([quantiles(values, np.array([0.5, 99.5]) / 100) for values in filled]).T.tolist()
    low, high = float(np.floor(min(lows)) - 1), float(np.ceil(max(highs)) + 1)
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
    """The two tables must be about the same tokens of the same data."""
    same_tokens({"before": before, "after": after})
    counts, became, ceased, gap_change, nll_change = np.zeros((3, 3), dtype=np.int64), 0, 0, 0.0, 0.0
    for one, other in aligned(before, after, ("gap", "rank", "nll")):
        was, now = (region_of(table["gap"].astype(np.float64), margin, bandwidth) for table in (one, other))
        counts += np.bincount(3 * was + now, minlength=9).reshape(3, 3)
        first, then = (table["rank"] == 1 for table in (one, other))
        became += int(np.count_nonzero(then & ~first))
        ceased += int(np.count_nonzero(first & ~then))
        gap_change += float(_change(one, other).sum())
        nll_change += float(np.sum(other["nll"].astype(np.float64) - one["nll"]))
    tokens = len(before)
    changes = quantiles(_Changes(before, after), np.array(QUANTILES) / 100)
    return Movement(
        tokens=tokens,
        moved_percent=100 * counts / tokens,
        became_first_percent=100 * (became / tokens),
        ceased_first_percent=100 * (ceased / tokens),
        mean_gap_change=gap_change / tokens,
        gap_change=dict(zip(QUANTILES, changes.tolist(), strict=True)),
        mean_nll_change=nll_change / tokens,
    )


class _Changes:
    """By how much each gap changed, one part of the tables at a time."""

    def __init__(self, before: TokenTable, after: TokenTable) -> None:
        self._tables = before, after

    def __iter__(self) -> Iterator[Array]:
        return (_change(one, other) for one, other in aligned(*self._tables, ("gap",)))


def _change(before: TokenTable, after: TokenTable) -> Array:
    return after["gap"].astype(np.float64) - before["gap"].astype(np.float64)
