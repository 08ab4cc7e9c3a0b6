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
  report.html                       the page with the table, and the runs of SFT and of the chosen point
"""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from trimsft.errors import UsageError
from trimsft.options import option, unknown_name
from trimsft.runs.directory import command_line
from trimsft.study import results
from trimsft.study.cell import PARAMETERS, Cell, method_name, takes_of
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
        flags=("--grid",), help="FIELD=VALUES, such as bandwidth=0.5,1,2; repeat it for the product of several."
    )
    select_on: str | None = option(None, help="Benchmark to choose the best point on; the others report it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.models) > 1:
            raise UsageError("a sweep takes one", field="models", value=" and ".join(self.models), hint="sweep twice")

    def studies(self, scale: Scale) -> list[Study]:
        """Return the points, and SFT at each setting of the fields that it takes too, as a study."""
        grid = points(read_axes(self.grid), scale.focus_model)
        if self.select_on is not None:
            if self.select_on not in scale.benchmark_names:
                raise unknown_name("select_on", self.select_on, scale.benchmark_names)
            if len(scale.benchmarks) < 2:
                problem, hint = "is the only benchmark", "the result needs another one"
                raise UsageError(problem, field="select_on", value=self.select_on, hint=hint)
        return [sweep_of(grid, self.select_on)]


def sweep_of(grid: Sequence[Cell], on: str | None = None) -> Study:
    """Return the study of a grid, with SFT at each setting of the fields that it takes too."""
    sft = [Cell(model=point.model, objective=BASELINE, fields=point.shared_fields) for point in grid]
    return Study("sweep", "Sweep", (), lambda scale: [*sft, *grid], SCORES, partial(write_sweep, grid, on))


# ---- the grid


def read_axes(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each field, each once."""
    axes: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, _, listed = text.partition("=")
        name, listed = name.strip().removeprefix("--").replace("-", "_"), listed.strip()
        if not name or not listed:
            problem = "must be FIELD=VALUES, such as bandwidth=0.5,1,2"
            raise UsageError(problem, field="grid", value=text)
        values = (_value(word.strip()) for word in listed.split(","))
        axes[name] = tuple(dict.fromkeys([*axes.get(name, ()), *values]))
    return axes


def _value(word: str) -> Any:
    """Return what a word means; `trimsft train` refuses it where its field takes something else."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return {"true": True, "false": False}.get(word.lower(), word)


def points(axes: Mapping[str, Sequence[Any]], model: str) -> list[Cell]:
    """Return the product of the axes, each setting once; `model` is the name of all of them within the scale."""
    objectives = axes.get(OBJECTIVE, ("trim",))
    taken = {one: takes_of(one) for one in objectives}
    for name in set(PARAMETERS) & axes.keys():
        if not any(name in takes for takes in taken.values()):
            raise UsageError(f"{name!r} has no effect with objective {' or '.join(objectives)}", field="grid")
    cells = []
    for one, takes in taken.items():
        names = [name for name in axes if name != OBJECTIVE and (name not in PARAMETERS or name in takes)]
        for values in itertools.product(*(axes[name] for name in names)):
            fields = zip(names, values, strict=True)
            cells.append(Cell(model=model, objective=one, fields=tuple(fields)))
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

    def best_of(self, members: Sequence[Summary]) -> Summary:
        """Return the one with the highest mean over seeds on the benchmark that chooses; of those alike the first."""
        benchmarks = [self.on] if self.on else self.points[0].benchmarks
        most = max(point.seeds for point in members)  # the mean of fewer is more easily the highest by luck
        candidates = [point for point in members if point.seeds == most]
        return max(candidates, key=lambda point: round(float(np.mean(point.by_seed("average", benchmarks))), 12))

    @cached_property
    def best(self) -> Summary:
        """The point that the benchmark chose; without one the highest, which is too good to be true."""
        return self.best_of(self.points)

    @cached_property
    def rival(self) -> Summary | None:
        """The SFT that the best point is held against: chosen likewise, else tuning would count as the method's."""
        sft = [one for setting, one in self.all.items() if setting.objective == BASELINE]
        return self.best_of(sft) if sft else None


# ---- the table, and what it says


def sweep_table(swept: Swept) -> Table:
    """Return every point on every benchmark but the one that was chosen on, and against SFT with the same fields."""
    from trimsft.study.paper_tables import our_table, score_rows

    title = f"Sweep: average@{min(point.samples for point in swept.points)}"
    return our_table(title, score_rows("sweep", swept.all, ["average"], swept.reported), against_sft=True)


def conclusions(swept: Swept, missing: Sequence[str] = ()) -> list[str]:
    """Say which point is best and by how much, and what is not finished."""
    best = swept.best
    score = best.interval("average", *swept.reported)
    if swept.on:
        text = f"Chosen on {swept.on}: {best.setting.label}. On {', '.join(swept.reported)}: {percent_text(score)}"
        if swept.rival is not None and swept.rival is not best:
            difference = results.paired(best, swept.rival, "average", *swept.reported)
            text += f", against {swept.rival.setting.label}, chosen likewise: {percent_text(difference, '+')}"
        sentences = [f"{text}."]
    else:
        sentences = [
            f"The highest of {len(swept.points)} points is {best.setting.label}: {100 * score.value:.1f}. "
            "As the best of several it is partly luck: --select-on BENCHMARK chooses on one, and reports the others."
        ]
    return [*sentences, *([f"Not finished: {len(missing)}, such as {missing[0]}."] if missing else [])]


# ---- files


def write_sweep(grid: Sequence[Cell], on: str | None, cells: Sequence[Cell], out: Path) -> list[Path]:
    """Write the table, sweep.json and the page; return the files."""
    from trimsft.report.page.build import write_report
    from trimsft.study.paper_tables import Content, score_rows, write_files

    found = results.load_results(cells, out)
    swept = Swept(results.summarise(found), tuple(grid), on)
    if not swept.points:
        return []
    notes = conclusions(swept, [cell.name for cell in cells if cell not in found])
    table, command = sweep_table(swept), command_line()
    rows = [row.as_dict() for row in score_rows("sweep", swept.all, ["average"])]
    record: dict[str, Any] = {
        "metric": table.title.removeprefix("Sweep: "),
        "benchmarks": swept.reported,
        "selected_on": on,
        "best": str(_run_of(swept.best, out).relative_to(out)),  # the folder may be moved
        "command": command,
    }
    files = write_files(out, "sweep", "Sweep", Content([table], [], rows, notes), **record)
    # the page has the table, and the runs of SFT and of the best point at the first seed
    pair = [one for one in (swept.rival, swept.best) if one is not None]
    runs = {method_name(one.setting.objective): _run_of(one, out) for one in pair}
    settings = {**dict(swept.best.setting.fields), "command": command}
    page = write_report(out / "report.html", runs, title="Sweep", settings=settings, sweep=(table, notes))
    return [*files, page]


def _run_of(point: Summary, out: Path) -> Path:
    """Return the run of its first seed."""
    return StudyFolder(out).run(replace(point.setting, seed=min(point.runs)))
