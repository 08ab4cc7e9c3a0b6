"""Statistics of a token table with their 95 % intervals, by resampling examples: the tokens of one are not independent.

    sums = ByExample(table, lambda part: [np.ones(len(part)), part["nll"]])
    sums.interval(lambda means: means[:, 1] / means[:, 0])          # of the mean nll

Every such quantity is a ratio of sums over tokens, so an example is a row of sums, and a resample a mean of rows.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trimsft import paper
from trimsft.objectives import TrimSFT, make_objective
from trimsft.paper import Setting
from trimsft.scoring.intervals import Array, Interval, bias_corrected, resampled_means
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics.weighting import HIGH_WEIGHT, REGIONS, region_of, weights_of
from trimsft.tokens.table import TokenTable

Intervals: TypeAlias = dict[str, Interval]
RESAMPLES = 1_000
MOST_ROWS = 2**14  # that are resampled
PAPER_SETTINGS = tuple(row.setting for row in paper.weight_diagnostics() if row.setting is not None)
"""The (m, tau) of the paper's weight diagnostics."""
PAPER_MASS = tuple(dict.fromkeys(row.setting for row in paper.gradient_mass()))
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


class ByExample:
    """Sums of columns of numbers, one for each token, over the tokens of each example.

    Columns of a part that are made one after the other take the memory of one.
    """

    def __init__(self, table: TokenTable, columns: Callable[[TokenTable], Iterable[Array]]) -> None:
        def sums(part: TokenTable) -> Array:
            _, which = np.unique(part["example"], return_inverse=True)
            weights = (np.asarray(column, dtype=np.float64) for column in columns(part))
            return np.stack([np.bincount(which, weights=column).astype(np.float64) for column in weights], axis=1)

        self._sums_EK = rows_of_examples(table, sums)

    def value(self, statistic: Callable[[Array], Array]) -> float:
        """The statistic of the table as it is; it takes [R, K] means of the columns and gives [R].

        Means are over examples or over groups of them, so a statistic must not depend on their scale; no ratio does.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(statistic(self._sums_EK.mean(axis=0, keepdims=True))[0])

    def interval(self, statistic: Callable[[Array], Array]) -> Interval:
        """With its 95 % interval; NaN at both ends where there is a single example."""
        if len(self._sums_EK) < 2:
            return Interval(self.value(statistic), math.nan, math.nan)
        with np.errstate(invalid="ignore", divide="ignore"):
            return bias_corrected(self.value(statistic), statistic(self._draws_RK))

    @cached_property
    def _draws_RK(self) -> Array:
        return resampled_means(self._sums_EK, RESAMPLES, np.random.default_rng(0))


def weight_intervals(table: TokenTable, settings: Sequence[Setting] = PAPER_SETTINGS) -> dict[Setting, Intervals]:
    """mean_weight, high_weight_percent and r_eff of TrimSFT, for each setting."""
    largest = dict.fromkeys(settings, 0.0)
    for part in table.parts():
        for setting in settings:
            largest[setting] = float(weights_of(TrimSFT(*setting), part).max(initial=largest[setting]))

    def columns(part: TokenTable) -> Iterator[Array]:
        yield np.ones(len(part))
        for setting in settings:
            weights = weights_of(TrimSFT(*setting), part)
            yield weights
            yield (weights > HIGH_WEIGHT).astype(np.float64)
            scaled = weights / (largest[setting] or 1.0)  # squares of tiny weights would be 0
            yield scaled
            yield np.square(scaled)

    sums = ByExample(table, columns)
    return {
        setting: {
            "mean_weight": sums.interval(_ratio(at, 0)),
            "high_weight_percent": sums.interval(_ratio(at + 1, 0, scale=100.0)),
            "r_eff": sums.interval(effective(at + 2, at + 3)),
        }
        for at, setting in zip(itertools.count(1, 4), settings, strict=False)
    }


def mass_intervals(
    table: TokenTable, settings: Sequence[Setting] = PAPER_MASS, objectives: Sequence[str] = TRIMS
) -> dict[tuple[Setting, str], Intervals]:
    """Percent of the gradient mass in each region, for each setting and objective."""

    def columns(part: TokenTable) -> Iterator[Array]:
        norm = part["gradient_norm"].astype(np.float64)
        for setting in settings:
            which = _regions(part, setting)
            for name in objectives:
                made = make_objective(name, margin=setting.margin, bandwidth=setting.bandwidth)
                mass = weights_of(made, part) * norm
                yield mass
                yield from (mass * (which == region) for region in range(len(REGIONS)))

    sums = ByExample(table, columns)
    keys = [(setting, name) for setting in settings for name in objectives]
    return {
        key: {region: sums.interval(_ratio(at + 1 + n, at, scale=100.0)) for n, region in enumerate(REGIONS)}
        for at, key in zip(itertools.count(0, 1 + len(REGIONS)), keys, strict=False)
    }


def category_intervals(table: TokenTable, setting: Setting) -> dict[str, Intervals]:
    """The columns of `groups.Group` for each category, but for its mean nll."""

    def columns(part: TokenTable) -> Iterator[Array]:
        norm, weights = part["gradient_norm"].astype(np.float64), weights_of(TrimSFT(*setting), part)
        is_inside = _regions(part, setting) == 1
        kinds = (part["category"] == n for n in range(len(CATEGORIES)))
        for some in itertools.chain([np.ones(len(part), dtype=bool)], kinds):
            yield some.astype(np.float64)
            yield weights * some
            yield (is_inside & some).astype(np.float64)
            yield norm * some
            yield weights * norm * some

    sums = ByExample(table, columns)
    intervals = {}
    for n, name in enumerate(CATEGORIES):
        at = 5 * (n + 1)
        intervals[name] = {
            "ratio_percent": sums.interval(_ratio(at, 0, scale=100.0)),
            "mean_weight": sums.interval(_ratio(at + 1, at)),
            "middle_percent": sums.interval(_ratio(at + 2, at, scale=100.0)),
            "sft_mass_percent": sums.interval(_ratio(at + 3, 3, scale=100.0)),
            "trim_mass_percent": sums.interval(_ratio(at + 4, 4, scale=100.0)),
        }
    return intervals


def effective(weight: int, square: int, count: int = 0) -> Callable[[Array], Array]:
    """R_eff of the columns with these numbers: (sum w)^2 / (N sum w^2)."""
    return lambda means: means[:, weight] ** 2 / (means[:, count] * means[:, square])


def _ratio(above: int, below: int, *, scale: float = 1.0) -> Callable[[Array], Array]:
    return lambda means: scale * means[:, above] / means[:, below]


def _regions(table: TokenTable, setting: Setting) -> NDArray[np.int8]:
    """Which of `REGIONS` each token lies in."""
    return region_of(table["gap"].astype(np.float64), *setting).astype(np.int8)
