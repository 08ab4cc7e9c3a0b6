"""Tokens by what they are, where they stand, or which example they are of, and those that end a solution.

    by_category(table, margin=1, bandwidth=1)[0]
    # Group(name="numeric", tokens=6169, ratio_percent=15.39, mean_nll=..., mean_weight=0.132, ...)

Percentages of a grouping are of all tokens of the table, or of all gradient mass; they sum to 100.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives import Objective, TrimSFT, WeighsTokens
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import Array, objectives_of, region_of, sums_by, weights_of
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
    tokens = np.bincount(groups, minlength=len(names))
    nll, weight, inside, norm, mass = sums = np.zeros((5, len(names)))
    for rows in table.slices():
        part, of_part = table["gradient_norm"][rows].astype(np.float64), weights[rows]
        is_inside = region_of(table["gap"][rows].astype(np.float64), margin, bandwidth) == 1
        for total, values in zip(sums, (table["nll"][rows], of_part, is_inside, part, of_part * part), strict=True):
            total += sums_by(groups[rows], values.astype(np.float64), len(names))
    with np.errstate(invalid="ignore"):  # what has no tokens has no mean: NaN
        columns = {
            "ratio_percent": 100 * tokens.astype(np.float64) / len(table),
            "mean_nll": nll / tokens,
            "mean_weight": weight / tokens,
            "middle_percent": 100 * inside / tokens,
            "sft_mass_percent": 100 * norm / table["gradient_norm"].sum(dtype=np.float64),
            "trim_mass_percent": 100 * mass / mass.sum(),
        }
    return [
        Group(name=name, tokens=int(tokens[at]), **{column: float(values[at]) for column, values in columns.items()})
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
    """Means and masses of every example under one objective."""
    numbers, which, tokens = np.unique(table["example"], return_inverse=True, return_counts=True)
    weights, norm = weights_of(objective, table), table["gradient_norm"].astype(np.float64)

    def summed(values: Array) -> Array:
        return sums_by(which, values, len(numbers))

    with np.errstate(invalid="ignore"):  # an example without any gradient has nothing to trim: NaN
        kept = summed(weights * norm) / summed(norm)
    return Examples(
        example=numbers.astype(np.int64),
        tokens=tokens.astype(np.int64),
        mean_nll=summed(table["nll"].astype(np.float64)) / tokens,
        mean_weight=summed(weights) / tokens,
        first_choice_percent=100 * summed((table["rank"] == 1).astype(np.float64)) / tokens,
        trimmed_mass_percent=100 * (1 - kept),
    )


# ---- the end of a solution


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The last tokens of all solutions that end: how sure the model is of them, and what the objectives make of them.

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
    """The end of the solutions as these objectives weigh it, by default the paper's; None where no example ends."""
    place, length = places(table)
    where, eos = place == length - 1, table.metadata.get("eos_id")
    if eos is not None:
        where &= np.isin(table["token_id"], eos)
    if not where.any():
        return None
    norm = table["gradient_norm"].astype(np.float64)
    mean_weight, mass_percent = {}, {}
    for name, objective in (objectives or objectives_of()).items():
        weights = weights_of(objective, table)
        masses = weights * norm
        mean_weight[name] = float(weights[where].mean())
        mass_percent[name] = 100 * float(masses[where].sum() / masses.sum()) if masses.sum() > 0 else float("nan")
    return Ending(
        examples=len(np.unique(table["example"])),
        ended=int(where.sum()),
        known=eos is not None,
        mean_nll=float(table["nll"][where].mean(dtype=np.float64)),
        median_gap=float(np.median(table["gap"][where])),
        median_rank=float(np.median(table["rank"][where])),
        first_choice_percent=100 * float(np.mean(table["rank"][where] == 1)),
        tokens_percent=100 * float(where.mean()),
        mean_weight=mean_weight,
        mass_percent=mass_percent,
    )
