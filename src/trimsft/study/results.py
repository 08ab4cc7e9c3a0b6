"""Scores of cells: read from their runs, brought together over seeds, with intervals over seeds and problems.

for setting, summary in summarise(load_results(cells, out)).items():
    summary.interval("average")                    # mean over benchmarks
    summary.interval("average", "lab-easy")
paired(trim, sft, "average")                       # trim - sft, by problem and seed
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from trimsft.evaluate.metrics import difference_bounds
from trimsft.evaluate.scores import BenchmarkScore, load_run, over_runs, require_same_problems
from trimsft.intervals import RESAMPLES, Array, Interval, bias_corrected, interval_over_runs, resampled_means
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
        labels[setting] = f"{setting.model}, {name}" if several else name
    return labels


def paired(a: Summary, b: Summary, metric: str = "average", *benchmarks: str) -> Interval:
    """Return a - b on the same problems and, where both were trained with it, the same seed."""
    return mean_difference([(a, b)], metric, *benchmarks)


def mean_difference(pairs: Sequence[tuple[Summary, Summary]], metric: str = "average", *benchmarks: str) -> Interval:
    """Return the mean over pairs of a - b; problems and seeds stay together."""
    names = benchmarks or pairs[0][0].benchmarks
    by_seed = [_difference_by_seed(a, b, metric, names) for a, b in pairs]
    # the seeds that all pairs share; pairs that share none were trained apart, so any seed may stand beside any
    shared = [seed for seed in by_seed[0] if all(seed in other for other in by_seed)]
    fewest = min(map(len, by_seed))
    chosen = [[of[seed] for seed in shared] if shared else list(of.values())[:fewest] for of in by_seed]
    strata = [
        np.mean([np.stack([seed[n] for seed in seeds], axis=1) for seeds in chosen], axis=0) for n in range(len(names))
    ]
    return interval_over_runs(strata, difference_bounds(metric), resamples=pairs[0][0].resamples)


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


def plane(summaries: Summaries, model: str, objective: str = "trim") -> list[Summary]:
    """Return all (m, tau) of a model that differ in nothing else."""
    return [
        summary
        for setting, summary in summaries.items()
        if setting.model == model and setting.objective == objective and len(setting.fields) == 2
    ]


def tau_over_m(points: Sequence[Summary]) -> Interval | None:
    """Return how much more scores vary over tau than over m, at points that differ in nothing else.

    That is the mean standard deviation over tau, at each m that was run with every tau, minus the one over m, at each
    tau that was run with every m; None without such lines. Ranges would grow with the number of values. The interval
    resamples problems, the same for all points, of the mean over trainings: what others would score is not in it.
    """
    bands = {summary.setting.band: number for number, summary in enumerate(points)}
    margins, bandwidths = (sorted({band[n] for band in bands if band}) for n in (0, 1))
    grid = [[bands.get((margin, bandwidth)) for bandwidth in bandwidths] for margin in margins]
    over_tau, over_m = ([line for line in lines if None not in line] for lines in (grid, zip(*grid, strict=True)))
    if min(len(margins), len(bandwidths)) < 2 or not over_tau or not over_m:
        return None

    def difference(means_RN: Array) -> Array:
        of_tau, of_m = (
            np.mean([means_RN[:, list(line)].std(axis=1, ddof=1) for line in lines], axis=0)
            for lines in (over_tau, over_m)
        )
        return np.asarray(of_tau - of_m)

    strata = []
    for name in points[0].benchmarks:
        means = [np.mean([run[name].values("average") for run in one.runs.values()], axis=0) for one in points]
        strata.append(np.stack(means, axis=1))
    rng = np.random.default_rng(0)
    drawn = np.mean([resampled_means(stratum, points[0].resamples, rng) for stratum in strata], axis=0)
    seen = np.mean([stratum.mean(axis=0, keepdims=True) for stratum in strata], axis=0)
    return bias_corrected(float(difference(seen)[0]), difference(drawn))


# ---- verdicts and texts

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be told"


def verdict_of(difference: Interval) -> str:
    """Return HOLDS above 0, FAILS below it, OPEN where the interval has 0 in it, or is none."""
    if difference.low > 0:
        return HOLDS
    return FAILS if difference.high < 0 else OPEN


def percent_text(interval: Interval, sign: str = "") -> str:
    """Return 41.2 [38.6, 43.9], of shares."""
    value, low, high = (f"{100 * bound:{sign}.1f}" for bound in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"
