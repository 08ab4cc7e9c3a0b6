"""All tables and figures of a comparison, from the files of its runs alone.

write_analysis(Path("analysis"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})

analysis/tables/README.md             what there is, what cannot be compared, what was left out and why
analysis/tables/<name>.md, .csv       for reading, for computing
analysis/figures/<name>.svg, .pdf, .png, .csv
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimsft.objectives import PARAMETERS, Objective
from trimsft.options import unknown_name
from trimsft.report import figures, token_tables
from trimsft.report.page.details import Sweep, read_course, read_sweep
from trimsft.report.runs import Run, checked_parameters, read_runs
from trimsft.report.score_tables import in_order
from trimsft.runs.files import write_whole
from trimsft.tables import Records, escape_markdown
from trimsft.tokens.statistics.calibration import calibration
from trimsft.tokens.statistics.gaps import Movement, movement
from trimsft.tokens.statistics.groups import by_tenth
from trimsft.tokens.statistics.weighting import objectives_of
from trimsft.tokens.table import incomparable


@dataclass(frozen=True)
class Analysis:
    """The files of an analysis, and what a reader must know beside them."""

    files: list[Path]
    incomparable: Mapping[str, str]
    """Why the token table of a run cannot be compared with that of the first run, by label."""


def write_analysis(
    out: Path,
    runs: Mapping[str, Path],
    *,
    parameters: Mapping[str, float] | None = None,
    objectives: Sequence[str] = (),
    sweep: Path | None = None,
    write_more: Callable[[Writer], None] | None = None,
) -> Analysis:
    """Write every table and figure that the runs have data for.

    Args:
        runs: run directories or token tables by label; the first is the base that the others are held against.
        parameters: margin, bandwidth and gamma; the paper's where not given.
        objectives: names of others beside the paper's; one's own are loaded.
        sweep: a sweep.json, or the folder of one, for Figure 3.
        write_more: adds to it, such as `write_paper_tables` of `trimsft.study.paper_tables`.
    """
    for name in parameters or {}:
        if name not in PARAMETERS:
            raise unknown_name("parameters", name, tuple(PARAMETERS))
    values = checked_parameters(parameters or {})
    read, weighing = read_runs(runs), objectives_of(values, objectives)
    writer = Writer(Path(out), read, values, weighing, None if sweep is None else read_sweep(Path(sweep)))
    writer.draw(figures.weighting_functions(column=True), "weighting_functions")
    if writer.tables:
        writer.write_each_run()
        writer.write_movement()
    writer.draw_training()
    writer.draw_scores()
    writer.write_sweep()
    if write_more is not None:
        write_more(writer)
    return Analysis([*writer.files, writer.write_index()], writer.incomparable)


@dataclass
class Writer:
    """The contents of the runs, and what has been written of them so far, for the index."""

    out: Path
    runs: list[Run]
    parameters: Mapping[str, float]
    weighing: Mapping[str, Objective]
    sweep: Sweep | None
    records: list[Records] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {run.label: run.table for run in self.runs if run.table}  # and it is not empty
        self.incomparable = {label: str(error) for label, error in incomparable(self.tables).items()}
        self.objectives = {run.label: run.objective for run in self.runs}
        self.band = {name: self.parameters[name] for name in ("margin", "bandwidth")}
        without = [(run.label, "no" if run.table is None else "an empty") for run in self.runs if not run.table]
        self.left_out += [f"{label} has {which} tokens.parquet." for label, which in without]
        self.left_out += [f"{run.label} has no scores." for run in self.runs if not run.scores]

    def write(self, *records: Records | None) -> None:
        for one in filter(None, records):
            self.files += one.write(self.out / "tables")
            self.records.append(one)

    def draw(self, drawing: figures.Drawing, name: str) -> None:
        self.files += drawing.save(self.out / "figures" / f"{name}.svg")

    def write_each_run(self) -> None:
        first = next(iter(self.tables))
        gaps = figures.gap_distribution(self.tables, **self.band, objectives=self.objectives)
        self.draw(gaps, "gap_distribution")
        self.draw(figures.effective_ratio_map(self.tables[first], **self.band), "effective_ratio")
        tenths = {label: by_tenth(table, **self.band) for label, table in self.tables.items()}
        calibrated = {label: calibration(table) for label, table in self.tables.items()}
        side_by_side = [
            token_tables.confidences(self.tables, self.band),
            token_tables.objectives(self.tables, self.weighing, self.band),
            *token_tables.groups(self.tables, tenths, self.band),
            token_tables.calibrations(self.tables, calibrated),
            token_tables.endings(self.tables, self.weighing),
        ]
        if others := ", ".join(self.incomparable):
            note = f"Of other tokens than {first}, or after other prompts, so not to be compared with it: {others}."
            side_by_side = [each and replace(each, notes=[*each.notes, note]) for each in side_by_side]
        self.write(*side_by_side, token_tables.examples(first, self.tables[first], self.parameters))
        self.draw(figures.reliability_diagram(calibrated, self.objectives), "reliability")
        self.draw(figures.position_curves(tenths, self.objectives), "positions")

    def write_movement(self) -> None:
        """Before against after: the first run with each other one on the same tokens."""
        (base, before), *others = self.tables.items()
        moved: dict[str, Movement] = {}
        for label, after in others:
            if label not in self.incomparable:
                moved[label] = movement(before, after, **self.band)
            else:
                self.left_out.append(f"Movement to {label}: its table cannot be compared with that of {base}.")
        if moved:
            self.write(token_tables.movements(base, moved, self.band))
            shares = {label: one.moved_percent for label, one in moved.items()}
            self.draw(figures.movement_maps(base, shares), "movement")
        elif not others:
            self.left_out.append("Movement: one token table alone has no before and after.")

    def draw_training(self) -> None:
        """Draw what the trainings logged, step by step."""
        courses = {run.label: [vars(line) for line in read_course(run)] for run in self.runs}
        if logged := {label: course for label, course in courses.items() if course}:
            self.draw(figures.training_curves(logged, self.objectives), "training")

    def draw_scores(self) -> None:
        """Figure 2 where runs have scores of repeated samples."""
        scored = {run.label: run for run in self.runs if run.scores}
        metrics: dict[str, dict[str, dict[str, figures.Spread]]] = {}
        for kind, title in (("pass", "pass@{}"), ("majority", "best-of-{} (majority vote)")):
            for benchmark in in_order({name for run in scored.values() for name in run.scores}):
                for label, run in scored.items():
                    samples = run.scores[benchmark].samples if benchmark in run.scores else 0
                    interval = run.interval_percent(benchmark, f"{kind}@{samples}")
                    if interval is not None:
                        panel = metrics.setdefault(title.format(samples), {})
                        panel.setdefault(benchmark, {})[label] = (interval.value, interval.low, interval.high)
        if metrics:
            self.draw(figures.sampling_bars(metrics, self.objectives), "sampling")

    def write_sweep(self) -> None:
        """Figure 3, for each objective that was tried with several settings."""
        if self.sweep is None:
            return
        planes: dict[str, dict[tuple[float, float], figures.Spread]] = {}
        for point in self.sweep.points:
            spread = (100 * point.value, 100 * point.low, 100 * point.high)
            planes.setdefault(point.objective, {})[point.margin, point.bandwidth] = spread
        baseline = None if self.sweep.baseline is None else 100 * self.sweep.baseline.value
        drawn = {objective: scores for objective, scores in planes.items() if len(scores) > 1}
        for objective, scores in drawn.items():
            name = "ablation" if len(planes) == 1 else f"ablation-{objective}"
            metric = f"{self.sweep.metric}, %"
            self.draw(figures.ablation_curves(scores, baseline=baseline, metric=metric), name)
        if not drawn:
            self.left_out.append("Figure 3: the sweep has one setting alone.")

    def write_index(self) -> Path:
        settings = ", ".join(f"{name} {value:g}" for name, value in self.parameters.items())
        labels = escape_markdown(", ".join(run.label for run in self.runs))
        about = f"Runs: {labels}. TrimSFT at {settings}, but where a table or figure names its own."
        tables = [f"[{escape_markdown(one.title)}]({one.name}.md) ([CSV]({one.name}.csv))" for one in self.records]
        drawn = [path.stem for path in self.files if path.parent.name == "figures" and path.suffix == ".csv"]
        images = [f"[{name.replace('_', ' ')}](../figures/{name}.png) ([CSV](../figures/{name}.csv))" for name in drawn]
        parts = {
            "Tables": tables,
            "Figures": images,
            "Not comparable": list(map(escape_markdown, self.incomparable.values())),
            "Left out": list(map(escape_markdown, self.left_out)),
        }
        lines = ["# Analysis", "", about]
        for heading, entries in parts.items():
            if entries:
                lines += ["", f"## {heading}", "", *(f"- {entry}" for entry in entries)]
        return write_whole(self.out / "tables" / "README.md", ("\n".join(lines) + "\n").encode())
