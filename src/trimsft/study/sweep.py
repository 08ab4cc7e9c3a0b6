"""`trimsft sweep`: a grid of settings, trained and evaluated as cells of a study, and the choice among them.

settings = SweepSettings(grid=("margin=0:6:1", "bandwidth=0.5,1,2"), seeds=3, select_on="lab-easy")
outcome = run_sweep(settings)
outcome.swept.best, outcome.files            # without select_on too good to be true, by `swept.optimism()`

`--grid FIELD=VALUES` varies any field of `trimsft train`: a list (0.5,1,2) or a range with both ends (0:6:1). Several
make their product. With an axis `objective`, a field that one of them does not take is left out for that one, which is
then made once:

    >>> [point.label for point in points(read_axes(["objective=trim,dft", "margin=1,2"]), "lab")]
    ['TrimSFT (margin 1, bandwidth 0.8)', 'TrimSFT (margin 2, bandwidth 0.8)', 'DFT']
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.metrics import metric_names
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.intervals import RESAMPLES, Interval, resampled_means
from trimsft.objectives import OBJECTIVES
from trimsft.options import option, unknown_name
from trimsft.runs.parsing import read_json
from trimsft.study.cell import OWN, PARAMETERS, Cell, refuse_secrets, takes_of
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import StudyPlan, plan_cells
from trimsft.study.results import Summary, load_results, paired, summarise
from trimsft.study.run import OnEvent, Outcome, RunOptions, ignore
from trimsft.study.scales import Scale
from trimsft.study.steps import check_study
from trimsft.study.studies import expand
from trimsft.study.variance import Sensitivity, resample_seeds, sensitivity_of

BASELINE, OBJECTIVE = "sft", "objective"
NEEDS = frozenset({"scores"})
MOST_VALUES = 1000  # values of one range at most: more are a typing error


@dataclass(frozen=True, kw_only=True)
class SweepSettings(RunOptions):
    """Settings of `trimsft sweep`."""

    grid: tuple[str, ...] = option(
        (), flags=("--grid",), help="FIELD=VALUES: 0.5,1,2 or START:STOP:STEP; repeat it for the product of several."
    )
    objective: str = option("trim", help="Objective of every point, unless the grid has several.")
    select_on: str | None = option(None, help="Benchmark to choose the best point on; the others report it.")
    metric: str = option("average", help="What decides: average, greedy, pass@K or majority@K.")
    baseline: bool = option(True, help="Train SFT beside the points, with each value of the fields it takes too.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid:
            hint = "name a field and its values, such as margin=0:6:1"
            raise UsageError("there is none", field="grid", hint=hint)
        if len(self.models) > 1:
            raise UsageError("a sweep takes one", field="models", value=" and ".join(self.models), hint="sweep twice")

    def prepare(self) -> tuple[list[Cell], list[Cell], Scale, StudyFolder]:
        """Read the grid and make its cells, after a look at everything that is here."""
        scale, folder = self.to_scale(), self.folder("sweep")
        grid = points(read_axes(self.grid), scale.focus_model, self.objective)
        if self.metric not in set(metric_names(scale.samples, greedy=True)) - {"no_answer", "truncated", "tokens"}:
            problem = f"there is none of this name with {scale.samples} samples"
            hint = f"known: average, greedy, pass@1 to pass@{scale.samples}, majority@1 to majority@{scale.samples}"
            raise UsageError(problem, field="metric", value=self.metric, hint=hint)
        if self.select_on is not None:
            check_choice(self.select_on, StudyFolder.names_of(scale))
        check_study(scale, folder)
        return grid, sweep_cells(grid, scale.seeds, baseline=self.baseline), scale, folder


@dataclass(frozen=True)
class SweepOutcome:
    """Result of a sweep."""

    cells: Outcome
    swept: Swept | None  # None where no point is finished
    files: list[Path] = field(default_factory=list)

    def failures(self) -> list[str]:
        return self.cells.failures()

    def as_dict(self) -> dict[str, Any]:
        """Return sweep.json, and what failed."""
        path = self.cells.folder.out / "sweep.json"
        content = read_json(path, dict[str, Any]) if self.swept is not None else {}
        return content | {"failed": {cell.name: reason for cell, reason in self.cells.failed.items()}}


def run_sweep(settings: SweepSettings, *, on_event: OnEvent = ignore, command: str = "") -> SweepOutcome:
    """Do what is missing, then choose and write; what cannot be is refused before anything is run.

    Args:
        on_event: called with every change of a cell.
        command: the command line, for sweep.json and the page.
    """
    from trimsft.study.sweep_tables import write_sweep

    grid, cells, scale, folder = settings.prepare()
    settings.check_hub(scale, folder)
    done = settings.run(cells, scale, folder, NEEDS, on_event)
    try:
        swept = swept_of(load_results(cells, folder.out), cells, settings.metric, keep=grid)
    except RunError:
        return SweepOutcome(done, None)  # everything failed: the reasons say more
    if settings.select_on is not None:
        swept = select(swept, settings.select_on)
    return SweepOutcome(done, swept, write_sweep(swept, folder.out, command=command))


def plan_sweep(settings: SweepSettings) -> StudyPlan:
    """Plan what is missing of a sweep; nothing is written."""
    _, cells, scale, folder = settings.prepare()
    return plan_cells(cells, scale, folder, NEEDS, settings.gpu_kind)


# ---- the grid


def read_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each field; raises `UsageError` for what is no field, or no value of it."""
    axes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        name, listed = name.strip().removeprefix("--").replace("-", "_"), listed.strip()
        if not name or not listed:
            problem = "must be FIELD=VALUES, such as margin=0:6:1 or bandwidth=0.5,1,2"
            raise UsageError(problem, field="grid", value=text)
        read = _reader_of(name)
        is_range = ":" in listed and name != OBJECTIVE  # module:Attribute is none
        values = tuple(map(read, _range(name, listed) if is_range else map(str.strip, listed.split(","))))
        if name in axes or len(set(values)) < len(values):
            raise UsageError(f"{name} or a value of it is there twice", field="grid", value=text, hint="give it once")
        axes[name] = values
    return axes


