"""Tables and figures beside the page (`trimsft report --figures`), from the files of the runs alone.

write_analysis(Path("report"), {"Base": Path("runs/base"), "TrimSFT": Path("runs/trim")})

report/tables/README.md             what there is, what cannot be compared, what was left out and why
report/tables/<name>.md, .csv       for reading, for computing; shares are in percent, as the paper prints them
report/figures/<name>.svg, .pdf, .png, .csv
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trimsft.objectives import PARAMETERS, AutoTrim, Objective
from trimsft.options import unknown_name
from trimsft.report import figures
from trimsft.report.runs import Run, checked_parameters, read_runs
from trimsft.report.score_figures import ablation_curves, score_dots
from trimsft.report.score_tables import in_order
from trimsft.report.sweep import read_sweep
from trimsft.runs.files import write_whole
from trimsft.tables import Records, Value, escape_markdown
from trimsft.tokens.statistics import (
    QUANTILES,
    REGIONS,
    Regions,
    by_category,
    by_tenth,
    confidence,
    diagnose,
    ending,
    movement,
    objectives_of,
)
from trimsft.tokens.table import TokenTable, incomparable

Tables = Mapping[str, TokenTable]
Band = Mapping[str, float]
"""The margin and the bandwidth."""
_DIGITS = {"mean_nll": 3, "mean_weight": 3, "mean_entropy": 3, "r_eff": 3}


@dataclass
class Analysis:
    """The runs that are analysed, and what has been written of them so far, for the index."""

    out: Path
    runs: list[Run]
    records: list[Records] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tables = {run.label: run.table for run in self.runs if run.table}  # and it is not empty
        self.incomparable = {label: str(error) for label, error in incomparable(self.tables).items()}

    def write(self, *records: Records | None) -> None:
        for one in filter(None, records):
            self.files += one.write(self.out / "tables")
            self.records.append(one)

    def draw(self, drawing: figures.Drawing, name: str) -> None:
        self.files += drawing.save(self.out / "figures" / f"{name}.svg")


def write_analysis(
    out: Path,
    runs: Mapping[str, Path],
    *,
    parameters: Mapping[str, float] | None = None,
    objectives: Sequence[str] = (),
    sweep: Path | None = None,
    write_more: Callable[[Analysis], None] | None = None,
) -> Analysis:
    """Write every table and figure that the runs have data for.

    Args:
        runs: run directories or token tables by label; the first is the base that the others are held against.
        parameters: margin, bandwidth and gamma; the paper's where not given.
        objectives: names of others beside the paper's and AutoTrim; one's own are loaded.
        sweep: a sweep.json, or the folder of one, for Figure 3.
        write_more: adds to it, such as `write_paper_tables` of `trimsft.study.paper_tables`.
    """
    for name in parameters or {}:
        if name not in PARAMETERS:
            raise unknown_name("parameters", name, tuple(PARAMETERS))
    values, read = checked_parameters(parameters or {}), read_runs(runs)
    weighing = {**objectives_of(values, objectives), "auto-trim": AutoTrim()}
    planes = {} if sweep is None else _planes(sweep)
    analysis = Analysis(Path(out), read)
    analysis.left_out += [
        f"{run.label} has {'no' if run.table is None else 'an empty'} tokens.parquet." for run in read if not run.table
    ]
    analysis.left_out += [f"{run.label} has no scores." for run in read if not run.scores]
    trained = {run.label: run.objective for run in read}
    if analysis.tables:
        _write_tokens(analysis, weighing, {name: values[name] for name in ("margin", "bandwidth")}, trained)
    if courses := {run.label: run.course for run in read if run.course}:
        analysis.draw(figures.training_curves(courses, trained), "training")
    if metrics := _repeated_samples(read):
        analysis.draw(score_dots(metrics, trained), "sampling")
    for name, drawing in planes.items():
        analysis.draw(drawing, name)
    if sweep is not None and not planes:
        analysis.left_out.append("Figure 3: the sweep has one setting alone.")
    if write_more is not None:
        write_more(analysis)
    analysis.files.append(_write_index(analysis, values))
    return analysis


def _write_tokens(
    analysis: Analysis, weighing: Mapping[str, Objective], band: Band, trained: Mapping[str, str | None]
) -> None:
    """Write what token tables tell, and how training moved the tokens of the first run."""
    tables = analysis.tables
    base = next(iter(tables))
    side_by_side = [
        confidences(tables, band),
        objectives_table(tables, weighing, band),
        *groups(tables, band),
        endings(tables, weighing),
    ]
    if others := ", ".join(analysis.incomparable):
        note = f"Of other tokens than {base}, or after other prompts, so not to be compared with it: {others}."
        side_by_side = [each and replace(each, notes=[*each.notes, note]) for each in side_by_side]
    analysis.write(*side_by_side)
    same = {label: table for label, table in tables.items() if label not in analysis.incomparable}
    if len(same) > 1:
        analysis.write(movements(base, same, band))
    for label in analysis.incomparable:
        analysis.left_out.append(f"Movement to {label}: its table cannot be compared with that of {base}.")
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


def _planes(sweep: Path) -> dict[str, figures.Drawing]:
    """Return Figure 3 by the name of its file, for each objective that was tried with several settings."""
    read = read_sweep(Path(sweep))
    planes: dict[str, dict[tuple[float, float], figures.Spread]] = {}
    for point in read.points:
        spread = (100 * point.value, 100 * point.low, 100 * point.high)
        planes.setdefault(point.objective, {})[point.margin, point.bandwidth] = spread
    baseline = None if read.baseline is None else 100 * read.baseline.value
    return {
        "ablation" if len(planes) == 1 else f"ablation-{objective}": ablation_curves(
            scores, baseline=baseline, metric=f"{read.metric}, %"
        )
        for objective, scores in planes.items()
        if len(scores) > 1
    }


def _write_index(analysis: Analysis, parameters: Mapping[str, float]) -> Path:
    settings = ", ".join(f"{name} {value:g}" for name, value in parameters.items())
    labels = escape_markdown(", ".join(run.label for run in analysis.runs))
    drawn = [path.stem for path in analysis.files if path.parent.name == "figures" and path.suffix == ".csv"]
    parts = {
        "Tables": [
            f"[{escape_markdown(one.title)}]({one.name}.md) ([CSV]({one.name}.csv))" for one in analysis.records
        ],
        "Figures": [
            f"[{name.replace('_', ' ')}](../figures/{name}.png) ([CSV](../figures/{name}.csv))" for name in drawn
        ],
        "Not comparable": list(map(escape_markdown, analysis.incomparable.values())),
        "Left out": list(map(escape_markdown, analysis.left_out)),
    }
    lines = ["# Analysis", "", f"Runs: {labels}. TrimSFT at {settings}, but where a table or figure names its own."]
    for heading, entries in parts.items():
        if entries:
            lines += ["", f"## {heading}", "", *(f"- {entry}" for entry in entries)]
    return write_whole(analysis.out / "tables" / "README.md", ("\n".join(lines) + "\n").encode())


# ---- tables of tokens


def confidences(tables: Tables, band: Band) -> Records:
    """Return how well each run knows the tokens."""
    rows: list[dict[str, Value]] = []
    for label, table in tables.items():
        sure = confidence(table, **band)
        row: dict[str, Value] = {"run": label, "tokens": sure.tokens, "mean_nll": sure.mean_nll}
        row |= {"median_gap": sure.median_gap, "first_choice": sure.first_choice_percent}
        rows.append(row | {"mean_entropy": sure.mean_entropy} | _by_region(sure.regions_percent))
    note = f"Percent of tokens by gap, {_text(band)}."
    return Records("confidence", "How well each run knows the tokens", rows, [note], _DIGITS)


def objectives_table(tables: Tables, weighing: Mapping[str, Objective], band: Band) -> Records:
    """Return what each objective would make of each run's tokens."""
    rows: list[dict[str, Value]] = []
    for label, table in tables.items():
        for name, objective in weighing.items():
            weighed = diagnose(table, objective, **band)
            row: dict[str, Value] = {"run": label, "objective": name, "mean_weight": weighed.mean_weight}
            row |= {"high_weight": weighed.high_weight_percent, "r_eff": weighed.effective_ratio}
            rows.append(row | _by_region(weighed.mass_percent, "mass_"))
    note = f"What each objective would make of each run's tokens; {_text(band)}. Shares in percent."
    return Records("objectives", "Weights and gradient mass of every objective", rows, [note], _DIGITS)


