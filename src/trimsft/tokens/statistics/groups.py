"""Tokens by what they are or where they stand: how many, how well known, and what share of the learning is theirs.

    by_category(table, margin=1, bandwidth=1)[0]
    # Group(name="numeric", tokens=6169, ratio=15.39, mean_nll=..., mean_weight=0.132, middle=11.25, ...)

Shares are in percent of all tokens of the table, or of all gradient mass; those of a grouping sum to 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives import TrimSFT
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import Array, gradient_mass, sums_by, weights_of
from trimsft.tokens.table import TokenTable

Numbers = NDArray[np.int64]
ENDS = 5
"""How many first and last tokens of a solution are looked at one by one."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The columns of the paper's table of categories, and the mean nll."""

    name: str
    tokens: int
    ratio: float
    """Percent of all tokens."""
    mean_nll: float
    mean_weight: float
    """Under TrimSFT."""
    middle: float
    """Percent of the group's tokens with a gap within m - tau to m + tau."""
    sft_mass: float
    """Percent of all gradient mass under SFT."""
    trim_mass: float
    """Percent of all gradient mass under TrimSFT."""


def by_category(table: TokenTable, *, margin: float, bandwidth: float) -> list[Group]:
    """Numeric, symbol, connector, other."""
    return group_tokens(table, table["category"].astype(np.int64), CATEGORIES, margin=margin, bandwidth=bandwidth)


def by_tenth(table: TokenTable, *, margin: float, bandwidth: float) -> list[Group]:
    """Each tenth of the solutions, the first to the last."""
    place, length = places(table)
    names = [f"{10 * tenth} to {10 * tenth + 10} %" for tenth in range(10)]
    return group_tokens(table, 10 * place // length, names, margin=margin, bandwidth=bandwidth)


def by_end(table: TokenTable, *, margin: float, bandwidth: float, ends: int = ENDS) -> list[Group]:
    """The first and the last tokens of the solutions, one by one, and all between them; the first where both hold."""
    place, length = places(table)
    back = length - 1 - place
    which = np.where(place < ends, place, np.where(back < ends, 2 * ends - back, ends))
    names = [
        *(f"token {number + 1}" for number in range(ends)),
        "between",
        *("last token" if number == 0 else f"last but {number}" for number in reversed(range(ends))),
    ]
    return group_tokens(table, which, names, margin=margin, bandwidth=bandwidth)


def places(table: TokenTable) -> tuple[Numbers, Numbers]:
    """Where each token stands in its example as the table has it, from 0, and how many tokens that has."""
    _, which, lengths = np.unique(table["example"], return_inverse=True, return_counts=True)
    order = np.lexsort((table["position"], which))
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    place = np.empty(len(table), dtype=np.int64)
    place[order] = np.arange(len(table)) - np.repeat(starts, lengths)
    return place, lengths[which]


def group_tokens(
    table: TokenTable, groups: Numbers, names: Sequence[str], *, margin: float, bandwidth: float
) -> list[Group]:
    """One line for each name; `groups` says which name each token has."""
    weights = weights_of(TrimSFT(margin, bandwidth), table)
    norm, gap = table["gradient_norm"].astype(np.float64), table["gap"].astype(np.float64)
    inside = ((gap >= margin - bandwidth) & (gap <= margin + bandwidth)).astype(np.float64)
    tokens = np.bincount(groups, minlength=len(names))

    def summed(values: Array) -> Array:
        return sums_by(groups, values, len(names))

    mass = gradient_mass(weights, norm)
    with np.errstate(invalid="ignore"):  # what has no tokens has no mean: NaN
        mean_nll = summed(table["nll"].astype(np.float64)) / tokens
        mean_weight, middle = summed(weights) / tokens, 100 * summed(inside) / tokens
        sft_mass, trim_mass = 100 * summed(norm) / norm.sum(), 100 * summed(mass) / mass.sum()
    return [
        Group(
            name=name,
            tokens=int(tokens[at]),
            ratio=100 * float(tokens[at]) / len(table),
            mean_nll=float(mean_nll[at]),
            mean_weight=float(mean_weight[at]),
            middle=float(middle[at]),
            sft_mass=float(sft_mass[at]),
            trim_mass=float(trim_mass[at]),
        )
        for at, name in enumerate(names)
    ]
