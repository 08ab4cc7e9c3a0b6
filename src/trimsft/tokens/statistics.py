r"""Statistics of a token table: exact functions of its columns (appendices of the paper).

    diagnose(table, TrimSFT(), margin=1.5, bandwidth=0.8).effective_ratio      # R_eff = (sum w)^2 / (N sum w^2)

    >>> effective_ratio(np.array([1.0, 1.0, 0.0, 0.0]))
    0.5
    >>> region_percents(np.array([-1.0, 1.5, 9.0]), np.array([1.0, 2.0, 1.0]), margin=1.5, bandwidth=0.8)
    {'low': 25.0, 'middle': 50.0, 'high': 25.0}

Shares are in percent; where nothing has any weight they are NaN. Intervals are of 95 % and resample examples, since the
tokens of one are not independent. Shapes: B bins, E examples, K columns, R resamples.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.errors import UsageError, one_line
from trimsft.head.problem import weigh
from trimsft.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.objectives import (
    BANDWIDTH,
    MARGIN,
    PAPER_OBJECTIVES,
    PARAMETERS,
    Objective,
    TrimSFT,
    make_objective,
    parameters_of,
)
from trimsft.objectives.paper import HIGH_WEIGHT, Setting
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.table import TokenTable

REGIONS = ("low", "middle", "high")
Numbers: TypeAlias = NDArray[np.int64]


def sums_by(groups: Numbers, values: NDArray[Any], count: int) -> Array:
    """Return the sum of the values of each of `count` groups."""
    return np.bincount(groups, weights=values.astype(np.float64), minlength=count).astype(np.float64)


# ---- weights


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """The weights of an objective on the tokens of one table."""

    mean_weight: float
    effective_ratio: float
    high_weight_percent: float  # tokens with a weight above `HIGH_WEIGHT`
    mass_percent: dict[str, float]  # of the weighted gradient, by region


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """The confidence of a model in the tokens of one table."""

    tokens: int
    mean_nll: float
    median_gap: float
    first_choice_percent: float  # tokens that no other one has a larger logit than
    mean_entropy: float
    regions_percent: dict[str, float]  # of the tokens


def effective_ratio(weights: Array) -> float:
    """Return R_eff = (sum w)^2 / (N sum w^2): 1 where all tokens count alike, 1/N where one does."""
    largest = np.abs(weights).max(initial=0.0)
    if largest == 0:
        return math.nan
    scaled = weights / largest  # squares of tiny weights would be 0
    return float(scaled.sum() ** 2 / (len(weights) * np.square(scaled).sum()))


def region_of(gap: Array, margin: float, bandwidth: float) -> Numbers:
    """Return 0, 1, 2 of `REGIONS`: below margin - bandwidth, within the band, borders too, above."""
    gap = gap.astype(np.float64)
    return (gap >= margin - bandwidth).astype(np.int64) + (gap > margin + bandwidth)


def region_percents(gap: Array, mass: Array, *, margin: float, bandwidth: float) -> dict[str, float]:
    """Return the percent of the mass in each of `REGIONS`."""
    with np.errstate(invalid="ignore"):
        shares = 100 * sums_by(region_of(gap, margin, bandwidth), mass, 3) / mass.sum()
    return dict(zip(REGIONS, shares.tolist(), strict=True))


def weights_of(objective: Objective, table: TokenTable) -> Array:
    """Return the weight of each token: by the objective's own formula, times that of the data."""
    try:
        weights: Array = weigh(objective, table.stats()).numpy().astype(np.float64) * table["data_weight"]
        if not np.isfinite(weights).all():
            raise ValueError("gives tokens a weight that is not finite")
    except Exception as error:  # whatever the code of others does
        problem = f"{objective!r} cannot weigh a token table ({type(error).__name__}: {one_line(error)})"
        hint = "a token table knows neither the gold token's logit nor its role and position"
        raise UsageError(problem, hint=hint) from error
    return weights


def objective_of(name: str, parameters: Mapping[str, Any] | None = None) -> Objective:
    """Return the objective of that name; one of the paper's with the parameters that it takes."""
    if name not in PAPER_OBJECTIVES:
        return make_objective(name)
    given = {**PARAMETERS, **(parameters or {})}
    return make_objective(name, **{key: given[key] for key in PARAMETERS if key in parameters_of(name)})


