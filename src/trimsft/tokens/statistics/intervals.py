"""Statistics of a token table with their 95 % intervals, by resampling examples: the tokens of one are not independent.

    sums = ByExample(table, [("tokens", np.ones(len(table))), ("nll", table["nll"])])
    sums.interval(ratio("nll", "tokens"))          # of the mean nll

Every such quantity is a ratio of sums over tokens, so an example is a row of sums, and a resample a mean of rows.
Columns have names of any kind, such as ("weight", Setting(1, 1)).
Those of the paper's appendix tables, with the values of `weighting.diagnose` and `groups`:

    weight_intervals(table)[Setting(1, 1)]["r_eff"]
    mass_intervals(table)[Setting(1, 1), "trim"]["low"]
    category_intervals(table, Setting(1, 1))["numeric"]["trim_mass_percent"]

Shapes: E examples, K columns, R resamples.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.objectives import TrimSFT, make_objective
from trimsft.objectives.paper import HIGH_WEIGHT, Setting
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import REGIONS, region_of, sums_by, weights_of
from trimsft.tokens.table import TokenTable

Intervals: TypeAlias = dict[str, Interval]
Columns: TypeAlias = Iterable[tuple[Hashable, NDArray[Any]]]
"""By name, a number for each token of a table; made one after the other they take the memory of one."""
RESAMPLES = 1_000
_GRID = ((1.0, 1.0), (3.0, 1.0), (6.0, 1.0), (1.0, 3.0), (1.0, 6.0), (6.0, 3.0), (6.0, 6.0))
PAPER_SETTINGS = tuple(Setting(*place) for place in _GRID)
"""The (m, tau) of the paper's weight diagnostics."""
PAPER_MASS = tuple(Setting(m, 1.0) for m in (1.0, 3.0, 5.0))
"""The (m, tau) of the paper's gradient masses."""
TRIMS = ("trim", "trim-e", "trim-h")


Means: TypeAlias = Mapping[Hashable, Array]
"""Means over examples of the columns of a `ByExample`, by their names; [R], one for each resample."""
Statistic: TypeAlias = Callable[[Means], Array]


class ByExample:
    """Sums of columns of numbers over the tokens of each example."""

    def __init__(self, table: TokenTable, columns: Columns) -> None:
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
        return resampled_means(self._sums_EK, RESAMPLES, np.random.default_rng(0))


def ratio(above: Hashable, below: Hashable, *, scale: float = 1.0) -> Statistic:
    """Return the ratio of two columns."""
    return lambda means: scale * means[above] / means[below]


# ---- weights


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
    """Sum tokens; for each setting the weights of TrimSFT, their squares, and how many are high."""

    def columns() -> Iterator[tuple[Hashable, Array]]:
        yield "tokens", np.ones(len(table))
        for setting in settings:
            weights = weights_of(TrimSFT(*setting), table)
            yield ("weight", setting), weights
            yield ("square", setting), np.square(weights)  # of float32, whose smallest has a square in float64
            yield ("high", setting), (weights > HIGH_WEIGHT).astype(np.float64)

    return ByExample(table, columns())


def high_weight_percent(setting: Setting) -> Statistic:
    """Return the percent of the tokens with a high weight, of `weight_sums`."""
    return ratio(("high", setting), "tokens", scale=100.0)


def r_eff(setting: Setting) -> Statistic:
    """Return (sum w)^2 / (N sum w^2), of `weight_sums`."""
    return lambda means: means["weight", setting] ** 2 / (means["tokens"] * means["square", setting])


# ---- gradient mass


def mass_intervals(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> dict[tuple[Setting, str], Intervals]:
    """Return the percent of the gradient mass in each region, for each setting and objective."""
    sums = mass_sums(table, settings, objectives)
    return {
        (setting, name): {region: sums.interval(mass_percent(region, setting, name)) for region in REGIONS}
        for setting in settings
        for name in objectives
    }


def mass_sums(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> ByExample:
    """Sum the gradient mass in each region, for each setting and objective."""

    def columns() -> Iterator[tuple[Hashable, Array]]:
        for setting in settings:
            which = region_of(table["gap"], *setting)
            for name in objectives:
                mass = weights_of(make_objective(name, **setting._asdict()), table) * table["gradient_norm"]
                for number, region in enumerate(REGIONS):
                    yield (region, setting, name), mass * (which == number)

    return ByExample(table, columns())


def mass_percent(region: str, setting: Setting, objective: str) -> Statistic:
    """Return the percent of the mass that lies in a region, of `mass_sums`."""
    return lambda means: (
        100 * means[region, setting, objective] / sum(means[one, setting, objective] for one in REGIONS)
    )


# ---- categories


def category_intervals(table: TokenTable, setting: Setting) -> dict[str, Intervals]:
    """Return the columns of `groups.Group` for each category, but for its mean nll."""
    weights, norm = weights_of(TrimSFT(*setting), table), table["gradient_norm"].astype(np.float64)
    values = {
        "tokens": np.ones_like(norm),
        "weight": weights,
        "middle": region_of(table["gap"], *setting) == REGIONS.index("middle"),
        "sft_mass": norm,
        "trim_mass": weights * norm,
    }
    groups = {"all": np.ones(len(table), dtype=bool)}
    groups |= {name: table["category"] == number for number, name in enumerate(CATEGORIES)}
    columns = (((what, name), column * some) for name, some in groups.items() for what, column in values.items())
    sums = ByExample(table, columns)

    def shares(name: str) -> dict[str, Statistic]:
        return {
            "ratio_percent": ratio(("tokens", name), ("tokens", "all"), scale=100.0),
            "mean_weight": ratio(("weight", name), ("tokens", name)),
            "middle_percent": ratio(("middle", name), ("tokens", name), scale=100.0),
            "sft_mass_percent": ratio(("sft_mass", name), ("sft_mass", "all"), scale=100.0),
            "trim_mass_percent": ratio(("trim_mass", name), ("trim_mass", "all"), scale=100.0),
        }

    return {name: {field: sums.interval(share) for field, share in shares(name).items()} for name in CATEGORIES}
