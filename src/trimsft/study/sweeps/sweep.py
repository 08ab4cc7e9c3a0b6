"""A sweep: a grid of settings, trained and evaluated as cells of a study, and the choice among them.

grid = points(read_axes(["margin=0:6:1", "bandwidth=0.5,1,2"]), "lab")
cells = sweep_cells(grid, seeds=3)                             # with SFT beside them, at each value of shared fields
run_cells(cells, scale, StudyFolder(out))
swept = swept_of(load_results(cells, out), cells)
swept.best                                                     # of many: too good to be true, by `swept.optimism()`
chosen = select(swept, "lab-easy")
chosen.interval(chosen.best)                                   # chosen on one benchmark, scored on the others
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.intervals import RESAMPLES, Interval, resampled_means
from trimsft.options import unknown_name
from trimsft.study.cell import Cell
from trimsft.study.studies import expand
from trimsft.study.tables.summaries import Summary, paired, summarise
from trimsft.study.tables.variance import Sensitivity, resample_seeds, sensitivity_of

BASELINE = "sft"
BAND = ("margin", "bandwidth")


@dataclass(frozen=True)
class Swept:
    """What is known of a sweep: its settings over their seeds, in the order of the grid."""

    points: tuple[Summary, ...]
    baselines: tuple[Summary, ...]
    """SFT, where it was trained beside them or is a point itself: one for each setting of the shared fields."""
    missing: tuple[Cell, ...]  # cells that are not finished
    metric: str = "average"
    on: str | None = None  # the benchmark that the best point is chosen on; the others report it

    @property
    def benchmarks(self) -> list[str]:
        """Those that every point has."""
        first = self.points[0].benchmarks
        return [name for name in first if all(name in point.benchmarks for point in self.points)]

    @property
    def reported(self) -> list[str]:
        """The benchmarks that results are given on: not the one that the choice was made on."""
        return [name for name in self.benchmarks if name != self.on]

    def interval(self, point: Summary) -> Interval:
        """Its score on the benchmarks that count."""
        return point.interval(self.metric, *self.reported)

    @cached_property
    def best(self) -> Summary:
        """The point that the benchmark chose; without one the highest, which is too good to be true."""
        return best_of(self.points, self.metric, [self.on] if self.on else self.benchmarks)

    @cached_property
    def rival(self) -> Summary | None:
        """The SFT that the best point is held against; None where there is none, or it is the point itself.

        Chosen on the same benchmark, where there is a choice.
        """
        if self.on is None:
            return self.baseline_of(self.best)
        sft = best_of(self.baselines, self.metric, [self.on]) if self.baselines else None
        return None if sft is self.best else sft

    def above(self, point: Summary, sft: Summary | None) -> Interval | None:
        """The paired difference of a point to SFT on the benchmarks that count; None for SFT itself, or without it."""
        return None if sft is None or sft is point else paired(point, sft, self.metric, *self.reported)

    @property
    def beside(self) -> list[Summary]:
        """SFT where it is no point of the grid."""
        return [baseline for baseline in self.baselines if baseline not in self.points]

    def baseline_of(self, point: Summary) -> Summary | None:
        """SFT at the same values of the shared fields: against any other, tuning would count as the method's."""
        shared = point.setting.shared_fields
        return next((sft for sft in self.baselines if sft.setting.shared_fields == shared), None)

    def slice(self) -> list[Summary]:
        """The trimmed points that differ from the best of them in margin, bandwidth and objective at most."""
        trimmed = [point for point in self.points if point.setting.band is not None]
        if not trimmed:
            return []
        best = self.best if self.best in trimmed else best_of(trimmed, self.metric, self.benchmarks)
        return [point for point in trimmed if point.setting.shared_fields == best.setting.shared_fields]

    def sensitivity(self) -> Sensitivity | None:
        """For the slice's objective with the most points; None where these are too few for an analysis of variance."""
        largest = max(by_objective(self.slice()).values(), key=len, default=[])
        return sensitivity_of(largest, self.metric) if largest else None

    def optimism(self, *, resamples: int = 2_000, seed: int = 0) -> float:
        """By how much the score of the best point is too high because it is the best of many, as a share.

        The bootstrap's answer: choose the best on resampled problems (and seeds), and see how far its score there lies
        above its score here, on average. With one seed it covers the sampling of problems only, not of trainings.
        """
        rng, points = np.random.default_rng(seed), candidates(self.points)
        strata = [[point.by_problem(self.metric, name) for point in points] for name in self.benchmarks]
        seen = np.mean([[values.mean() for values in stratum] for stratum in strata], axis=0)
        drawn_means = [resampled_means(np.concatenate(stratum, axis=1), resamples, rng) for stratum in strata]
        draws = np.mean(drawn_means, axis=0)  # [R, runs]: every run on the same resampled problems
        counts = [point.seeds for point in points]
        by_point = np.split(draws, np.cumsum(counts)[:-1], axis=1)
        drawn = np.stack([resample_seeds(runs_RS, rng).mean(axis=1) for runs_RS in by_point], axis=1)
        chosen = drawn.argmax(axis=1)
        return float((drawn.max(axis=1) - seen[chosen]).mean())


