r"""Calibration of a model: how often its first choice for the next token is right, by how sure it is.

Its first choice has the probability p_first = p_gold exp(max(0, -gap)), since p_competitor = p_gold exp(-gap), and is
right where the gap is above 0 (a tie counts half). ECE = sum_b n_b / N |accuracy_b - confidence_b|.

Tokens of one example are not independent, so the interval of ECE resamples whole examples. An absolute value grows with
noise, so resamples lie too high, near 0 above the estimate itself: the interval is moved down by their mean excess.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from trimsft.intervals import Array, resampled_means
from trimsft.tokens.statistics.weighting import sums_by
from trimsft.tokens.table import TokenTable

Binning: TypeAlias = Literal["width", "mass"]
BINS = 15
RESAMPLES = 1000


@dataclass(frozen=True)
class Bin:
    """Tokens of like confidence."""

    tokens: int
    confidence: float  # mean of theirs
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Confidence and accuracy, of all tokens and by bins of confidence."""

    tokens: int
    confidence: float
    accuracy: float
    ece: float
    low: float
    high: float  # 95 % interval of `ece`, examples resampled; NaN with fewer than two
    bins: tuple[Bin, ...]  # those that hold any token


def first_choice(table: TokenTable) -> tuple[Array, Array]:
    """Return the probability of the model's first choice for each token, and whether it is gold: 1, 0, or 1/2."""
    nll, gap = table["nll"].astype(np.float64), table["gap"].astype(np.float64)
    confidence = np.minimum(np.exp(np.maximum(0.0, -gap) - nll), 1.0)  # rounding may lead past 1
    return confidence, np.where(gap > 0, 1.0, np.where(gap < 0, 0.0, 0.5))


def calibration(
    table: TokenTable, *, bins: int = BINS, by: Binning = "width", resamples: int = RESAMPLES, seed: int = 0
) -> Calibration:
    """Return the calibration by bins of equal width, or of as nearly equal numbers of tokens as ties allow."""
    sure, right = first_choice(table)
    if by == "width":
        which = np.minimum((sure * bins).astype(np.int64), bins - 1)
    else:
        which = np.searchsorted(np.quantile(sure, np.arange(1, bins) / bins), sure, side="left")
    numbers, example = np.unique(table["example"], return_inverse=True)
    cell, cells = example * bins + which, len(numbers) * bins
    columns = [sums_by(cell, values, cells).reshape(-1, bins) for values in (np.ones_like(sure), sure, right)]
    sums_E3B = np.stack(columns, axis=1)
    ece = _ece(sums_E3B.sum(axis=0))
    low = high = math.nan
    if len(numbers) > 1 and resamples > 0:
        draws = resampled_means(sums_E3B.reshape(len(numbers), -1), resamples, np.random.default_rng(seed))
        eces = _ece(draws.reshape(resamples, 3, bins))
        excess = eces.mean() - ece
        low, high = (max(0.0, float(end - excess)) for end in np.percentile(eces, [2.5, 97.5]))
    held = [one for one in sums_E3B.sum(axis=0).T.tolist() if one[0]]
    return Calibration(
        tokens=len(table),
        confidence=float(sure.mean()),
        accuracy=float(right.mean()),
        ece=float(ece),
        low=low,
        high=high,
        bins=tuple(Bin(int(tokens), total / tokens, hits / tokens) for tokens, total, hits in held),
    )


def _ece(sums: Array) -> Array:
    """Return the ECE of [..., 3, bins]: numbers of tokens, sums of their confidences, sums of hits."""
    ece: Array = np.abs(sums[..., 2, :] - sums[..., 1, :]).sum(axis=-1) / sums[..., 0, :].sum(axis=-1)
    return ece