def groups(tables: Tables, band: Band) -> list[Records]:
    """Return the tables by category and by tenth of the solution."""
    kinds = {
        "categories_by_run": ("Token categories of every run", by_category),
        "positions": ("Along the solution", by_tenth),
    }
    note = f"Weight and masses of TrimSFT, {_text(band)}; middle is the percent of a group's tokens within the band."
    percents = ("middle_percent", "sft_mass_percent", "trim_mass_percent")
    fields = ("tokens", "ratio_percent", "mean_nll", "mean_weight", *percents)
    records = []
    for name, (title, group_tokens) in kinds.items():
        rows: list[dict[str, Value]] = [
            {"run": label, "group": group.name} | {one.removesuffix("_percent"): getattr(group, one) for one in fields}
            for label, table in tables.items()
            for group in group_tokens(table, **band)
        ]
        records.append(Records(name, title, rows, [note], _DIGITS))
    return records


def movements(base: str, tables: Tables, band: Band) -> Records:
    """Return where the tokens of the base moved in each other table."""
    ways = [f"{was}_to_{now}" for was in REGIONS for now in REGIONS]
    rows: list[dict[str, Value]] = []
    for label, after in tables.items():
        if label == base:
            continue
        moved = movement(tables[base], after, **band)
        row: dict[str, Value] = {"run": label, **dict(zip(ways, moved.moved_percent.ravel().tolist(), strict=True))}
        row |= {"became_first": moved.became_first_percent, "ceased_first": moved.ceased_first_percent}
        row |= {"nll_change": moved.mean_nll_change, "gap_change": moved.mean_gap_change}
        rows.append(row | {f"gap_change_p{quantile}": moved.gap_change[quantile] for quantile in QUANTILES})
    note = f"From {base} to each run, percent of tokens by gap, {_text(band)}; then changes of nll and gap."
    return Records("movement", "Where tokens moved", rows, [note], {"nll_change": 3})


