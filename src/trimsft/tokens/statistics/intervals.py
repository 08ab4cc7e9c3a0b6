"""Statistics of a token table with their 95 % intervals, by resampling examples: the tokens of one are not independent.

    sums = ByExample(table, lambda part: [("tokens", np.ones(len(part))), ("nll", part["nll"])])
    sums.interval(lambda means: means["nll"] / means["tokens"])          # of the mean nll

Every such quantity is a ratio of sums over tokens, so an example is a row of sums, and a resample a mean of rows.
Columns have names of any kind, such as ("weight", Setting(1, 1)).
More than `MOST_ROWS` examples are dealt at random into that many groups first, whose sizes differ by one at most, and
a group is a row: the groups are as independent as the examples, and the variance of a ratio of sums is the same.
Those of the paper's appendix tables, with the values of `weighting.diagnose` and `groups`:

    weight_intervals(table)[Setting(1, 1)]["r_eff"]
    mass_intervals(table)[Setting(1, 1), "trim"]["low"]
    category_intervals(table, Setting(1, 1))["numeric"]["trim_mass_percent"]

Shapes: E examples, K columns, R resamples.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.objectives import TrimSFT, make_objective
from trimsft.objectives.paper import HIGH_WEIGHT, Setting
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import REGIONS, region_of, weights_of
from trimsft.tokens.table import TokenTable

Intervals: TypeAlias = dict[str, Interval]
Columns: TypeAlias = Iterable[tuple[Hashable, Array]]
"""By name, a number for each token of a part of a table; the same names for every part."""
RESAMPLES = 1_000
MOST_ROWS = 2**14  # that are resampled
_GRID = ((1.0, 1.0), (3.0, 1.0), (6.0, 1.0), (1.0, 3.0), (1.0, 6.0), (6.0, 3.0), (6.0, 6.0))
PAPER_SETTINGS = tuple(Setting(*place) for place in _GRID)
"""The (m, tau) of the paper's weight diagnostics."""
PAPER_MASS = tuple(Setting(m, 1.0) for m in (1.0, 3.0, 5.0))
"""The (m, tau) of the paper's gradient masses."""
TRIMS = ("trim", "trim-e", "trim-h")


def rows_of_examples(table: TokenTable, sums: Callable[[TokenTable], Array]) -> Array:
    """[E, K]: what `sums` gives for each example of a part, in their order; in groups where there are many."""
    count = table.example_count
    if count <= MOST_ROWS:
        return np.concatenate([sums(part) for part in table.parts()])
    group_E = np.random.default_rng(0).permutation(count) % MOST_ROWS
    rows, done = np.zeros((MOST_ROWS, 0)), 0
    for part in table.parts():
        of_part = sums(part)
        rows = rows if rows.size else np.zeros((MOST_ROWS, of_part.shape[1]))
        np.add.at(rows, group_E[done : done + len(of_part)], of_part)
        done += len(of_part)
    return rows


@dataclass(frozen=True)
class Means:
    """Means over examples of the columns of a `ByExample`, by their names; [R], one for each resample."""

    places: Mapping[Hashable, int]
    means_RK: Array

    def __getitem__(self, name: Hashable) -> Array:
        column: Array = self.means_RK[:, self.places[name]]
        return column


Statistic: TypeAlias = Callable[[Means], Array]
"""From means to [R]. Means are over examples or over groups of them, so it must not depend on their scale; no ratio
does."""


