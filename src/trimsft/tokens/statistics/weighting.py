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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimsft.errors import UsageError, one_line
from trimsft.head.problem import weigh
from trimsft.objectives import PAPER_OBJECTIVES, PARAMETERS, BuiltinObjective, Objective, make_objective
from trimsft.objectives.base import needs_of
from trimsft.objectives.paper import HIGH_WEIGHT
from trimsft.tokens.statistics.quantiles import Array, Column, Values, median, pieces_of
from trimsft.tokens.table import TokenTable

REGIONS = ("low", "middle", "high")
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
    high_weight_percent: float  # tokens with a weight above `HIGH_WEIGHT`
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


def effective_ratio(weights: Values) -> float:
    """R_eff = (sum w)^2 / (N sum w^2): 1 where all tokens count alike, 1/N where a single one does."""
    sums = _Weighed()
    for piece in pieces_of(weights):
        sums.add(piece)
    return sums.effective_ratio


class _Weighed:
    """Sums of weights that come piece by piece."""

    def __init__(self) -> None:
        self.tokens = self.high = 0
        self.total = 0.0
        self._largest = self._scaled = self._squares = 0.0

    def add(self, weights: Array) -> None:
        self.tokens += len(weights)
        self.high += int(np.count_nonzero(weights > HIGH_WEIGHT))
        self.total += float(weights.sum())
        largest = max(self._largest, float(np.abs(weights).max(initial=0.0)))
        if largest > 0:
            scaled, shrink = weights / largest, self._largest / largest  # squares of tiny weights would be 0
            self._scaled = self._scaled * shrink + float(scaled.sum())
            self._squares = self._squares * shrink**2 + float(np.square(scaled).sum())
        self._largest = largest

    @property
    def effective_ratio(self) -> float:
        return self._scaled**2 / (self.tokens * self._squares) if self._largest > 0 else math.nan


def region_of(gap: Array, margin: float, bandwidth: float) -> NDArray[np.int64]:
    """0, 1, 2 of `REGIONS`: below margin - bandwidth, within the band with its borders, above margin + bandwidth."""
    return (gap >= margin - bandwidth).astype(np.int64) + (gap > margin + bandwidth)


def sums_by(groups: NDArray[np.int64], values: Array, count: int) -> Array:
    """The sum of the values of each of `count` groups."""
    sums: Array = np.bincount(groups, weights=values, minlength=count).astype(np.float64)
    return sums


def region_percents(gap: Array, mass: Array, *, margin: float, bandwidth: float) -> Regions:
    """Percent of the mass in each region."""
    return _percents(_region_sums(gap, mass, margin, bandwidth))


def _region_sums(gap: Array, mass: Array, margin: float, bandwidth: float) -> Array:
    """The mass in each region, and all of it."""
    which = region_of(gap, margin, bandwidth)
    return np.array([*(mass[which == region].sum() for region in range(3)), mass.sum()])


def _percents(sums: Array) -> Regions:
    *parts, total = sums.tolist()
    return Regions(*(100 * part / total if total else math.nan for part in parts))


def weights_of(objective: Objective, table: TokenTable) -> Array:
    """The weight of each token of a table, by the objective's own formula, which knows one token at a time."""
    if "reference" in needs_of(objective):
        raise UsageError(f"{objective!r} needs a reference model, of which a token table knows nothing")
    pieces: list[Array] = [np.empty(0)]
    for stats in (part.stats(rows) for part in table.parts() for rows in part.slices()):
        try:
            pieces.append(weigh(objective, stats).numpy())
        except Exception as error:  # whatever the code of others does
            problem = f"{objective!r} cannot weigh a token table ({type(error).__name__}: {one_line(error)})"
            raise UsageError(problem, hint=_KNOWN) from error
    weights: Array = np.concatenate(pieces, dtype=np.float64)
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
    sums, masses = _Weighed(), np.zeros(4)
    for part in table.parts():
        weights = weights_of(objective, part)
        gap, mass = part["gap"].astype(np.float64), weights * part["gradient_norm"].astype(np.float64)
        sums.add(weights)
        masses += _region_sums(gap, mass, margin, bandwidth)
    return Diagnostics(
        mean_weight=sums.total / sums.tokens,
        effective_ratio=sums.effective_ratio,
        high_weight_percent=100 * (sums.high / sums.tokens),
        mass_percent=_percents(masses),
    )


def confidence(table: TokenTable, *, margin: float, bandwidth: float) -> Confidence:
    """What the model of a table thinks of its tokens, whatever is learned from them."""
    nll = entropy = 0.0
    firsts, regions = 0, np.zeros(4)
    for part in table.parts():
        gap = part["gap"].astype(np.float64)
        nll += float(part["nll"].sum(dtype=np.float64))
        entropy += float(part["entropy"].sum(dtype=np.float64))
        firsts += int(np.count_nonzero(part["rank"] == 1))
        regions += _region_sums(gap, np.ones_like(gap), margin, bandwidth)
    return Confidence(
        tokens=len(table),
        mean_nll=nll / len(table),
        median_gap=median(Column(table, "gap")),
        first_choice_percent=100 * (firsts / len(table)),
        mean_entropy=entropy / len(table),
        regions_percent=_percents(regions),
    )


def effective_ratio_grid(gap: Values, margins: Sequence[float], bandwidths: Sequence[float]) -> Array:
    """R_eff of TrimSFT at each bandwidth (rows) and margin (columns), from fine bins of the gaps."""
    bins = GapBins(gap)
    return np.array([[bins.effective_ratio(margin, bandwidth) for margin in margins] for bandwidth in bandwidths])


class GapBins:
    """How many gaps lie in each of many fine bins, and their means."""

    def __init__(self, gap: Values) -> None:
        edge = int(_REACH * _BINS_PER_UNIT)
        counts, sums = np.zeros((2, 2 * edge + 1))
        for piece in pieces_of(gap):
            near = np.clip(piece.astype(np.float64), -_REACH, _REACH)
            place = np.floor(near * _BINS_PER_UNIT).astype(np.int64) + edge
            counts += np.bincount(place, minlength=len(counts))
            sums += np.bincount(place, weights=near, minlength=len(counts))
        kept = counts > 0
        self._means_B, self._counts_B = sums[kept] / counts[kept], counts[kept]

    def effective_ratio(self, margin: float, bandwidth: float) -> float:
        """R_eff of TrimSFT's weights."""
        exponents_B = -np.square(self._means_B - margin) / (2 * bandwidth**2)
        weights_B = np.exp(exponents_B - exponents_B.max(initial=-np.inf))  # the ratio knows no scale
        total = self._counts_B @ weights_B
        return float(total**2 / (self._counts_B.sum() * (self._counts_B @ np.square(weights_B))))
