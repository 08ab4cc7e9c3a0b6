"""The rest of the page: curves of gaps and trainings, suspects of an audit, what was run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trimsft.audit.run import AuditFolder, Suspect
from trimsft.data.visible import visible
from trimsft.objectives import Objective
from trimsft.report.colours import lines_of
from trimsft.report.comparison import flat
from trimsft.report.run_tables import confidence_table, weights_table
from trimsft.report.runs import Run
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.runs.secrets import without_folders
from trimsft.tables import Table
from trimsft.tokens.statistics import density, range_of
from trimsft.tokens.table import TokenTable, incomparable

FINEST = 300  # points of a line
ENDS = 5  # logged steps at each end of a training that speak for it


def line_styles(runs: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Return colour and dashes of each run's line, as in every figure."""
    lines = lines_of([run.label for run in runs], {run.label: run.objective for run in runs})
    return {
        visible(label): (
            f"light-dark({line.colour}, {line.dark})",
            " ".join(f"{2 * length:g}" for length in line.dashes) or "none",
        )
        for label, line in lines.items()
    }


def gap_charts(tables: Mapping[str, TokenTable]) -> list[dict[str, Any]]:
    """Return the densities of the gaps of each run's tokens."""
    if not tables:
        return []
    gaps = {visible(label): table["gap"] for label, table in tables.items()}
    grid = np.linspace(*range_of(list(gaps.values())), 121)
    lines = {}
    for label, values in gaps.items():
        lines[label] = np.stack([grid, density(values, grid)], axis=1).round(5).tolist()
    return [{"title": "Density of the logit gaps", "x": "logit gap", "lines": lines}]


def token_tables(
    tables: Mapping[str, TokenTable], base: str, weighing: Mapping[str, Objective], band: Mapping[str, float]
) -> dict[str, Table]:
    """Return how well each run knows the tokens, and what each objective makes of those of the base."""
    weights = weights_table({base: tables[base]}, weighing, band)
    of_base = tuple(cells[1:] for cells in weights.rows)
    weights = replace(weights, title=f"Weights on all tokens of {base}", header=weights.header[1:], rows=of_base)
    return {"confidence": confidence_table(tables, band), "weights": weights}


def training_charts(courses: Mapping[str, Sequence[TelemetryLine]]) -> list[dict[str, Any]]:
    """Return a chart for each field of the telemetry that is shown, over the steps of the trainings."""
    charts = []
    for field, title in figures_of(TelemetryLine, "page").items():
        lines = {}
        for label, course in courses.items():
            values = [(one.step, getattr(one, field)) for one in course[:: -(-len(course) // FINEST) or 1]]
            points = [[step, round(value, 6)] for step, value in values if value is not None and math.isfinite(value)]
            if points:
                lines[visible(label)] = points
        if lines:
            charts.append({"title": title, "x": "step", "lines": lines})
    return charts


def log_headline(courses: Mapping[str, Sequence[TelemetryLine]]) -> str:
    """Return what the first training log says of the model in its first and its last steps."""
    for label, course in courses.items():
        known = [1 - one.mean_token_accuracy for one in course if one.mean_token_accuracy is not None]
        if known:
            first, last = (100 * sum(part) / len(part) for part in (known[:ENDS], known[-ENDS:]))
            steps = f"(its training log, {min(ENDS, len(known))} steps at each end)"
            return visible(
                f"{label} would at first have written {first:.1f} % of its training tokens differently, "
                f"and {last:.1f} % in the end {steps}."
            )
    return ""


def audit_parts(runs: Sequence[Run]) -> dict[str, list[Suspect]]:
    """Return the suspects of each folder that holds an audit."""
    folders = {run.label: AuditFolder(run.folder) for run in runs if run.folder.is_dir()}
    return {label: folder.read_suspects() for label, folder in folders.items() if folder.suspects_path.is_file()}


def facts_of(settings: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, str]:
    """Return what the page was made from: settings, versions, commands, the place of each run."""
    facts = flat(settings)
    versions: dict[str, Any] = {}
    for run in runs:
        evaluated = [run.settings(name).get("details") for name in run.scores]
        for known in (run.manifest, *evaluated, run.table.metadata if run.table else None):
            if isinstance(known, Mapping) and isinstance(known.get("versions"), Mapping):
                versions |= {name: one for name, one in known["versions"].items() if one}
    if versions:
        facts.setdefault("versions", ", ".join(f"{name} {value}" for name, value in versions.items()))
    commands: dict[str, list[str]] = {}
    for run in runs:
        if command := run.manifest.get("command"):
            commands.setdefault(str(command), []).append(run.label)
    facts |= {f"command of {', '.join(labels)}": command for command, labels in commands.items()}
    kept = ("model", "data.rows", "template", "system_prompt", "max_length")
    for run in runs:
        how = flat(run.table.metadata) if run.table else {}
        tokens = ", ".join(f"{name} {how[name]}" for name in kept if how.get(name, "None") != "None")
        facts[f"run {run.label}"] = f"{run.folder}{'; tokens: ' if tokens else ''}{tokens}"
    return {name: without_folders(value) for name, value in facts.items() if value.strip()}


def warnings_of(runs: Sequence[Run]) -> list[str]:
    """Say whose rows were cut, and whose tables do not compare with the first one."""
    tables = {run.label: run.table for run in runs if run.table}
    sentences = []
    for label, table in tables.items():
        cut = table.metadata.get("cut") or {}
        rows, tokens, lost = (int(cut.get(name) or 0) for name in ("rows_cut", "tokens_cut", "rows_lost"))
        if rows or lost:
            whole = f", {lost:,} of them with the whole solution" if lost else ""
            sentences.append(f"{label}: {rows:,} rows were cut by {tokens:,} tokens{whole}, at max_length.")
    return [*sentences, *map(str, incomparable(tables).values())]
