"""Each example on its own: how well the model knows it, and how much of its gradient TrimSFT takes away."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives import WeighsTokens
from trimsft.tokens.statistics.weighting import Array, gradient_mass, sums_by, weights_of
from trimsft.tokens.table import TokenTable


@dataclass(frozen=True, kw_only=True)
class Examples:
    """One entry for each example, in the order of their numbers."""

    example: NDArray[np.int64]
    tokens: NDArray[np.int64]
    mean_nll: Array
    mean_weight: Array
    first_choice: Array
    """Percent of the tokens that no other one has a larger logit than."""
    trimmed_mass: Array
    """Percent of SFT's gradient mass that the weights take away: 100 (1 - sum w g / sum g)."""


def per_example(table: TokenTable, objective: WeighsTokens) -> Examples:
    """Means and masses of every example under one objective."""
    numbers, which, tokens = np.unique(table["example"], return_inverse=True, return_counts=True)
    weights, norm = weights_of(objective, table), table["gradient_norm"].astype(np.float64)

    def summed(values: Array) -> Array:
        return sums_by(which, values, len(numbers))

    with np.errstate(invalid="ignore"):  # an example without any gradient has nothing to trim: NaN
        kept = summed(gradient_mass(weights, norm)) / summed(norm)
    return Examples(
        example=numbers.astype(np.int64),
        tokens=tokens.astype(np.int64),
        mean_nll=summed(table["nll"].astype(np.float64)) / tokens,
        mean_weight=summed(weights) / tokens,
        first_choice=100 * summed((table["rank"] == 1).astype(np.float64)) / tokens,
        trimmed_mass=100 * (1 - kept),
    )
