"""`trimsft sweep`: a grid of settings, trained and evaluated as cells of a study, and the choice among them.

settings = SweepSettings(grid=("margin=0,2,4,6", "bandwidth=0.5,1,2"), seeds=3, select_on="lab-easy")
outcome = run_sweep(settings)
outcome.swept.best, outcome.files            # without select_on too good to be true: the best of many is partly luck

`--grid FIELD=VALUES` varies any field of `trimsft train`; several make their product. With an axis `objective`, a field
that one of them does not take is left out for that one, which is then made once:

    >>> [point.label for point in points(read_axes(["objective=trim,dft", "margin=1,2"]), "lab")]
    ['TrimSFT (margin 1, bandwidth 0.8)', 'TrimSFT (margin 2, bandwidth 0.8)', 'DFT']

runs/sweep-lab/
  sweep.md, sweep.csv               every point with its interval, and against SFT
  sweep.json                        for programs; `points` are those of the plane of the best one
  figures/                          curves of margin and bandwidth, as in the paper's Figure 3
  report.html                       the page with the table, and the runs of SFT and of the chosen point
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.metrics import metric_names
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.intervals import RESAMPLES, Interval
from trimsft.objectives import OBJECTIVES
from trimsft.options import option, unknown_name
from trimsft.runs.files import write_whole
from trimsft.runs.parsing import read_json
from trimsft.study.cell import OWN, PARAMETERS, Cell, method_name, takes_of
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import StudyPlan, plan_cells
from trimsft.study.results import Summary, load_results, paired, percent_text, summarise
from trimsft.study.run import OnEvent, Outcome, RunOptions, ignore
from trimsft.study.scales import Scale
from trimsft.study.steps import check_study
from trimsft.study.studies import expand
from trimsft.study.variance import Sensitivity, sensitivity_of
from trimsft.tables import Table, escape_markdown, render

BASELINE, OBJECTIVE = "sft", "objective"


@dataclass(frozen=True, kw_only=True)
class SweepSettings(RunOptions):
    """Settings of `trimsft sweep`."""

    grid: tuple[str, ...] = option(
        (), flags=("--grid",), help="FIELD=VALUES, such as bandwidth=0.5,1,2; repeat it for the product of several."
    )
    objective: str = option("trim", help="Objective of every point, unless the grid has several.")
    select_on: str | None = option(None, help="Benchmark to choose the best point on; the others report it.")
    metric: str = option("average", help="What decides: average, greedy, pass@K or majority@K.")
    baseline: bool = option(True, help="Train SFT beside the points, with each value of the fields it takes too.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid:
            hint = "name a field and its values, such as margin=0,2,4"
            raise UsageError("there is none", field="grid", hint=hint)
        if len(self.models) > 1:
            raise UsageError("a sweep takes one", field="models", value=" and ".join(self.models), hint="sweep twice")

    def prepare(self) -> tuple[list[Cell], list[Cell], Scale, StudyFolder]:
        """Read the grid and make its cells, after a look at everything that is here."""
        scale, folder = self.to_scale(), self.folder("sweep")
        grid = points(read_axes(self.grid), scale.focus_model, self.objective)
        if self.metric not in set(metric_names(scale.samples, greedy=True)) - {"no_answer", "truncated", "tokens"}:
            problem = f"there is none of this name with {scale.samples} samples"
            hint = f"known: average, greedy, pass@1 to pass@{scale.samples}, majority@{scale.samples}"
            raise UsageError(problem, field="metric", value=self.metric, hint=hint)
        names, chosen = scale.benchmark_names, self.select_on
        if chosen is not None and chosen not in names:
            raise unknown_name("select_on", chosen, names)
        if chosen is not None and len(names) < 2:
            problem, hint = "is the only benchmark", "the result needs another one"
            raise UsageError(problem, field="select_on", value=chosen, hint=hint)
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
    grid, cells, scale, folder = settings.prepare()
    done = settings.run(cells, scale, folder, on_event)
    try:
        swept = swept_of(load_results(cells, folder.out), cells, settings.metric, keep=grid, on=settings.select_on)
    except RunError:
        return SweepOutcome(done, None)  # everything failed: the reasons say more
    return SweepOutcome(done, swept, write_sweep(swept, folder.out, command=command))


def plan_sweep(settings: SweepSettings) -> StudyPlan:
    """Plan what is missing of a sweep; nothing is written."""
    _, cells, scale, folder = settings.prepare()
    return plan_cells(cells, scale, folder, settings.gpu_kind)


# ---- the grid


def read_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each field; raises `UsageError` for what is no field, or no value of it."""
    axes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        name, listed = name.strip().removeprefix("--").replace("-", "_"), listed.strip()
        if not name or not listed:
            problem = "must be FIELD=VALUES, such as bandwidth=0.5,1,2"
            raise UsageError(problem, field="grid", value=text)
        if name in (*OWN, "dataset_name") and name != OBJECTIVE:
            problem = f"{name!r} is not for a grid"
            raise UsageError(problem, field="grid", hint="--seeds, --model, --data and --out set it")
        values = tuple(_value(word.strip()) for word in listed.split(","))
        if name in axes or len(set(values)) < len(values):
            raise UsageError(f"{name} or a value of it is there twice", field="grid", value=text, hint="give it once")
        axes[name] = values
    return axes


