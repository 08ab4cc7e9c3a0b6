"""Scores of cells, brought together over seeds: every setting once, with the interval over seeds and problems.

for setting, found in summarise(load_results(cells, out)).items():
    found.interval("average")                      # mean over benchmarks
    found.interval("average", "lab-easy")
paired(trim, sft, "average")                       # trim - sft, by problem and seed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np

from trimsft.objectives import PAPER_NAMES
from trimsft.scoring.intervals import RESAMPLES, Array, Interval
from trimsft.scoring.metrics import metric_bounds
from trimsft.scoring.intervals import interval_over_runs, student_t
from trimsft.scoring.scores import BenchmarkScore, over_runs, require_same_problems
from trimsft.study.cells import BASE, PARAMETERS, Cell

NAMES = {BASE: "Base", **PAPER_NAMES}
_PLACES = {name: place for place, name in enumerate(PARAMETERS)}


@dataclass(frozen=True)
class Setting:
    """What a cell trains, whatever its seed."""

    model: str
    objective: str
    fields: tuple[tuple[str, Any], ...] = ()
    """Those of the cell: the objective's own parameters are always among them."""

    def get(self, name: str, default: Any = None) -> Any:
        return dict(self.fields).get(name, default)

    @property
    def band(self) -> tuple[float, float] | None:
        """(margin, bandwidth) of a trimmed objective."""
        margin, bandwidth = self.get("margin"), self.get("bandwidth")
        return None if margin is None or bandwidth is None else (float(margin), float(bandwidth))

    @property
    def label(self) -> str:
        """TrimSFT (margin 1, bandwidth 0.5)."""
        order = sorted(self.fields, key=lambda entry: (_PLACES.get(entry[0], len(_PLACES)), entry[0]))
        told = ", ".join(f"{name} {shown(value)}" for name, value in order)
        return f"{NAMES.get(self.objective, self.objective)}{f' ({told})' if told else ''}"


@dataclass(frozen=True)
class Summary:
    """All finished seeds of one setting."""

    setting: Setting
    runs: Mapping[int, Mapping[str, BenchmarkScore]]
    """Seed -> benchmark -> scores; a seed that is not finished may lack benchmarks."""
    cells: Sequence[Cell]
    resamples: int = RESAMPLES
    _found: dict[tuple[str, tuple[str, ...]], Interval] = field(default_factory=dict, repr=False)

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def benchmarks(self) -> list[str]:
        """Those that any seed has."""
        return list(dict.fromkeys(name for run in self.runs.values() for name in run))

    def with_all(self, benchmarks: Iterable[str]) -> dict[int, Mapping[str, BenchmarkScore]]:
        """The seeds that have all of them."""
        wanted = set(benchmarks)
        return {seed: run for seed, run in self.runs.items() if wanted <= run.keys()}

    @property
    def samples(self) -> int:
        return min(score.samples for run in self.runs.values() for score in run.values())

    def interval(self, metric: str, *benchmarks: str) -> Interval:
        """Of these benchmarks, each counting the same, over the seeds that have all; all where none is named."""
        names = benchmarks or tuple(self.benchmarks)
        if (metric, names) not in self._found:
            runs = [[run[name] for name in names] for run in self.with_all(names).values()]
            self._found[metric, names] = over_runs(runs, metric, resamples=self.resamples)
        return self._found[metric, names]


def labels_of(settings: Iterable[Setting]) -> dict[Setting, str]:
    """Names as short as they can be: parameters only where an objective is there with several, models likewise."""
    settings = list(settings)
    several = len({setting.model for setting in settings}) > 1
    labels = {}
    for setting in settings:
        alike = [s for s in settings if (s.model, s.objective) == (setting.model, setting.objective)]
        name = setting.label if len(alike) > 1 else NAMES.get(setting.objective, setting.objective)
        labels[setting] = f"{setting.model}, {name}" if several else name
    return labels


def setting_of(cell: Cell) -> Setting:
    return Setting(cell.model, cell.objective, cell.fields)


