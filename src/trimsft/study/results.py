"""Scores of cells: read from their runs, brought together over seeds, with intervals over seeds and problems.

for setting, summary in summarise(load_results(cells, out)).items():
    summary.interval("average")                    # mean over benchmarks
    summary.interval("average", "lab-easy")
paired(trim, sft, "average")                       # trim - sft, by problem and seed
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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


def load_results(cells: Iterable[Cell], out: Path) -> dict[Cell, list[BenchmarkScore]]:
    """Return the scores of each cell whose evaluation is finished on the benchmarks of the study's folder."""
    folder = StudyFolder(out)
    names = folder.read_scale().benchmark_names
    return {cell: load_run(folder.run(cell), names) for cell in cells if folder.is_evaluated(cell, names)}


@dataclass(frozen=True)
class Summary:
    """All finished seeds of one setting."""

    setting: Cell  # of seed 0, whatever the seeds are
    runs: Mapping[int, Mapping[str, BenchmarkScore]]
    """Seed -> benchmark -> scores."""
    resamples: int = RESAMPLES

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def benchmarks(self) -> list[str]:
        return list(next(iter(self.runs.values())))

    @property
    def samples(self) -> int:
        return min(score.samples for run in self.runs.values() for score in run.values())

    def by_seed(self, metric: str, benchmarks: Sequence[str]) -> tuple[float, ...]:
        """Return the mean over these benchmarks for each seed."""
        runs = self.runs.values()
        return tuple(float(np.mean([run[name].values(metric).mean() for name in benchmarks])) for run in runs)

    def interval(self, metric: str, *benchmarks: str) -> Interval:
        """Return the mean over these benchmarks (by default all) and over the seeds."""
        runs = [[run[name] for name in benchmarks or self.benchmarks] for run in self.runs.values()]
        return over_runs(runs, metric, resamples=self.resamples)


Summaries: TypeAlias = Mapping[Cell, Summary]


def summarise(results: Results, *, resamples: int = RESAMPLES) -> dict[Cell, Summary]:
    """Bring the seeds of each setting together, in the order of its first cell."""
    runs: dict[Cell, dict[int, Mapping[str, BenchmarkScore]]] = {}
    for cell, scores in results.items():
        if scores:
            runs.setdefault(cell.setting, {})[cell.seed] = {score.benchmark: score for score in scores}
    return {setting: Summary(setting, of_setting, resamples) for setting, of_setting in runs.items()}


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


def paired(a: Summary, b: Summary, metric: str = "average", *benchmarks: str, tests: int = 1) -> Interval:
    """Return a - b on the same problems and, where both were trained with it, the same seed."""
    return mean_difference([(a, b)], metric, *benchmarks, tests=tests)


def mean_difference(
    pairs: Sequence[tuple[Summary, Summary]], metric: str = "average", *benchmarks: str, tests: int = 1
) -> Interval:
    """Return the mean over pairs of a - b; problems and seeds stay together.

    Args:
        tests: the interval is widened as Bonferroni has it for the one that stands out among so many.
    """
    names = benchmarks or pairs[0][0].benchmarks
    by_seed = [_difference_by_seed(a, b, metric, names) for a, b in pairs]
    # the seeds that all pairs share; pairs that share none were trained apart, so any seed may stand beside any
    shared = [seed for seed in by_seed[0] if all(seed in other for other in by_seed)]
    fewest = min(map(len, by_seed))
    chosen = [[of[seed] for seed in shared] if shared else list(of.values())[:fewest] for of in by_seed]
    strata = [
        np.mean([np.stack([seed[n] for seed in seeds], axis=1) for seeds in chosen], axis=0) for n in range(len(names))
    ]
    interval = interval_over_runs(strata, difference_bounds(metric), resamples=pairs[0][0].resamples)
    if tests == 1:
        return interval
    runs, value = strata[0].shape[1], interval.value

    def quantile(outside: float) -> float:  # Student's t of several runs, the normal one of problems alone
        return student_t(runs - 1, outside) if runs > 1 else NormalDist().inv_cdf(1 - outside / 2)

    wider = quantile(0.05 / tests) / quantile(0.05)
    return Interval(value, *(value + wider * (end - value) for end in (interval.low, interval.high)))


def _difference_by_seed(a: Summary, b: Summary, metric: str, benchmarks: Sequence[str]) -> dict[int, list[Array]]:
    """Return by seed, for each benchmark, a - b of its problems.

    A base, and a setting that shares no seed with the other, is held by its mean against every seed of the other.
    """
    values: list[dict[int, list[Array]]] = []
    first: dict[str, BenchmarkScore] = {}
    for side in (a, b):
        for run in side.runs.values():
            own = {name: run[name] for name in benchmarks}
            first = first or own
            require_same_problems(first, own)
        values.append({seed: [run[name].values(metric) for name in benchmarks] for seed, run in side.runs.items()})
    if a.setting.is_base or b.setting.is_base or not values[0].keys() & values[1].keys():
        fewer = values[0] if len(values[0]) < len(values[1]) else values[1]
        more = values[1] if fewer is values[0] else values[0]
        mean = [np.mean(column, axis=0) for column in zip(*fewer.values(), strict=True)]
        values[0 if fewer is values[0] else 1] = dict.fromkeys(more, mean)
    of_a, of_b = values
    return {seed: [x - y for x, y in zip(of_a[seed], of_b[seed], strict=True)] for seed in of_a if seed in of_b}


# ---- texts


def percent_text(interval: Interval, sign: str = "") -> str:
    """Return 41.2 [38.6, 43.9], of shares."""
    value, low, high = (f"{100 * bound:{sign}.1f}" for bound in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"
