"""Tokens by what they are, where they stand, or which example they are of, and those that end a solution.

    by_category(table, margin=1, bandwidth=1)[0]
    # Group(name="numeric", tokens=6169, ratio_percent=15.39, mean_nll=..., mean_weight=0.132, ...)

Percentages of a grouping are of all tokens of the table, or of all gradient mass; they sum to 100.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives import Objective, TrimSFT, WeighsTokens
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.quantiles import Array
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
    """Numeric, symbol, connector, other."""
    return group_tokens(
        table, lambda part: part["category"].astype(np.int64), CATEGORIES, margin=margin, bandwidth=bandwidth
    )


def by_tenth(table: TokenTable, *, margin: float, bandwidth: float) -> list[Group]:
    """Each tenth of the solutions, the first to the last."""
    names = [f"{10 * tenth} to {10 * tenth + 10} %" for tenth in range(10)]

    def tenth_of(part: TokenTable) -> Numbers:
        place, length = places(part)
        return 10 * place // length

    return group_tokens(table, tenth_of, names, margin=margin, bandwidth=bandwidth)


def by_end(table: TokenTable, *, margin: float, bandwidth: float, ends: int = ENDS) -> list[Group]:
    """The first and the last tokens of the solutions, one by one, and all between them; the first where both hold."""

    def end_of(part: TokenTable) -> Numbers:
        place, length = places(part)
        back = length - 1 - place
        return np.where(place < ends, place, np.where(back < ends, 2 * ends - back, ends))

    names = [
        *(f"token {number + 1}" for number in range(ends)),
        "between",
        *("last token" if number == 0 else f"last but {number}" for number in reversed(range(ends))),
    ]
    return group_tokens(table, end_of, names, margin=margin, bandwidth=bandwidth)


def places(table: TokenTable) -> tuple[Numbers, Numbers]:
    """Where each token stands in its example as the table has it, from 0, and how many tokens that has."""
    _, which, lengths = np.unique(table["example"], return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    in_order = np.arange(len(table)) - np.repeat(starts, lengths)
    if is_in_order(table):
        return in_order, lengths[which]
    place = np.empty(len(table), dtype=np.int64)
    place[np.lexsort((table["position"], which))] = in_order
    return place, lengths[which]


def is_in_order(table: TokenTable) -> bool:
    """Whether examples stand one after the other, and tokens as they do in them; so `trimsft tokens` writes them."""
    step = np.diff(table["example"])
    return bool(np.all((step > 0) | ((step == 0) & (np.diff(table["position"]) > 0))))


def group_tokens(
    table: TokenTable, groups: Callable[[TokenTable], Numbers], names: Sequence[str], *, margin: float, bandwidth: float
) -> list[Group]:
    """One line for each name; `groups` says which name each token of a part of the table has."""
    tokens = np.zeros(len(names), dtype=np.int64)
    nll, weight, inside, norm, mass = sums = np.zeros((5, len(names)))
    norms = 0.0
    for part in table.parts():
        which, weights = groups(part), weights_of(TrimSFT(margin, bandwidth), part)
        tokens += np.bincount(which, minlength=len(names))
        norms += float(part["gradient_norm"].sum(dtype=np.float64))
        for rows in part.slices():
            norm_of, of_part = part["gradient_norm"][rows].astype(np.float64), weights[rows]
            is_inside = region_of(part["gap"][rows].astype(np.float64), margin, bandwidth) == 1
            columns = (part["nll"][rows], of_part, is_inside, norm_of, of_part * norm_of)
            for total, values in zip(sums, columns, strict=True):
                total += sums_by(which[rows], values.astype(np.float64), len(names))
    with np.errstate(invalid="ignore"):  # what has no tokens has no mean: NaN
        shares = {
            "ratio_percent": 100 * tokens.astype(np.float64) / len(table),
            "mean_nll": nll / tokens,
            "mean_weight": weight / tokens,
            "middle_percent": 100 * inside / tokens,
            "sft_mass_percent": 100 * norm / norms,
            "trim_mass_percent": 100 * mass / mass.sum(),
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
    """Means and masses of every example under one objective."""
    parts = [_examples_of(part, objective) for part in table.parts()]
    names = [one.name for one in fields(Examples)]
    return Examples(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _examples_of(part: TokenTable, objective: WeighsTokens) -> Examples:
    numbers, which, tokens = np.unique(part["example"], return_inverse=True, return_counts=True)
    weights, norm = weights_of(objective, part), part["gradient_norm"].astype(np.float64)

    def summed(values: Array) -> Array:
        return sums_by(which, values, len(numbers))

    with np.errstate(invalid="ignore"):  # an example without any gradient has nothing to trim: NaN
        kept = summed(weights * norm) / summed(norm)
    return Examples(
        example=numbers.astype(np.int64),
        tokens=tokens.astype(np.int64),
        mean_nll=summed(part["nll"].astype(np.float64)) / tokens,
        mean_weight=summed(weights) / tokens,
        first_choice_percent=100 * summed((part["rank"] == 1).astype(np.float64)) / tokens,
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
    eos, objectives = table.metadata.get("eos_id"), objectives or objectives_of()
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in ("nll", "gap", "rank")}  # one entry for each example
    weight, mass, masses = (dict.fromkeys(objectives, 0.0) for _ in range(3))
    for part in table.parts():
        place, length = places(part)
        where = place == length - 1
        if eos is not None:
            where &= np.isin(part["token_id"], eos)
        for name, values in found.items():
            values.append(part[name][where])
        norm = part["gradient_norm"].astype(np.float64)
        for name, objective in objectives.items():
            weights = weights_of(objective, part)
            weight[name] += float(weights[where].sum())
            mass[name] += float((weights * norm)[where].sum())
            masses[name] += float((weights * norm).sum())
    ends = {name: np.concatenate(values) for name, values in found.items()}
    ended = len(ends["gap"])
    if not ended:
        return None
    return Ending(
        examples=table.example_count,
        ended=ended,
        known=eos is not None,
        mean_nll=float(ends["nll"].mean(dtype=np.float64)),
        median_gap=float(np.median(ends["gap"])),
        median_rank=float(np.median(ends["rank"])),
        first_choice_percent=100 * float(np.mean(ends["rank"] == 1)),
        tokens_percent=100 * (ended / len(table)),
        mean_weight={name: total / ended for name, total in weight.items()},
        mass_percent={name: 100 * (mass[name] / masses[name]) if masses[name] > 0 else math.nan for name in objectives},
    )
