"""What training did to each token: which region of gaps it came from, and which one it went to.

moved = movement(before, after, margin=1.5, bandwidth=0.8)
moved.shares[0, 2]      # percent of all tokens that were low and are high now
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimsft.tokens.statistics.weighting import Array
from trimsft.tokens.table import TokenTable, same_tokens

REGIONS = ("low", "middle", "high")
QUANTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True, kw_only=True)
class Movement:
    """Before against after, for the same tokens."""

    tokens: int
    shares: Array
    """[3, 3], percent of all tokens: from a region (row) to a region (column), low, middle, high."""
    became_first: float
    """Percent of all tokens that are the model's first choice now and were not."""
    ceased_first: float
    """Percent of all tokens that were the model's first choice and are not now."""
    mean_gap_change: float
    gap_change: Mapping[int, float]
    """Percentiles of the change."""
    mean_nll_change: float


def movement(before: TokenTable, after: TokenTable, *, margin: float, bandwidth: float) -> Movement:
    """The two tables must be about the same tokens of the same data."""
    same_tokens({"before": before, "after": after})
    was, now = (_region(table, margin, bandwidth) for table in (before, after))
    counts = np.bincount(3 * was + now, minlength=9).reshape(3, 3)
    first, then = (table["rank"] == 1 for table in (before, after))
    change = after["gap"].astype(np.float64) - before["gap"].astype(np.float64)
    return Movement(
        tokens=len(before),
        shares=100 * counts / len(before),
        became_first=100 * float(np.mean(then & ~first)),
        ceased_first=100 * float(np.mean(first & ~then)),
        mean_gap_change=float(change.mean()),
        gap_change=dict(zip(QUANTILES, np.percentile(change, QUANTILES).tolist(), strict=True)),
        mean_nll_change=float(np.mean(after["nll"].astype(np.float64) - before["nll"])),
    )


def _region(table: TokenTable, margin: float, bandwidth: float) -> NDArray[np.int64]:
    """0, 1, 2: low, middle with its borders, high."""
    gap = table["gap"].astype(np.float64)
    return (gap >= margin - bandwidth).astype(np.int64) + (gap > margin + bandwidth)
