"""The rest of the page: curves of gaps and trainings, a sweep, suspects of an audit, what the page was made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trimsft.audit.run import AuditFolder
from trimsft.data.visible import shortened, visible
from trimsft.objectives import display_name
from trimsft.report.colours import lines_of
from trimsft.report.comparison import flat
from trimsft.report.runs import Run
from trimsft.report.sweep import read_sweep
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.runs.secrets import without_folders
from trimsft.tokens.statistics import density, range_of
from trimsft.tokens.table import incomparable

MOST = 200  # suspects of a folder that are shown
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


def gap_charts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the densities of the gaps of each run's tokens."""
    gaps = {visible(run.label): run.table["gap"] for run in runs if run.table}
    if not gaps:
        return []
    grid = np.linspace(*range_of(list(gaps.values())), 121)
    lines = {label: np.stack([grid, density(values, grid)], axis=1).round(5).tolist() for label, values in gaps.items()}
    return [{"title": "Density of the logit gaps", "x": "logit gap", "y": "", "lines": lines}]


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
            charts.append({"title": title, "x": "step", "y": "", "lines": lines})
    return charts


def temperature_charts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the chart of right answers over the temperature."""
    lines = {row["label"]: [[at, round(value, 2)] for at, value, *_ in row["curve"]] for row in rows if row["curve"]}
    title = "Right answers over the temperature (0: greedy)"
    return [{"title": title, "x": "temperature", "y": "percent", "lines": lines}] if lines else []


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


def sweep_parts(path: Path | None) -> dict[str, Any] | None:
    """Return what the template shows of a sweep: the chosen and the highest setting, and a table per objective."""
    if path is None:
        return None
    sweep = read_sweep(path)
    best = max(sweep.points, key=lambda point: point.value)
    lowest = min(point.value for point in sweep.points)
    alike = [point for point in sweep.points if point.value >= best.low and point is not best]
    chosen = None
    if choice := sweep.selection:
        setting = (choice.objective, choice.margin, choice.bandwidth)
        chosen = next((point for point in sweep.points if point.setting == setting), None)
    tables = []
    for name in dict.fromkeys(point.objective for point in sweep.points):
        cells = {(point.margin, point.bandwidth): point for point in sweep.points if point.objective == name}
        margins = sorted({margin for margin, _ in cells if margin is not None})
        widths = sorted({width for _, width in cells if width is not None}, reverse=True)
        rows = [(width, [cells.get((margin, width)) for margin in margins]) for width in widths]
        tables.append({"name": display_name(name), "margins": margins, "rows": rows})
    return {
        "sweep": sweep,
        "chosen": chosen,
        # where every other setting may be as good, none is the highest
        "best": best if len(alike) < len(sweep.points) - 1 else None,
        "alike": len(alike),
        "tables": tables,
        "depth": lambda point: round(60 * (point.value - lowest) / (best.value - lowest or 1)),
        "names": display_name,
    }


def audit_parts(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the suspects of each folder that holds an audit."""
    audits = []
    for run in runs:
        folder = AuditFolder(run.folder)
        if not run.folder.is_dir() or not folder.suspects_path.is_file():
            continue
        suspects = folder.read_suspects()
        shown = [
            {name: visible(getattr(one, name)) for name in ("place", "left", "right")}
            | {"row": one.row, "text": shortened(one.text, visible) or "(end)", "problem": visible(one.problem[:300])}
            | {"expected": shortened(one.expected, visible)}
            | {"gap_before": one.gap_before, "gap_after": one.gap_after, "score": one.score}
            for one in suspects[:MOST]
        ]
        counts = {"total": len(suspects), "rows": len({one.row for one in suspects})}
        trained = any(one.gap_after is not None for one in suspects)
        audits.append({"label": visible(run.label), "suspects": shown, "trained": trained, **counts})
    return audits


def facts_of(settings: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, str]:
    """Return what the page was made from: settings but for empty ones, versions, commands, the place of each run."""
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
    for run in runs:
        table = [_table_facts(run.table.metadata)] if run.table is not None else []
        facts[f"run {run.label}"] = "; ".join([str(run.folder), *table])
    return {visible(name): visible(without_folders(value)) for name, value in facts.items() if value.strip()}


def _table_facts(metadata: Mapping[str, Any]) -> str:
    """Describe how one table was made; what its file does not record is left out."""
    facts = [f"tokens of {metadata.get('model', '?')}", f"{metadata.get('data', {}).get('rows', '?')} rows"]
    if "template" in metadata:
        facts.append(f"template {metadata['template']}")
    if metadata.get("system_prompt") is not None:
        facts.append(f"system prompt “{metadata['system_prompt']}”")
    if metadata.get("max_length"):
        facts.append(f"rows of at most {metadata['max_length']:,} tokens")
    return ", ".join(facts)


def warnings_of(runs: Sequence[Run]) -> list[str]:
    """Say whose rows were cut, and whose tables do not compare with the first one."""
    sentences = []
    for run in runs:
        cut = (run.table.metadata.get("cut") if run.table is not None else None) or {}
        rows, tokens, lost = (int(cut.get(name) or 0) for name in ("rows_cut", "tokens_cut", "rows_lost"))
        if rows or lost:
            whole = f", {lost:,} of them with the whole solution" if lost else ""
            sentences.append(f"{run.label}: {rows:,} rows were cut by {tokens:,} tokens{whole}, at max_length.")
    tables = {run.label: run.table for run in runs if run.table}
    return [visible(sentence) for sentence in (*sentences, *map(str, incomparable(tables).values()))]
