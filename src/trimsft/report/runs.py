"""Runs as everything that is reported reads them: run directories, or token tables alone.

    run = read_run("TrimSFT", Path("runs/trim"))
    run.objective                                   # "trim", from config.yaml or else from the label
    run.scores["gsm8k"]                             # scores.json as it is; run.counts["gsm8k"] as a BenchmarkScore
    run.interval_percent("gsm8k", "pass@8")
    run.table                                       # tokens.parquet, or None

Each file is read when it is asked for first, and once; what a run lacks is empty or None.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, UsageError
from trimsft.objectives import OBJECTIVES, PARAMETERS
from trimsft.report.colours import method_of
from trimsft.runs import JsonLines, RunDirectory
from trimsft.scoring.intervals import Interval
from trimsft.scoring.scores import BenchmarkScore, macros
from trimsft.tokens.statistics.weighting import objective_of
from trimsft.tokens.table import TokenTable, read_token_table


@dataclass(frozen=True)
class Run:
    """One run: a row of the tables."""

    label: str
    folder: Path  # A run directory, or the file of a token table

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.folder)

    @property
    def tokens_path(self) -> Path:
        return self.folder if self.folder.is_file() else self.directory.tokens_path

    @cached_property
    def table(self) -> TokenTable | None:
        """All numbers of its token table."""
        return read_token_table(self.tokens_path) if self.tokens_path.is_file() else None

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.folder.is_file() else self.directory.read_manifest()

    @cached_property
    def objective(self) -> str | None:
        """The name of the objective that it was trained with, where that is known."""
        config = None if self.folder.is_file() else self.directory.read_config()
        if config is not None and config.get("objective") in OBJECTIVES:
            return str(config["objective"])
        method = method_of(self.label)
        return method if method in OBJECTIVES else None

    @property
    def trained_from(self) -> str:
        """The model that its manifest names."""
        model = self.manifest.get("model", "")
        return str(model.get("name", "") if isinstance(model, dict) else model)

    # ---- evaluations

    @cached_property
    def scores(self) -> Mapping[str, Mapping[str, Any]]:
        """scores.json of each benchmark."""
        names = [] if self.folder.is_file() else self.directory.evaluations()
        return {name: _read_object(self.directory.eval_dir / name / "scores.json") for name in names}

    @cached_property
    def counts(self) -> Mapping[str, BenchmarkScore]:
        """The same with the counts of every problem, for each benchmark whose file has all of them."""
        return {name: counts for name, score in self.scores.items() if (counts := _counts(score)) is not None}

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """settings.json of the first benchmark that has one."""
        paths = (self.directory.eval_dir / name / "settings.json" for name in self.scores)
        return next(filter(None, map(_read_object, paths)), {})

    def interval_percent(self, benchmark: str, metric: str) -> Interval | None:
        """A metric of one benchmark as recorded: average, greedy, pass@k or majority@k."""
        score = self.scores.get(benchmark)
        if score is None:
            return None
        kind, _, k = metric.partition("@")
        recorded = score[f"{kind}_at"].get(k) if k and kind != "average" else score[kind]
        return None if recorded is None else in_percent(Interval(**recorded))

    def mean_intervals_percent(self, benchmarks: Sequence[str], metrics: Sequence[str]) -> dict[str, Interval]:
        """The mean over benchmarks, as `trimsft eval` shows it; without metrics that one of them lacks."""
        if not benchmarks or not all(benchmark in self.counts for benchmark in benchmarks):
            return {}
        known = [m for m in metrics if all(self.interval_percent(name, m) is not None for name in benchmarks)]
        means = macros([self.counts[name] for name in benchmarks], known) if known else {}
        return {metric: in_percent(interval) for metric, interval in means.items()}

    def samples(self, benchmark: str) -> list[dict[str, Any]]:
        """Texts and grades of all samples of a benchmark; greedy is number -1."""
        folder = self.directory.eval_dir / benchmark
        grades = {(grade["problem"], grade["sample"]): grade for grade in _read_lines(folder / "grades.jsonl")}
        return [
            {**sample, **grades.get((sample["problem"], sample["sample"]), {})}
            for sample in _read_lines(folder / "samples.jsonl")
        ]

    def has_samples(self, benchmark: str) -> bool:
        """Whether the texts are there, and not their counts alone."""
        return (self.directory.eval_dir / benchmark / "samples.jsonl").is_file()

    def problems(self, benchmark: str) -> list[dict[str, Any]]:
        return _read_lines(self.directory.eval_dir / benchmark / "problems.jsonl")


def read_run(label: str, folder: Path) -> Run:
    """A run directory, or the file of a token table."""
    folder = Path(folder)
    if not folder.is_dir() and not (folder.is_file() and folder.suffix == ".parquet"):
        hint = "name a run directory, or a token table (NAME.parquet)"
        raise RunError(f"{label!r} has no folder {str(folder)!r}", field="runs", hint=hint)
    return Run(label, folder)


def read_runs(runs: Mapping[str, Path]) -> list[Run]:
    """The runs by label, in their order."""
    if not runs:
        raise UsageError("there are none", field="runs", hint="give at least one run directory or token table")
    return [read_run(label, folder) for label, folder in runs.items()]


def checked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """margin, bandwidth and gamma of the paper but for those that are given; refuses what none of them can be."""
    for name in OBJECTIVES:
        objective_of(name, parameters)
    return {name: parameters.get(name, default) for name, default in PARAMETERS.items()}


def named_runs(arguments: Sequence[str]) -> dict[str, Path]:
    """[LABEL=]PATH of run directories or token tables; without a label the folder's name is one."""
    runs: dict[str, Path] = {}
    for argument in arguments:
        label, equals, name = argument.partition("=")
        if not equals or Path(argument).exists():
            label, name = "", argument
        path = Path(name).expanduser()
        if not path.exists() or (path.is_file() and path.suffix != ".parquet"):
            raise RunError("must be a run directory or a token table (NAME.parquet)", field="runs", value=name)
        if path.is_dir() and not (RunDirectory(path).tokens_path.is_file() or RunDirectory(path).evaluations()):
            hint = "make one with trimsft tokens or trimsft eval, or name another folder"
            problem = "has neither tokens.parquet nor eval/BENCHMARK/scores.json"
            raise RunError(problem, field="runs", value=name, hint=hint)
        label = label.strip() or _label_of(path.resolve())
        if label in runs:
            raise RunError(f"two are called {label!r}", field="runs", hint=f"tell them apart as LABEL={name}")
        runs[label] = path
    return runs


def _label_of(path: Path) -> str:
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == "tokens.parquet" else path.stem.removeprefix("tokens-")


def in_percent(interval: Interval) -> Interval:
    """The same interval of a share, in percent."""
    return Interval(100 * interval.value, 100 * interval.low, 100 * interval.high)


def _counts(score: Mapping[str, Any]) -> BenchmarkScore | None:
    try:
        return BenchmarkScore.from_dict({name: value for name, value in score.items() if name != "grader"})
    except (ValueError, KeyError, TypeError):
        return None  # written by another version: its figures are shown as they are recorded


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path}: not readable as JSON ({error})", hint="restore or remove it") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: holds a {type(content).__name__}, not an object", hint="restore or remove it")
    return content


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return JsonLines(path).read() if path.is_file() else []
