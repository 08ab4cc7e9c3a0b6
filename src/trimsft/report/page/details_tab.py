"""What the last part of the page shows: trainings, sweeps, suspects of an audit, and what the page was made from.

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, FiniteFloat

from trimsft.audit.run import AuditFolder, Suspect
from trimsft.data.visible import shortened, visible
from trimsft.errors import RunError, counted
from trimsft.objectives import NAMES
from trimsft.report.course import Logged
from trimsft.report.page.charts import Curve, course_chart, legend_mark, run_lines
from trimsft.report.runs import Run
from trimsft.runs import by_dotted_name
from trimsft.runs.parsing import read_json
from trimsft.runs.records import TelemetryLine, figures_of
from trimsft.runs.secrets import without_folders

# ---- how the trainings went

PANELS = figures_of(TelemetryLine, "page") | {"counts_from": "gap with weight 1/2"}
"""Fields of `Logged` that the page draws, and how it calls them."""
_FINEST = 300  # points of a line


def training_parts(runs: Sequence[Run], courses: Mapping[str, Sequence[Logged]]) -> dict[str, Any]:
    """Nothing is shown where no run has telemetry.

    Args:
        courses: what each run logged, by label.
    """
    drawn = {label: course for label, course in courses.items() if course}
    panels = {title: _curves(drawn, field) for field, title in PANELS.items()}
    panels = {title: curves for title, curves in panels.items() if curves}
    if not panels:
        return {"sections": [], "course_chart": None}
    lines = run_lines(runs)
    return {
        "sections": [("training", "Training")],
        "course_chart": course_chart(panels, lines),
        "legend": [(legend_mark(lines[label]), label) for label in drawn],
        "adapts": [label for label, course in drawn.items() if course[-1].gate is not None],
    }


def _curves(courses: Mapping[str, Sequence[Logged]], field: str) -> dict[str, Curve]:
    """The line of each run that has the field."""
    curves: dict[str, Curve] = {}
    for label, course in courses.items():
        every = -(-len(course) // _FINEST)
        values = [(line.step, getattr(line, field)) for line in course[::every]]
        curve = [(step, value) for step, value in values if value is not None and math.isfinite(value)]
        if curve:
            curves[label] = curve
    return curves


# ---- sweeps over margin and bandwidth

STEPS = 9  # colours of the scale
_OBJECTIVES = ("trim", "trim-e", "trim-h")


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

    @property
    def setting(self) -> tuple[str, float | None, float | None]:
        return self.objective, self.margin, self.bandwidth


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


def sweep_parts(path: Path | None) -> dict[str, Any]:
    """Variables of sweep.html.j2; nothing is shown where there is no sweep."""
    if path is None:
        return {"sections": [], "data": {}, "sweep": None}
    sweep = read_sweep(path)
    best = max(sweep.points, key=lambda point: point.value)  # of equal ones the first
    lowest = min(point.value for point in sweep.points)
    chosen = [point for point in sweep.points if sweep.selection and point.setting == sweep.selection.setting]
    by_objective = {name: [point for point in sweep.points if point.objective == name] for name in _OBJECTIVES}
    return {
        "sections": [("sweep", "Sweep")],
        "data": {
            "metric": visible(sweep.metric),
            "points": [{**asdict(point), "run": visible(point.run)} for point in sweep.points],
        },
        "sweep": sweep,
        "best": best,
        "chosen": chosen[0] if len(chosen) == 1 else None,
        "alike": sum(point.value >= best.low for point in sweep.points) - 1,
        "names": NAMES,
        "tables": [_table(name, points, lowest, best.value) for name, points in by_objective.items() if points],
        "scale": [100 * lowest, 100 * best.value],
        "steps": STEPS,
    }


def _table(objective: str, points: Sequence[Point], low: float, high: float) -> dict[str, Any]:
    """Rows of cells: bandwidths from the widest down, margins from the lowest up; None where nothing was tried."""
    cells = {(point.margin, point.bandwidth): (point, _step(point.value, low, high)) for point in points}
    margins = sorted({margin for margin, _ in cells})
    bandwidths = sorted({bandwidth for _, bandwidth in cells}, reverse=True)
    return {
        "objective": objective,
        "margins": margins,
        "rows": [(bandwidth, [cells.get((margin, bandwidth)) for margin in margins]) for bandwidth in bandwidths],
    }


def _step(value: float, low: float, high: float) -> int:
    """The colour of a value: 0 for the lowest; the middle one where all are alike."""
    return STEPS // 2 if low == high else min(STEPS - 1, int(STEPS * (value - low) / (high - low)))


# ---- rows that look wrong

MOST = 200  # suspects of a folder that are shown


def audit_parts(runs: Sequence[Run]) -> dict[str, Any]:
    """Nothing is shown where no folder holds an audit."""
    folders = {run.label: AuditFolder(run.folder) for run in runs if run.folder.is_dir()}
    audits = [_shown(label, folder) for label, folder in folders.items() if folder.suspects_path.is_file()]
    return {"sections": [("audit", "Rows that look wrong")] if audits else [], "audits": audits}


def _shown(label: str, folder: AuditFolder) -> dict[str, Any]:
    suspects = folder.read_suspects()
    return {
        "label": visible(label),
        "suspects": [_texts(one) for one in suspects[:MOST]],
        "left_out": max(0, len(suspects) - MOST),
        "rows": len({one.row for one in suspects}),
    }


def _texts(one: Suspect) -> dict[str, Any]:
    return {
        "row": one.row,
        "place": visible(one.place),
        "span": f"{one.start} to {one.end}",
        "left": visible(one.left),
        "text": shortened(one.text) or "(end)",
        "right": visible(one.right),
        "expected": shortened(one.expected),
        "gap_before": one.gap_before,
        "gap_after": one.gap_after,
        "score": one.score,
    }


# ---- what the page was made from

_FIXED_PROMPTS = {None: "the usual system prompt", "": "no system prompt"}


def lead(runs: Sequence[Run]) -> str:
    """Return how many runs there are, and which files the page was made from."""
    files = sum(run.folder.is_file() for run in runs)
    folders = len(runs) - files
    sources = [f"the run director{'y' if folders == 1 else 'ies'}"] if folders else []
    sources += [("a token table" if files == 1 else "token tables")] if files else []
    made = f"Everything on this page was made from {' and '.join(sources)}; it loads nothing."
    return f"{counted(len(runs), 'run')}. {made}"


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
        name = run.label
        while name in facts:  # the label of a run does not take the place of a setting
            name = f"run {name}"
        facts[name] = "; ".join(
            [str(run.folder), *([table_facts(run.table.metadata)] if run.table is not None else [])]
        )
    return {visible(name): visible(without_folders(value)) for name, value in facts.items() if value.strip()}


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings as texts by name, without empty objects.

    >>> flat({"sampling": {"temperature": 1.0, "stop": ["Q:", "A:"]}, "engine": {}})
    {'sampling.temperature': '1.0', 'sampling.stop': 'Q:, A:'}
    """
    values = {name: value for name, value in by_dotted_name(settings) if not isinstance(value, Mapping)}
    return {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in values.items()
    }


