"""`trimsft sweep`: a grid of settings, trained and evaluated as cells of a study, and the choice among them.

settings = SweepSettings(grid=("margin=0,2,4,6", "bandwidth=0.5,1,2"), seeds=3, select_on="lab-easy")
run_study(settings)                          # without select_on too good to be true: the best of many is partly luck

`--grid FIELD=VALUES` varies any field of `trimsft train`; several make their product. With an axis `objective`, a field
that one of them does not take is left out for that one, which is then made once:

    >>> [point.label for point in points(read_axes(["objective=trim,dft", "margin=1,2"]), "lab")]
    ['TrimSFT (margin 1, bandwidth 0.8)', 'TrimSFT (margin 2, bandwidth 0.8)', 'DFT']

runs/sweep-lab/
  sweep.md, sweep.txt, sweep.csv    every point with its interval, and against SFT
  sweep.json                        for programs
  figures/                          curves of margin and bandwidth, as in the paper's Figure 3
  report.html                       the page with the heatmap, and the runs of SFT and of the chosen point
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trimsft.errors import UsageError
from trimsft.intervals import Interval
from trimsft.options import option, unknown_name
from trimsft.runs.directory import command_line
from trimsft.study import results
from trimsft.study.cell import OWN, PARAMETERS, Cell, method_name, takes_of
from trimsft.study.folder import StudyFolder
from trimsft.study.results import Summaries, Summary, percent_text
from trimsft.study.run import RunOptions
from trimsft.study.scales import Scale
from trimsft.study.studies import SCORES, Study
from trimsft.tables import Table

BASELINE, OBJECTIVE = "sft", "objective"


@dataclass(frozen=True, kw_only=True)
class SweepSettings(RunOptions):
    """Settings of `trimsft sweep`."""

    kind: ClassVar[str] = "sweep"
    grid: tuple[str, ...] = option(
        (), flags=("--grid",), help="FIELD=VALUES, such as bandwidth=0.5,1,2; repeat it for the product of several."
    )
    objective: str = option("trim", help="Objective of every point, unless the grid has several.")
    select_on: str | None = option(None, help="Benchmark to choose the best point on; the others report it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.grid:
            hint = "name a field and its values, such as margin=0,2,4"
            raise UsageError("there is none", field="grid", hint=hint)
        if len(self.models) > 1:
            raise UsageError("a sweep takes one", field="models", value=" and ".join(self.models), hint="sweep twice")

    def studies(self, scale: Scale) -> list[Study]:
        """Return the points, and SFT at each setting of the fields that it takes too, as a study."""
        grid = points(read_axes(self.grid), scale.focus_model, self.objective)
        if self.select_on is not None and self.select_on not in scale.benchmark_names:
            raise unknown_name("select_on", self.select_on, scale.benchmark_names)
        if self.select_on is not None and len(scale.benchmarks) < 2:
            problem, hint = "is the only benchmark", "the result needs another one"
            raise UsageError(problem, field="select_on", value=self.select_on, hint=hint)
        return [sweep_of(grid, self.select_on)]


def sweep_of(grid: Sequence[Cell], on: str | None = None) -> Study:
    """Return the study of a grid, with SFT at each setting of the fields that it takes too."""
    sft = [Cell(model=point.model, objective=BASELINE, fields=point.shared_fields) for point in grid]
    return Study("sweep", "Sweep", (), lambda scale: [*sft, *grid], SCORES, partial(write_sweep, grid, on))


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

    objectives = axes.get(OBJECTIVE, (objective,))
    unknown = dict.fromkeys(("model_name_or_path", "dataset_name", "output_dir"), "unknown")
    try:
        taken = {one: takes_of(one) for one in objectives}
        for name in set(PARAMETERS) & axes.keys():
            if not any(name in takes for takes in taken.values()):
                raise UsageError(f"{name!r} has no effect with objective {' or '.join(objectives)}")
        cells = []
        for one, takes in taken.items():
            names = [name for name in axes if name != OBJECTIVE and (name not in PARAMETERS or name in takes)]
            for values in itertools.product(*(axes[name] for name in names)):
                fields = dict(zip(names, values, strict=True))
                make_settings({**unknown, OBJECTIVE: one, **fields})  # long before anything is trained
                cells.append(Cell(model=model, objective=one, fields=tuple(fields.items())))
    except UsageError as error:
        raise UsageError(str(error), field="grid") from error
    return list(dict.fromkeys(cells))


# ---- the choice


@dataclass(frozen=True)
class Swept:
    """Settings of a sweep over their seeds."""

    all: Summaries  # SFT at each setting of the shared fields, and the points
    grid: tuple[Cell, ...]
    on: str | None = None  # the benchmark that the best point is chosen on; the others report it

    @cached_property
    def points(self) -> list[Summary]:
        return [self.all[setting] for setting in self.grid if setting in self.all]

    @property
    def reported(self) -> list[str]:
        """The benchmarks that results are given on: not the one that the choice was made on."""
        return [name for name in self.points[0].benchmarks if name != self.on]

    def interval(self, point: Summary) -> Interval:
        """Return its score on the benchmarks that count."""
        return point.interval("average", *self.reported)

    def best_of(self, members: Sequence[Summary]) -> Summary:
        """Return the one with the highest mean over seeds on the benchmark that chooses; of those alike the first."""
        benchmarks = [self.on] if self.on else self.points[0].benchmarks
        most = max(point.seeds for point in members)  # the mean of fewer is more easily the highest by luck
        return max(
            (point for point in members if point.seeds == most),
            key=lambda point: round(float(np.mean(point.by_seed("average", benchmarks))), 12),
        )

    @cached_property
    def best(self) -> Summary:
        """The point that the benchmark chose; without one the highest, which is too good to be true."""
        return self.best_of(self.points)

    @cached_property
    def rival(self) -> Summary | None:
        """The SFT that the best point is held against: chosen likewise, else tuning would count as the method's."""
        sft = [one for setting, one in self.all.items() if setting.objective == BASELINE]
        return self.best_of(sft) if sft else None

    def baseline_of(self, point: Summary) -> Summary | None:
        """Return SFT at the same shared fields."""
        sft = replace(point.setting, objective=BASELINE, fields=point.setting.shared_fields)
        return self.all.get(sft)

    @cached_property
    def plane(self) -> list[Summary]:
        """The points that differ from the best trimmed one in margin and bandwidth alone."""
        trimmed = [point for point in self.points if point.setting.band is not None]
        if not trimmed:
            return []
        best = (self.best if self.best in trimmed else self.best_of(trimmed)).setting
        key = (best.objective, best.shared_fields)
        return [point for point in trimmed if (point.setting.objective, point.setting.shared_fields) == key]