class ByExample:
    """Sums of columns of numbers, one for each token, over the tokens of each example.

    Columns of a part that are made one after the other take the memory of one.
    """

    def __init__(self, table: TokenTable, columns: Callable[[TokenTable], Columns]) -> None:
        self._places: dict[Hashable, int] = {}

        def sums(part: TokenTable) -> Array:
            _, which = np.unique(part["example"], return_inverse=True)
            summed = {
                name: np.bincount(which, weights=np.asarray(column, dtype=np.float64)).astype(np.float64)
                for name, column in columns(part)
            }
            self._places = {name: place for place, name in enumerate(summed)}
            return np.stack([*summed.values()], axis=1)

        self._sums_EK = rows_of_examples(table, sums)

    def value(self, statistic: Statistic) -> float:
        """The statistic of the table as it is."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(statistic(Means(self._places, self._sums_EK.mean(axis=0, keepdims=True)))[0])

    def interval(self, statistic: Statistic) -> Interval:
        """With its 95 % interval; NaN at both ends where there is a single example."""
        if len(self._sums_EK) < 2:
            return Interval(self.value(statistic), math.nan, math.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            return bias_corrected(self.value(statistic), statistic(self._draws))

    @cached_property
    def _draws(self) -> Means:
        return Means(self._places, resampled_means(self._sums_EK, RESAMPLES, np.random.default_rng(0)))


def ratio(above: Hashable, below: Hashable, *, scale: float = 1.0) -> Statistic:
    """The ratio of two columns."""
    return lambda means: scale * means[above] / means[below]


# ---- weights


def weight_intervals(table: TokenTable, settings: Sequence[Setting] = PAPER_SETTINGS) -> dict[Setting, Intervals]:
    """mean_weight, high_weight_percent and r_eff of TrimSFT, for each setting."""
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
    """Tokens; for each setting the weights of TrimSFT, their squares, and how many are high."""

    def columns(part: TokenTable) -> Iterator[tuple[Hashable, Array]]:
        yield "tokens", np.ones(len(part))
        for setting in settings:
            weights = weights_of(TrimSFT(*setting), part)
            yield ("weight", setting), weights
            yield ("square", setting), np.square(weights)  # of float32, whose smallest has a square in float64
            yield ("high", setting), (weights > HIGH_WEIGHT).astype(np.float64)

    return ByExample(table, columns)


def high_weight_percent(setting: Setting) -> Statistic:
    """Percent of the tokens with a high weight, of `weight_sums`."""
    return ratio(("high", setting), "tokens", scale=100.0)


def r_eff(setting: Setting) -> Statistic:
    """(sum w)^2 / (N sum w^2), of `weight_sums`."""
    return lambda means: means["weight", setting] ** 2 / (means["tokens"] * means["square", setting])


# ---- gradient mass


def mass_intervals(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> dict[tuple[Setting, str], Intervals]:
    """Percent of the gradient mass in each region, for each setting and objective."""
    sums = mass_sums(table, settings, objectives)
    return {
        (setting, name): {region: sums.interval(mass_percent(region, setting, name)) for region in REGIONS}
        for setting in settings
        for name in objectives
    }


def mass_sums(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> ByExample:
    """The gradient mass in each region, for each setting and objective."""

    def columns(part: TokenTable) -> Iterator[tuple[Hashable, Array]]:
        norm = part["gradient_norm"].astype(np.float64)
        for setting in settings:
            which = _regions(part, setting)
            for name in objectives:
                mass = weights_of(make_objective(name, **setting._asdict()), part) * norm
                for number, region in enumerate(REGIONS):
                    yield (region, setting, name), mass * (which == number)

    return ByExample(table, columns)


def mass_percent(region: str, setting: Setting, objective: str) -> Statistic:
    """Percent of the mass that lies in a region, of `mass_sums`."""
    return lambda means: (
        100 * means[region, setting, objective] / sum(means[one, setting, objective] for one in REGIONS)
    )


# ---- categories


def category_intervals(table: TokenTable, setting: Setting) -> dict[str, Intervals]:
    """The columns of `groups.Group` for each category, but for its mean nll."""

    def columns(part: TokenTable) -> Iterator[tuple[Hashable, Array]]:
        norm, weights = part["gradient_norm"].astype(np.float64), weights_of(TrimSFT(*setting), part)
        is_inside = _regions(part, setting) == REGIONS.index("middle")
        kinds = ((name, part["category"] == number) for number, name in enumerate(CATEGORIES))
        for name, some in itertools.chain([("all", np.ones(len(part), dtype=bool))], kinds):
            yield ("tokens", name), some.astype(np.float64)
            yield ("weight", name), weights * some
            yield ("middle", name), (is_inside & some).astype(np.float64)
            yield ("sft_mass", name), norm * some
            yield ("trim_mass", name), weights * norm * some

    sums = ByExample(table, columns)
    return {
        name: {
            "ratio_percent": sums.interval(ratio(("tokens", name), ("tokens", "all"), scale=100.0)),
            "mean_weight": sums.interval(ratio(("weight", name), ("tokens", name))),
            "middle_percent": sums.interval(ratio(("middle", name), ("tokens", name), scale=100.0)),
            "sft_mass_percent": sums.interval(ratio(("sft_mass", name), ("sft_mass", "all"), scale=100.0)),
            "trim_mass_percent": sums.interval(ratio(("trim_mass", name), ("trim_mass", "all"), scale=100.0)),
        }
        for name in CATEGORIES
    }


def _regions(table: TokenTable, setting: Setting) -> NDArray[np.int8]:
    """Which of `REGIONS` each token lies in."""
    return region_of(table["gap"].astype(np.float64), *setting).astype(np.int8)
