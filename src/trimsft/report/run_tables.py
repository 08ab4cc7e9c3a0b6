"""Tables of tokens, and what `trimsft report --figures` writes beside the page.

write_analysis(Path("report"), read_runs({"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")}))

report/tables/<name>.md, .csv       to read, to compute with; shares are in percent
report/figures/<name>.svg, .pdf, .png, .csv
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from trimsft.objectives import PAPER_OBJECTIVES, Objective
from trimsft.report import figures
from trimsft.report.runs import Run, checked_parameters
from trimsft.report.score_tables import in_order
from trimsft.runs.files import write_whole
from trimsft.tables import Cell, Table, Value, rounded, to_csv, to_markdown
from trimsft.tokens.statistics import confidence, diagnose, objective_of
from trimsft.tokens.table import TokenTable, incomparable

Tables = Mapping[str, TokenTable]
Band = Mapping[str, float]
"""The margin and the bandwidth."""
_IN_BAND = ("below the band, %", "in it, %", "above it, %")
_THREE_DIGITS = {"mean_nll", "mean_nll_change", "mean_weight", "mean_entropy", "effective_ratio"}  # others have two


def write_analysis(
    out: Path, runs: Sequence[Run], *, parameters: Mapping[str, float] | None = None, objectives: Sequence[str] = ()
) -> list[Path]:
    """Write every table and figure that the runs have data for; return the files.

    Args:
        runs: the first with a token table is the base that the others are held against.
        parameters: margin, bandwidth and gamma; the paper's where not given.
        objectives: names of others beside the paper's and AutoTrim; one's own are loaded.
    """
    values = checked_parameters(parameters or {})
    names = dict.fromkeys([*PAPER_OBJECTIVES, *objectives, "auto-trim"])
    weighing = {name: objective_of(name, values) for name in names}
    trained = {run.label: run.objective for run in runs}
    tables = {run.label: run.table for run in runs if run.table}  # and it is not empty
    written: dict[str, Table] = {}
    drawn: dict[str, figures.Drawing] = {}
    if tables:
        band = {name: values[name] for name in ("margin", "bandwidth")}
        written = token_tables(tables, weighing, band)
        drawn["gap_distribution"] = figures.gap_distribution(tables, **band, objectives=trained)
    if metrics := _repeated_samples(runs):
        drawn["sampling"] = figures.score_dots(metrics, trained)
    files = []
    for name, made in written.items():
        files.append(write_whole(out / "tables" / f"{name}.md", to_markdown(made).encode()))
        files.append(write_whole(out / "tables" / f"{name}.csv", to_csv(made).encode()))
    for name, drawing in drawn.items():
        files += drawing.save(out / "figures" / f"{name}.svg")
    return files


def _repeated_samples(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, figures.Spread]]]:
    """Return metric -> benchmark -> run -> interval in percent, for as many samples as a run has."""
    metrics: dict[str, dict[str, dict[str, figures.Spread]]] = {}
    for kind in ("average", "pass", "majority"):
        for benchmark in in_order({name for run in runs for name in run.scores}):
            for run in runs:
                if benchmark in run.scores and (samples := run.scores[benchmark].samples):
                    metric = "average" if kind == "average" else f"{kind}@{samples}"
                    panel = metrics.setdefault(f"{kind}@{samples}, %", {}).setdefault(benchmark, {})
                    panel[run.label] = figures.spread_percent(run.scores[benchmark].interval(metric))
    return metrics


# ---- tables of tokens


def token_tables(tables: Tables, weighing: Mapping[str, Objective], band: Band) -> dict[str, Table]:
    """Return by name the tables that show runs side by side."""
    shown = {"confidence": confidence_table(tables, band), "objectives": weights_table(tables, weighing, band)}
    if others := incomparable(tables):
        note = f"Of other tokens than {next(iter(tables))}, or after other prompts, so not to be compared with it: "
        shown = {name: replace(one, notes=(f"{note}{', '.join(others)}.",)) for name, one in shown.items()}
    return shown


def confidence_table(tables: Tables, band: Band) -> Table:
    """Return how well each run knows the tokens."""
    rows = [row_of({"run": run}, confidence(table, **band)) for run, table in tables.items()]
    header = ("run", "tokens", "mean nll", "median gap", "first choice, %", "mean entropy", *_IN_BAND)
    return table_of(f"How well each model knows the tokens; the band is {band_text(band)}", rows, header)


def weights_table(tables: Tables, weighing: Mapping[str, Objective], band: Band) -> Table:
    """Return what each objective makes of each run's tokens."""
    rows = [
        row_of({"run": run, "objective": name}, diagnose(table, objective, **band))
        for run, table in tables.items()
        for name, objective in weighing.items()
    ]
    header = ("run", "objective", "mean weight", "R_eff", "tokens with weight over ½, %")
    title = f"Weights on the tokens of every run; {band_text(band)}"
    return table_of(title, rows, (*header, *(f"gradient {region}" for region in _IN_BAND)))


def row_of(first: Mapping[str, Value], statistic: Any) -> dict[str, Value]:
    """Return the fields of a statistic as columns; percentages lose their suffix."""
    row = dict(first)
    for name, value in asdict(statistic).items():
        stem = name.removesuffix("_percent")
        if isinstance(value, dict):
            row |= {f"{stem}_{key}".removeprefix("regions_"): one for key, one in value.items()}
        else:
            row[stem] = value
    return row


def table_of(title: str, rows: Sequence[Mapping[str, Value]], header: Iterable[str] = ()) -> Table:
    """Return rows with the same columns as a table; without a header their names are it."""

    def cell(column: str, value: Value) -> Cell:
        if not isinstance(value, int | float):
            return Cell(value or "")
        text = f"{value:,}" if isinstance(value, int) else rounded(value, 3 if column in _THREE_DIGITS else 2, ",")
        return Cell(text, data=value)

    cells = tuple(tuple(cell(name, value) for name, value in row.items()) for row in rows)
    names = tuple(number for number, value in enumerate(rows[0].values()) if isinstance(value, str))
    columns = tuple(header) or tuple(name.replace("_", " ") for name in rows[0])
    return Table(title, columns, cells, left=names)


def band_text(band: Band) -> str:
    return f"margin {band['margin']:g} ± bandwidth {band['bandwidth']:g}"
