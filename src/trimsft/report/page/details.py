"""The rest of the page: curves of gaps and trainings, a sweep, suspects of an audit, and what the page was made from.

The `sweep.json` that a sweep leaves behind:

    {"metric": "average@8", "benchmarks": ["math500"], "selected_on": "gsm8k", "command": "trimsft sweep ...",
     "selection": {"objective": "trim", "margin": 6.0, "bandwidth": 2.0},
     "points": [{"objective": "trim", "margin": 1.5, "bandwidth": 0.8, "value": 0.61, "low": 0.58, "high": 0.64,
                 "seeds": 3, "run": "runs/sweep/m1.5-t0.8"}],
     "baseline": {"objective": "sft", "value": 0.52, "low": 0.49, "high": 0.55}}

Values are shares from 0 to 1 with their 95 % interval. Margins and bandwidths need not form a grid. The setting that
was chosen, on a benchmark of its own, is seldom the highest of those that are shown: the page marks both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, FiniteFloat

from trimsft.audit.run import AuditFolder
from trimsft.data.visible import shortened, visible
from trimsft.errors import RunError
from trimsft.objectives import display_name
from trimsft.report.colours import lines_of
from trimsft.report.runs import Run
from trimsft.runs import JsonLines, by_dotted_name
from trimsft.runs.parsing import checked, read_json
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.runs.secrets import without_folders
from trimsft.tokens.statistics import confidence, density, range_of
from trimsft.tokens.table import incomparable

# ---- curves


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
    lines = {
        label: [[round(x, 3), round(y, 5)] for x, y in zip(grid.tolist(), density(values, grid).tolist(), strict=True)]
        for label, values in gaps.items()
    }
    return [{"title": "Density of the logit gaps", "x": "logit gap", "y": "", "lines": lines}]


_FINEST = 300  # points of a line


def training_charts(courses: Mapping[str, Sequence[TelemetryLine]]) -> list[dict[str, Any]]:
    """Return a chart for each field of the telemetry that is shown, over the steps of the trainings."""
    charts = []
    for field, title in figures_of(TelemetryLine, "page").items():
        lines = {}
        for label, course in courses.items():
            values = [(one.step, getattr(one, field)) for one in course[:: -(-len(course) // _FINEST) or 1]]
            points = [[step, round(value, 6)] for step, value in values if value is not None and math.isfinite(value)]
            if points:
                lines[visible(label)] = points
        if lines:
            charts.append({"title": title, "x": "step", "y": "", "lines": lines})
    return charts


def read_course(run: Run) -> list[TelemetryLine]:
    """Return what a training logged of its tokens, step by step; empty where nothing was recorded."""
    path = run.directory.telemetry_path
    if run.folder.is_file() or not path.is_file():
        return []
    lines = checked(list[TelemetryLine], JsonLines(path).read(), where=str(path))
    return [line for line in lines if line.nll is not None]  # neither an evaluation nor the end


_ENDS = 5  # logged steps at each end of a training that speak for it


def log_headline(courses: Mapping[str, Sequence[TelemetryLine]]) -> str:
    """Return what the first training log says of the model in its first and its last steps."""
    for label, course in courses.items():
        known = [1 - one.mean_token_accuracy for one in course if one.mean_token_accuracy is not None]
        if known:
            first, last = (100 * sum(part) / len(part) for part in (known[:_ENDS], known[-_ENDS:]))
            steps = f"(its training log, {min(_ENDS, len(known))} steps at each end)"
            return visible(
                f"{label} would at first have written {first:.1f} % of its training tokens differently, "
                f"and {last:.1f} % in the end {steps}."
            )
    return ""


def confidences(runs: Sequence[Run], parameters: Mapping[str, float]) -> list[tuple[str, Any]]:
    """Return how sure the model of each table is of its tokens."""
    band = {name: parameters[name] for name in ("margin", "bandwidth")}
    return [(visible(run.label), confidence(run.table, **band)) for run in runs if run.table]


# ---- a sweep over margin and bandwidth


@dataclass(frozen=True)
class Share:
    """A score with its interval."""

    value: FiniteFloat
    low: Annotated[float, Field(ge=0)]
    high: Annotated[float, Field(le=1)]

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError("a value must lie within its interval")


@dataclass(frozen=True, kw_only=True)
class Point(Share):
    """One setting that was trained and evaluated."""

    objective: Literal["trim", "trim-e", "trim-h"] = "trim"
    margin: FiniteFloat
    bandwidth: Annotated[float, Field(gt=0)]
    seeds: Annotated[int, Field(ge=1)] = 1
    run: str = ""

    @property
    def setting(self) -> tuple[str, float, float]:
        return self.objective, self.margin, self.bandwidth


@dataclass(frozen=True)
class Selection:
    """The setting that was chosen; it may be none of the points, as another objective is."""

    objective: str
    margin: float | None = None
    bandwidth: float | None = None


@dataclass(frozen=True)
class Sweep:
    """All settings that were tried."""

    metric: str
    benchmarks: tuple[str, ...]
    points: Annotated[tuple[Point, ...], Field(min_length=1)]
    selected_on: str | None = None  # the benchmark of the choice among them
    selection: Selection | None = None
    command: str | None = None
    baseline: Share | None = None  # SFT on the same benchmarks


def read_sweep(path: Path) -> Sweep:
    """Return the sweep in a file, or in the `sweep.json` of a folder."""
    path = path / "sweep.json" if path.is_dir() else path
    try:
        sweep = read_json(path, Sweep, hint="make it again with trimsft sweep")
    except OSError as error:
        raise RunError(f"{path}: not readable ({error.strerror})", hint="name a sweep.json or its folder") from error
    if len({point.setting for point in sweep.points}) < len(sweep.points):
        raise RunError("a setting is there twice", field=f"{path}: points", hint="give it once, over all its seeds")
    return sweep


def sweep_parts(path: Path | None) -> dict[str, Any] | None:
    """Return what the template shows of a sweep: the chosen and the highest setting, and a table per objective."""
    if path is None:
        return None
    sweep = read_sweep(path)
    best = max(sweep.points, key=lambda point: point.value)
    alike = [point for point in sweep.points if point.value >= best.low and point is not best]
    selection = sweep.selection
    chosen = None
    if selection is not None:
        setting = (selection.objective, selection.margin, selection.bandwidth)
        chosen = next((point for point in sweep.points if point.setting == setting), None)
    tables = []
    for name in dict.fromkeys(point.objective for point in sweep.points):
        cells = {(point.margin, point.bandwidth): point for point in sweep.points if point.objective == name}
        margins = sorted({margin for margin, _ in cells})
        widths = sorted({width for _, width in cells}, reverse=True)
        rows = [(width, [cells.get((margin, width)) for margin in margins]) for width in widths]
        tables.append({"name": display_name(name), "margins": margins, "rows": rows})
    # where every other setting may be as good, none is the highest
    is_clear = len(alike) < len(sweep.points) - 1
    lowest = min(point.value for point in sweep.points)
    return {
        "sweep": sweep,
        "chosen": chosen,
        "best": best if is_clear else None,
        "alike": len(alike),
        "tables": tables,
        "depth": lambda point: round(60 * (point.value - lowest) / (best.value - lowest or 1)),
        "names": display_name,
    }


# ---- rows that look wrong

MOST = 200  # suspects of a folder that are shown


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
            | {"row": one.row, "text": shortened(one.text, visible) or "(end)"}
            | {"expected": shortened(one.expected, visible), "problem": visible(getattr(one, "problem", ""))}
            | {"gap_before": one.gap_before, "gap_after": one.gap_after, "score": one.score}
            for one in suspects[:MOST]
        ]
        audits.append({
            "label": visible(run.label),
            "suspects": shown,
            "total": len(suspects),
            "rows": len({one.row for one in suspects}),
            "trained": any(one.gap_after is not None for one in suspects),
        })  # fmt: skip
    return audits


# ---- what the page was made from


def facts_of(settings: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, str]:
    """Return settings but for empty ones, versions, commands, and the place of each run."""
    facts = flat(settings)
    versions: dict[str, Any] = {}
    for run in runs:
        recorded = [*run.versions, run.table.metadata.get("versions") if run.table is not None else None]
        for some in recorded:
            versions |= {name: value for name, value in (some or {}).items() if value}
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


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings as texts by name, without empty objects.

    >>> flat({"sampling": {"temperature": 1.0, "stop": ["Q:", "A:"]}, "engine": {}})
    {'sampling.temperature': '1.0', 'sampling.stop': 'Q:, A:'}
    """
    values = {name: value for name, value in by_dotted_name(settings) if not isinstance(value, Mapping)}
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }


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
