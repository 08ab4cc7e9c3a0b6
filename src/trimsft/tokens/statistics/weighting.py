"""What a set of weights does to a set of tokens: exact functions on arrays (appendices of the paper).

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
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.errors import UsageError, one_line
from trimsft.head.problem import weigh
from trimsft.objectives import PAPER_OBJECTIVES, PARAMETERS, BuiltinObjective, Objective, make_objective
from trimsft.objectives.base import needs_of
from trimsft.tokens.table import TokenTable

Array: TypeAlias = NDArray[np.float64]

REGIONS = ("low", "middle", "high")
HIGH_WEIGHT = 0.5  # tokens above this weight count as High-Weight
_BINS_PER_UNIT = 64
"""A bin stands at the mean of its gaps: R_eff is off by (1/64/tau)^2 / 24 at most, 0.1 % at tau = 0.1."""
_REACH = 60.0  # gaps beyond it count as it: no band of the plane has any weight there
_KNOWN = "a token table knows nll, gap, entropy and competitor, not the gold id and its logit"
_TAKES = {name: kind.__dataclass_fields__ for name, kind in PAPER_OBJECTIVES.items()}


@dataclass(frozen=True)
class Regions:
    """Percent of something with a gap below, within and above margin - bandwidth to margin + bandwidth."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """What an objective makes of the tokens of one table."""

    mean_weight: float
    effective_ratio: float
    high_weight_percent: float  # tokens with a weight above one half
    mass_percent: Regions  # where the weighted gradient lies


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """How sure a model is of the tokens of one table."""

    tokens: int
    mean_nll: float
    median_gap: float
    first_choice_percent: float  # tokens that no other one has a larger logit than
    mean_entropy: float
    regions_percent: Regions  # tokens by their gap


def effective_ratio(weights: Array) -> float:
    """R_eff = (sum w)^2 / (N sum w^2): 1 where all tokens count alike, 1/N where a single one does."""
    largest = float(np.abs(weights).max(initial=0.0))
    if largest == 0:
        return math.nan
    scaled = weights / largest  # squares of tiny weights would be 0
    return float(scaled.sum() ** 2 / (len(scaled) * np.square(scaled).sum()))


def region_of(gap: Array, margin: float, bandwidth: float) -> NDArray[np.int64]:
    """0, 1, 2 of `REGIONS`: below margin - bandwidth, within the band with its borders, above margin + bandwidth."""
    return (gap >= margin - bandwidth).astype(np.int64) + (gap > margin + bandwidth)


def sums_by(groups: NDArray[np.int64], values: Array, count: int) -> Array:
    """The sum of the values of each of `count` groups."""
    sums: Array = np.bincount(groups, weights=values, minlength=count).astype(np.float64)
    return sums


def region_percents(gap: Array, mass: Array, *, margin: float, bandwidth: float) -> Regions:
    """Percent of the mass in each region."""
    total = float(mass.sum())
    if total == 0:
        return Regions(math.nan, math.nan, math.nan)
    which = region_of(gap, margin, bandwidth)
    return Regions(*(100 * float(mass[which == region].sum()) / total for region in range(3)))


def weights_of(objective: Objective, table: TokenTable) -> Array:
    """The weight of each token of a table, by the objective's own formula, which knows one token at a time."""
    if "reference" in needs_of(objective):
        raise UsageError(f"{objective!r} needs a reference model, of which a token table knows nothing")
    weights: Array = np.empty(len(table))
    for rows in table.slices():
        try:
            weights[rows] = weigh(objective, table.stats(rows)).numpy()
        except Exception as error:  # whatever the code of others does
            problem = f"{objective!r} cannot weigh a token table ({type(error).__name__}: {one_line(error)})"
            raise UsageError(problem, hint=_KNOWN) from error
    if not np.isfinite(weights).all():
        raise UsageError(f"{objective!r} gives tokens a weight that is not finite", hint=_KNOWN)
    return weights


def objectives_of(parameters: Mapping[str, Any] | None = None, named: Iterable[str] = ()) -> dict[str, Objective]:
    """By name the paper's, with those of the parameters that they take, then those that are named: these are loaded."""
    papers = {name: objective_of(name, parameters) for name in PAPER_OBJECTIVES}
    return {**papers, **{name: make_objective(name) for name in named if name not in papers}}


def objective_of(name: str, parameters: Mapping[str, Any] | None = None) -> BuiltinObjective:
    """The paper's objective of that name with those of the parameters that it takes."""
    values = PARAMETERS | {key: value for key, value in (parameters or {}).items() if key in PARAMETERS}
    return PAPER_OBJECTIVES[name](**{key: value for key, value in values.items() if key in _TAKES[name]})


def diagnose(table: TokenTable, objective: Objective, *, margin: float, bandwidth: float) -> Diagnostics:
    """R_eff, High-Weight and gradient mass of one objective on one table."""
    weights = weights_of(objective, table)
    gap, mass = table["gap"].astype(np.float64), weights * table["gradient_norm"].astype(np.float64)
    return Diagnostics(
        mean_weight=float(weights.mean()),
        effective_ratio=effective_ratio(weights),
        high_weight_percent=100 * float(np.mean(weights > HIGH_WEIGHT)),
        mass_percent=region_percents(gap, mass, margin=margin, bandwidth=bandwidth),
    )


def confidence(table: TokenTable, *, margin: float, bandwidth: float) -> Confidence:
    """What the model of a table thinks of its tokens, whatever is learned from them."""
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
