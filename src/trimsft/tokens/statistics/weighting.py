"""Weights on the tokens of a table: exact functions on arrays (appendices of the paper).

    >>> import numpy as np
    >>> effective_ratio(np.array([1.0, 1.0, 0.0, 0.0]))
    0.5
    >>> region_percents(np.array([-1.0, 1.5, 9.0]), np.array([1.0, 2.0, 1.0]), margin=1.5, bandwidth=0.8)
    Regions(low=25.0, middle=50.0, high=25.0)
    >>> effective_ratio_grid(np.array([0.0, 0.0, 9.0, 9.0]), [0.0], [1.0]).round(3).tolist()
    [[0.5]]

Shares are in percent. Where nothing has any weight they are not defined: NaN.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.errors import UsageError, one_line
from trimsft.head.problem import weigh
from trimsft.intervals import Array
from trimsft.objectives import PAPER_OBJECTIVES, PARAMETERS, BuiltinObjective, Objective, make_objective
from trimsft.objectives.paper import HIGH_WEIGHT
from trimsft.tokens.table import TokenTable

REGIONS = ("low", "middle", "high")
_BINS_PER_UNIT = 64
"""A bin stands at the mean of its gaps: R_eff is off by (1/64/tau)^2 / 24 at most, 0.1 % at tau = 0.1."""
_REACH = 60.0  # gaps beyond it count as it: no band of the plane has any weight there
_KNOWN = "a token table knows nll, gap, entropy and competitor, not the gold id and its logit"


@dataclass(frozen=True)
class Regions:
    """Percent of something with a gap below, within and above margin - bandwidth to margin + bandwidth."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """The weights of an objective on the tokens of one table."""

    mean_weight: float
    effective_ratio: float
    high_weight_percent: float  # tokens with a weight above `HIGH_WEIGHT`
    mass_percent: Regions  # where the weighted gradient lies


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """The confidence of a model in the tokens of one table."""

    tokens: int
    mean_nll: float
    median_gap: float
    first_choice_percent: float  # tokens that no other one has a larger logit than
    mean_entropy: float
    regions_percent: Regions  # tokens by their gap


def effective_ratio(weights: Array) -> float:
    """Return R_eff = (sum w)^2 / (N sum w^2): 1 where all tokens count alike, 1/N where a single one does."""
    largest = np.abs(weights).max(initial=0.0)
    if largest == 0:
        return math.nan
    scaled = weights / largest  # squares of tiny weights would be 0
    return float(scaled.sum() ** 2 / (len(weights) * np.square(scaled).sum()))


def region_of(gap: Array, margin: float, bandwidth: float) -> NDArray[np.int64]:
    """Return 0, 1, 2 of `REGIONS`: below margin - bandwidth, within the band and its borders, above it."""
    gap = gap.astype(np.float64)
    return (gap >= margin - bandwidth).astype(np.int64) + (gap > margin + bandwidth)


def sums_by(groups: NDArray[np.int64], values: NDArray[Any], count: int) -> Array:
    """Return the sum of the values of each of `count` groups."""
    return np.bincount(groups, weights=values.astype(np.float64), minlength=count).astype(np.float64)


def region_percents(gap: Array, mass: Array, *, margin: float, bandwidth: float) -> Regions:
    """Return the percent of the mass in each region."""
    which, total = region_of(gap, margin, bandwidth), mass.sum()
    parts = [mass[which == region].sum() for region in range(3)]
    return Regions(*(float(100 * part / total) if total else math.nan for part in parts))


def weights_of(objective: Objective, table: TokenTable) -> Array:
    """Return the weight of each token of a table, by the objective's own formula."""
    try:
        weights: Array = weigh(objective, table.stats()).numpy().astype(np.float64)
    except Exception as error:  # whatever the code of others does
        problem = f"{objective!r} cannot weigh a token table ({type(error).__name__}: {one_line(error)})"
        raise UsageError(problem, hint=_KNOWN) from error
    if not np.isfinite(weights).all():
        raise UsageError(f"{objective!r} gives tokens a weight that is not finite", hint=_KNOWN)
    return weights


def objectives_of(parameters: Mapping[str, Any] | None = None, named: Iterable[str] = ()) -> dict[str, Objective]:
    """Return the paper's objectives by name, with those parameters that they take, then the named ones, loaded."""
    papers = {name: objective_of(name, parameters) for name in PAPER_OBJECTIVES}
    return {**papers, **{name: make_objective(name) for name in named if name not in papers}}


def objective_of(name: str, parameters: Mapping[str, Any] | None = None) -> BuiltinObjective:
    """Return the paper's objective of that name with those of the parameters that it takes."""
    kind, given = PAPER_OBJECTIVES[name], parameters or {}
    taken = PARAMETERS.keys() & kind.__dataclass_fields__.keys()
    return kind(**{key: given.get(key, PARAMETERS[key]) for key in taken})


def diagnose(table: TokenTable, objective: Objective, *, margin: float, bandwidth: float) -> Diagnostics:
    """Return R_eff, High-Weight and gradient mass of one objective on one table."""
    weights = weights_of(objective, table)
    return Diagnostics(
        mean_weight=float(weights.mean()),
        effective_ratio=effective_ratio(weights),
        high_weight_percent=100 * float(np.mean(weights > HIGH_WEIGHT)),
        mass_percent=region_percents(
            table["gap"], weights * table["gradient_norm"], margin=margin, bandwidth=bandwidth
        ),
    )


def confidence(table: TokenTable, *, margin: float, bandwidth: float) -> Confidence:
    """Return how sure the model of a table is of its tokens."""
    gap = table["gap"].astype(np.float64)
    return Confidence(
        tokens=len(table),
        mean_nll=float(table["nll"].mean(dtype=np.float64)),
        median_gap=float(np.median(gap)),
        first_choice_percent=100 * float(np.mean(table["rank"] == 1)),
        mean_entropy=float(table["entropy"].mean(dtype=np.float64)),
        regions_percent=region_percents(gap, np.ones_like(gap), margin=margin, bandwidth=bandwidth),
    )


def effective_ratio_grid(gap: Array, margins: Sequence[float], bandwidths: Sequence[float]) -> Array:
    """Return R_eff of TrimSFT at each bandwidth (rows) and margin (columns), from fine bins of the gaps."""
    edge = int(_REACH * _BINS_PER_UNIT)
    near = np.clip(gap.astype(np.float64), -_REACH, _REACH)
    place = np.floor(near * _BINS_PER_UNIT).astype(np.int64) + edge
    counts_B, sums_B = (sums_by(place, values, 2 * edge + 1) for values in (np.ones_like(near), near))
    kept = counts_B > 0
    counts_B, means_B = counts_B[kept], sums_B[kept] / counts_B[kept]

    def ratio(margin: float, bandwidth: float) -> float:
        exponents_B = -np.square(means_B - margin) / (2 * bandwidth**2)
        weights_B = np.exp(exponents_B - exponents_B.max(initial=-np.inf))  # the ratio knows no scale
        return float((counts_B @ weights_B) ** 2 / (counts_B.sum() * (counts_B @ np.square(weights_B))))

    return np.array([[ratio(margin, bandwidth) for margin in margins] for bandwidth in bandwidths])