def diagnose(table: TokenTable, objective: Objective, *, margin: float, bandwidth: float) -> Diagnostics:
    """Return R_eff, High-Weight and gradient mass of one objective on one table."""
    weights = weights_of(objective, table)
    mass = weights * table["gradient_norm"]
    return Diagnostics(
        mean_weight=float(weights.mean()),
        effective_ratio=effective_ratio(weights),
        high_weight_percent=100 * float(np.mean(weights > HIGH_WEIGHT)),
        mass_percent=region_percents(table["gap"], mass, margin=margin, bandwidth=bandwidth),
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
    """Return R_eff of TrimSFT at each bandwidth (row) and margin (column), from fine bins of gaps.

    A bin stands at the mean of its gaps: R_eff is off by (1/64/tau)^2 / 24 at most, 0.1 % at tau = 0.1.
    """
    near = np.clip(gap.astype(np.float64), -60, 60)  # no band of the plane has any weight beyond
    _, which_B, counts_B = np.unique(np.floor(near * 64), return_inverse=True, return_counts=True)
    means_B = sums_by(which_B, near, 0) / counts_B

    def ratio(margin: float, bandwidth: float) -> float:
        exponents_B = -np.square(means_B - margin) / (2 * bandwidth**2)
        weights_B = np.exp(exponents_B - exponents_B.max(initial=-np.inf))  # the ratio knows no scale
        return float((counts_B @ weights_B) ** 2 / (counts_B.sum() * (counts_B @ np.square(weights_B))))

    return np.array([[ratio(margin, bandwidth) for margin in margins] for bandwidth in bandwidths])


# ---- densities of gaps (Figure 4 of the paper)


def density(values: Array, grid: Array) -> Array:
    """Return f(x) = sum_i K((x - value_i) / h) / (N h) on a grid, K the normal density.

    h is Silverman's 0.9 min(s, IQR / 1.34) N^(-1/5), and something above 0 where all values are equal.
    """
    values = values.astype(np.float64)
    if not len(values):
        return np.zeros(len(grid))
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    low, high = np.quantile(values, [0.25, 0.75])
    width = float(0.9 * (min(spread, (high - low) / 1.34) or spread) * len(values) ** -0.2) or 0.1
    # what lies 8 bandwidths beyond the grid adds nothing
    near = values[(values > grid[0] - 8 * width) & (values < grid[-1] + 8 * width)]
    if not len(near):
        return np.zeros(len(grid))
    counts, edges = np.histogram(near, bins=int(np.clip(np.ptp(near) / width * 100, 1, 20_000)))
    kernel = np.exp(-0.5 * np.square((grid[:, None] - (edges[1:] + edges[:-1]) / 2) / width))
    densities: Array = kernel @ counts.astype(np.float64) / (len(values) * width * np.sqrt(2 * np.pi))
    return densities


def range_of(groups: Sequence[Array]) -> tuple[float, float]:
    """Return where nearly all gaps lie: the 0.5th to the 99.5th percentile, in whole numbers.

    It ends at -12 and 40, unless all of it lies beyond one of them.
    """
    lowest, highest = -12.0, 40.0
    ends = [np.quantile(values.astype(np.float64), [0.005, 0.995]) for values in groups if len(values)]
    if not ends:
        return -4.0, 8.0
    low, high = float(np.floor(np.min(ends)) - 1), float(np.ceil(np.max(ends)) + 1)
    return (low, high) if high <= lowest or low >= highest else (max(lowest, low), min(highest, high))


# ---- intervals

Intervals: TypeAlias = dict[str, Interval]
Means: TypeAlias = Mapping[Hashable, Array]
"""Means over examples of the columns of a `ByExample`, by name; [R], one for each resample."""
Statistic: TypeAlias = Callable[[Means], Array]
PAPER_SETTINGS = tuple(Setting(*one) for one in [(1, 1), (3, 1), (6, 1), (1, 3), (1, 6), (6, 3), (6, 6)])
"""The (m, tau) of the paper's weight diagnostics."""
PAPER_MASS = tuple(Setting(m, 1.0) for m in (1.0, 3.0, 5.0))  # of its gradient masses
TRIMS = ("trim", "trim-e", "trim-h")


class ByExample:
    """Sums of columns over the tokens of each example: statistics are functions of their means."""

    def __init__(self, table: TokenTable, columns: Iterable[tuple[Hashable, NDArray[Any]]]) -> None:
        _, which = np.unique(table["example"], return_inverse=True)
        sums = {name: sums_by(which, column, 0) for name, column in columns}
        self._names, self._sums_EK = tuple(sums), np.stack([*sums.values()], axis=1)

    def value(self, statistic: Statistic) -> float:
        """Return the statistic of the table as it is."""
        return float(self._of(statistic, self._sums_EK.mean(axis=0, keepdims=True))[0])

    def interval(self, statistic: Statistic) -> Interval:
        """Return it with its 95 % interval; NaN at both ends where there is a single example."""
        if len(self._sums_EK) < 2:
            return Interval(self.value(statistic), math.nan, math.nan)
        return bias_corrected(self.value(statistic), self._of(statistic, self._draws_RK))

    def _of(self, statistic: Statistic, means_RK: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return statistic(dict(zip(self._names, means_RK.T, strict=True)))

    @cached_property
    def _draws_RK(self) -> Array:
        return resampled_means(self._sums_EK, 1_000, np.random.default_rng(0))


def ratio(above: Hashable, below: Hashable, *, scale: float = 1.0) -> Statistic:
    """Return the ratio of two columns."""
    return lambda means: scale * means[above] / means[below]


def weight_intervals(table: TokenTable, settings: Sequence[Setting] = PAPER_SETTINGS) -> dict[Setting, Intervals]:
    """Return mean_weight, high_weight_percent and r_eff of TrimSFT, for each setting."""
    sums = weight_sums(table, settings)
    return {
        setting: {
            "mean_weight": sums.interval(ratio(("weight", setting), "tokens")),
            "high_weight_percent": sums.interval(high_weight_percent(setting)),
            "r_eff": sums.interval(r_eff(setting)),
        }
        for setting in settings
    }


def weight_sums(table: TokenTable, settings: Sequence[Setting]) -> ByExample:
    """Sum tokens; for each setting weights of TrimSFT, their squares, and high ones."""
    columns: list[tuple[Hashable, Array]] = [("tokens", np.ones(len(table)))]
    for setting in settings:
        weights = weights_of(TrimSFT(*setting), table)
        # squares of float64: the smallest of float32 has none in its own
        columns += [(("weight", setting), weights), (("square", setting), np.square(weights))]
        columns.append((("high", setting), (weights > HIGH_WEIGHT).astype(np.float64)))
    return ByExample(table, columns)


def high_weight_percent(setting: Setting) -> Statistic:
    """Return the percent of tokens with a high weight, of `weight_sums`."""
    return ratio(("high", setting), "tokens", scale=100.0)


def r_eff(setting: Setting) -> Statistic:
    """Return (sum w)^2 / (N sum w^2), of `weight_sums`."""
    return lambda means: means["weight", setting] ** 2 / (means["tokens"] * means["square", setting])


def mass_intervals(table: TokenTable) -> dict[tuple[Setting, str], Intervals]:
    """Return the percent of the gradient mass in each region, as the paper's table has it."""
    sums = mass_sums(table)
    return {
        (setting, name): {region: sums.interval(mass_percent(region, setting, name)) for region in REGIONS}
        for setting in PAPER_MASS
        for name in TRIMS
    }


def mass_sums(table: TokenTable) -> ByExample:
    """Sum the gradient mass in each region, for TrimSFT and its halves at the paper's settings."""
    columns: list[tuple[Hashable, Array]] = []
    for setting in PAPER_MASS:
        which = region_of(table["gap"], *setting)
        for name in TRIMS:
            mass = weights_of(make_objective(name, **setting._asdict()), table) * table["gradient_norm"]
            columns += [((region, setting, name), mass * (which == at)) for at, region in enumerate(REGIONS)]
    return ByExample(table, columns)


def mass_percent(region: str, setting: Setting, objective: str) -> Statistic:
    """Return the percent of the mass in a region, of `mass_sums`."""
    return lambda means: (
        100 * means[region, setting, objective] / sum(means[one, setting, objective] for one in REGIONS)
    )


def category_intervals(table: TokenTable, setting: Setting) -> dict[str, Intervals]:
    """Return the columns of the paper's table of categories, for each category."""
    weights, norm = weights_of(TrimSFT(*setting), table), table["gradient_norm"].astype(np.float64)
    values = {
        "tokens": np.ones_like(norm),
        "weight": weights,
        "middle": region_of(table["gap"], *setting) == REGIONS.index("middle"),
        "sft_mass": norm * table["data_weight"],
        "trim_mass": weights * norm,
    }
    groups = {"all": np.ones(len(table), dtype=bool)}
    groups |= {name: table["category"] == number for number, name in enumerate(CATEGORIES)}
    sums = ByExample(
        table, (((what, name), column * some) for name, some in groups.items() for what, column in values.items())
    )

    def percent(above: tuple[str, str], below: tuple[str, str]) -> Interval:
        return sums.interval(ratio(above, below, scale=100.0))

    return {
        name: {
            "ratio_percent": percent(("tokens", name), ("tokens", "all")),
            "mean_weight": sums.interval(ratio(("weight", name), ("tokens", name))),
            "middle_percent": percent(("middle", name), ("tokens", name)),
            "sft_mass_percent": percent(("sft_mass", name), ("sft_mass", "all")),
            "trim_mass_percent": percent(("trim_mass", name), ("trim_mass", "all")),
        }
        for name in CATEGORIES
    }


# ---- the verdict

ENOUGH = 0.2
"""R_eff that a band should have: the paper's Qwen2.5-Math-1.5B has 0.21 at (1, 1). At the lab, whose base has 0.09
there, bands that reach it score as well as DFT, and the paper's does not (docs/results.md)."""
WIDEST = 6.0  # times the paper's band


@dataclass(frozen=True)
class Verdict:
    """The gaps of a token table, judged for training on its rows."""

    out_of_reach: float  # share of the tokens
    paper_ratio: float  # R_eff of the paper's band
    band: Setting | None  # one to try
    band_ratio: float  # its R_eff

    @property
    def sentence(self) -> str:
        """Return the verdict in words, with the reasons."""
        reach = f"{self.out_of_reach:.0%} of the tokens are out of reach (gap below {MARGIN - 3 * BANDWIDTH:g})"
        if self.out_of_reach > 0.5:
            return f"The model does not support this data: {reach}. A fixed band would learn next to nothing."
        paper = f"The paper's band (margin {MARGIN:g}, bandwidth {BANDWIDTH:g}) has R_eff {self.paper_ratio:.2f}"
        if self.band is None:
            end = f"; even one {WIDEST:g} times as wide holds too few tokens."
        elif self.band.margin == MARGIN:
            end = ", which is enough."
        else:
            end = f": too few tokens; the same band {self.band.margin / MARGIN:g} times as wide has "
            end += f"{self.band_ratio:.2f}."
        return f"The model supports this data: {reach}. {paper}{end}"

    def as_dict(self) -> dict[str, object]:
        return {
            "supported": self.out_of_reach <= 0.5,
            "out_of_reach": self.out_of_reach,
            "band": self.band and self.band._asdict(),
            "text": self.sentence,
        }


def judge_table(table: TokenTable) -> Verdict:
    """Judge by the gaps alone: below margin - 3 bandwidths no band gives tokens weight.

    Else the paper's band is widened until its R_eff is that of the paper's own models.
    """
    gap = table["gap"].astype(np.float64)
    out_of_reach = float(np.mean(gap < MARGIN - 3 * BANDWIDTH))
    wider = np.arange(1, WIDEST + 0.5, 0.5)
    ratios = np.diag(effective_ratio_grid(gap, (MARGIN * wider).tolist(), (BANDWIDTH * wider).tolist())).tolist()
    for times, reached in zip(wider.tolist(), ratios, strict=True):
        if reached >= ENOUGH and out_of_reach <= 0.5:
            band = Setting(round(MARGIN * times, 2), round(BANDWIDTH * times, 2))
            return Verdict(out_of_reach, ratios[0], band, reached)
    return Verdict(out_of_reach, ratios[0], None, math.nan)
