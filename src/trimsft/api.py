"""The commands as functions: each takes the options of its command as keywords.

    suspects = trimsft.audit_data([{"problem": "2 + 2?", "solution": "4"}], "runs/trim", out="audit").suspects
    print(trimsft.compare_runs(["runs/sft", "runs/trim"]))

A model is a run directory, a folder, or a name of the hub. Data is a file, a dataset of the hub, or rows: a Dataset or
a list of dictionaries. Results print as tables, also in a notebook, and `to_pandas()` has the figures. Errors are
`trimsft.errors.TrimSFTError`: their `field`, `value` and `hint` say what to change.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from trimsft.audit.run import AuditResult, AuditSettings, audit
from trimsft.evaluate.settings import EvalSettings
from trimsft.report.comparison import Compared, CompareSettings, compare
from trimsft.report.report import ReportFiles, ReportSettings, make_report
from trimsft.runs import write_whole
from trimsft.tokens import measure

if TYPE_CHECKING:
    from trl import ModelConfig

    from trimsft.data.load import DataConfig
    from trimsft.evaluate.run import Evaluated
    from trimsft.train.config import TrimSFTConfig
    from trimsft.train.run import TrainResult

Names: TypeAlias = str | Path | Sequence[str | Path]
Rows: TypeAlias = str | Path | Iterable[Mapping[str, Any]]
Options = ParamSpec("Options")
First = TypeVar("First")
Second = TypeVar("Second")
Result = TypeVar("Result")


class _takes(Generic[Options]):
    """Give the keywords of a function the names and types of the fields of settings."""

    def __init__(self, settings: Callable[Options, Any]) -> None:
        self._settings = settings

    @overload
    def __call__(
        self, run: Callable[[First, Second], Result]
    ) -> Callable[Concatenate[First, Second, Options], Result]: ...
    @overload
    def __call__(self, run: Callable[[First], Result]) -> Callable[Concatenate[First, Options], Result]: ...
    @overload
    def __call__(self, run: Callable[[], Result]) -> Callable[Options, Result]: ...
    def __call__(self, run: Any) -> Any:
        own = {name: one for name, one in inspect.signature(run).parameters.items() if one.kind != one.VAR_KEYWORD}
        fields = inspect.signature(self._settings).parameters
        run.__signature__ = inspect.Signature([*(own | dict(fields) | own).values()])
        return run


if TYPE_CHECKING:

    @dataclass
    class TrainOptions(TrimSFTConfig, DataConfig, ModelConfig):  # type: ignore[misc]
        """The fields of `trimsft train`, with the short names."""

        config: str | Path | None = None
        model: str | Path | None = None
        data: Rows | None = None

else:

    def TrainOptions(**fields: Any) -> None:
        """Stand in for what only a type checker needs: TRL takes five seconds to import."""


@_takes(TrainOptions)
def train_model(**fields: Any) -> TrainResult:
    """Fine-tune a model; Ctrl-C and SIGTERM end it with a checkpoint, the same call continues."""
    from trimsft.train.run import train_model

    return train_model(**{name: _data_file(value) if name == "data" else value for name, value in fields.items()})


@_takes(EvalSettings)
def evaluate_model(model: str | Path, benchmarks: Names, **options: Any) -> Evaluated:
    """Sample, grade and score a model on benchmarks; what is recorded is not generated again."""
    from trimsft.evaluate.run import evaluate

    return evaluate(EvalSettings(**options | {"model": model, "benchmarks": benchmarks}))


@_takes(measure.TokenSettings)
def measure_tokens(models: Names, data: Rows, **options: Any) -> measure.TokenTables:
    """Write the token table of each model over the same rows; finished ones are kept."""
    return measure.measure_tokens(measure.TokenSettings(**options | {"models": models, "data": _data_file(data)}))


@_takes(AuditSettings)
def audit_data(data: Rows, model: str | Path, **options: Any) -> AuditResult:
    """Rank the rows and spans of training data that look wrong to a model."""
    return audit(AuditSettings(**options | {"data": _data_file(data), "model": model}))


@_takes(CompareSettings)
def compare_runs(runs: Names, **options: Any) -> Compared:
    """Compare evaluated runs, problem by problem; the first is the baseline."""
    return compare(CompareSettings(**options | {"runs": runs}))


@_takes(ReportSettings)
def write_report(runs: Names, **options: Any) -> ReportFiles:
    """Write one page about runs, directories or token tables, also "LABEL=PATH"; the base first."""
    return make_report(ReportSettings(**options | {"runs": runs}))


def _data_file(data: Any) -> Any:
    """Return the name of data; rows go to a file of the cache, named by its content."""
    rows = [] if isinstance(data, str | bytes | Path) or not isinstance(data, Iterable) else list(data)
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        return data
    content = "".join(json.dumps(dict(row), default=str) + "\n" for row in rows).encode()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimsft"
    path = cache / f"rows-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, content)
    return str(path)
