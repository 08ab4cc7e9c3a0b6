"""Scores of cells: read from their runs, brought together over seeds, with intervals over seeds and problems.

for setting, summary in summarise(load_results(cells, out)).items():
    summary.interval("average")                    # mean over benchmarks
    summary.interval("average", "lab-easy")
paired(trim, sft, "average")                       # trim - sft, by problem and seed

Tables of studies show what there is (`partial`): a benchmark that is added leaves the finished ones there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from trimsft.evaluate.metrics import difference_bounds
from trimsft.evaluate.scores import BenchmarkScore, load_run, over_runs, require_same_problems
from trimsft.intervals import RESAMPLES, Array, Interval, interval_over_runs, student_t
from trimsft.study.cell import Cell, method_name
from trimsft.study.folder import StudyFolder

Results: TypeAlias = Mapping[Cell, Sequence[BenchmarkScore]]


def load_results(cells: Iterable[Cell], out: Path, *, partial: bool = False) -> dict[Cell, list[BenchmarkScore]]:
    """Return the scores of each cell whose evaluation is finished on the benchmarks of the study's folder.

    Args:
        partial: take cells, too, that lack some of the benchmarks.
    """
    folder = StudyFolder(out)
    names = folder.names_of(folder.read_scale())
    finished = {cell: [name for name in names if folder.is_evaluated(cell, [name])] for cell in cells}
    enough = 1 if partial else len(names)
    return {cell: load_run(folder.run(cell), there) for cell, there in finished.items() if len(there) >= enough}


@dataclass(frozen=True)
class Summary:
    """All finished seeds of one setting."""

    setting: Cell  # of seed 0, whatever the seeds are
    runs: Mapping[int, Mapping[str, BenchmarkScore]]
    """Seed -> benchmark -> scores; a seed that is not finished may lack benchmarks."""
    cells: Sequence[Cell]
    resamples: int = RESAMPLES
    _intervals: dict[tuple[str, tuple[str, ...]], Interval] = field(default_factory=dict, repr=False)

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def benchmarks(self) -> list[str]:
        """Those that any seed has."""
        return list(dict.fromkeys(name for run in self.runs.values() for name in run))

    def with_all(self, benchmarks: Iterable[str]) -> dict[int, Mapping[str, BenchmarkScore]]:
        """Return the seeds that have all of them."""
        wanted = set(benchmarks)
        return {seed: run for seed, run in self.runs.items() if wanted <= run.keys()}

    @property
    def samples(self) -> int:
        return min(score.samples for run in self.runs.values() for score in run.values())

    def by_seed(self, metric: str, benchmarks: Sequence[str]) -> tuple[float, ...]:
        """Return the mean over these benchmarks for each seed that has all of them."""
        runs = self.with_all(benchmarks).values()
        return tuple(float(sum(run[n].values(metric).mean() for n in benchmarks) / len(benchmarks)) for run in runs)

    def by_problem(self, metric: str, benchmark: str) -> Array:
        """Return [problems, seeds]."""
        return np.stack([run[benchmark].values(metric) for run in self.runs.values()], axis=1)

    def interval(self, metric: str, *benchmarks: str) -> Interval:
        """Return the mean over these benchmarks (by default all) and over the seeds that have all of them."""
        names = benchmarks or tuple(self.benchmarks)
        if (metric, names) not in self._intervals:
            runs = [[run[name] for name in names] for run in self.with_all(names).values()]
            self._intervals[metric, names] = over_runs(runs, metric, resamples=self.resamples)
        return self._intervals[metric, names]


def labels_of(settings: Iterable[Cell]) -> dict[Cell, str]:
    """Names as short as they can be: parameters only where an objective is there with several, models likewise."""
    settings = list(settings)
    several = len({setting.model for setting in settings}) > 1
    labels = {}
    for setting in settings:
        alike = [s for s in settings if (s.model, s.objective) == (setting.model, setting.objective)]
        name = setting.label if len(alike) > 1 else method_name(setting.objective)
        if any(method_name(s.objective) == name for s in settings if s.objective != setting.objective):
            name = setting.objective  # two modules have an attribute of this name
        labels[setting] = f"{setting.model}, {name}" if several else name
    return labels


Summaries: TypeAlias = Mapping[Cell, Summary]


def summarise(results: Results, *, resamples: int = RESAMPLES) -> dict[Cell, Summary]:
    """Cells in the order of their first cell."""
    cells: dict[Cell, list[Cell]] = {}
    for cell in results:
        if results[cell]:
            cells.setdefault(cell.setting, []).append(cell)
    return {
        setting: Summary(setting, {cell.seed: {s.benchmark: s for s in results[cell]} for cell in own}, own, resamples)
        for setting, own in cells.items()
    }


def in_common(summaries: Iterable[Summary]) -> tuple[str, ...]:
    """Return the benchmarks that all have at one seed at least; without one that leaves a setting with none."""
    summaries = list(summaries)
    names = [name for name in summaries[0].benchmarks if all(name in other.benchmarks for other in summaries)]
    while names and not all(summary.with_all(names) for summary in summaries):
        names.pop()
    return tuple(names)


def paired(a: Summary, b: Summary, metric: str = "average", *benchmarks: str, tests: int = 1) -> Interval:
    """a - b on the same problems and, where both were trained with it, the same seed.

    A base has one run: it is held against every seed of the other.
    """
    return mean_difference([(a, b)], metric, *benchmarks, tests=tests)


def mean_difference(
    pairs: Sequence[tuple[Summary, Summary]], metric: str = "average", *benchmarks: str, tests: int = 1
) -> Interval:
    """Return the mean over pairs of a - b; problems and seeds stay together.

    Args:
        tests: the interval is widened as Bonferroni has it for the one that stands out among so many.
    """
    names = benchmarks or in_common(summary for pair in pairs for summary in pair)
    if not names:
        raise ValueError("benchmarks: the two settings have none in common; evaluate both on the same")
    strata = [np.mean(stratum, axis=0) for stratum in zip(*_differences(pairs, metric, names), strict=True)]
    bounds = difference_bounds(metric)
    return _widened(interval_over_runs(strata, bounds, resamples=pairs[0][0].resamples), tests, strata[0].shape[1])


def _widened(interval: Interval, tests: int, runs: int) -> Interval:
    """Return wider by the quotient of the quantiles: Student's t of several runs, the normal one of problems alone."""

    def quantile(outside: float) -> float:
        return student_t(runs - 1, outside) if runs > 1 else NormalDist().inv_cdf(1 - outside / 2)

    by = 1.0 if tests == 1 else quantile(0.05 / tests) / quantile(0.05)
    value = interval.value
    return Interval(value, *(value + by * (end - value) for end in (interval.low, interval.high)))


