"""Runs as everything that is reported reads them: run directories, or token tables alone.

    run = Run("TrimSFT", Path("runs/trim"))
    run.objective                                   # "trim", from config.yaml or else from the label
    run.scores["gsm8k"]                             # a BenchmarkScore
    run.table                                       # tokens.parquet, or None

Each file is read when it is asked for first, and once; what a run lacks is empty or None.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from trimsft.errors import RunError, UsageError
from trimsft.evaluate.benchmarks import Problem, read_problems
from trimsft.evaluate.metrics import GradeLine
from trimsft.evaluate.samples import Sample
from trimsft.evaluate.scores import BenchmarkScore, read_scores
from trimsft.objectives import OBJECTIVES, PAPER_OBJECTIVES, PARAMETERS
from trimsft.report.colours import method_of
from trimsft.runs import JsonLines, RunDirectory
from trimsft.runs.parsing import checked, read_json
from trimsft.runs.records import TelemetryLine
from trimsft.tokens.statistics import objective_of
from trimsft.tokens.table import TokenTable, read_token_table

Kind = TypeVar("Kind", Sample, GradeLine)


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
    def is_table(self) -> bool:
        return self.folder.is_file()

    @property
    def tokens_path(self) -> Path:
        return self.folder if self.is_table else self.directory.tokens_path

    @cached_property
    def table(self) -> TokenTable | None:
        """Return its token table."""
        return read_token_table(self.tokens_path) if self.tokens_path.is_file() else None

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        return {} if self.is_table else self.directory.read_manifest()

    @cached_property
    def config(self) -> Mapping[str, Any]:
        return {} if self.is_table else self.directory.read_config() or {}

    @cached_property
    def objective(self) -> str | None:
        """Return the name of the objective that it was trained with; its code is not loaded."""
        if self.config.get("objective") is not None:
            return str(self.config["objective"])
        trained = self.manifest.get("objective")  # knows the default, too, which config.yaml need not name
        if isinstance(trained, dict) and isinstance(trained.get("name"), str):
            return str(trained["name"])
        method = method_of(self.label)
        return method if method in OBJECTIVES else None

    @cached_property
    def course(self) -> list[TelemetryLine]:
        """Return what its training logged of its tokens, step by step."""
        path = self.directory.telemetry_path
        if self.is_table or not path.is_file():
            return []
        lines = checked(list[TelemetryLine], list(JsonLines(path)), where=str(path))
        return [line for line in lines if line.nll is not None]  # neither an evaluation nor the end

    # ---- evaluations

    @cached_property
    def scores(self) -> Mapping[str, BenchmarkScore]:
        """Return scores.json of each benchmark."""
        names = [] if self.is_table else self.only or self.directory.evaluations()
        return {name: read_scores(self.directory.eval_dir / name) for name in names}

    def settings(self, benchmark: str) -> dict[str, Any]:
        """Return settings.json of a benchmark; empty where there is none."""
        path = self.directory.eval_dir / benchmark / "settings.json"
        return read_json(path, dict[str, Any]) if path.is_file() else {}

    def has_samples(self, benchmark: str) -> bool:
        """Tell whether the texts are there, and not their counts alone."""
        return (self.directory.eval_dir / benchmark / "samples.jsonl").is_file()

    def samples(self, benchmark: str, problems: Collection[str]) -> dict[str, list[tuple[Sample, GradeLine]]]:
        """Return the graded samples, greedy (-1) first, none of further temperatures."""
        folder = self.directory.eval_dir / benchmark

        def lines(name: str, kind: type[Kind]) -> Iterator[Kind]:
            path = folder / name
            for number, line in enumerate(JsonLines(path) if path.is_file() else (), start=1):
                one = checked(kind, line, where=f"{path}, line {number}")
                if one.problem in problems and one.temperature is None:
                    yield one

        grades = {(one.problem, one.sample): one for one in lines("grades.jsonl", GradeLine)}
        graded: dict[str, list[tuple[Sample, GradeLine]]] = {}
        for one in sorted(lines("samples.jsonl", Sample), key=lambda one: one.sample):
            if grade := grades.get((one.problem, one.sample)):
                graded.setdefault(one.problem, []).append((one, grade))
        return graded

    @cached_property
    def problems(self) -> Mapping[str, Mapping[str, Problem]]:
        """Return the problems of each benchmark by id, as they were asked."""
        paths = {name: self.directory.eval_dir / name / "problems.jsonl" for name in self.scores}
        asked = {name: read_problems(path) for name, path in paths.items() if path.is_file()}
        return {name: {one.id: one for one in problems} for name, problems in asked.items()}


def read_runs(runs: Mapping[str, Path]) -> list[Run]:
    """Return the runs by label, in their order: run directories, or files of token tables."""
    if not runs:
        raise UsageError("there are none", field="runs", hint="give at least one run directory or token table")
    for label, folder in runs.items():
        if not folder.is_dir() and not (folder.is_file() and folder.suffix == ".parquet"):
            hint = "name a run directory, or a token table (NAME.parquet)"
            raise RunError(f"{label!r} has no folder {str(folder)!r}", field="runs", hint=hint)
    return [Run(label, Path(folder)) for label, folder in runs.items()]


def checked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return margin, bandwidth and gamma, the paper's where not given."""
    for name in PAPER_OBJECTIVES:
        objective_of(name, parameters)
    return {name: parameters.get(name, default) for name, default in PARAMETERS.items()}


def named_runs(arguments: Sequence[str]) -> dict[str, Path]:
    """Read [LABEL=]PATH of run directories or token tables; the folder's name is the default label."""
    runs: dict[str, Path] = {}
    for argument in arguments:
        label, equals, name = argument.partition("=")
        if not equals or os.path.exists(argument):  # a label may be longer than a name of a file
            label, name = "", argument
        path = Path(name).expanduser()
        run = RunDirectory(path)
        if path.is_dir() and not (run.tokens_path.is_file() or run.telemetry_path.is_file() or run.evaluations()):
            hint = "make one with trimsft tokens, trimsft eval or trimsft train, or name another folder"
            problem = "has neither tokens.parquet nor eval/BENCHMARK/scores.json nor train/telemetry.jsonl"
            raise RunError(problem, field="runs", value=name, hint=hint)
        place = path.resolve().parent if path.name == "tokens.parquet" and path.is_file() else path.resolve()
        label = label.strip() or (place.name if place.is_dir() else place.stem.removeprefix("tokens-"))
        if label in runs:
            raise RunError(f"two are called {label!r}", field="runs", hint=f"tell them apart as LABEL={name}")
        runs[label] = path
    return runs
