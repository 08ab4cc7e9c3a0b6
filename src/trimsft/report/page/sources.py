"""What the page is made from: run directories, read as the files they are.

runs/trim/
  config.yaml, manifest.json          which objective, versions, command (both may be missing)
  eval/<benchmark>/scores.json ...    as `trimsft eval` writes them
  tokens.parquet                      as `write_token_table` writes it; alone it may stand for a run
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.objectives import OBJECTIVES
from trimsft.runs.files import JsonLines
from trimsft.scoring.bootstrap import Interval
from trimsft.scoring.scores import BenchmarkScore, macros
from trimsft.tokens.table import TokenTable, read_token_table

_BY_LABEL = {
    "trimsft": "trim",
    "trimsfte": "trim-e",
    "trimsfth": "trim-h",
    "trimsfteasy": "trim-e",
    "trimsfthard": "trim-h",
    **{re.sub(r"[^a-z]", "", name): name for name in OBJECTIVES},
}


@dataclass(frozen=True)
class Run:
    """One row of the tables."""

    label: str
    folder: Path
    objective: str | None
    """Name of the objective it was trained with, where that is known."""
    scores: Mapping[str, Mapping[str, Any]]
    """scores.json of each benchmark."""
    counts: Mapping[str, BenchmarkScore]
    """The same with the counts of every problem, where the file has all of them."""
    settings: Mapping[str, Any]
    """settings.json of the first benchmark."""
    manifest: Mapping[str, Any]
    table: TokenTable | None
    """All numbers of its token table."""

    @property
    def tokens_path(self) -> Path:
        return self.folder if self.folder.is_file() else self.folder / "tokens.parquet"

    def interval(self, benchmark: str, metric: str) -> Interval | None:
        """A metric of one benchmark in percent, as recorded: average, greedy, pass@k or majority@k."""
        score = self.scores.get(benchmark)
        if score is None:
            return None
        kind, _, k = metric.partition("@")
        found = score[f"{kind}_at"].get(k) if k and kind != "average" else score[kind]
        return None if found is None else percent(Interval(**found))

    def mean_intervals(self, benchmarks: Sequence[str], metrics: Sequence[str]) -> dict[str, Interval]:
        """Mean over benchmarks in percent, as `trimsft eval` shows it; not of metrics that one of them lacks."""
        if not all(benchmark in self.counts for benchmark in benchmarks):
            return {}
        known = [metric for metric in metrics if all(self.interval(name, metric) is not None for name in benchmarks)]
        found = macros([self.counts[name] for name in benchmarks], known) if benchmarks and known else {}
        return {metric: percent(interval) for metric, interval in found.items()}

    def samples(self, benchmark: str) -> list[dict[str, Any]]:
        """Texts and grades of all samples of a benchmark; greedy is number -1."""
        folder = self.folder / "eval" / benchmark
        grades = {(grade["problem"], grade["sample"]): grade for grade in _lines(folder / "grades.jsonl")}
        return [
            {**sample, **grades.get((sample["problem"], sample["sample"]), {})}
            for sample in _lines(folder / "samples.jsonl")
        ]

    def has_samples(self, benchmark: str) -> bool:
        """Whether what was written is there, and not its counts alone."""
        return (self.folder / "eval" / benchmark / "samples.jsonl").is_file()

    def problems(self, benchmark: str) -> list[dict[str, Any]]:
        return _lines(self.folder / "eval" / benchmark / "problems.jsonl")


def percent(interval: Interval) -> Interval:
    """The same in percent."""
    return Interval(100 * interval.value, 100 * interval.low, 100 * interval.high)


def read_run(label: str, folder: Path) -> Run:
    """Whatever of a run is there; `folder` may also be a token table."""
    is_table = folder.is_file() and folder.suffix == ".parquet"
    if not folder.is_dir() and not is_table:
        raise RunError(f"runs: {label!r} has no folder {str(folder)!r}; name a run directory")
    scores: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for path in sorted(folder.glob("eval/*/scores.json")):
        scores[path.parent.name] = _object(path)
        settings = settings or _object(path.with_name("settings.json"))
    tokens = folder if is_table else folder / "tokens.parquet"
    manifest = _object(folder / "manifest.json")
    return Run(
        label=label,
        folder=folder,
        objective=_objective(label, folder),
        scores=scores,
        counts={name: counts for name, score in scores.items() if (counts := _counts(score)) is not None},
        settings=settings,
        manifest=manifest,
        table=read_token_table(tokens) if tokens.is_file() else None,
    )


def _counts(score: Mapping[str, Any]) -> BenchmarkScore | None:
    try:
        return BenchmarkScore.from_dict({name: value for name, value in score.items() if name != "grader"})
    except (ValueError, KeyError, TypeError):
        return None  # of another version: its figures are shown as they are recorded


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
