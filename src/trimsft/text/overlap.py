"""Which training problems are benchmark problems: equal once lower-cased and stripped of all but letters and digits.

>>> print(find_overlap(["What is 1+1?", "Find $x$."], {"toy": ["what is 1 + 1"], "other": ["Find $y$."]}))
1 of 2 training problems is also a benchmark problem (toy 1, other 0): row 0
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trimsft.errors import DataError
from trimsft.text.readers import is_text, read_file

_NOT_ALPHANUMERIC = re.compile(r"[\W_]+")
_SHOWN = 5


@dataclass(frozen=True)
class OverlapReport:
    """How many training problems are also benchmark problems."""

    checked: int
    """Training problems looked at."""
    per_benchmark: dict[str, int]
    """Training problems found in each benchmark; one problem may be in several."""
    rows: tuple[int, ...]
    """Rows of the training data, after sampling, that are in any benchmark; from 0."""

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.per_benchmark.items())
        if not self.rows:
            return f"none of {self.checked:,} training problems is also a benchmark problem ({counts})"
        shown = ", ".join(map(str, self.rows[:_SHOWN])) + (", ..." if len(self.rows) > _SHOWN else "")
        verb, noun = (
            ("is also a benchmark problem", "row") if len(self.rows) == 1 else ("are also benchmark problems", "rows")
        )
        return f"{len(self.rows):,} of {self.checked:,} training problems {verb} ({counts}): {noun} {shown}"


def find_overlap(problems: Iterable[str], benchmarks: Mapping[str, Iterable[str]]) -> OverlapReport:
    """Compare every training problem with every problem of every benchmark."""
    # a problem of symbols alone is nothing to compare by
    known = {name: {_bare(problem) for problem in texts} - {""} for name, texts in benchmarks.items()}
    counts = dict.fromkeys(known, 0)
    rows, checked = [], 0
    for row, problem in enumerate(problems):
        checked += 1
        bare = _bare(problem)
        benchmarks_with_it = [name for name, texts in known.items() if bare in texts]
        for name in benchmarks_with_it:
            counts[name] += 1
        if benchmarks_with_it:
            rows.append(row)
    return OverlapReport(checked, counts, tuple(rows))


def read_benchmarks(folder: str | Path) -> dict[str, list[str]]:
    """The field "problem" of every *.jsonl (or *.jsonl.gz) of a folder, by the name of the file."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError("no such folder", field="benchmarks_dir", value=str(folder))
    files = sorted(path for path in root.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")) and path.is_file())
    if not files:
        raise DataError("the folder holds no .jsonl file", field="benchmarks_dir", value=str(folder))
    return {path.name.removesuffix(".gz").removesuffix(".jsonl"): _problems(path) for path in files}


def _problems(path: Path) -> list[str]:
    rows = read_file(path)
    problems = rows.column("problem")
    for number, problem in zip(rows.numbers, problems, strict=True):
        if not is_text(problem):
            raise DataError(f'{path}, line {number}: no text in the field "problem", which a benchmark needs')
    return problems


def _bare(text: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", text.lower())