def table_facts(metadata: Mapping[str, Any]) -> str:
    """Describe how one table was made; what its file does not record is left out."""
    facts = [f"tokens of {metadata.get('model', '?')}", f"{metadata.get('data', {}).get('rows', '?')} rows"]
    if "template" in metadata:
        facts.append(f"template {metadata['template']}")
    if "system_prompt" in metadata:
        prompt = metadata["system_prompt"]
        facts.append(_FIXED_PROMPTS.get(prompt, f"system prompt “{prompt}”"))
    if "max_length" in metadata:
        length = metadata["max_length"]
        facts.append(f"rows of at most {length:,} tokens" if length else "no limit of length")
    return visible(", ".join([*facts, *filter(None, [cut_words(metadata)])]))


def cut_words(metadata: Mapping[str, Any]) -> str:
    """Describe what the limit of length took away; empty where that was nothing, or is not recorded."""
    cut = metadata.get("cut") or {}
    rows, tokens, lost = (int(cut.get(name) or 0) for name in ("rows_cut", "tokens_cut", "rows_lost"))
    if not rows and not lost:
        return ""
    whole = f", {lost:,} of them with the whole solution" if lost else ""
    return f"{counted(rows, 'row')} cut by {counted(tokens, 'token')}{whole}"


def cut_notes(runs: Sequence[Run]) -> list[str]:
    """A sentence for each run whose table lost something."""
    return [
        visible(f"{run.label}: {words}, at max_length {run.table.metadata.get('max_length')}.")
        for run in runs
        if run.table is not None and (words := cut_words(run.table.metadata))
    ]
