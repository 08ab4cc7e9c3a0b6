"""The end of a solution: how sure the model is that it ends there, and what the objectives make of that token.

A token trimmed away is not learned from; when it is the one that ends a solution, the model does not learn to stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.objectives import OBJECTIVES
from trimsft.tokens.statistics.groups import places
from trimsft.tokens.statistics.weighting import gradient_mass, objective_of, weights_of
from trimsft.tokens.table import TokenTable


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The last tokens of all solutions, over those that end."""

    examples: int
    ended: int
    """How many end with eos; the others were cut."""
    known: bool
    """Whether the table names its eos; without it the last token of each example is taken for it."""
    mean_nll: float
    median_gap: float
    median_rank: float
    first_choice: float
    """Percent that no other token has a larger logit than."""
    share: float
    """Percent of all tokens."""
    mean_weight: Mapping[str, float]
    """By objective."""
    mass: Mapping[str, float]
    """Percent of all gradient mass, by objective."""


def ending(table: TokenTable, parameters: Mapping[str, Any] | None = None) -> Ending | None:
    """None where no example ends."""
    where, known = _last(table)
    if not where.any():
        return None
    norm = table["gradient_norm"].astype(np.float64)
    mean_weight, mass = {}, {}
    for name in OBJECTIVES:
        weights = weights_of(objective_of(name, parameters), table)
        masses = gradient_mass(weights, norm)
        mean_weight[name] = float(weights[where].mean())
        mass[name] = 100 * float(masses[where].sum() / masses.sum()) if masses.sum() > 0 else float("nan")
    return Ending(
        examples=len(np.unique(table["example"])),
        ended=int(where.sum()),
        known=known,
        mean_nll=float(table["nll"][where].mean(dtype=np.float64)),
        median_gap=float(np.median(table["gap"][where])),
        median_rank=float(np.median(table["rank"][where])),
        first_choice=100 * float(np.mean(table["rank"][where] == 1)),
        share=100 * float(where.mean()),
        mean_weight=mean_weight,
        mass=mass,
    )


def _last(table: TokenTable) -> tuple[NDArray[np.bool_], bool]:
    place, length = places(table)
    last = place == length - 1
    eos = table.metadata.get("eos_id")
    if eos is None:
        return last, False
    return last & np.isin(table["token_id"], eos), True
