"""The data of an audit: problems and solutions as training reads them, and the rows that they came from.

    source = read_source(AuditSettings(data="train.jsonl", model="runs/sft"))
    source.pairs[3]            # {"problem": ..., "solution": ...}, the fourth row that is audited
    source.numbers[3]          # which row of the data that is, from 0
    source.places[3]           # "train.jsonl, line 5": where a person finds it
    for row in source.rows():  # every row of the data with all its fields, also those that are not audited

Rows of the hub have the columns of problems and solutions only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimsft.audit.settings import AuditSettings
from trimsft.errors import DataError
from trimsft.text.readers import FileRows, is_text, list_files, read_file
from trimsft.text.rows import DataConfig
from trimsft.tokens.measure import read_rows
from trimsft.tokens.settings import TokenSettings


@dataclass(frozen=True)
class Source:
    """What is audited, and where it stands in the data."""

    pairs: list[dict[str, str]]
    numbers: list[int]
    places: list[str]
    files: list[FileRows]  # of local data

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows of the data, in their order."""
        if not self.files:
            yield from (dict(pair) for pair in self.pairs)
        for file in self.files:
            yield from file.records if isinstance(file.records, list) else file.records.to_pylist()

    def fingerprint(self) -> str:
        """SHA-256 of the pairs."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            digest.update(json.dumps([pair["problem"], pair["solution"]]).encode())
        return digest.hexdigest()


def read_source(settings: AuditSettings) -> Source:
    """Read the data; refuses what `trimsft tokens` refuses."""
    named = ("data", "problem_column", "solution_column", "drop_incomplete")
    pairs = read_rows(TokenSettings(models=(settings.model,), **{name: getattr(settings, name) for name in named}))
    files, numbers, places = [], list(range(len(pairs))), [f"row {number}" for number in range(len(pairs))]
    if DataConfig(dataset_name=settings.data).is_local:
        files = [read_file(path) for path in list_files(settings.data, field="data")]
        numbers, places = _places(files, settings)
    if len(numbers) != len(pairs):
        raise DataError("has changed while it was read", field="data", value=settings.data, hint="start again")
    end = settings.limit
    return Source(pairs[:end], numbers[:end], places[:end], files)


def _places(files: list[FileRows], settings: AuditSettings) -> tuple[list[int], list[str]]:
    """Number and place of each row that has a problem and a solution: these are the ones that are read."""
    numbers, places, count = [], [], 0
    for file in files:
        columns = (file.column(name) for name in (settings.problem_column, settings.solution_column))
        for line, problem, solution in zip(file.numbers, *columns, strict=True):
            if is_text(problem) and is_text(solution):
                numbers.append(count)
                places.append(f"{file.path.name}, {file.unit} {line}")
            count += 1
    return numbers, places


def as_line(row: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON; what JSON has no form for (a date of Parquet) becomes text."""
    return (json.dumps(row, default=str) + "\n").encode()
