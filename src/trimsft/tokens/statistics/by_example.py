"""Intervals of what is computed of a token table, by resampling examples: the tokens of one are not independent.

    sums = ByExample(table, [np.ones(len(table)), table["nll"]])
    sums.interval(lambda means: means[:, 1] / means[:, 0])          # of the mean nll

Every such quantity is a function of sums over tokens, so an example is a row of sums, and a resample a mean of rows.

Shapes: E examples, K columns, R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from trimsft.scoring.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.tokens.table import TokenTable

RESAMPLES = 1_000


class ByExample:
    """Sums of columns of numbers, one for each token, over the tokens of each example."""

    def __init__(self, table: TokenTable, columns: Sequence[Array]) -> None:
        _, which = np.unique(table["example"], return_inverse=True)
        weights = (np.asarray(column, dtype=np.float64) for column in columns)
        self._sums_EK: Array = np.stack(
            [np.bincount(which, weights=column).astype(np.float64) for column in weights], axis=1
        )

    def value(self, statistic: Callable[[Array], Array]) -> float:
        """Of the table as it is; `statistic` takes [R, K] means of the columns and gives [R]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(statistic(self._sums_EK.mean(axis=0, keepdims=True))[0])

    def interval(self, statistic: Callable[[Array], Array]) -> Interval:
        """With its 95 % interval; NaN at both ends where there is a single example."""
        value = self.value(statistic)
        if len(self._sums_EK) < 2:
            return Interval(value, math.nan, math.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            return bias_corrected(value, statistic(self._draws_RK))

    @cached_property
    def _draws_RK(self) -> Array:
        return resampled_means(self._sums_EK, RESAMPLES, np.random.default_rng(0))
