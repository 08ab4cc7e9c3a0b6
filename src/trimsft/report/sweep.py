"""The `sweep.json` that a sweep leaves behind, with the scores of all settings that were tried:

    {"metric": "average@8", "benchmarks": ["math500"], "selected_on": "gsm8k", "command": "trimsft sweep ...",
     "selection": {"objective": "trim", "margin": 6.0, "bandwidth": 2.0}, "baseline": {"value": 0.52, "low": 0.49, ...},
     "points": [{"objective": "trim", "margin": 1.5, "bandwidth": 0.8, "value": 0.61, "low": 0.58, "high": 0.64}, ...]}

Values are shares from 0 to 1 with their 95 % interval. The setting that was chosen, on a benchmark of its own, is
seldom the highest of those that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from trimsft.errors import RunError
from trimsft.runs.parsing import read_json


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