def _range(name: str, text: str) -> list[str]:
    """Return decimals, not floats: 0.1:0.5:0.1 has 0.3 and not 0.30000000000000004."""
    try:
        start, stop, step = (Decimal(word.strip()) for word in text.split(":"))
        count = int((stop - start) / step) + 1 if step > 0 else 0
    except (InvalidOperation, ValueError, OverflowError):
        count = 0
    if not 1 <= count <= MOST_VALUES:
        rule = "a range is START:STOP:STEP with STEP above 0 and STOP not below START, such as 0:6:1, of at most "
        raise UsageError(f"{rule}{MOST_VALUES} values", field="grid", value=f"{name}={text}")
    numbers = [start + number * step for number in range(count)]
    # a field of whole numbers takes no point
    return [f"{int(each)}" if each == each.to_integral_value() else f"{each:f}" for each in numbers]


def _reader_of(name: str) -> Callable[[str], Any]:
    """Return what makes a value of a word, by the type that `trimsft train` gives the field."""
    from trimsft.train.config import Parser

    parser = Parser()
    actions = {flag.removeprefix("--"): action for action in parser._actions for flag in action.option_strings}
    if name in (*OWN, "dataset_name") and name != OBJECTIVE:
        raise UsageError(f"{name!r} is not for a grid", field="grid", hint="--seeds, --model, --data and --out set it")
    if name not in actions or name in ("help", "config"):
        raise UsageError(f"no field {name!r}", field="grid", hint=unknown_name("grid", name, actions).hint)
    refuse_secrets([name], field="grid")
    if actions[name].nargs not in (None, "?"):
        raise UsageError(f"{name!r} takes a list of values", field="grid", hint="a grid can only vary fields of one")

    def read(word: str) -> Any:
        try:
            return vars(parser.parse_known_args([f"--{name}={word}"])[0])[name]
        except UsageError as error:
            raise UsageError(str(error), field="grid") from None

    return read


