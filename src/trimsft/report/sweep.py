"""The `sweep.json` that a sweep leaves behind, with the scores of all settings that were tried:

    {"metric": "average@8", "benchmarks": ["math500"], "selected_on": "gsm8k", "command": "trimsft sweep ...",
     "selection": {"objective": "trim", "margin": 6.0, "bandwidth": 2.0, "value": 0.6, "low": 0.57, "high": 0.63},
     "points": [{"objective": "trim", "margin": 1.5, "bandwidth": 0.8, "value": 0.61, "low": 0.58, "high": 0.64}, ...],
     "baseline": {"objective": "sft", "value": 0.52, "low": 0.49, "high": 0.55}}

Values are shares from 0 to 1 with their 95 % interval. The setting that was chosen, on a benchmark of its own, is
seldom the highest of those that are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat

from trimsft.errors import RunError
from trimsft.intervals import Interval
from trimsft.objectives import display_name
from trimsft.runs.parsing import read_json


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting that was trained and evaluated; another objective than TrimSFT has neither margin nor bandwidth."""

    objective: str = "trim"
    margin: FiniteFloat | None = None
    bandwidth: FiniteFloat | None = None
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    seeds: int = 1
    run: str = ""

    @property
    def setting(self) -> tuple[str, float | None, float | None]:
        return self.objective, self.margin, self.bandwidth

    @property
    def interval(self) -> Interval:
        return Interval(self.value, self.low, self.high)

    @property
    def score(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] %"

    def __str__(self) -> str:
        return (
            f"{display_name(self.objective)} with margin {self.margin:g} and bandwidth {self.bandwidth:g}, {self.score}"
        )


@dataclass(frozen=True)
class Sweep:
    """All settings that were tried."""

    metric: str
    benchmarks: tuple[str, ...]
    points: Annotated[tuple[Point, ...], Field(min_length=1)]
    selected_on: str | None = None  # the benchmark of the choice among them
    selection: Point | None = None  # what was chosen; it may be none of the points, as another objective is
    command: str | None = None
    baseline: Point | None = None  # SFT on the same benchmarks


def read_sweep(path: Path) -> Sweep:
    """Return the sweep in a file, or in the `sweep.json` of a folder."""
    path = path / "sweep.json" if path.is_dir() else path
    try:
        return read_json(path, Sweep, hint="make it again with trimsft sweep")
    except OSError as error:
        raise RunError(f"{path}: not readable ({error.strerror})", hint="name a sweep.json or its folder") from error