def sweep_cells(grid: Sequence[Cell], seeds: int, *, baseline: bool = True) -> list[Cell]:
    """Every point with every seed; first, where it is wanted, SFT at every setting of the fields that it takes too."""
    sft = [Cell(model=point.model, objective=BASELINE, fields=point.shared_fields) for point in grid if baseline]
    return expand([*sft, *grid], range(seeds))


def swept_of(
    results: Mapping[Cell, Sequence[BenchmarkScore]],
    cells: Sequence[Cell],
    metric: str = "average",
    *,
    keep: Sequence[Cell] = (),
    resamples: int = RESAMPLES,
) -> Swept:
    """The finished cells of a sweep; `keep` are the points of the grid, all others are there for comparison."""
    summaries = summarise({cell: results[cell] for cell in cells if cell in results}, resamples=resamples)
    grid = [s for setting, s in summaries.items() if (setting in keep if keep else setting.objective != BASELINE)]
    if not grid:
        raise RunError("no point of the sweep is finished; rerun the command to resume")
    missing = tuple(cell for cell in cells if cell not in results)
    baselines = tuple(s for setting, s in summaries.items() if setting.objective == BASELINE)
    swept = Swept(tuple(grid), baselines, missing, metric)
    grid[0].interval(metric, *swept.benchmarks)  # an unknown metric ends here, with the known ones
    return swept


def by_objective(points: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for point in points:
        groups.setdefault(point.setting.objective, []).append(point)
    return groups


def candidates(points: Sequence[Summary]) -> list[Summary]:
    """Those with the most seeds: the mean of fewer is further from the truth, and so more easily the highest."""
    most = max((point.seeds for point in points), default=0)
    return [point for point in points if point.seeds == most]


def best_of(points: Sequence[Summary], metric: str, benchmarks: Sequence[str]) -> Summary:
    """The candidate with the highest mean over benchmarks and seeds; ties: the smaller bandwidth, then margin."""

    def order(point: Summary) -> tuple[float, float, float]:
        margin, bandwidth = point.setting.band or (math.inf, math.inf)
        means = [run[name].values(metric).mean() for run in point.runs.values() for name in benchmarks]
        return (-round(float(np.mean(means)), 12), bandwidth, margin)

    return min(candidates(points), key=order)


def check_choice(on: str, benchmarks: Sequence[str]) -> None:
    if on not in benchmarks:
        raise unknown_name("select_on", on, benchmarks)
    if len(benchmarks) < 2:
        raise UsageError("is the only benchmark", field="select_on", value=on, hint="the result needs another one")


def select(swept: Swept, on: str) -> Swept:
    """Choose the point and its rival by the mean over seeds on one benchmark, and report on the rest."""
    check_choice(on, swept.benchmarks)
    return replace(swept, on=on)
