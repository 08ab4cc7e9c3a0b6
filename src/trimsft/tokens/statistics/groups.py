"""Tokens by what they are, where they stand, or which example they are of, and those that end a solution.

    by_category(table, margin=1, bandwidth=1)[0]
    # Group(name="numeric", tokens=6169, ratio_percent=15.39, mean_nll=..., mean_weight=0.132, ...)

Percentages of a grouping are of all tokens of the table, or of all gradient mass; they sum to 100.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimsft.intervals import Array
from trimsft.objectives import Objective, TrimSFT, WeighsTokens
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import objectives_of, region_of, sums_by, weights_of
from trimsft.tokens.table import TokenTable

Numbers = NDArray[np.int64]
ENDS = 5  # how many first and last tokens of a solution are looked at one by one


@dataclass(frozen=True, kw_only=True)
class Group:
    """The columns of the paper's table of categories, and the mean nll."""

    name: str
    tokens: int
    ratio_percent: float  # share of all tokens
    mean_nll: float
    mean_weight: float  # under TrimSFT
    middle_percent: float  # share of the group's tokens with a gap within m - tau to m + tau
    sft_mass_percent: float  # share of all gradient mass under SFT
    trim_mass_percent: float  # share of all gradient mass under TrimSFT


def by_category(table: TokenTable, *, margin: float, bandwidth: float) -> list[Group]:
    """Group tokens as numeric, symbol, connector, other."""
    return group_tokens(table, table["category"].astype(np.int64), CATEGORIES, margin=margin, bandwidth=bandwidth)


def by_tenth(table: TokenTable, *, margin: float, bandwidth: float) -> list[Group]:
    """Group tokens by tenths of the solutions, the first to the last."""
    place, length = places(table)
    names = [f"{10 * tenth} to {10 * tenth + 10} %" for tenth in range(10)]
    return group_tokens(table, 10 * place // length, names, margin=margin, bandwidth=bandwidth)


def by_end(table: TokenTable, *, margin: float, bandwidth: float, ends: int = ENDS) -> list[Group]:
    """Group the first and the last tokens of the solutions one by one, and all between; the first where both hold."""
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
    """Return where each token stands in its example, from 0, and how many tokens that has."""
    _, which, lengths = np.unique(table["example"], return_inverse=True, return_counts=True)
    starts = np.cumsum(lengths) - lengths
    place = np.empty(len(table), dtype=np.int64)
    # in a table of another order, tokens of an example may stand apart
    place[np.lexsort((table["position"], which))] = np.arange(len(table)) - np.repeat(starts, lengths)
    return place, lengths[which]


def group_tokens(
    table: TokenTable, which: Numbers, names: Sequence[str], *, margin: float, bandwidth: float
) -> list[Group]:
    """Return one group for each name; `which` has the index of the name of each token."""
    weights, norm = weights_of(TrimSFT(margin, bandwidth), table), table["gradient_norm"].astype(np.float64)
    is_inside = region_of(table["gap"], margin, bandwidth) == 1
    columns = (np.ones_like(norm), table["nll"], weights, is_inside, norm, weights * norm)
    tokens, nll, weight, inside, mass, trim_mass = (sums_by(which, values, len(names)) for values in columns)
    with np.errstate(invalid="ignore"):  # what has no tokens has no mean: NaN
        shares = {
            "ratio_percent": 100 * tokens / len(table),
            "mean_nll": nll / tokens,
            "mean_weight": weight / tokens,
            "middle_percent": 100 * inside / tokens,
            "sft_mass_percent": 100 * mass / mass.sum(),
            "trim_mass_percent": 100 * trim_mass / trim_mass.sum(),
        }
    return [
        Group(name=name, tokens=int(tokens[at]), **{column: float(values[at]) for column, values in shares.items()})
        for at, name in enumerate(names)
    ]


# ---- single examples


@dataclass(frozen=True, kw_only=True)
class Examples:
    """How well the model knows each example, and how much of its gradient the weights take away; by its number."""

    example: Numbers
    tokens: Numbers
    mean_nll: Array
    mean_weight: Array
    first_choice_percent: Array  # share of the tokens that no other one has a larger logit than
    trimmed_mass_percent: Array
    """Share of SFT's gradient mass that the weights take away: 100 (1 - sum w g / sum g)."""


def per_example(table: TokenTable, objective: WeighsTokens) -> Examples:
    """Return means and masses of every example under one objective."""
    numbers, which, tokens = np.unique(table["example"], return_inverse=True, return_counts=True)
    weights, norm = weights_of(objective, table), table["gradient_norm"].astype(np.float64)
    columns = (table["nll"], weights, table["rank"] == 1, weights * norm, norm)
    nll, weight, firsts, kept, mass = (sums_by(which, values, len(numbers)) for values in columns)
    with np.errstate(invalid="ignore"):  # an example without any gradient has nothing to trim: NaN
        trimmed = 100 * (1 - kept / mass)
    return Examples(
        example=numbers.astype(np.int64),
        tokens=tokens.astype(np.int64),
        mean_nll=nll / tokens,
        mean_weight=weight / tokens,
        first_choice_percent=100 * firsts / tokens,
        trimmed_mass_percent=trimmed,
    )


# ---- the end of a solution


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The last tokens of all solutions that end: how sure the model is of them, and their weights.

    A token trimmed away is not learned from; when it is the one that ends a solution, the model does not learn to stop.
    """

    examples: int
    ended: int  # how many end with eos; the others were cut
    known: bool  # whether the table names its eos; without it the last token of each example is taken for it
    mean_nll: float
    median_gap: float
    median_rank: float
    first_choice_percent: float  # share of them that no other token has a larger logit than
    tokens_percent: float  # their share of all tokens
    mean_weight: Mapping[str, float]  # by objective
    mass_percent: Mapping[str, float]  # their share of all gradient mass, by objective


def ending(table: TokenTable, objectives: Mapping[str, Objective] | None = None) -> Ending | None:
    """Return the end of the solutions under these objectives, by default the paper's; None where no example ends."""
    eos = table.metadata.get("eos_id")
    place, length = places(table)
    is_end = place == length - 1
    if eos is not None:
        is_end &= np.isin(table["token_id"], eos)
    ended = int(is_end.sum())
    if not ended:
        return None
    mean_weight, mass_percent = {}, {}
    for name, objective in (objectives or objectives_of()).items():
        weights = weights_of(objective, table)
        mass = weights * table["gradient_norm"]
        mean_weight[name] = float(weights[is_end].mean())
        mass_percent[name] = 100 * float(mass[is_end].sum() / mass.sum()) if mass.sum() > 0 else math.nan
    nll, gap, rank = (table[name][is_end] for name in ("nll", "gap", "rank"))
    return Ending(
        examples=table.example_count,
        ended=ended,
        known=eos is not None,
        mean_nll=float(nll.mean(dtype=np.float64)),
        median_gap=float(np.median(gap)),
        median_rank=float(np.median(rank)),
        first_choice_percent=100 * float(np.mean(rank == 1)),
        tokens_percent=100 * (ended / len(table)),
        mean_weight=mean_weight,
        mass_percent=mass_percent,
    )
