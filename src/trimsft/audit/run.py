"""`audit(settings)`: from data and a model to a ranking of what looks wrong; called again it continues.

audit/tokens.parquet    the token table of the data under the model as it was given
audit/folds/1/ ...      a run directory for each training, with the token table of the rows that it has not seen
audit/suspects.jsonl    a line for each `Suspect`

The data is read and never written. Nothing heavy is imported before an audit begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from trimsft.data.load import RowSettings
from trimsft.data.visible import single_line
from trimsft.options import option
from trimsft.runs import JsonLines, RunDirectory, environment, find_weights, write_whole
from trimsft.runs.parsing import checked
from trimsft.tables import Cell, Table, Tabular
from trimsft.tokens.categories import CATEGORIES

Progress = Callable[[str, int, int], None]  # called with what is done, how many rows of it, and of how many
HARMLESS = ("threshold", "only", "batch_tokens")
"""Settings that may change when an audit is done again in the same folder: gaps stay what they are."""
AGAIN = "make it again with trimsft audit"


@dataclass(frozen=True, kw_only=True)
class AuditSettings(RowSettings):
    """Which rows are audited by which model, and how."""

    data: str = option(
        argument="DATA",
        flags=("--data",),
        help="Dataset of the hub, or local files (.jsonl .json .parquet, .gz), as for train.",
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
    updates: int = option(200, help="Most updates (of 4 rows) of each training; it never sees a row twice.", least=1)
    learning_rate: float = option(5e-5, help="Learning rate of the training.", above=0)
    seed: int = option(0, help="Seed of the two parts and of the training.", least=0)
    device: str = option(
        "auto", help="Where the model runs: auto takes a GPU if there is one.", choices=("auto", "cpu")
    )
    batch_tokens: int | None = option(None, help="Most tokens in a batch of measuring, padding included.", least=1)


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A span of a solution that looks wrong."""

    row: int  # of those that were audited, from 0
    place: str = ""  # file and line, for a person to open
    start: int  # characters of the solution, or of the trained text of another form; at the end of it the span is empty
    end: int
    text: str
    expected: str  # the span up to its worst token, then the model's own choice
    gap_before: float  # of the worst token, under the model as it was given
    gap_after: float | None  # under a model trained on other rows; None without training
    score: float  # of the worst token, see `trimsft.audit.suspects`
    left: str  # what stands before the span, a few words of it
    right: str
    problem: str = ""  # of the row, where it has one


class AuditFolder(RunDirectory):
    """Where the parts of an audit are."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.suspects_path = self.path / "suspects.jsonl"

    def fold(self, number: int) -> RunDirectory:
        """Return the run directory of one training."""
        return RunDirectory(self.path / "folds" / str(number))

    def read_suspects(self) -> list[Suspect]:
        """Return the ranking; empty where there is none."""
        lines = list(JsonLines(self.suspects_path)) if self.suspects_path.is_file() else []
        return checked(list[Suspect], lines, where=str(self.suspects_path), hint=AGAIN)


@dataclass(frozen=True, kw_only=True)
class AuditResult(Tabular):
    """An audit that has come to its end."""

    folder: AuditFolder
    suspects: list[Suspect]  # the worst first
    rows: int  # rows that were audited

    @property
    def flagged(self) -> list[int]:
        """The rows with a suspect, by their number."""
        return sorted({one.row for one in self.suspects})

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "ranking": str(self.folder.suspects_path),
            "rows": self.rows,
            "flagged": self.flagged,
            "suspects": [asdict(one) for one in self.suspects],
        }

    @property
    def tables(self) -> list[Table]:
        """The worst suspects."""
        rows = []
        for one in self.suspects[:20]:
            numbers = (one.gap_before, one.gap_after, one.score)
            gaps = (Cell("" if number is None else f"{number:.1f}", data=number) for number in numbers)
            left, text, right, expected = map(single_line, (one.left, one.text, one.right, one.expected))
            written = f"{left[-16:]}[{text[:10] or 'end'}]{right[:6]}"
            rows.append((Cell(str(one.row)), *gaps, Cell(expected[:10]), Cell(written)))
        return [Table("", ("row", "before", "after", "score", "expected", "written"), tuple(rows), left=(4, 5))]


def audit(settings: AuditSettings, *, on_progress: Progress = lambda name, done, rows: None) -> AuditResult:
    """Rank what looks wrong in the data, and write the ranking into the folder of the audit.

    The folder is bound to its settings and data; what is in it already is not measured again.
    """
    from trimsft.audit.suspects import find_suspects, measure, read_gaps
    from trimsft.data.encode import fingerprint_rows, load_tokenizer

    rows, places = settings.read()
    tokenizer = load_tokenizer(find_weights(settings.model))
    folder = AuditFolder(settings.out)
    given = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name != "out"}
    with folder.lock():
        folder.settle_config({**given, "data_sha256": fingerprint_rows(rows)}, harmless=HARMLESS)
        folder.write_manifest(**environment(), model={"name": settings.model}, finished=None)
        measure(folder, rows, settings, on_progress)
        gaps = read_gaps(folder, settings, len(rows))
        found = find_suspects(folder, gaps, rows, tokenizer, settings)
        suspects = [replace(one, place=Path(places[one.row]).name) for one in found]
        lines = (json.dumps(asdict(one)) + "\n" for one in suspects)
        write_whole(folder.suspects_path, "".join(lines).encode())
        folder.mark_finished()
    return AuditResult(folder=folder, suspects=suspects, rows=len(rows))
