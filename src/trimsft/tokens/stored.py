"""Token tables of any size: those that are large stay in their file and are read in parts of whole examples.

    table = open_token_table(Path("tokens.parquet"))
    table.example_count, len(table)
    for part in table.parts():        # a TokenTable of half a million tokens at most
        part["gap"]                   # read when it is asked for

A table that fits into one part is read at once, so that what is computed of it does not depend on this file. A part is
made of row groups, and `trimsft tokens` writes one for each 256 rows. Where examples are spread over row groups in no
order, there is no part but the whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trimsft.tokens.table import (
    NUMBERS,
    TokenTable,
    checked_metadata,
    checked_numbers,
    opened,
    read_token_table,
    reading,
)

PART = 2**19  # tokens in a part, at most, where row groups and examples are smaller


def open_token_table(path: Path) -> TokenTable:
    """The numbers of a table, all checked; only a small one is held in memory."""
    with opened(path) as file:
        if file.metadata.num_rows > PART:
            metadata = checked_metadata(path, file.schema_arrow)
            groups, examples = _scan(path, file)
            if len(groups) > 1:
                return StoredTable({}, {}, metadata, path, tuple(groups), file.metadata.num_rows, examples)
    return read_token_table(path)


@dataclass(frozen=True)
class StoredTable(TokenTable):
    """A table that is read from its file again whenever it is gone through."""

    path: Path
    groups: tuple[range, ...]  # the row groups of each part
    tokens: int
    examples: int

    def __len__(self) -> int:
        return self.tokens

    def __getitem__(self, column: str) -> NDArray[Any]:
        """A whole column: more than what goes through the parts ever holds."""
        return np.concatenate([part[column] for part in self.parts()])

    @property
    def example_count(self) -> int:
        return self.examples

    def first_examples(self, most: int) -> list[int]:
        numbers: list[int] = []
        for part in self.parts():
            numbers += part.first_examples(most - len(numbers))
            if len(numbers) == most:
                break
        return numbers

    def parts(self) -> Iterator[TokenTable]:
        with opened(self.path) as file:
            for groups in self.groups:
                yield TokenTable(_Columns(self.path, file, groups), {}, self.metadata)


class _Columns(Mapping[str, NDArray[Any]]):
    """Columns of some row groups, each of which is read when it is asked for first."""

    def __init__(self, path: Path, file: pq.ParquetFile, groups: range) -> None:
        self._path, self._file, self._groups = path, file, groups
        self._read: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in NUMBERS:
            raise KeyError(name)
        if name not in self._read:
            with reading(self._path):
                table = self._file.read_row_groups(list(self._groups), columns=[name])
            self._read[name] = checked_numbers(self._path, name, table)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(NUMBERS)

    def __len__(self) -> int:
        return len(NUMBERS)


def _scan(path: Path, file: pq.ParquetFile) -> tuple[list[range], int]:
    """Check all numbers; the row groups of each part, and the number of examples."""
    cuts: list[int] = []  # row groups that begin with a new example
    examples, last = 0, -1
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, columns=list(NUMBERS))
        example = {name: checked_numbers(path, name, table) for name in NUMBERS}["example"]
        if not len(example):
            continue
        if example[0] < last or np.any(np.diff(example) < 0):
            return [range(file.num_row_groups)], 0
        is_new = bool(example[0] > last)
        cuts += [group] if is_new else []
        examples += int(np.count_nonzero(np.diff(example))) + is_new
        last = int(example[-1])
    rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return _joined(cuts, rows), examples


def _joined(cuts: Sequence[int], rows: Sequence[int]) -> list[range]:
    """Row groups put together, up to `PART` tokens; only at the cuts does a part end."""
    parts, begin, held = [], 0, 0
    for start, stop in pairwise([*cuts, len(rows)]):
        size = sum(rows[start:stop])
        if held and held + size > PART:
            parts.append(range(begin, start))
            begin, held = start, 0
        held += size
    return [*parts, range(begin, len(rows))]
