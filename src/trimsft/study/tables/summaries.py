"""Scores of cells, brought together over seeds: every setting once, with the interval over seeds and problems.

for setting, found in summarise(load_results(cells, out)).items():
    found.interval("average")                      # mean over benchmarks
    found.interval("average", "lab-easy")
paired(trim, sft, "average")                       # trim - sft, by problem and seed
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimsft.objectives import PAPER_NAMES
from trimsft.scoring.bootstrap import RESAMPLES, Array, Interval
from trimsft.scoring.problems import metric_bounds
from trimsft.scoring.run_intervals import interval_over_runs
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
    """Seed -> benchmark -> scores."""
    cells: Sequence[Cell]
    resamples: int = RESAMPLES
    _found: dict[tuple[str, tuple[str, ...]], Interval] = field(default_factory=dict, repr=False)

    @property
    def seeds(self) -> int:
        return len(self.runs)

    @property
    def benchmarks(self) -> list[str]:
        """Those that every seed has."""
        first, *others = self.runs.values()
        return [name for name in first if all(name in other for other in others)]

    @property
    def samples(self) -> int:
        return min(score.samples for run in self.runs.values() for score in run.values())

    def interval(self, metric: str, *benchmarks: str) -> Interval:
        """Of these benchmarks, each counting the same; all where none is named."""
        names = benchmarks or tuple(self.benchmarks)
        if (metric, names) not in self._found:
            runs = [[run[name] for name in names] for run in self.runs.values()]
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


def paired(a: Summary, b: Summary, metric: str = "average", *benchmarks: str) -> Interval:
    """a - b on the same problems and, where both were trained with it, the same seed.

    A base has one run: it is held against every seed of the other.
    """
    return mean_difference([(a, b)], metric, *benchmarks)


def mean_difference(
    pairs: Sequence[tuple[Summary, Summary]], metric: str = "average", *benchmarks: str
) -> Interval:
    """The mean over pairs of a - b; problems and seeds stay together."""
    names = benchmarks or tuple(name for name in pairs[0][0].benchmarks if name in pairs[0][1].benchmarks)
    if not names:
        raise ValueError("benchmarks: the two settings have none in common; evaluate both on the same")
    strata = [np.mean(_differences(pairs, metric, name), axis=0) for name in names]
    bounds = None if metric_bounds(metric) is None else (-1.0, 1.0)
    return interval_over_runs(strata, bounds, resamples=pairs[0][0].resamples)


def _differences(pairs: Sequence[tuple[Summary, Summary]], metric: str, benchmark: str) -> list[Array]:
    """For each pair [problems, seeds], the same number of seeds everywhere."""
    found = [_difference(a, b, metric, benchmark) for a, b in pairs]
    fewest = min(values.shape[1] for values in found)
    return [values[:, :fewest] for values in found]


def _difference(a: Summary, b: Summary, metric: str, benchmark: str) -> Array:
    """[problems, seeds]: by the seeds that both have; a base, and who shares none, by its mean against every seed."""
    for run in (*a.runs.values(), *b.runs.values()):
        require_same_problems(next(iter(a.runs.values())).get(benchmark), run.get(benchmark), benchmark)
    of_a, of_b = ({seed: run[benchmark].values(metric) for seed, run in side.runs.items()} for side in (a, b))
    shared = [seed for seed in of_a if seed in of_b]
    if shared and BASE not in (a.setting.objective, b.setting.objective):
        return np.stack([of_a[seed] - of_b[seed] for seed in shared], axis=1)
    all_a, all_b = (np.stack(list(side.values()), axis=1) for side in (of_a, of_b))
    if all_a.shape[1] < all_b.shape[1]:
        return np.asarray(all_a.mean(axis=1, keepdims=True) - all_b)
    return np.asarray(all_a - all_b.mean(axis=1, keepdims=True))


def shown(value: Any) -> str:
    """1.5 for 1.50, and nothing for None."""
    return f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