def endings(tables: Tables, weighing: Mapping[str, Objective]) -> Records | None:
    """Return how sure each model is of eos, and what each objective makes of it; None where no solution ends."""
    rows: list[dict[str, Value]] = []
    guessed = []
    for label, table in tables.items():
        end = ending(table, weighing)
        if end is None:
            continue
        guessed += [] if end.known else [label]
        row: dict[str, Value] = {"run": label, "examples": end.examples, "ended": end.ended}
        row |= {"mean_nll": end.mean_nll, "median_gap": end.median_gap, "median_rank": end.median_rank}
        row |= {"first_choice": end.first_choice_percent, "share_of_tokens": end.tokens_percent}
        row |= {f"weight_{name}": end.mean_weight[name] for name in weighing}
        rows.append(row | {f"mass_{name}": end.mass_percent[name] for name in weighing})
    if not rows:
        return None
    notes = ["The eos of every solution that has one: mean weight, and percent of all gradient mass, by objective."]
    if guessed:
        notes.append(f"Not named in the table, so the last token is taken for eos: {', '.join(guessed)}.")
    return Records("endings", "How solutions end", rows, notes, {**_DIGITS, "median_rank": 1, "weight": 3})


def _by_region(regions: Regions, before: str = "") -> dict[str, Value]:
    return {f"{before}{name}": getattr(regions, name) for name in REGIONS}


def _text(band: Band) -> str:
    return f"margin {band['margin']:g} ± bandwidth {band['bandwidth']:g}"