def _value(word: str) -> Any:
    """Return what a word means; `trimsft train` refuses it where its field takes something else."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return {"true": True, "false": False}.get(word.lower(), word)


def points(axes: Mapping[str, Sequence[Any]], model: str, objective: str = "trim") -> list[Cell]:
    """Return the product of the axes, each setting once; raises `UsageError` for one that could not be trained.

    Args:
        model: the name of all of them within the scale.
        objective: of all points, unless it is an axis itself.
    """
    from trimsft.train.config import make_settings

    names, others = axes.get(OBJECTIVE, (objective,)), [name for name in axes if name != OBJECTIVE]
    cells, unknown = [], dict.fromkeys(("model_name_or_path", "dataset_name", "output_dir"), "unknown")

    def takes(one: str, name: str) -> bool:  # fields that are no objective's own always have an effect
        return name not in PARAMETERS or name in takes_of(one)

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
    def reported(self) -> list[str]:
        """The benchmarks that results are given on: not the one that the choice was made on."""
        return [name for name in self.points[0].benchmarks if name != self.on]

    @property
    def metric_name(self) -> str:
        samples = min(point.samples for point in self.points)
        return f"average@{samples}" if self.metric == "average" else self.metric

    def interval(self, point: Summary) -> Interval:
        """Return its score on the benchmarks that count."""
        return point.interval(self.metric, *self.reported)

    @cached_property
    def best(self) -> Summary:
        """The point that the benchmark chose; without one the highest, which is too good to be true."""
        return self.best_of(self.points)

    def best_of(self, members: Sequence[Summary]) -> Summary:
        """Return the candidate with the highest mean over seeds; ties: smaller bandwidth, then smaller margin."""
        benchmarks = [self.on] if self.on else self.points[0].benchmarks

        def order(point: Summary) -> tuple[float, float, float]:
            margin, bandwidth = point.setting.band or (math.inf, math.inf)
            return (-round(float(np.mean(point.by_seed(self.metric, benchmarks))), 12), bandwidth, margin)

        return min(candidates(members), key=order)

    @cached_property
    def rival(self) -> Summary | None:
        """The SFT that the best point is held against, chosen likewise; None without one, or where it is the point."""
        if self.on is None:
            return self.baseline_of(self.best)
        sft = self.best_of(self.baselines) if self.baselines else None
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

    def plane(self) -> list[Summary]:
        """Return the trimmed points that differ from the best of them in margin, bandwidth and objective at most."""
        trimmed = [point for point in self.points if point.setting.band is not None]
        if not trimmed:
            return []
        best = self.best if self.best in trimmed else self.best_of(trimmed)
        return [point for point in trimmed if point.setting.shared_fields == best.setting.shared_fields]

    def sensitivity(self) -> Sensitivity | None:
        """Analyse the plane's objective with the most points; None where these are too few."""
        largest = max(by_objective(self.plane()).values(), key=len, default=[])
        return sensitivity_of(largest, self.metric) if largest else None


def swept_of(
    results: Mapping[Cell, Sequence[BenchmarkScore]],
    cells: Sequence[Cell],
    metric: str = "average",
    *,
    keep: Sequence[Cell],
    on: str | None = None,
    resamples: int = RESAMPLES,
) -> Swept:
    """Bring the finished cells together; `keep` are the points of the grid, all others are there for comparison."""
    summaries = summarise({cell: results[cell] for cell in cells if cell in results}, resamples=resamples)
    grid = [summary for setting, summary in summaries.items() if setting in keep]
    if not grid:
        raise RunError("no point of the sweep is finished; rerun the command to resume")
    missing = tuple(cell for cell in cells if cell not in results)
    baselines = tuple(s for setting, s in summaries.items() if setting.objective == BASELINE)
    return Swept(tuple(grid), baselines, missing, metric, on)


