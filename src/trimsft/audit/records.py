"""The folder of an audit, and `suspects.jsonl`, its ranking: one line for each span that looks wrong, the worst first.

audit/
  config.yaml  manifest.json  .lock
  tokens.parquet    the token table of the data under the model as it was given
  folds/1/ ...      a run directory for each training, with the token table of the rows that it has not seen
  suspects.jsonl    {"row": 4, "place": "train.jsonl, line 5", "start": 16, "end": 18, "text": "13", "expected": "12",
                     "gap_before": -9.2, "gap_after": -7.5, "score": 7.5, "left": "7 + 5 = ", "right": ".\\nStep 2"}
  flagged.jsonl     the data, each row with the field "audit"
  cleaned.jsonl     the data without the flagged rows, where that was asked for
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trimsft.audit.source import as_line
from trimsft.runs import JsonLines, RunDirectory, write_whole
from trimsft.runs.parsing import checked

AGAIN = "make it again with trimsft audit"


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
        self.folds_dir = self.path / "folds"
        self.suspects_path = self.path / "suspects.jsonl"
        self.flagged_path = self.path / "flagged.jsonl"
        self.cleaned_path = self.path / "cleaned.jsonl"

    def fold(self, number: int) -> RunDirectory:
        """The run directory of one training."""
        return RunDirectory(self.folds_dir / str(number))

    def write_suspects(self, suspects: Sequence[Suspect]) -> None:
        write_whole(self.suspects_path, b"".join(as_line(asdict(one)) for one in suspects))

    def read_suspects(self) -> list[Suspect]:
        """The ranking; empty where there is none."""
        lines = JsonLines(self.suspects_path).read() if self.suspects_path.is_file() else []
        return checked(list[Suspect], lines, where=str(self.suspects_path), hint=AGAIN)
