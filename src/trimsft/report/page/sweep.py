"""The heatmap of a sweep over margin and bandwidth, from the `sweep.json` that a sweep leaves behind.

    {"metric": "average@8", "benchmarks": ["math500"], "selected_on": "gsm8k", "command": "trimsft sweep ...",
     "selection": {"objective": "trim", "margin": 6.0, "bandwidth": 2.0},
     "points": [{"objective": "trim", "margin": 1.5, "bandwidth": 0.8, "value": 0.61, "low": 0.58, "high": 0.64,
                 "seeds": 3, "run": "runs/sweep/m1.5-t0.8"}],
     "baseline": {"objective": "sft", "value": 0.52, "low": 0.49, "high": 0.55}}

Values are shares from 0 to 1 with their 95 % interval. `selected_on`, `selection`, `command`, `baseline`, and of a
point `objective` (trim), `seeds` (1) and `run`, may be left out. Margins and bandwidths need not form a grid. The
setting that was chosen, on a benchmark of its own, is seldom the highest of those that are shown: the page marks both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimsft.data.visible import visible
from trimsft.errors import RunError
from trimsft.objectives import NAMES

STEPS = 9  # colours of the scale
_OBJECTIVES = ("trim", "trim-e", "trim-h")


@dataclass(frozen=True)
class Point:
    """One setting that was trained and evaluated."""

    objective: str
    margin: float
    bandwidth: float
    value: float
    low: float
    high: float
    seeds: int
    run: str


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
    points: tuple[Point, ...]
    selected_on: str  # what the choice among them was made on; empty where that is not recorded
    selection: Selection | None
    command: str
    baseline: tuple[float, float, float] | None = None  # SFT on the same benchmarks: value, low, high


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file, or in the `sweep.json` of a folder."""
    path = path / "sweep.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path}: not readable ({error.strerror})", hint="name a sweep.json or its folder") from error
    except ValueError as error:
        raise RunError(f"{path}: not readable as JSON ({error})", hint="make it again with trimsft sweep") from error
    file = _Record(f"{path}: ", content)
    points = content.get("points")
    if not isinstance(points, list) or not points:
        raise file.refusal("points", "must be a list of one setting or more")
    read = tuple(_point(_Record(f"{path}: points[{place}].", point)) for place, point in enumerate(points))
    seen: dict[tuple[str, float, float], int] = {}
    for place, point in enumerate(read):
        first = seen.setdefault((point.objective, point.margin, point.bandwidth), place)
        if first != place:
            setting = f"{point.objective} with margin {point.margin:g} and bandwidth {point.bandwidth:g}"
            problem, hint = f"{setting} is points[{first}] already", "give each setting once, over all its seeds"
            raise RunError(problem, field=f"{path}: points[{place}]", hint=hint)
    benchmarks = content.get("benchmarks")
    if not isinstance(benchmarks, list) or not all(isinstance(name, str) for name in benchmarks):
        raise file.refusal("benchmarks", "must be a list of names")
    baseline = content.get("baseline")
    return Sweep(
        metric=file.text("metric"),
        benchmarks=tuple(benchmarks),
        points=read,
        selected_on=file.text("selected_on", ""),
        selection=_selection(content.get("selection"), path),
        command=file.text("command", ""),
        baseline=None if baseline is None else _Record(f"{path}: baseline.", baseline).shares(),
    )


def _point(record: _Record) -> Point:
    objective, seeds = record.content.get("objective", "trim"), record.content.get("seeds", 1)
    if objective not in _OBJECTIVES:
        raise record.refusal("objective", f"must be one of {', '.join(_OBJECTIVES)}")
    margin, bandwidth = record.number("margin"), record.number("bandwidth")
    if bandwidth <= 0:
        raise record.refusal("bandwidth", "must be above 0")
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise record.refusal("seeds", "must be a whole number from 1")
    return Point(objective, margin, bandwidth, *record.shares(), seeds, record.text("run", ""))


def _selection(content: Any, path: Path) -> Selection | None:
    if content is None:
        return None
    record = _Record(f"{path}: selection.", content)
    band = [record.number(name) if name in record.content else None for name in ("margin", "bandwidth")]
    return Selection(record.text("objective"), *band)


@dataclass(frozen=True)
class _Record:
    """An object of the file, and what stands before its names where one is refused."""

    where: str
    content: Any

    def __post_init__(self) -> None:
        if not isinstance(self.content, dict):
            raise RunError("must be an object", field=self.where.rstrip(".: "), value=self.content)

    def refusal(self, name: str, problem: str) -> RunError:
        return RunError(problem, field=f"{self.where}{name}", value=self.content.get(name))

    def number(self, name: str) -> float:
        value = self.content.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.refusal(name, "must be a number")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.content.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value:
            raise self.refusal(name, "must be a text")
        return value

    def shares(self) -> tuple[float, float, float]:
        """A value and its interval."""
        value, low, high = (self.number(name) for name in ("value", "low", "high"))
        if not 0 <= low <= value <= high <= 1:
            raise self.refusal("value", f"must be a share from 0 to 1 within its interval [{low:g}, {high:g}]")
        return value, low, high


# ---- what is shown


def sweep_parts(path: Path | None) -> dict[str, Any]:
    """Variables of sweep.html.j2; nothing is shown where there is no sweep."""
    if path is None:
        return {"sections": [], "data": {}, "sweep": None}
    sweep = read_sweep(path)
    best = max(sweep.points, key=lambda point: point.value)  # of equal ones the first
    lowest = min(point.value for point in sweep.points)
    chosen = [point for point in sweep.points if _setting(point) == _setting(sweep.selection)]
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


def _setting(one: Point | Selection | None) -> tuple[str, float | None, float | None] | None:
    return None if one is None else (one.objective, one.margin, one.bandwidth)


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
