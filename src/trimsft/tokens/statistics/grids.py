"""What margin and bandwidth do to the weights: the appendix tables of the paper, and R_eff over the whole plane.

>>> import numpy as np
>>> effective_ratio_grid(np.array([0.0, 0.0, 9.0, 9.0]), [0.0], [1.0]).round(3).tolist()
[[0.5]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimsft.objectives import TrimSFT, make_objective
from trimsft.paper import Setting
from trimsft.paper import gradient_mass as paper_gradient_mass
from trimsft.paper import weight_diagnostics as paper_weight_diagnostics
from trimsft.tokens.statistics.weighting import (
    Array,
    Regions,
    effective_ratio,
    gradient_mass,
    high_weight_percent,
    region_percents,
    weights_of,
)
from trimsft.tokens.table import TokenTable

PAPER_SETTINGS = tuple(row.setting for row in paper_weight_diagnostics() if row.setting is not None)
"""The (m, tau) of the paper's weight diagnostics."""
PAPER_MASS = tuple(dict.fromkeys(row.setting for row in paper_gradient_mass()))
"""The (m, tau) of the paper's gradient masses."""
TRIMS = ("trim", "trim-e", "trim-h")
_BINS_PER_UNIT = 64
"""A bin stands at the mean of its gaps: R_eff is off by (1/64/tau)^2 / 24 at most, 0.1 % at tau = 0.1."""
_REACH = 60.0
"""Gaps beyond it count as it: no band of the plane has any weight there."""


@dataclass(frozen=True, kw_only=True)
class WeightDiagnostics:
    """The weights of one setting."""

    setting: Setting
    mean_weight: float
    effective_ratio: float
    high_weight_percent: float


@dataclass(frozen=True, kw_only=True)
class MassByRegion:
    """Where the weighted gradient of one objective lies."""

    setting: Setting
    objective: str
    mass_percent: Regions


def weight_diagnostics(table: TokenTable, settings: Sequence[Setting] = PAPER_SETTINGS) -> list[WeightDiagnostics]:
    """High-Weight and R_eff of TrimSFT for each setting."""
    diagnostics = []
    for setting in settings:
        weights = weights_of(TrimSFT(*setting), table)
        diagnostics.append(
            WeightDiagnostics(
                setting=setting,
                mean_weight=float(weights.mean()),
                effective_ratio=effective_ratio(weights),
                high_weight_percent=high_weight_percent(weights),
            )
        )
    return diagnostics


def mass_by_region(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> list[MassByRegion]:
    """Percent of the gradient mass below, within and above m - tau to m + tau, for TrimSFT and its halves."""
    gap, norm = table["gap"].astype(np.float64), table["gradient_norm"].astype(np.float64)
    masses = []
    for margin, bandwidth in settings:
        for name in objectives:
            weights = weights_of(make_objective(name, margin=margin, bandwidth=bandwidth), table)
            mass = region_percents(gap, gradient_mass(weights, norm), margin=margin, bandwidth=bandwidth)
            masses.append(MassByRegion(setting=Setting(margin, bandwidth), objective=name, mass_percent=mass))
    return masses


def effective_ratio_grid(gap: Array, margins: Sequence[float], bandwidths: Sequence[float]) -> Array:
    """R_eff of TrimSFT at each bandwidth (rows) and margin (columns), from fine bins of the gaps."""
    gap = np.clip(np.asarray(gap, dtype=np.float64), -_REACH, _REACH)
    place = np.floor(gap * _BINS_PER_UNIT).astype(np.int64)
    place -= place.min(initial=0)
    counts = np.bincount(place)
    sums = np.bincount(place, weights=gap)
    kept = counts > 0
    means, counts = sums[kept] / counts[kept], counts[kept].astype(np.float64)
    ratios = np.empty((len(bandwidths), len(margins)))
    for row, bandwidth in enumerate(bandwidths):
        for column, margin in enumerate(margins):
            exponents = -np.square(means - margin) / (2 * bandwidth**2)
            weights = np.exp(exponents - exponents.max(initial=-np.inf))  # the ratio knows no scale
            ratios[row, column] = (counts @ weights) ** 2 / (len(gap) * (counts @ np.square(weights)))
    return ratios
