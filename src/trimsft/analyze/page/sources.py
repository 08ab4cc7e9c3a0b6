"""What the page is made from: run directories, read as the files they are.

runs/trim/
  config.yaml, manifest.json          which objective, versions, command (both may be missing)
  eval/<benchmark>/scores.json ...    as `trimsft eval` writes them
  tokens.parquet                      as `write_token_table` writes it
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.analyze.table import TokenTable, read_token_table
from trimsft.files import JsonLines, RunError
from trimsft.objectives import OBJECTIVES

_BY_LABEL = {
    "trimsft": "trim",
    "trimsfte": "trim-e",
    "trimsfth": "trim-h",
    "trimsfteasy": "trim-e",
    "trimsfthard": "trim-h",
    **{re.sub(r"[^a-z]", "", name): name for name in OBJECTIVES},
}


@dataclass(frozen=True)
class Interval:
    """A figure in percent and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Run:
    """One row of the tables."""

    label: str
    folder: Path
    objective: str | None
    """Name of the objective it was trained with, where that is known."""
    scores: Mapping[str, Mapping[str, Any]]
    """scores.json of each benchmark."""
    settings: Mapping[str, Any]
    """settings.json of the first benchmark."""
    manifest: Mapping[str, Any]
    table: TokenTable | None
    """All numbers of its token table."""

    @property
    def tokens_path(self) -> Path:
        return self.folder / "tokens.parquet"

    def interval(self, benchmark: str, metric: str) -> Interval | None:
        """A metric of one benchmark: average, greedy, pass@k or majority@k."""
        score = self.scores.get(benchmark)
        if score is None:
            return None
        kind, _, k = metric.partition("@")
        found = score[f"{kind}_at"].get(k) if k and kind != "average" else score[kind]
        return None if found is None else Interval(*(100 * found[side] for side in ("value", "low", "high")))

    def mean_interval(self, benchmarks: Sequence[str], metric: str) -> Interval | None:
        """The mean over benchmarks; none where one is missing."""
        found = [self.interval(benchmark, metric) for benchmark in benchmarks]
        whole = [interval for interval in found if interval is not None]
        return mean_of(whole) if whole and len(whole) == len(found) else None

    def samples(self, benchmark: str) -> list[dict[str, Any]]:
        """Texts and grades of all samples of a benchmark; greedy is number -1."""
        folder = self.folder / "eval" / benchmark
        grades = {(grade["problem"], grade["sample"]): grade for grade in _lines(folder / "grades.jsonl")}
        return [
            {**sample, **grades.get((sample["problem"], sample["sample"]), {})}
            for sample in _lines(folder / "samples.jsonl")
        ]

    def problems(self, benchmark: str) -> list[dict[str, Any]]:
        return _lines(self.folder / "eval" / benchmark / "problems.jsonl")


def mean_of(intervals: Sequence[Interval]) -> Interval:
    """Mean of independent figures; distances to the bounds add up as the roots of sums of squares (MOVER)."""
    count = len(intervals)
    value = sum(interval.value for interval in intervals) / count
    below = math.sqrt(sum((interval.value - interval.low) ** 2 for interval in intervals)) / count
    above = math.sqrt(sum((interval.high - interval.value) ** 2 for interval in intervals)) / count
    return Interval(value, value - below, value + above)


def read_run(label: str, folder: Path) -> Run:
    """Whatever of a run is there."""
    if not folder.is_dir():
        raise RunError(f"runs: {label!r} has no folder {str(folder)!r}; name a run directory")
    scores: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for path in sorted(folder.glob("eval/*/scores.json")):
        scores[path.parent.name] = _object(path)
        settings = settings or _object(path.with_name("settings.json"))
    tokens = folder / "tokens.parquet"
    manifest = _object(folder / "manifest.json")
    return Run(
        label=label,
        folder=folder,
        objective=_objective(label, folder),
        scores=scores,
        settings=settings,
        manifest=manifest,
        table=read_token_table(tokens) if tokens.is_file() else None,
    )


def _objective(label: str, folder: Path) -> str | None:
    import yaml

    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None
    if isinstance(config, dict) and config.get("objective") in OBJECTIVES:
        return str(config["objective"])
    return _BY_LABEL.get(re.sub(r"[^a-z]", "", label.lower()))


def _object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path}: not readable as JSON ({error}); restore or remove it") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: holds a {type(content).__name__}, not an object; restore or remove it")
    return content


def _lines(path: Path) -> list[dict[str, Any]]:
    return JsonLines(path).read() if path.is_file() else []
