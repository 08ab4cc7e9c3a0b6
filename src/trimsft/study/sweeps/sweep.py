"""A sweep: a grid of settings, trained and evaluated as cells of a study, and the choice among them.

axes = read_axes(["margin=0:6:1", "bandwidth=0.5,1,2"])
cells = sweep_cells(points(axes), "lab", seeds=3)              # with SFT beside them, at each value of shared fields
run_cells(cells, scale, StudyFolder(out))
swept = swept_of(load_results(cells, out), cells)
swept.best                                                     # of many: too good to be true, by `swept.optimism()`
select(swept, "lab-easy").interval                             # chosen on one benchmark, scored on the others
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.options import unknown_name
from trimsft.scoring.intervals import RESAMPLES, Array, Interval, resampled_means
from trimsft.scoring.scores import BenchmarkScore
from trimsft.study.cells import PARAMETERS, Cell
from trimsft.study.studies import expand
from trimsft.study.sweeps.grid import Point
from trimsft.study.tables.summaries import Setting, Summary, paired, setting_of, summarise
from trimsft.study.tables.variance import Sensitivity, sensitivity_of

BASELINE = "sft"
BAND = ("margin", "bandwidth")
Fields = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Swept:
    """What is known of a sweep: its settings over their seeds, in the order of the grid."""

    points: tuple[Summary, ...]
    baselines: tuple[Summary, ...]
    """SFT, where it was trained beside them or is a point itself: one for each setting of the shared fields."""
    missing: tuple[Cell, ...]
    """Cells that are not finished."""
    metric: str = "average"

    @property
    def benchmarks(self) -> list[str]:
        """Those that every point has."""
        first = self.points[0].benchmarks
        return [name for name in first if all(name in point.benchmarks for point in self.points)]

    @property
    def best(self) -> Summary:
        return best_of(self.points, self.metric, self.benchmarks)

    @property
    def beside(self) -> list[Summary]:
        """SFT where it is no point of the grid."""
        return [baseline for baseline in self.baselines if baseline not in self.points]

    def baseline_of(self, point: Summary) -> Summary | None:
        """SFT at the same values of the shared fields: against any other, tuning would count as the method's."""
        shared = shared_fields(point.setting)
        return next((sft for sft in self.baselines if shared_fields(sft.setting) == shared), None)

    def slice(self, through: Summary | None = None) -> list[Summary]:
        """The trimmed points that differ from this one in margin, bandwidth and objective at most.

        Args:
            through: by default, and where it is no trimmed one, the best of those.
        """
        trimmed = [point for point in self.points if point.setting.band is not None]
        if not trimmed:
            return []
        if through is None or through.setting.band is None:
            through = best_of(trimmed, self.metric, self.benchmarks)
        shared = shared_fields(through.setting)
        return [point for point in trimmed if shared_fields(point.setting) == shared]

    def sensitivity(self, through: Summary | None = None) -> Sensitivity | None:
        """For the slice's objective with the most points; None where these are too few for an analysis of variance."""
        planes: dict[str, list[Summary]] = {}
        for point in self.slice(through):
            planes.setdefault(point.setting.objective, []).append(point)
        largest = max(planes.values(), key=len, default=[])
        return sensitivity_of(largest, self.metric) if largest else None

    def optimism(self, *, resamples: int = 2_000, seed: int = 0) -> float:
        """By how much the score of the best point is too high because it is the best of many, as a share.

        The bootstrap's answer: choose the best on resampled problems (and seeds), and see how far its score there lies
        above its score here, on average. With one seed it knows the chance of problems only, not that of trainings.
        """
        rng, points = np.random.default_rng(seed), candidates(self.points)
        strata = [[_columns(point, name, self.metric) for point in points] for name in self.benchmarks]
        seen = np.mean([[values.mean() for values in stratum] for stratum in strata], axis=0)
        drawn_means = [resampled_means(np.concatenate(stratum, axis=1), resamples, rng) for stratum in strata]
        draws = np.mean(drawn_means, axis=0)  # [R, runs]: every run on the same resampled problems
        counts = [point.seeds for point in points]
        drawn = np.stack([_draw_seeds(part, rng) for part in np.split(draws, np.cumsum(counts)[:-1], axis=1)], axis=1)
        chosen = drawn.argmax(axis=1)
        return float((drawn.max(axis=1) - seen[chosen]).mean())