def summarise(
    results: Mapping[Cell, Sequence[BenchmarkScore]], *, resamples: int = RESAMPLES
) -> dict[Setting, Summary]:
    """Settings in the order of their first cell."""
    cells: dict[Setting, list[Cell]] = {}
    for cell in results:
        if results[cell]:
            cells.setdefault(setting_of(cell), []).append(cell)
    return {
        setting: Summary(
            setting,
            {cell.seed: {score.benchmark: score for score in results[cell]} for cell in found},
            found,
            resamples,
        )
        for setting, found in cells.items()
    }


def in_common(summaries: Iterable[Summary]) -> tuple[str, ...]:
    """The benchmarks that all have, and have at one seed at least; without one that leaves a setting with none."""
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
    """The mean over pairs of a - b; problems and seeds stay together.

    Args:
        tests: the interval is widened as Bonferroni has it for the one that stands out among so many.
    """
    names = benchmarks or in_common(summary for pair in pairs for summary in pair)
    if not names:
        raise ValueError("benchmarks: the two settings have none in common; evaluate both on the same")
    strata = [np.mean(stratum, axis=0) for stratum in zip(*_differences(pairs, metric, names), strict=True)]
    bounds = None if metric_bounds(metric) is None else (-1.0, 1.0)
    found = interval_over_runs(strata, bounds, resamples=pairs[0][0].resamples)
    return _widened(found, tests, strata[0].shape[1])


def _widened(found: Interval, tests: int, runs: int) -> Interval:
    """By the quotient of the quantiles, Student's t of several runs, the normal one of problems alone."""

    def quantile(outside: float) -> float:
        return student_t(runs - 1, outside) if runs > 1 else NormalDist().inv_cdf(1 - outside / 2)

    by = 1.0 if tests == 1 else quantile(0.05 / tests) / quantile(0.05)
    return Interval(found.value, *(found.value + by * (end - found.value) for end in (found.low, found.high)))


def _differences(pairs: Sequence[tuple[Summary, Summary]], metric: str, benchmarks: Sequence[str]) -> list[list[Array]]:
    """For each pair, for each benchmark [problems, seeds]: the seeds that all pairs share.

    Pairs that share none were trained apart, so that it does not matter which seed stands beside which.
    """
    found = [_by_seed(a, b, metric, benchmarks) for a, b in pairs]
    shared = [seed for seed in found[0] if all(seed in other for other in found)]
    fewest = min(map(len, found))
    columns = [[of[seed] for seed in shared] if shared else list(of.values())[:fewest] for of in found]
    return [[np.stack(stratum, axis=1) for stratum in zip(*seeds, strict=True)] for seeds in columns]


def _by_seed(a: Summary, b: Summary, metric: str, benchmarks: Sequence[str]) -> dict[int, list[Array]]:
    """Seed -> for each benchmark a - b of its problems: by the seeds that both have with all of these benchmarks.

    A base, and who shares no seed with the other, is held by its mean against every seed of the other.
    """
    of_a, of_b = (side.with_all(benchmarks) for side in (a, b))
    if not of_a or not of_b:
        raise ValueError(f"benchmarks: no seed of one of the settings has all of {', '.join(benchmarks)}")
    for name in benchmarks:
        for run in (*of_a.values(), *of_b.values()):
            require_same_problems(next(iter(of_a.values()))[name], run[name], name)
    shared = [seed for seed in of_a if seed in of_b]
    if shared and BASE not in (a.setting.objective, b.setting.objective):
        return {
            seed: [of_a[seed][n].values(metric) - of_b[seed][n].values(metric) for n in benchmarks] for seed in shared
        }
    mean_a, mean_b = (
        [np.mean([run[n].values(metric) for run in of.values()], axis=0) for n in benchmarks] for of in (of_a, of_b)
    )
    if len(of_a) < len(of_b):
        return {
            seed: [mean - run[n].values(metric) for n, mean in zip(benchmarks, mean_a, strict=True)]
            for seed, run in of_b.items()
        }
    return {
        seed: [run[n].values(metric) - mean for n, mean in zip(benchmarks, mean_b, strict=True)]
        for seed, run in of_a.items()
    }


def shown(value: Any) -> str:
    """1.5 for 1.50, and nothing for None."""
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
