"""Runs as everything that is reported reads them: run directories, or token tables alone.

    run = read_run("TrimSFT", Path("runs/trim"))
    run.objective                                   # "trim", from config.yaml or else from the label
    run.scores["gsm8k"]                             # a BenchmarkScore
    run.interval_percent("gsm8k", "pass@8")
    run.table                                       # tokens.parquet, or None

Each file is read when it is asked for first, and once; what a run lacks is empty or None.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from trimsft.errors import RunError, TrimSFTError, UsageError
from trimsft.evaluate.scores import BenchmarkScore, Recorded, macros, read_scores
from trimsft.intervals import Interval
from trimsft.objectives import OBJECTIVES, PAPER_OBJECTIVES, PARAMETERS
from trimsft.report.colours import method_of
from trimsft.runs import JsonLines, RunDirectory
from trimsft.runs.parsing import checked, read_json
from trimsft.tokens.measure import name_of
from trimsft.tokens.statistics import objective_of
from trimsft.tokens.table import TokenTable, read_metadata, read_token_table

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Asked:
    """A line of problems.jsonl, as far as it is shown."""

    id: str
    problem: str = ""
    answer: str | tuple[str, ...] = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grade:
    """A line of grades.jsonl."""

    problem: str = ""
    sample: int = 0
    status: str = "not graded"
    answer: str | None = None
    cluster: int | None = None  # which samples voted together
    temperature: float | None = None  # of a further temperature


@dataclass(frozen=True)
class Written:
    """A line of samples.jsonl, with its grade."""

    problem: str
    sample: int
    text: str
    tokens: int | None = None
    temperature: float | None = None
    grade: Grade = Grade()


@dataclass(frozen=True)
class _Versions:
    versions: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Settings:
    details: _Versions | None = None


@dataclass(frozen=True)
class Run:
    """One run: a row of the tables."""

    label: str
    folder: Path  # A run directory, or the file of a token table
    only: tuple[str, ...] = ()  # benchmarks, in place of all that have scores

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.folder)

    @property
    def tokens_path(self) -> Path:
        return self.folder if self.folder.is_file() else self.directory.tokens_path

    @cached_property
    def table(self) -> TokenTable | None:
        """Its token table."""
        return read_token_table(self.tokens_path) if self.tokens_path.is_file() else None

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.folder.is_file() else self.directory.read_manifest()

    @cached_property
    def objective(self) -> str | None:
        """The name of the objective that it was trained with, as given, where that is known; its code is not loaded."""
        config = None if self.folder.is_file() else self.directory.read_config()
        if config is not None and config.get("objective") is not None:
            return str(config["objective"])
        trained = self.manifest.get("objective")  # knows the default, too, which config.yaml need not name
        if isinstance(trained, dict) and isinstance(trained.get("name"), str):
            return str(trained["name"])
        method = method_of(self.label)
        return method if method in OBJECTIVES else None

    @property
    def trained_from(self) -> str:
        """The model that its manifest names."""
        model = self.manifest.get("model", "")
        return str(model.get("name", "") if isinstance(model, dict) else model)

    @property
    def versions(self) -> list[Mapping[str, Any]]:
        """Packages and their versions: of the training, and of the first evaluation that recorded any."""
        trained = checked(_Versions, dict(self.manifest), where=str(self.directory.manifest_path)).versions
        details = (
            checked(_Settings, self.settings(name), where=f"{name}/settings.json").details for name in self.scores
        )
        return [one for one in (trained, next((one.versions for one in details if one), None)) if one]

    # ---- evaluations

    @cached_property
    def recorded(self) -> Mapping[str, Recorded]:
        """scores.json of each benchmark: scores and grader."""
        names = [] if self.folder.is_file() else self.only or self.directory.evaluations()
        return {name: read_scores(self.directory.eval_dir / name) for name in names}

    @cached_property
    def scores(self) -> Mapping[str, BenchmarkScore]:
        return {name: recorded.scores for name, recorded in self.recorded.items()}

    def settings(self, benchmark: str) -> dict[str, Any]:
        """settings.json of a benchmark; empty where there is none."""
        return _read_object(self.directory.eval_dir / benchmark / "settings.json")

    def interval_percent(self, benchmark: str, metric: str) -> Interval | None:
        """A metric of one benchmark: average, greedy, pass@k or majority@k."""
        score = self.scores.get(benchmark)
        if score is None or metric not in score.metrics:
            return None
        return in_percent(score.interval(metric))

    def mean_intervals_percent(self, benchmarks: Sequence[str], metrics: Sequence[str]) -> dict[str, Interval]:
        """The mean over benchmarks, as `trimsft eval` shows it; without metrics that one of them lacks."""
        if not benchmarks or not all(benchmark in self.scores for benchmark in benchmarks):
            return {}
        known = [m for m in metrics if all(self.interval_percent(name, m) is not None for name in benchmarks)]
        means = macros([self.scores[name] for name in benchmarks], known) if known else {}
        return {metric: in_percent(interval) for metric, interval in means.items()}

    def samples(self, benchmark: str, problems: Collection[str]) -> list[Written]:
        """Texts and grades of these problems' samples, none of further temperatures; greedy is number -1."""
        folder = self.directory.eval_dir / benchmark

        def lines(name: str, kind: type[Kind]) -> Iterator[Kind]:
            each: Iterator[Any] = _each_line(folder / name, kind)
            return (one for one in each if one.problem in problems and one.temperature is None)

        grades = {(one.problem, one.sample): one for one in lines("grades.jsonl", Grade)}
        samples = lines("samples.jsonl", Written)
        return [replace(one, grade=grades.get((one.problem, one.sample), one.grade)) for one in samples]

    def has_samples(self, benchmark: str) -> bool:
        """Tell whether the texts are there, and not their counts alone."""
        return (self.directory.eval_dir / benchmark / "samples.jsonl").is_file()

    @cached_property
    def problems(self) -> Mapping[str, Mapping[str, Asked]]:
        """The problems of each benchmark by id, as they were asked; none where the file is gone."""
        paths = {name: self.directory.eval_dir / name / "problems.jsonl" for name in self.scores}
        return {name: {asked.id: asked for asked in _each_line(path, Asked)} for name, path in paths.items()}


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


