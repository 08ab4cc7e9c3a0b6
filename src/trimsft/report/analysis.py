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

from trimsft.errors import RunError
from trimsft.objectives import OBJECTIVES, PARAMETERS
from trimsft.report.figures import analysis as result_figures
from trimsft.report.figures import weighting_functions
from trimsft.report.figures.style import PRINT_FORMATS
from trimsft.report.page.sources import Run, read_run
from trimsft.report.page.sweep import Sweep, read_sweep
from trimsft.report.tables import paper as paper_tables
from trimsft.report.tables import runs as run_tables
from trimsft.report.tables.files import Result, escaped, write_result
from trimsft.runs.files import write_whole
from trimsft.tokens.statistics.calibration import calibration
from trimsft.tokens.statistics.groups import by_tenth
from trimsft.tokens.statistics.movement import Movement, movement
from trimsft.tokens.statistics.weighting import objective_of
from trimsft.tokens.table import TokenTable, same_tokens


@dataclass
class _Written:
    """What has been written so far, for the index."""

    out: Path
    results: list[Result] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    incomparable: Mapping[str, str] = field(default_factory=dict)

    def table(self, *results: Result | None) -> None:
        for result in results:
            if result is not None:
                self.files += write_result(self.out / "tables", result)
                self.results.append(result)

    def figure(self, files: Sequence[Path]) -> None:
        self.files += files