def points(axes: Mapping[str, Sequence[Any]], model: str, objective: str = "trim") -> list[Cell]:
    """Return the product of the axes, each setting once; raises `UsageError` for one that could not be trained.

    Args:
        model: the name of all of them within the scale.
        objective: of all points, unless it is an axis itself.
    """
    from trimsft.train.config import make_settings

    names, others = axes.get(OBJECTIVE, (objective,)), [name for name in axes if name != OBJECTIVE]
    cells, unknown = [], dict.fromkeys(("model_name_or_path", "dataset_name", "output_dir"), "unknown")
    try:
        for name in others:
            if not any(takes(one, name) for one in names):
                who = ", ".join(one for one in OBJECTIVES if takes(one, name))
                problem = f"{name!r} has no effect with objective {' or '.join(names)}"
                raise UsageError(problem, hint=f"it is a field of {who}")
        for one in names:
            fields = [[(name, value) for value in axes[name]] for name in others if takes(one, name)]
            for product in itertools.product(*fields):
                make_settings({**unknown, OBJECTIVE: one, **dict(product)})  # long before anything is trained
                cells.append(Cell(model=model, objective=one, fields=product))
    except UsageError as error:
        raise UsageError(str(error), field="grid") from error
    return list(dict.fromkeys(cells))


def takes(objective: str, name: str) -> bool:
    """Return whether the field has an effect with this objective; those that are no objective's own always have."""
    return name not in PARAMETERS or name in takes_of(objective)


def sweep_cells(grid: Sequence[Cell], seeds: int, *, baseline: bool = True) -> list[Cell]:
    """Return every point with every seed; first, where it is wanted, SFT at each setting of the fields it takes too."""
    sft = [Cell(model=point.model, objective=BASELINE, fields=point.shared_fields) for point in grid if baseline]
    return expand([*sft, *grid], range(seeds))


# ---- the choice


@dataclass(frozen=True)
class Swept:
    """Settings of a sweep over their seeds, in the order of the grid."""

    points: tuple[Summary, ...]
    baselines: tuple[Summary, ...]
    """SFT, where it was trained beside them or is a point itself: one for each setting of the shared fields."""
    missing: tuple[Cell, ...]  # cells that are not finished
    metric: str = "average"
    on: str | None = None  # the benchmark that the best point is chosen on; the others report it

    @property
    def benchmarks(self) -> list[str]:
        return self.points[0].benchmarks

    @property
    def reported(self) -> list[str]:
        """The benchmarks that results are given on: not the one that the choice was made on."""
        return [name for name in self.benchmarks if name != self.on]

    def interval(self, point: Summary) -> Interval:
        """Return its score on the benchmarks that count."""
        return point.interval(self.metric, *self.reported)

    @cached_property
    def best(self) -> Summary:
        """The point that the benchmark chose; without one the highest, which is too good to be true."""
        return best_of(self.points, self.metric, [self.on] if self.on else self.benchmarks)

    @cached_property
    def rival(self) -> Summary | None:
        """The SFT that the best point is held against, chosen likewise; None without one, or where it is the point."""
        if self.on is None:
            return self.baseline_of(self.best)
        sft = best_of(self.baselines, self.metric, [self.on]) if self.baselines else None
        return None if sft is self.best else sft

    def above(self, point: Summary, sft: Summary | None) -> Interval | None:
        """Return the paired difference of a point to SFT where it counts; None for SFT itself, or without it."""
        return None if sft is None or sft is point else paired(point, sft, self.metric, *self.reported)

    @property
    def all(self) -> list[Summary]:
        """The points, SFT before them where it is none of them."""
        return [*(baseline for baseline in self.baselines if baseline not in self.points), *self.points]

    def baseline_of(self, point: Summary) -> Summary | None:
        """Return SFT at the same shared fields: against any other, tuning would count as the method's."""
        shared = point.setting.shared_fields
        return next((sft for sft in self.baselines if sft.setting.shared_fields == shared), None)

    def slice(self) -> list[Summary]:
        """Return the trimmed points that differ from the best of them in margin, bandwidth and objective at most."""
        trimmed = [point for point in self.points if point.setting.band is not None]
        if not trimmed:
            return []
        best = self.best if self.best in trimmed else best_of(trimmed, self.metric, self.benchmarks)
        return [point for point in trimmed if point.setting.shared_fields == best.setting.shared_fields]

    def sensitivity(self) -> Sensitivity | None:
        """Analyse the slice's objective with the most points; None where these are too few."""
        largest = max(by_objective(self.slice()).values(), key=len, default=[])
        return sensitivity_of(largest, self.metric) if largest else None

    def optimism(self, *, resamples: int = 2_000, seed: int = 0) -> float:
        """Return by how much the score of the best point is too high because it is the best of many, as a share.

        The bootstrap's answer: choose the best on resampled problems (and seeds), and see how far its score there lies
        above its score here, on average. With one seed it covers the sampling of problems only, not of trainings.
        """
        rng, points = np.random.default_rng(seed), candidates(self.points)
        strata = [[point.by_problem(self.metric, name) for point in points] for name in self.benchmarks]
        seen = np.mean([[values.mean() for values in stratum] for stratum in strata], axis=0)
        drawn_means = [resampled_means(np.concatenate(stratum, axis=1), resamples, rng) for stratum in strata]
        draws = np.mean(drawn_means, axis=0)  # [R, runs]: every run on the same resampled problems
        by_point = np.split(draws, np.cumsum([point.seeds for point in points])[:-1], axis=1)
        drawn = np.stack([resample_seeds(runs_RS, rng).mean(axis=1) for runs_RS in by_point], axis=1)
        return float((drawn.max(axis=1) - seen[drawn.argmax(axis=1)]).mean())


