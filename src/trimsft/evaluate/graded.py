"""`graded.json`: what the grades and scores of a record were made of, so that only what is new is graded.

{"kind": "strict", "version": "6", "format": 2, "ignored_rules": [], "problems": 500, "problems_sha256": "0f3c...",
 "samples_bytes": 9241022, "samples_sha256": "77ab...", "grades_sha256": "...", "scores_sha256": "..."}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trimsft.errors import RunError
from trimsft.evaluate.problems import grading_fingerprint
from trimsft.evaluate.records import FORMAT, SCORES
from trimsft.evaluate.samples import Key, SampleRecord
from trimsft.runs import JsonLines, write_whole
from trimsft.runs.parsing import checked, read_json

GRADES = "grades.jsonl"


@dataclass(frozen=True)
class GradeLine:
    """A line of grades.jsonl."""

    problem: str
    sample: int
    status: str
    answer: str | None
    cluster: int | None


@dataclass(frozen=True)
class Graded:
    """The grader, and what it has read and written, by fingerprints."""

    kind: str  # strict, qwen, or the name of the user's own scorer
    version: str
    format: int  # of scores.json
    ignored_rules: list[str]
    problems: int
    problems_sha256: str
    samples_bytes: int
    samples_sha256: str
    grades_sha256: str
    scores_sha256: str

    @classmethod
    def read(cls, folder: Path) -> Graded | None:
        """None where there is none that can be read: then all is graded again."""
        try:
            return read_json(folder / "graded.json", cls)
        except (OSError, RunError):
            return None

    @classmethod
    def of(cls, record: SampleRecord, kind: str, version: str, ignored_rules: Sequence[str]) -> Graded:
        """What is in the folder now."""
        problems, samples = record.problems(), record.samples_path
        return cls(
            kind=kind,
            version=version,
            format=FORMAT,
            ignored_rules=list(ignored_rules),
            problems=len(problems),
            problems_sha256=grading_fingerprint(problems),
            samples_bytes=samples.stat().st_size if samples.exists() else 0,
            samples_sha256=_sha256(samples),
            grades_sha256=_sha256(record.folder / GRADES),
            scores_sha256=_sha256(record.folder / SCORES),
        )

    def write(self, folder: Path) -> None:
        write_whole(folder / "graded.json", (json.dumps(asdict(self), indent=1) + "\n").encode())

    def grades(self, record: SampleRecord, kind: str, version: str) -> dict[Key, GradeLine]:
        """The grades that still hold; none where the grader or their file is another. Samples must be as they were."""
        if _sha256(record.samples_path, self.samples_bytes) != self.samples_sha256:
            raise RunError(
                f"{record.samples_path}: has changed since it was graded, and was only ever added to",
                hint="restore it, or remove graded.json beside it to have it graded as it is",
            )
        path = record.folder / GRADES
        is_same = (
            (self.kind, self.version) == (kind, version)
            and grading_fingerprint(record.problems()[: self.problems]) == self.problems_sha256
            and _sha256(path) == self.grades_sha256
        )
        lines = (checked(GradeLine, line, where=str(path)) for line in (JsonLines(path) if is_same else ()))
        return {Key(grade.problem, grade.sample): grade for grade in lines}


def _sha256(path: Path, most: int = 1 << 62) -> str:
    """The fingerprint of the first `most` bytes of a file; that of nothing where there is no file."""
    digest = hashlib.sha256()
    if path.exists():
        with open(path, "rb") as file:
            while most > 0 and (block := file.read(min(most, 2**20))):
                digest.update(block)
                most -= len(block)
    return digest.hexdigest()