def by_objective(points: Sequence[Summary]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for point in points:
        groups.setdefault(point.setting.objective, []).append(point)
    return groups


def candidates(points: Sequence[Summary]) -> list[Summary]:
    """Return those with the most seeds: the mean of fewer is more easily the highest by luck."""
    most = max((point.seeds for point in points), default=0)
    return [point for point in points if point.seeds == most]


# ---- the table, and what it says


def sweep_table(swept: Swept) -> Table:
    """Return every point on every benchmark but the one that was chosen on, and against SFT with the same fields."""
    from trimsft.study.paper_tables import columns_of, our_table, score_rows

    summaries = {one.setting: one for one in swept.all}
    columns = columns_of(summaries, swept.reported)
    rows = score_rows("sweep", summaries, [swept.metric], columns)
    return our_table(f"Sweep: {swept.metric_name}", summaries, rows, columns=columns, against_sft=True)


def conclusions(swept: Swept) -> list[str]:
    """Say which point is best and by how much; how many had no part in the choice; what tau and m explain."""
    best, points = swept.best, len(candidates(swept.points))
    if swept.on:
        text = f"Chosen on {swept.on}: {best.setting.label}. On {', '.join(swept.reported)}: "
        text += percent_text(swept.interval(best))
        difference = swept.above(best, swept.rival)
        if swept.rival is not None and difference is not None:
            how = f", chosen on {swept.on} likewise:" if len(candidates(swept.baselines)) > 1 else ""
            text += f", against {swept.rival.setting.label}{how} {percent_text(difference, '+')}"
        text += "."
    else:
        value = swept.interval(best).value
        text = f"The highest of {points} points is {best.setting.label}: {100 * value:.1f}."
        if points > 1:
            text += (
                f" As the best of {points} on the problems it was chosen by it is partly luck: --select-on BENCHMARK "
                "chooses on one and reports on the others."
            )
    sentences = [text]
    for name, members in {"points": swept.points, "of SFT": swept.baselines if swept.on else ()}.items():
        kept = candidates(members)
        if out := len(members) - len(kept):
            why = f"fewer than {kept[0].seeds} trainings are finished"
            sentences.append(f"{out} of {len(members)} {name} had no part in the choice: {why}.")
    sensitivity = swept.sensitivity()
    sentences += [] if sensitivity is None else [sensitivity.sentence()]
    if swept.missing:
        sentences.append(f"Not finished: {len(swept.missing)}, such as {swept.missing[0].name}.")
    return sentences


# ---- files


def write_sweep(swept: Swept, out: Path, *, command: str = "") -> list[Path]:
    """Write the table, sweep.json, curves of margin and bandwidth, and the page; return the files."""
    from trimsft.report.figures import ablation_curves, spread_percent
    from trimsft.report.page.build import write_report
    from trimsft.study import writing
    from trimsft.study.paper_tables import score_rows

    summaries = {one.setting: one for one in swept.all}
    sentences = [*conclusions(swept), *writing.unanswered_note({point.setting: point for point in swept.points})]
    figures, groups = list[Path](), by_objective(swept.plane())
    for name, members in groups.items():
        scores = {point.setting.band: spread_percent(swept.interval(point)) for point in members if point.setting.band}
        sft = swept.baseline_of(members[0])
        baseline = None if sft is None else 100 * swept.interval(sft).value
        if len(scores) > 1:
            drawing = ablation_curves(scores, baseline=baseline, metric=f"{swept.metric_name}, %")
            figures += drawing.save(out / "figures" / f"curves{'' if len(groups) == 1 else f'-{name}'}.svg")
    parts = [render(sweep_table(swept), "markdown").rstrip(), *map(escape_markdown, sentences)]
    parts += writing.markdown_images(figures)
    rows = score_rows("sweep", summaries, [swept.metric])
    files = [
        write_whole(out / "sweep.md", ("\n\n".join(parts) + "\n").encode()),
        writing.write_flat(out / "sweep.csv", [row.as_dict() for row in rows]),
        writing.write_json(out / "sweep.json", sweep_record(swept, out, sentences, command)),
    ]
    if groups:
        # the page has the table, and the runs of SFT and of the best point at the first seed
        pair = [one for one in (swept.rival, swept.best) if one is not None]
        runs = {method_name(one.setting.objective): _run_of(one, out) for one in pair}
        settings = dict(swept.best.setting.fields) | ({"command": command} if command else {})
        page = write_report(
            out / "report.html", runs, title="Sweep", settings=settings, sweep=(sweep_table(swept), sentences)
        )
        files.append(page)
    return [*files, *figures]


def sweep_record(swept: Swept, out: Path, sentences: Sequence[str], command: str) -> dict[str, Any]:
    """Return sweep.json; `points` are those of a plane: trimmed, differing in margin and bandwidth alone."""
    plane = swept.plane()
    sft = swept.baseline_of(plane[0] if plane else swept.best)

    def point(one: Summary) -> dict[str, Any]:
        own = {"objective": one.setting.objective, **dict(one.setting.fields), **swept.interval(one).as_dict()}
        difference = swept.above(one, swept.baseline_of(one))
        own["against_sft"] = None if difference is None else difference.as_dict()
        return own | {"seeds": one.seeds, "run": str(_run_of(one, out).relative_to(out))}  # the folder may be moved

    return {
        "metric": swept.metric_name,
        "benchmarks": swept.reported,
        "selected_on": swept.on,
        "command": command or None,
        "points": [point(one) for one in plane],
        "baseline": None if sft is None else point(sft),
        "all": [point(one) for one in swept.all],
        "selection": point(swept.best) if swept.on else None,
        "sentences": list(sentences),
    }


def _run_of(point: Summary, out: Path) -> Path:
    """Return the run of its first seed."""
    return StudyFolder(out).run(replace(point.setting, seed=min(point.runs)))