def swept_of(
    results: Mapping[Cell, Sequence[BenchmarkScore]],
    cells: Sequence[Cell],
    metric: str = "average",
    *,
    keep: Sequence[Cell] = (),
    resamples: int = RESAMPLES,
) -> Swept:
    """Bring the finished cells together; `keep` are the points of the grid, all others are there for comparison."""
    summaries = summarise({cell: results[cell] for cell in cells if cell in results}, resamples=resamples)
    grid = [s for setting, s in summaries.items() if (setting in keep if keep else setting.objective != BASELINE)]
    if not grid:
        raise RunError("no point of the sweep is finished; rerun the command to resume")
    missing = tuple(cell for cell in cells if cell not in results)
    baselines = tuple(s for setting, s in summaries.items() if setting.objective == BASELINE)
    return Swept(tuple(grid), baselines, missing, metric)


def by_objective(points: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for point in points:
        groups.setdefault(point.setting.objective, []).append(point)
    return groups


def candidates(points: Sequence[Summary]) -> list[Summary]:
    """Return those with the most seeds: the mean of fewer is more easily the highest by luck."""
    most = max((point.seeds for point in points), default=0)
    return [point for point in points if point.seeds == most]


def best_of(points: Sequence[Summary], metric: str, benchmarks: Sequence[str]) -> Summary:
    """Return the candidate with the highest mean over benchmarks and seeds; ties: smaller bandwidth, then margin."""

    def order(point: Summary) -> tuple[float, float, float]:
        margin, bandwidth = point.setting.band or (math.inf, math.inf)
        return (-round(float(np.mean(point.by_seed(metric, benchmarks))), 12), bandwidth, margin)

    return min(candidates(points), key=order)


def check_choice(on: str, benchmarks: Sequence[str]) -> None:
    """Refuse a benchmark that there is not, or that leaves none to report on."""
    if on not in benchmarks:
        raise unknown_name("select_on", on, benchmarks)
    if len(benchmarks) < 2:
        raise UsageError("is the only benchmark", field="select_on", value=on, hint="the result needs another one")


def select(swept: Swept, on: str) -> Swept:
    """Choose the point and its rival by the mean over seeds on one benchmark, and report on the rest."""
    check_choice(on, swept.benchmarks)
    return replace(swept, on=on)