def _differences(pairs: Sequence[tuple[Summary, Summary]], metric: str, benchmarks: Sequence[str]) -> list[list[Array]]:
    """Return, for each pair and benchmark, [problems, seeds]: the seeds that all pairs share.

    Pairs that share none were trained apart, so that it does not matter which seed stands beside which.
    """
    by_seed = [_by_seed(a, b, metric, benchmarks) for a, b in pairs]
    shared = [seed for seed in by_seed[0] if all(seed in other for other in by_seed)]
    fewest = min(map(len, by_seed))
    columns = [[of[seed] for seed in shared] if shared else list(of.values())[:fewest] for of in by_seed]
    return [[np.stack(stratum, axis=1) for stratum in zip(*seeds, strict=True)] for seeds in columns]


def _by_seed(a: Summary, b: Summary, metric: str, benchmarks: Sequence[str]) -> dict[int, list[Array]]:
    """Seed -> for each benchmark a - b of its problems: by the seeds that both have with all of these benchmarks.

    A base, and who shares no seed with the other, is held by its mean against every seed of the other.
    """
    of_a, of_b = (side.with_all(benchmarks) for side in (a, b))
    if not of_a or not of_b:
        raise ValueError(f"benchmarks: no seed of one of the settings has all of {', '.join(benchmarks)}")
    first, *others = ({name: run[name] for name in benchmarks} for run in (*of_a.values(), *of_b.values()))
    for run in others:
        require_same_problems(first, run)
    values_a, values_b = (
        {seed: [run[name].values(metric) for name in benchmarks] for seed, run in of.items()} for of in (of_a, of_b)
    )
    shared = [seed for seed in values_a if seed in values_b]
    if not shared or a.setting.is_base or b.setting.is_base:
        shared = list(values_b if len(values_a) < len(values_b) else values_a)
        if len(values_a) < len(values_b):
            values_a = dict.fromkeys(shared, _mean(values_a))
        else:
            values_b = dict.fromkeys(shared, _mean(values_b))
    return {seed: [x - y for x, y in zip(values_a[seed], values_b[seed], strict=True)] for seed in shared}


def _mean(by_seed: Mapping[int, Sequence[Array]]) -> list[Array]:
    """Return over seeds, of each benchmark."""
    return [np.mean(values, axis=0) for values in zip(*by_seed.values(), strict=True)]


# ---- texts


def percent_text(interval: Interval, sign: str = "") -> str:
    """41.2 [38.6, 43.9], of shares."""
    value, low, high = (f"{100 * bound:{sign}.1f}" for bound in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def trainings(counts: set[int]) -> str:
    """Return how many seeds there are of each setting: 3 trainings, 1 to 3 trainings."""
    low, high = min(counts, default=0), max(counts, default=0)
    many = f"{low}" if low == high else f"{low} to {high}"
    return f"{many} training{'' if high == 1 else 's'}"
