"""Tables and figures beside the page (`trimsft report --figures`), from the files of the runs alone.

write_analysis(Path("report"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})

report/tables/<name>.md, .csv       for reading, for computing; shares are in percent, as the paper prints them
report/figures/<name>.svg, .pdf, .png, .csv
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.objectives import PAPER_OBJECTIVES, Objective
from trimsft.objectives.paper import Setting
from trimsft.report import figures
from trimsft.report.runs import Run, checked_parameters, read_runs
from trimsft.report.score_figures import score_dots
from trimsft.report.score_tables import in_order
from trimsft.tables import Records, Value
from trimsft.tokens.statistics import category_intervals, confidence, diagnose, objective_of
from trimsft.tokens.table import TokenTable, incomparable

Tables = Mapping[str, TokenTable]
Band = Mapping[str, float]
"""The margin and the bandwidth."""
_DIGITS = {"mean_nll": 3, "mean_weight": 3, "mean_entropy": 3, "effective_ratio": 3}


@dataclass
class Analysis:
    """The runs that are analysed, and what has been written of them so far."""

    out: Path
    runs: list[Run]
    files: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {run.label: run.table for run in self.runs if run.table}  # and it is not empty
        self.incomparable = {label: str(error) for label, error in incomparable(self.tables).items()}

    def write(self, *records: Records | None) -> None:
        for one in filter(None, records):
            self.files += one.write(self.out / "tables")

    def draw(self, drawing: figures.Drawing, name: str) -> None:
        self.files += drawing.save(self.out / "figures" / f"{name}.svg")


def write_analysis(
    out: Path,
    runs: Mapping[str, Path],
    *,
    parameters: Mapping[str, float] | None = None,
    objectives: Sequence[str] = (),
    write_more: Callable[[Analysis], None] | None = None,
) -> Analysis:
    """Write every table and figure that the runs have data for.

    Args:
        runs: run directories or token tables by label; the first is the base that the others are held against.
        parameters: margin, bandwidth and gamma; the paper's where not given.
        objectives: names of others beside the paper's and AutoTrim; one's own are loaded.
        write_more: adds to it, such as `write_paper_tables` of `trimsft.study.paper_tables`.
    """
    values, read = checked_parameters(parameters or {}), read_runs(runs)
    weighing = {
        name: objective_of(name, values) for name in dict.fromkeys([*PAPER_OBJECTIVES, *objectives, "auto-trim"])
    }
    analysis = Analysis(Path(out), read)
    trained = {run.label: run.objective for run in read}
    if analysis.tables:
        _write_tokens(analysis, weighing, {name: values[name] for name in ("margin", "bandwidth")}, trained)
    if metrics := _repeated_samples(read):
        analysis.draw(score_dots(metrics, trained), "sampling")
    if write_more is not None:
        write_more(analysis)
    return analysis


def _write_tokens(
    analysis: Analysis, weighing: Mapping[str, Objective], band: Band, trained: Mapping[str, str | None]
) -> None:
    """Write what token tables tell."""
    tables = analysis.tables
    base = next(iter(tables))
    side_by_side = token_records(tables, weighing, band)
    if others := ", ".join(analysis.incomparable):
        note = f"Of other tokens than {base}, or after other prompts, so not to be compared with it: {others}."
        side_by_side = [replace(each, notes=[*each.notes, note]) for each in side_by_side]
    analysis.write(*side_by_side)
    analysis.draw(figures.gap_distribution(tables, **band, objectives=trained), "gap_distribution")
    shown = {name: weighing[name] for name in ("sft", "dft", "trim", "auto-trim")}
    analysis.draw(figures.gradient_by_gap(base, tables[base], shown), "gradient_by_gap")
    analysis.draw(figures.effective_ratio_map(tables[base], **band), "effective_ratio")


def _repeated_samples(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, figures.Spread]]]:
    """Return metric -> benchmark -> run -> interval in percent: Figure 2, for as many samples as a run has."""
    metrics: dict[str, dict[str, dict[str, figures.Spread]]] = {}
    for kind in ("average", "pass", "majority"):
        for benchmark in in_order({name for run in runs for name in run.scores}):
            for run in runs:
                samples = run.scores[benchmark].samples if benchmark in run.scores else 0
                metric = "average" if kind == "average" else f"{kind}@{samples}"
                if interval := run.interval_percent(benchmark, metric):
                    panel = metrics.setdefault(f"{kind}@{samples}, %", {})
                    panel.setdefault(benchmark, {})[run.label] = (interval.value, interval.low, interval.high)
    return metrics


# ---- tables of tokens


def row_of(first: Mapping[str, Value], statistic: Any) -> dict[str, Value]:
    """Return the fields of a statistic as columns; percentages lose their suffix, for the notes name the unit."""
    row = dict(first)
    for name, value in asdict(statistic).items():
        stem = name.removesuffix("_percent")
        if isinstance(value, dict):
            row |= {f"{stem}_{key}".removeprefix("regions_"): one for key, one in value.items()}
        elif not isinstance(value, tuple | bool):
            row[stem] = value
    return row


def confidences(tables: Tables, band: Band) -> Records:
    """Return how well each run knows the tokens."""
    rows = [row_of({"run": label}, confidence(table, **band)) for label, table in tables.items()]
    note = f"Percent of tokens by gap, {_text(band)}."
    return Records("confidence", "How well each run knows the tokens", rows, [note], _DIGITS)


def token_records(tables: Tables, weighing: Mapping[str, Objective], band: Band) -> list[Records]:
    """Return the tables that show runs side by side."""
    weights = [
        row_of({"run": label, "objective": name}, diagnose(table, objective, **band))
        for label, table in tables.items()
        for name, objective in weighing.items()
    ]
    note = f"What each objective would make of each run's tokens; {_text(band)}. Shares in percent."
    records = [
        confidences(tables, band),
        Records("objectives", "Weights and gradient mass of every objective", weights, [note], _DIGITS),
    ]
    note = f"Weight and masses of TrimSFT, {_text(band)}; middle is the percent of a group's tokens within the band."
    rows: list[dict[str, Value]] = [
        {"run": label, "category": name, **{column.removesuffix("_percent"): one.value for column, one in kind.items()}}
        for label, table in tables.items()
        for name, kind in category_intervals(table, Setting(**band)).items()
    ]
    records.append(Records("categories_by_run", "Token categories of every run", rows, [note], _DIGITS))
    return records


def _text(band: Band) -> str:
    return f"margin {band['margin']:g} ± bandwidth {band['bandwidth']:g}"