def base_of(runs: Sequence[Run]) -> Run | None:
    """Return the first run with tokens that no objective has trained: its logits are those before a training."""
    return next((run for run in runs if run.table and run.objective is None), None)


def checked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """margin, bandwidth and gamma of the paper but for those that are given; refuses what none of them can be."""
    for name in PAPER_OBJECTIVES:
        objective_of(name, parameters)
    return {name: parameters.get(name, default) for name, default in PARAMETERS.items()}


def named_runs(arguments: Sequence[str]) -> dict[str, Path]:
    """[LABEL=]PATH of run directories or token tables; without a label a run is called as its folder.

    A single table outside of a run is called as the model it was made with.
    """
    runs: dict[str, Path] = {}
    for argument in arguments:
        label, equals, name = argument.partition("=")
        if not equals or os.path.exists(argument):  # a label may be longer than a name of a file
            label, name = "", argument
        path = Path(name).expanduser()
        if not path.exists() or (path.is_file() and path.suffix != ".parquet"):
            raise RunError("must be a run directory or a token table (NAME.parquet)", field="runs", value=name)
        if path.is_dir() and not _has_results(RunDirectory(path)):
            hint = "make one with trimsft tokens, trimsft eval or trimsft train, or name another folder"
            problem = "has neither tokens.parquet nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl"
            raise RunError(problem, field="runs", value=name, hint=hint)
        label = label.strip() or (len(arguments) == 1 and _model_of(path.resolve())) or _label_of(path.resolve())
        if label in runs:
            raise RunError(f"two are called {label!r}", field="runs", hint=f"tell them apart as LABEL={name}")
        runs[label] = path
    return runs


def _has_results(directory: RunDirectory) -> bool:
    return directory.tokens_path.is_file() or directory.telemetry_path.is_file() or bool(directory.evaluations())


def _label_of(path: Path) -> str:
    if path.is_dir():
        return path.name
    return path.parent.name if path.name == "tokens.parquet" else path.stem.removeprefix("tokens-")


def _model_of(path: Path) -> str:
    """The model of a tokens.parquet that stands alone in its folder; empty for anything else."""
    directory = RunDirectory(path if path.is_dir() else path.parent)
    if (
        directory.config_path.exists()
        or directory.is_run()
        or directory.evaluations()
        or not directory.tokens_path.is_file()
    ):
        return ""
    with suppress(TrimSFTError):  # a damaged table is refused where it is read
        return name_of(str(read_metadata(directory.tokens_path).get("model", "")))
    return ""


def in_percent(interval: Interval) -> Interval:
    """The same interval of a share, in percent."""
    return Interval(100 * interval.value, 100 * interval.low, 100 * interval.high)


def _read_object(path: Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any]) if path.is_file() else {}


def _each_line(path: Path, kind: type[Kind]) -> Iterator[Kind]:
    for number, line in enumerate(JsonLines(path) if path.is_file() else (), start=1):
        yield checked(kind, line, where=f"{path}, line {number}")
