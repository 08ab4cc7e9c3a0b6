r"""Whether a model is as often right as it is sure: reliability of its first choice for the next token.

Its first choice has the probability p_first = p_gold exp(max(0, -gap)), since p_competitor = p_gold exp(-gap), and is
right where the gap is above 0 (a tie counts half). ECE = sum_b n_b / N |accuracy_b - confidence_b|.

Tokens of one example are not independent, so the interval of ECE resamples whole examples. An absolute value grows with
noise, so resamples lie too high, near 0 above the estimate itself: the interval is moved down by their mean excess.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from trimsft.intervals import resampled_means
from trimsft.tokens.statistics.intervals import rows_of_examples
from trimsft.tokens.statistics.quantiles import Array, Column, quantiles
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
    """How sure, and how often right."""

    tokens: int
    confidence: float
    accuracy: float
    ece: float
    low: float
    high: float  # 95 % interval of `ece`, examples resampled; NaN with fewer than two
    bins: tuple[Bin, ...]  # those that hold any token


def first_choice(table: TokenTable) -> tuple[Array, Array]:
    """Probability of the model's first choice for each token, and whether it is the gold token: 1, 0, or 1/2."""
    nll, gap = table["nll"].astype(np.float64), table["gap"].astype(np.float64)
    sure = np.minimum(np.exp(np.maximum(0.0, -gap) - nll), 1.0)  # rounding may lead past 1
    return sure, np.where(gap > 0, 1.0, np.where(gap < 0, 0.0, 0.5))


def calibration(
    table: TokenTable, *, bins: int = BINS, by: Binning = "width", resamples: int = RESAMPLES, seed: int = 0
) -> Calibration:
    """By bins of equal width, or with as nearly equal numbers of tokens as equal confidences allow."""
    edges = None
    if by == "mass":
        edges = quantiles(Column(table, lambda part: first_choice(part)[0]), np.arange(1, bins) / bins)
    confident = hits = 0.0
    for part in table.parts():
        sure, right = first_choice(part)
        confident, hits = confident + float(sure.sum()), hits + float(right.sum())
    flat = rows_of_examples(table, lambda part: _sums(part, bins, edges))
    sums = flat.reshape(len(flat), 3, bins)
    low, high = _interval(sums, resamples, seed)
    tokens, confidence, accuracy = sums.sum(axis=0)
    held = tokens > 0
    bins_held = zip(tokens[held], confidence[held] / tokens[held], accuracy[held] / tokens[held], strict=True)
    return Calibration(
        tokens=len(table),
        confidence=confident / len(table),
        accuracy=hits / len(table),
        ece=float(_ece(sums.sum(axis=0))),
        low=low,
        high=high,
        bins=tuple(Bin(int(count), float(mean), float(share)) for count, mean, share in bins_held),
    )


def _sums(part: TokenTable, bins: int, edges: Array | None) -> Array:
    """[examples, 3 * bins]: tokens, sum of confidences, sum of hits; by equal width, or between the edges."""
    sure, right = first_choice(part)
    if edges is None:
        which = np.minimum((sure * bins).astype(np.int64), bins - 1)
    else:
        which = np.searchsorted(edges, sure, side="left").astype(np.int64)  # equal confidences stay together
    numbers, example = np.unique(part["example"], return_inverse=True)
    cell, cells = example * bins + which, len(numbers) * bins
    columns = [np.bincount(cell, weights=values, minlength=cells) for values in (None, sure, right)]
    stacked = np.stack([column.reshape(len(numbers), bins) for column in columns], axis=1)
    return stacked.reshape(len(numbers), -1).astype(np.float64)


def _ece(sums: Array) -> Array:
    """The ECE of sums [..., 3, bins]."""
    ece: Array = np.abs(sums[..., 2, :] - sums[..., 1, :]).sum(axis=-1) / sums[..., 0, :].sum(axis=-1)
    return ece


def _interval(sums: Array, resamples: int, seed: int) -> tuple[float, float]:
    if len(sums) < 2 or resamples < 1:
        return math.nan, math.nan
    draws = resampled_means(sums.reshape(len(sums), -1), resamples, np.random.default_rng(seed))
    resampled = _ece(draws.reshape(resamples, *sums.shape[1:]))
    low, high = np.percentile(resampled, [2.5, 97.5])
    bias = float(resampled.mean() - _ece(sums.sum(axis=0)))
    return max(0.0, float(low) - bias), max(0.0, float(high) - bias)
