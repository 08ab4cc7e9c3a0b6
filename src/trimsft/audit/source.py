"""The data of an audit: rows as training reads them, in any of its forms, and where they came from.

    source = read_source(AuditSettings(data="train.jsonl", model="runs/sft"))
    source.audited[3]          # {"problem": ..., "solution": ...}, the fourth row that is audited
    source.numbers[3]          # which row of the data that is, from 0
    source.places[3]           # "train.jsonl, line 5": where a person finds it
    for row in source.rows():  # every row of the data with all its fields, also those that are not audited

Rows of the hub have the columns of their form only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimsft.audit.settings import AuditSettings
from trimsft.data.load import DataConfig, FileRows, as_known_file, is_text, list_files, read_file
from trimsft.errors import DataError
from trimsft.tokens.measure import read_rows
from trimsft.tokens.settings import TokenSettings


@dataclass(frozen=True)
class Source:
    """What is audited, and where it stands in the data."""

    audited: list[dict[str, Any]]
    numbers: list[int]
    places: list[str]
    files: list[FileRows]  # of local data

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows of the data, in their order."""
        if not self.files:
            yield from map(dict, self.audited)
        for file in self.files:
            yield from file.rows()


def read_source(settings: AuditSettings) -> Source:
    """Read the data; refuses what `trimsft tokens` refuses."""
    rows = read_rows(TokenSettings(models=(settings.model,), **{name: getattr(settings, name) for name in _READ}))
    files, numbers, places = [], list(range(len(rows))), [f"row {number}" for number in range(len(rows))]
    if DataConfig(dataset_name=settings.data).is_local:
        files = [read_file(path) for path in list_files(settings.data, field="data")]
        numbers, places = _places(files, settings)
    if len(numbers) != len(rows):
        raise DataError("has changed while it was read", field="data", value=settings.data, hint="start again")
    end = settings.limit
    return Source(rows[:end], numbers[:end], places[:end], files)


_READ = (
    "data", "problem_column", "solution_column", "drop_incomplete", "template", "system_prompt", "assistant_only_loss",
)  # fmt: skip


def _places(files: list[FileRows], settings: AuditSettings) -> tuple[list[int], list[str]]:
    """Number and place of each row that is read; of problems and solutions those that have both."""
    numbers, places, count = [], [], 0
    pair = settings.problem_column, settings.solution_column
    for file in files:
        known = as_known_file(file, pair)
        columns = [known.column(name) for name in pair if name in known.columns]
        for line, *texts in zip(file.numbers, *columns, strict=True):
            if all(map(is_text, texts)):
                numbers.append(count)
                places.append(f"{file.path.name}, {file.unit} {line}")
            count += 1
    return numbers, places


def as_line(row: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON; what JSON has no form for becomes null (NaN, infinity) or text (a date of Parquet)."""
    try:
        line = json.dumps(row, default=str, allow_nan=False)
    except ValueError:  # seldom, and many times slower
        line = json.dumps(_with_null(row), default=str)
    return (line + "\n").encode()


def _with_null(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_null(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
