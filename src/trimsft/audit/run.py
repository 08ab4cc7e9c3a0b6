"""`audit(settings)`: from data and a model to a ranking of what looks wrong; called again it continues.

    result = audit(AuditSettings(data="train.jsonl", model="runs/sft", out=Path("audit")))
    result.suspects[0].text, result.suspects[0].expected      # "13", "12"

audit/
  config.yaml  manifest.json  .lock
  tokens.parquet    the token table of the data under the model as it was given
  folds/1/ ...      a run directory for each training, with the token table of the rows that it has not seen
  suspects.jsonl    {"row": 4, "place": "train.jsonl, line 5", "start": 16, "end": 18, "text": "13", "expected": "12",
                     "gap_before": -9.2, "gap_after": -7.5, "score": 7.5, "left": "7 + 5 = ", "right": ".\\nStep 2"}
  flagged.jsonl     the data, each row with the field "audit"
  cleaned.jsonl     the data without the flagged rows, where that was asked for

The data is read and never written. Nothing heavy is imported before an audit begins.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

from trimsft.data.load import RowSettings
from trimsft.data.visible import visible
from trimsft.errors import RunError, UsageError, counted
from trimsft.options import option
from trimsft.runs import JsonLines, RunDirectory, environment, find_weights
from trimsft.runs.files import written_beside
from trimsft.runs.parsing import checked
from trimsft.tables import Cell, Table, Tabular
from trimsft.tokens.categories import CATEGORIES

Progress = Callable[[str, int, int], None]  # called with what is done, how many rows of it, and of how many
OF_TRAINING = ("folds", "updates", "batch_rows", "learning_rate", "seed")
"""Settings without effect where `training=False`."""
HARMLESS = ("threshold", "only", "clean", "batch_tokens")
"""Settings that may change when an audit is done again in the same folder: gaps stay what they are."""
AGAIN = "make it again with trimsft audit"


@dataclass(frozen=True, kw_only=True)
class AuditSettings(RowSettings):
    """Which rows are audited by which model, and how."""

    data: str = option(
        argument="DATA",
        flags=("--data",),
        help="Dataset of the hub, or local files (.jsonl .json .csv .parquet, .gz), as for train.",
    )
    model: str = option(help="Run directory, model folder or name of a model on the hub.")
    out: Path = option(Path("audit"), help="The folder of the audit, in which a second call resumes.")
    training: bool = option(
        True,
        flags=("--training/--no-training",),
        help="Measure gaps after a short training, too; without: in one pass.",
    )
    threshold: float = option(4.0, help="Score from which a span is a suspect and its row is flagged.")
    only: str | None = option(
        None, help="Judge only tokens of this category, such as the digits of numbers.", choices=CATEGORIES
    )
    clean: bool = option(False, flags=("--clean",), help="Write cleaned.jsonl, too: the data without flagged rows.")
    folds: int = option(2, help="Parts of the data; each is judged by a training on the others.", least=2)
    updates: int = option(200, help="Most updates of each training; it never sees a row twice.", least=1)
    batch_rows: int = option(4, help="Rows of one update.", least=1)
    learning_rate: float = option(5e-5, help="Learning rate of the training.", above=0)
    seed: int = option(0, help="Seed of the parts and of the training.", least=0)
    device: str = option(
        "auto", help="Where the model runs: auto takes the GPUs if there are any.", choices=("auto", "cpu")
    )
    batch_tokens: int | None = option(None, help="Most tokens in a batch of measuring, padding included.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("data", "model"):
            if not getattr(self, name).strip():
                raise UsageError("is empty", field=name, hint="name a local one, or one of the hub")
        for field in fields(self):
            value = getattr(self, field.name)
            if not self.training and field.name in OF_TRAINING and value != field.default:
                raise UsageError("has no effect without training", field=field.name, value=value, hint="leave it out")


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A span of a solution that looks wrong."""

    row: int  # of the data, from 0
    place: str  # file and line, for a person to open
    start: int  # characters of the solution, or of what TRL makes of a row; at the end of it the span is empty
    end: int
    text: str
    expected: str  # what the model would have written: the span up to its worst token, then the model's own choice
    gap_before: float  # of the worst token, under the model as it was given
    gap_after: float | None  # under a model trained on other rows; None without training
    score: float  # of the worst token, see `trimsft.audit.suspects`
    left: str  # what stands before the span, a few words of it
    right: str