@dataclass(frozen=True)
class Selection:
    """The point that a development benchmark chose, and its scores on the others."""

    point: Summary
    on: str
    development: Interval
    """What it was chosen by: the highest of many, and so never its result."""
    interval: Interval
    """The mean over the other benchmarks."""
    by_benchmark: Mapping[str, Interval]
    baseline: Summary | None
    """The SFT that the same benchmark chose; None where there is none, or it is the point itself."""
    baselines: int
    """How many it was chosen among."""
    against_sft: Interval | None
    """The difference of the two on the other benchmarks, paired."""

    def sentence(self) -> str:
        ours = _percent(self.interval)
        text = f"Chosen on {self.on}: {self.point.setting.label}. On {_listed(list(self.by_benchmark))}: {ours}"
        if self.baseline is not None and self.against_sft is not None:
            how = f", chosen on {self.on} likewise:" if self.baselines > 1 else ""
            text += f", against {self.baseline.setting.label}{how} {_percent(self.against_sft, '+')}"
        return f"{text}."


def sweep_cells(grid: Sequence[Point], model: str, seeds: int, *, baseline: bool = True) -> list[Cell]:
    """Every point with every seed; first, where it is wanted, SFT at every setting of the fields that it takes too."""
    shared = dict.fromkeys(shared_fields(point) for point in grid)
    runs = [Cell(model=model, objective=BASELINE, fields=fields) for fields in shared if baseline]
    runs += [Cell(model=model, objective=point.objective, fields=point.fields) for point in grid]
    return expand(runs, range(seeds))


def swept_of(
    results: Mapping[Cell, Sequence[BenchmarkScore]],
    cells: Sequence[Cell],
    metric: str = "average",
    *,
    keep: Sequence[Point] | None = None,
    resamples: int = RESAMPLES,
) -> Swept:
    """The finished cells of a sweep; `keep` are the points of the grid, all others are there for comparison."""
    summaries = summarise({cell: results[cell] for cell in cells if cell in results}, resamples=resamples)
    model = cells[0].model
    wanted = {setting_of(Cell(model=model, objective=p.objective, fields=p.fields)) for p in keep or ()}
    grid = [s for setting, s in summaries.items() if (setting in wanted if keep else setting.objective != BASELINE)]
    if not grid:
        raise RunError("no point of the sweep is finished; the same command continues it")
    missing = tuple(cell for cell in cells if cell not in results)
    baselines = tuple(s for setting, s in summaries.items() if setting.objective == BASELINE)
    swept = Swept(tuple(grid), baselines, missing, metric)
    grid[0].interval(metric, *swept.benchmarks)  # an unknown metric ends here, with the known ones
    return swept


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


def select(swept: Swept, on: str) -> Selection:
    """Choose by the mean over seeds on one benchmark, the point and the SFT it is held against; report on the rest."""
    check_choice(on, swept.benchmarks)
    others = [name for name in swept.benchmarks if name != on]
    point, metric = best_of(swept.points, swept.metric, [on]), swept.metric
    sft = best_of(swept.baselines, metric, [on]) if swept.baselines else None
    baseline = None if sft is point else sft
    return Selection(
        point=point,
        on=on,
        development=point.interval(metric, on),
        interval=point.interval(metric, *others),
        by_benchmark={name: point.interval(metric, name) for name in others},
        baseline=baseline,
        baselines=len(candidates(swept.baselines)),
        against_sft=None if baseline is None else paired(point, baseline, metric, *others),
    )


def shared_fields(setting: Setting | Point) -> Fields:
    """Those that are no objective's own, which SFT is trained with as well."""
    return tuple(entry for entry in setting.fields if entry[0] not in PARAMETERS)


def _columns(point: Summary, benchmark: str, metric: str) -> Array:
    """[problems, seeds]."""
    return np.stack([run[benchmark].values(metric) for run in point.runs.values()], axis=1)


def _draw_seeds(runs_RS: Array, rng: np.random.Generator) -> Array:
    """[R]: the mean over seeds drawn with replacement, their spread widened by what drawing S of S takes away."""
    count = runs_RS.shape[1]
    centre = runs_RS.mean(axis=1)
    if count == 1:
        return np.asarray(centre)
    chosen = rng.integers(count, size=runs_RS.shape)
    drawn = np.take_along_axis(runs_RS, chosen, axis=1).mean(axis=1)
    return np.asarray(centre + (drawn - centre) * math.sqrt(count / (count - 1)))


def _percent(interval: Interval, sign: str = "") -> str:
    value, low, high = (f"{100 * bound:{sign}.1f}" for bound in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