# ---- the table, and what it says


def sweep_table(swept: Swept) -> Table:
    """Return every point on every benchmark but the one that was chosen on, and against SFT with the same fields."""
    from trimsft.study.paper_tables import our_table, score_rows

    title = f"Sweep: average@{min(point.samples for point in swept.points)}"
    return our_table(title, score_rows("sweep", swept.all, ["average"], swept.reported), against_sft=True)


def conclusions(swept: Swept, missing: Sequence[str] = ()) -> list[str]:
    """Say which point is best and by how much, whether tau or m matters more, and what is not finished."""
    best = swept.best
    if swept.on:
        text = f"Chosen on {swept.on}: {best.setting.label}. On {', '.join(swept.reported)}: "
        text += percent_text(swept.interval(best))
        if swept.rival is not None and swept.rival is not best:
            difference = results.paired(best, swept.rival, "average", *swept.reported)
            text += f", against {swept.rival.setting.label}, chosen likewise: {percent_text(difference, '+')}"
        sentences = [f"{text}."]
    else:
        sentences = [
            f"The highest of {len(swept.points)} points is {best.setting.label}: "
            f"{100 * swept.interval(best).value:.1f}. As the best of several on the problems it was chosen by it is "
            "partly luck: --select-on BENCHMARK chooses on one and reports on the others."
        ]
    if (spread := results.tau_over_m(swept.plane, "average", *swept.reported)) is not None:
        text = results.tau_over_m_text(spread)
        sentences.append(f"{text[0].upper()}{text[1:]}.")
    return [*sentences, *([f"Not finished: {len(missing)}, such as {missing[0]}."] if missing else [])]


# ---- files


def write_sweep(grid: Sequence[Cell], on: str | None, cells: Sequence[Cell], out: Path) -> list[Path]:
    """Write the table, sweep.json, curves of margin and bandwidth, and the page; return the files."""
    from trimsft.report.figures import ablation_curves, spread_percent
    from trimsft.report.page.build import write_report
    from trimsft.study import writing
    from trimsft.study.paper_tables import score_rows

    found = results.load_results(cells, out)
    swept = Swept(results.summarise(found), tuple(grid), on)
    if not swept.points:
        return []
    notes = conclusions(swept, [cell.name for cell in cells if cell not in found])
    notes += writing.unanswered_note({point.setting: point for point in swept.points})
    table = sweep_table(swept)
    metric, figures = table.title.removeprefix("Sweep: "), list[Path]()
    if len(swept.plane) > 1:
        scores = {one.setting.band: spread_percent(swept.interval(one)) for one in swept.plane if one.setting.band}
        sft = swept.baseline_of(swept.plane[0])
        baseline = None if sft is None else 100 * swept.interval(sft).value
        figures = ablation_curves(scores, baseline=baseline, metric=f"{metric}, %").save(out / "figures" / "curves.svg")
    rows = [row.as_dict() for row in score_rows("sweep", swept.all, ["average"])]
    content = writing.Content([table], figures, rows, notes)
    chosen = str(_run_of(swept.best, out).relative_to(out))  # the folder may be moved
    record: dict[str, Any] = {"metric": metric, "benchmarks": swept.reported, "selected_on": on, "best": chosen}
    files = writing.write_files(out, "sweep", "Sweep", content, command=command_line(), **record)
    if swept.plane:
        # the page has the table, and the runs of SFT and of the best point at the first seed
        pair = [one for one in (swept.rival, swept.best) if one is not None]
        runs = {method_name(one.setting.objective): _run_of(one, out) for one in pair}
        settings = {**dict(swept.best.setting.fields), "command": command_line()}
        page = write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=(table, notes))
        files.append(page)
    return files


def _run_of(point: Summary, out: Path) -> Path:
    """Return the run of its first seed."""
    return StudyFolder(out).run(replace(point.setting, seed=min(point.runs)))
