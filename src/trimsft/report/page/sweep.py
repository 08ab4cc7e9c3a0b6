"""The heatmap of a sweep over margin and bandwidth, from the `sweep.json` that a sweep leaves behind.

    {"metric": "average@8", "benchmarks": ["math500"], "selected_on": "math500 (held-out half)",
     "command": "trimsft sweep ...",
     "points": [{"objective": "trim", "margin": 1.5, "bandwidth": 0.8, "value": 0.61, "low": 0.58, "high": 0.64,
                 "seeds": 3, "run": "runs/sweep/m1.5-t0.8"}],
     "baseline": {"objective": "sft", "value": 0.52, "low": 0.49, "high": 0.55}}

Values are shares from 0 to 1 with their 95 % interval. `selected_on`, `command`, `baseline`, and of a point `objective`
(trim), `seeds` (1) and `run`, may be left out. Margins and bandwidths need not form a grid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.objectives import PAPER_NAMES
from trimsft.text.visible import visible

STEPS = 9
"""Colours of the scale."""
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
class Sweep:
    """All settings that were tried."""

    metric: str
    benchmarks: tuple[str, ...]
    points: tuple[Point, ...]
    selected_on: str
    """What the choice among them was made on; empty where that is not recorded."""
    command: str
    baseline: tuple[float, float, float] | None = None
    """SFT on the same benchmarks: value, low, high."""

    @property
    def best(self) -> Point:
        """The one with the highest value; of equal ones the first."""
        return max(self.points, key=lambda point: point.value)

    @property
    def range(self) -> tuple[float, float]:
        """The lowest value and the highest."""
        values = [point.value for point in self.points]
        return min(values), max(values)


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file, or in the `sweep.json` of a folder."""
    path = path / "sweep.json" if path.is_dir() else path
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path}: not readable ({error.strerror}); name a sweep.json or its folder") from error
    except ValueError as error:
        raise RunError(f"{path}: not readable as JSON ({error}); make it again with trimsft sweep") from error
    try:
        return _sweep(content)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from None


def sweep_parts(path: Path | None) -> dict[str, Any]:
    """Variables of sweep.html.j2; nothing is shown where there is no sweep."""
    if path is None:
        return {"sections": [], "data": {}, "sweep": None}
    sweep = read_sweep(path)
    best = sweep.best
    tables = [_table(sweep, [point for point in sweep.points if point.objective == name]) for name in _OBJECTIVES]
    return {
        "sections": [("sweep", "Sweep")],
        "data": {
            "metric": visible(sweep.metric),
            "points": [{**asdict(point), "run": visible(point.run)} for point in sweep.points],
        },
        "sweep": sweep,
        "best": best,
        "alike": sum(point.value >= best.low for point in sweep.points) - 1,
        "names": PAPER_NAMES,
        "tables": [table for table in tables if table["rows"]],
        "scale": [100 * edge for edge in sweep.range],
        "steps": STEPS,
    }


def _table(sweep: Sweep, points: Sequence[Point]) -> dict[str, Any]:
    """Rows of cells: bandwidths from the widest down, margins from the lowest up; None where nothing was tried."""
    cells = {(point.margin, point.bandwidth): (point, _step(point.value, *sweep.range)) for point in points}
    margins = sorted({margin for margin, _ in cells})
    bandwidths = sorted({bandwidth for _, bandwidth in cells}, reverse=True)
    return {
        "objective": points[0].objective if points else None,
        "margins": margins,
        "rows": [(bandwidth, [cells.get((margin, bandwidth)) for margin in margins]) for bandwidth in bandwidths],
    }


def _step(value: float, low: float, high: float) -> int:
    """The colour of a value: 0 for the lowest; the middle one where all are alike."""
    return STEPS // 2 if low == high else min(STEPS - 1, int(STEPS * (value - low) / (high - low)))


# ---- reading


def _sweep(content: Any) -> Sweep:
    record = _record(content, "the file")
    points = record.get("points")
    if not isinstance(points, list) or not points:
        raise ValueError(f"points: must be a list of one setting or more, got {points!r:.60}")
    read = tuple(_point(_record(point, f"points[{place}]"), place) for place, point in enumerate(points))
    seen: dict[tuple[str, float, float], int] = {}
    for place, point in enumerate(read):
        key = (point.objective, point.margin, point.bandwidth)
        if key in seen:
            raise ValueError(
                f"points[{place}]: {point.objective} with margin {point.margin:g} and bandwidth "
                f"{point.bandwidth:g} is points[{seen[key]}] already; give each setting once, over all its seeds"
            )
        seen[key] = place
    benchmarks = record.get("benchmarks")
    if not isinstance(benchmarks, list) or not all(isinstance(name, str) for name in benchmarks):
        raise ValueError(f"benchmarks: must be a list of names, got {benchmarks!r:.60}")
    return Sweep(
        metric=_text(record, "metric", ""),
        benchmarks=tuple(benchmarks),
        points=read,
        selected_on=_text(record, "selected_on", "", optional=True),
        command=_text(record, "command", "", optional=True),
        baseline=None if (sft := record.get("baseline")) is None else _shares(_record(sft, "baseline"), "baseline."),
    )


def _point(record: Mapping[str, Any], place: int) -> Point:
    where = f"points[{place}]."
    objective = record.get("objective", "trim")
    if objective not in _OBJECTIVES:
        raise ValueError(f"{where}objective: must be one of {', '.join(_OBJECTIVES)}, got {objective!r:.60}")
    bandwidth = _number(record, "bandwidth", where)
    if bandwidth <= 0:
        raise ValueError(f"{where}bandwidth: must be above 0, got {bandwidth:g}")
    value, low, high = _shares(record, where)
    seeds = record.get("seeds", 1)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise ValueError(f"{where}seeds: must be a whole number from 1, got {seeds!r:.60}")
    margin = _number(record, "margin", where)
    return Point(objective, margin, bandwidth, value, low, high, seeds, _text(record, "run", where, optional=True))


def _shares(record: Mapping[str, Any], where: str) -> tuple[float, float, float]:
    """A value and its interval."""
    value, low, high = (_number(record, name, where) for name in ("value", "low", "high"))
    if not 0 <= low <= value <= high <= 1:
        raise ValueError(
            f"{where}value: must be a share from 0 to 1 between low and high, got {value:g} [{low:g}, {high:g}]"
        )
    return value, low, high


def _record(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: must be an object, got {value!r:.60}")
    return value


def _number(record: Mapping[str, Any], name: str, where: str) -> float:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{where}{name}: must be a number, got {value!r:.60}")
    return float(value)


def _text(record: Mapping[str, Any], name: str, where: str, *, optional: bool = False) -> str:
    value = record.get(name)
    if value is None and optional:
        return ""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}{name}: must be a text, got {value!r:.60}")
    return value