class AuditFolder(RunDirectory):
    """Where the parts of an audit are."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.suspects_path = self.path / "suspects.jsonl"
        self.flagged_path = self.path / "flagged.jsonl"
        self.cleaned_path = self.path / "cleaned.jsonl"

    def fold(self, number: int) -> RunDirectory:
        """Return the run directory of one training."""
        return RunDirectory(self.path / "folds" / str(number))

    def read_suspects(self) -> list[Suspect]:
        """Return the ranking; empty where there is none."""
        lines = JsonLines(self.suspects_path).read() if self.suspects_path.is_file() else []
        return checked(list[Suspect], lines, where=str(self.suspects_path), hint=AGAIN)


@dataclass(frozen=True, kw_only=True)
class AuditResult(Tabular):
    """An audit that has come to its end."""

    folder: AuditFolder
    suspects: list[Suspect]  # the worst first
    rows: int  # rows that were audited
    flagged: list[int]  # rows with a suspect, by their number in the data, from 0

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        places = {"folder": self.folder.path, "ranking": self.folder.suspects_path, "data": self.folder.flagged_path}
        return {
            **{name: str(path) for name, path in places.items()},
            "cleaned": str(self.folder.cleaned_path) if self.folder.cleaned_path.exists() else None,
            "rows": self.rows,
            "flagged": self.flagged,
            "suspects": [asdict(one) for one in self.suspects],
        }

    @property
    def tables(self) -> list[Table]:
        return [self.table()]

    def table(self, most: int = 20) -> Table:
        """Return the worst suspects, up to `most`."""

        def shown(text: str) -> str:
            return visible(text).replace("\n", "↵").replace("\t", "⇥")

        rows = []
        for one in self.suspects[:most]:
            after = Cell("" if one.gap_after is None else f"{one.gap_after:.1f}", data=one.gap_after)
            written = f"{shown(one.left)[-16:]}[{shown(one.text)[:10] or 'end'}]{shown(one.right)[:6]}"
            gaps = [Cell(f"{one.gap_before:.1f}", data=one.gap_before), after, Cell(f"{one.score:.1f}", data=one.score)]
            rows.append((Cell(str(one.row)), *gaps, Cell(shown(one.expected)[:10]), Cell(written)))
        return Table("", ("row", "before", "after", "score", "expected", "written"), tuple(rows), left=(4, 5))


def audit(settings: AuditSettings, *, on_progress: Progress = lambda name, done, rows: None) -> AuditResult:
    """Rank what looks wrong in the data, and write the ranking and a flagged copy into the folder of the audit.

    Raises:
        UsageError, DataError, RunError: before anything is measured; the data and the folder stay as they were.
    """
    from trimsft.audit.crossfit import measure, read_gaps
    from trimsft.audit.suspects import find_suspects
    from trimsft.data.encode import fingerprint_rows, load_tokenizer

    rows, loaded = settings.read()
    rows = rows[: settings.limit]
    places = [f"{Path(one.name).name}, {one.unit} {number}" for one in loaded.sources for number in one.numbers]
    if settings.training:
        _require_training(settings, len(rows))
    tokenizer = load_tokenizer(find_weights(settings.model))
    folder = AuditFolder(settings.out)
    if any(Path(source.name).resolve().parent == folder.path.resolve() for source in loaded.sources):
        hint = "choose another folder for the audit"  # the data would be written over
        raise UsageError("is the folder that the data lies in", field="out", value=str(folder.path), hint=hint)
    made = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
    with ExitStack() as held:
        held.enter_context(folder.lock())
        held.callback(_leave_no_trace, folder, made)
        given = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name != "out"}
        folder.settle_config(given, harmless=HARMLESS)
        data = {"name": settings.data, "rows": len(rows), "fingerprint": fingerprint_rows(rows)}
        if folder.read_manifest().get("data", data)["fingerprint"] != data["fingerprint"]:
            problem = f"{folder.path} holds an audit of other rows: {settings.data} has changed since"
            raise RunError(problem, hint="choose another folder")
        folder.write_manifest(**environment(), model={"name": settings.model}, data=data, finished=None)
        rendering = measure(folder, rows, settings, on_progress)
        gaps = read_gaps(folder, settings, len(rows))
        scores, suspects = find_suspects(
            rows, gaps, settings.threshold, tokenizer, rendering,
            only=settings.only, numbers=loaded.numbers, places=[places[number] for number in loaded.numbers],
        )  # fmt: skip
        flagged = _write(folder, chain.from_iterable(one.records for one in loaded.sources), scores, suspects, settings)
        folder.mark_finished()
    return AuditResult(folder=folder, suspects=suspects, rows=len(rows), flagged=flagged)


def _require_training(settings: AuditSettings, rows: int) -> None:
    """Refuse what the trainings could not do, before anything is measured."""
    import torch

    if rows < settings.folds:
        problem = f"has {counted(rows, 'row')} for {settings.folds} parts"
        raise UsageError(problem, field="data", value=settings.data, remedy=("training", False))
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UsageError("trains in one process", field="training", hint="start it without torchrun or accelerate")
    if settings.device == "auto" and torch.cuda.device_count() > 1:
        hint = "choose one by the environment variable CUDA_VISIBLE_DEVICES"
        raise UsageError(f"uses one GPU, and {torch.cuda.device_count()} are seen", field="training", hint=hint)


def _leave_no_trace(folder: AuditFolder, made: list[Path]) -> None:
    """Where nothing was measured, bind the folder to nothing, and remove it if it was not there before."""
    if any(folder.path.glob("tokens.parquet*")):
        return
    for path in (folder.config_path, folder.manifest_path, folder.path / ".lock"):
        path.unlink(missing_ok=True)
    for path in made:
        with suppress(OSError):  # what holds something else stays
            path.rmdir()


def _write(
    folder: AuditFolder,
    rows: Iterable[Mapping[str, Any]],
    scores: Mapping[int, float],
    suspects: list[Suspect],
    settings: AuditSettings,
) -> list[int]:
    """Write the ranking, the flagged copy and, on request, the cleaned one; return the rows that are flagged."""
    spans: dict[int, list[dict[str, Any]]] = {}
    for one in suspects:
        spans.setdefault(one.row, []).append({"start": one.start, "end": one.end, "score": one.score})
    # a cleaned copy of an earlier threshold would be out of date
    paths = [folder.suspects_path, folder.flagged_path, folder.cleaned_path]
    paths = paths if settings.clean or folder.cleaned_path.exists() else paths[:2]
    with ExitStack() as held:
        beside = [held.enter_context(written_beside(path)) for path in paths]
        ranking, *copies = [held.enter_context(open(path, "wb")) for path in beside]
        ranking.writelines(as_line(asdict(one)) for one in suspects)
        for number, row in enumerate(rows):
            judged = {"score": scores.get(number), "is_suspect": number in spans, "spans": spans.get(number, [])}
            copies[0].write(as_line({**row, "audit": judged if number in scores else None}))
            if number not in spans:
                for cleaned in copies[1:]:
                    cleaned.write(as_line(row))
    return sorted(spans)


def as_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line of JSON; where JSON has no form, null (NaN, infinity) or text (a date of Parquet)."""

    def with_null(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: with_null(entry) for name, entry in value.items()}
        if isinstance(value, list | tuple):
            return [with_null(entry) for entry in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    try:
        line = json.dumps(row, default=str, allow_nan=False)
    except ValueError:  # seldom, and many times slower
        line = json.dumps(with_null(row), default=str)
    return (line + "\n").encode()