def write_analysis(
    out: Path,
    runs: Mapping[str, Path],
    *,
    parameters: Mapping[str, float] | None = None,
    sweep: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> list[Path]:
    """Every table and figure that the runs have data for; returns the files written.

    A run is a run directory or the path of a token table; the first is the base that the others are held against.

    Args:
        parameters: margin, bandwidth and gamma; the paper's where not given.
        sweep: a sweep.json, or the folder of one, for Figure 3.
        warn: called with each reason why tables cannot be compared; the index has them in any case.
    """
    values = _checked(runs, parameters)
    swept = None if sweep is None else read_sweep(Path(sweep))
    band = {name: values[name] for name in ("margin", "bandwidth")}
    read = {label: read_run(label, Path(path)) for label, path in runs.items()}
    tables = {label: run.table for label, run in read.items() if run.table is not None}
    written = _Written(Path(out), incomparable=comparability(tables))
    if warn is not None:
        for reason in written.incomparable.values():
            warn(reason)
    written.left_out += [f"{label} has no tokens.parquet." for label in read if label not in tables]
    written.left_out += [f"{label} has no scores." for label, run in read.items() if not run.scores]
    written.figure(weighting_functions(_figure(written, "weighting_functions"), column=True, formats=PRINT_FORMATS))
    if tables:
        _paper(written, tables, band)
        _each_run(written, tables, values, band)
        _training(written, tables, band)
    _scores(written, read)
    if swept is not None:
        _sweep(written, swept)
    written.table(paper_tables.disagreements())
    index = _index(written, read, values)
    return [*written.files, write_whole(written.out / "tables" / "README.md", index.encode())]


def comparability(tables: Mapping[str, TokenTable]) -> dict[str, str]:
    """Why a table cannot be compared with the first one, by label; those that can are not among them."""
    reasons = {}
    first = next(iter(tables), None)
    for label in tables:
        try:
            same_tokens({name: tables[name] for name in (first, label) if name is not None})
        except RunError as error:
            reasons[label] = str(error)
    return reasons


def _checked(runs: Mapping[str, Path], parameters: Mapping[str, float] | None) -> dict[str, float]:
    if not runs:
        raise ValueError("runs: there are none; give at least one run directory or token table")
    unknown = [name for name in parameters or {} if name not in PARAMETERS]
    if unknown:
        raise ValueError(f"parameters: unknown name {unknown[0]!r}; known: {', '.join(PARAMETERS)}")
    for name in OBJECTIVES:
        objective_of(name, parameters)  # refuses values that make no sense, before anything is written
    return {**PARAMETERS, **(parameters or {})}


def _paper(written: _Written, tables: Mapping[str, TokenTable], band: Mapping[str, float]) -> None:
    """The paper's tables and figures of tokens, on the first run."""
    label, table = next(iter(tables.items()))
    examples = table.metadata.get("data", {}).get("rows", "unknown")
    model = "/".join(Path(table.metadata.get("model", "unknown model")).parts[-2:])  # of a folder, what tells it apart
    about = f"{label} ({model}), {len(table):,} tokens of {examples} examples."
    for made in (paper_tables.weights, paper_tables.masses, paper_tables.categories):
        written.table(made(table, about))
    written.figure(result_figures.gaps(tables, band, _figure(written, "gap_distribution")))
    written.figure(result_figures.categories(table, _figure(written, "categories")))
    written.figure(result_figures.effective_ratios(table, band, _figure(written, "effective_ratio")))


def _each_run(
    written: _Written,
    tables: Mapping[str, TokenTable],
    values: Mapping[str, float],
    band: Mapping[str, float],
) -> None:
    first = next(iter(tables))
    tenths = {label: by_tenth(table, **band) for label, table in tables.items()}
    calibrated = {label: calibration(table) for label, table in tables.items()}
    side_by_side = [
        run_tables.confidences(tables, band),
        run_tables.objectives(tables, values, band),
        *run_tables.groups(tables, tenths, band),
        run_tables.calibrations(tables, calibrated),
        run_tables.endings(tables, values),
    ]
    if others := ", ".join(written.incomparable):
        note = f"Of other tokens than {first}, or after other prompts, so not to be compared with it: {others}."
        side_by_side = [each and replace(each, notes=[*each.notes, note]) for each in side_by_side]
    written.table(*side_by_side, run_tables.examples(first, tables[first], values))
    written.figure(result_figures.reliability(calibrated, _figure(written, "reliability")))
    written.figure(result_figures.positions(tenths, _figure(written, "positions")))


def _training(written: _Written, tables: Mapping[str, TokenTable], band: Mapping[str, float]) -> None:
    """Before against after: the first run with each other one on the same tokens."""
    (base, before), *others = tables.items()
    moved: dict[str, Movement] = {}
    for label, after in others:
        if label not in written.incomparable:
            moved[label] = movement(before, after, **band)
        else:
            written.left_out.append(f"Movement to {label}: its table cannot be compared with that of {base}.")
    if moved:
        written.table(run_tables.movements(base, moved, band))
        written.figure(result_figures.movements(base, moved, _figure(written, "movement")))
    elif not others:
        written.left_out.append("Movement: one token table alone has no before and after.")


def _scores(written: _Written, runs: Mapping[str, Run]) -> None:
    scored = {label: run for label, run in runs.items() if run.scores}
    names = [str(run.table.metadata.get("model", "")) for run in runs.values() if run.table is not None]
    names += [_trained_from(run) for run in runs.values()]
    model = next(filter(None, map(paper_tables.paper_model, names)), None)
    written.table(paper_tables.scores(scored, model))
    written.figure(result_figures.sampling(scored, _figure(written, "sampling")))


def _trained_from(run: Run) -> str:
    """The model that its manifest names."""
    model = run.manifest.get("model", "")
    return str(model.get("name", "") if isinstance(model, dict) else model)


def _sweep(written: _Written, sweep: Sweep) -> None:
    drawn = result_figures.ablation(sweep, _figure(written, "ablation"))
    written.figure(drawn)
    if not drawn:
        written.left_out.append("Figure 3: the sweep has one setting alone.")


def _figure(written: _Written, name: str) -> Path:
    return written.out / "figures" / f"{name}.svg"


def _index(written: _Written, runs: Mapping[str, Run], values: Mapping[str, float]) -> str:
    settings = ", ".join(f"{name} {value:g}" for name, value in values.items())
    lines = [
        "# Analysis",
        "",
        f"Runs: {escaped(', '.join(runs))}. TrimSFT at {settings}, but where a table or figure names its own.",
        "",
        "## Tables",
        "",
    ]
    lines += [f"- [{escaped(result.title)}]({result.name}.md) ([CSV]({result.name}.csv))" for result in written.results]
    drawn = [path.stem for path in written.files if path.suffix == ".png"]
    lines += ["", "## Figures", ""]
    lines += [f"- [{name.replace('_', ' ')}](../figures/{name}.png) ([CSV](../figures/{name}.csv))" for name in drawn]
    if written.incomparable:
        lines += ["", "## Not comparable", ""]
        lines += [f"- {escaped(reason)}" for reason in written.incomparable.values()]
    if written.left_out:
        lines += ["", "## Left out", "", *(f"- {escaped(line)}" for line in written.left_out)]
    return "\n".join(lines) + "\n"
