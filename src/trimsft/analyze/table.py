"""`tokens.parquet`: one line for each trained token, and how it was made in the schema's metadata.

    example position token_id text   nll   gap   competitor_id competitor_text entropy rank gradient_norm
          0        0       52 "Step" 0.11  2.31            77 "So"               0.42    1         0.147

Metadata under the key `trimsft`, as JSON: {"model": "runs/trim/model", "data": {"rows": 100, "sha256": ...}, ...}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from trimsft.files import RunError, written_beside
from trimsft.objectives import TokenStats

SCHEMA = pa.schema(
    [
        ("example", pa.int32()),
        ("position", pa.int32()),  # within the completion, from 0
        ("token_id", pa.int32()),
        ("text", pa.string()),
        ("nll", pa.float32()),
        ("gap", pa.float32()),
        ("competitor_id", pa.int32()),
        ("competitor_text", pa.string()),
        ("entropy", pa.float32()),
        ("rank", pa.int32()),
        ("gradient_norm", pa.float32()),
    ]
)
_KEY = b"trimsft"
_NUMBERS = tuple(field.name for field in SCHEMA if field.type != pa.string())
_TEXTS = ("text", "competitor_text")


@dataclass(frozen=True)
class TokenTable:
    """A token table in memory: numbers as arrays, texts where they were asked for."""

    columns: Mapping[str, NDArray[Any]]
    texts: Mapping[str, Sequence[str]]
    metadata: Mapping[str, Any]

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["gap"])

    def stats(self) -> TokenStats:
        """What objectives weigh; the gold logit itself is not in the table, and no objective asks for it."""
        gap = torch.from_numpy(self.columns["gap"].copy())
        return TokenStats(
            nll=torch.from_numpy(self.columns["nll"].copy()),
            gap=gap,
            gold_logit=torch.full_like(gap, torch.nan),
            competitor=torch.from_numpy(self.columns["competitor_id"].astype(np.int64)),
            entropy=torch.from_numpy(self.columns["entropy"].copy()),
        )


def read_token_table(path: Path, *, first_examples: int | None = None) -> TokenTable:
    """All numbers of a table; or, of its first examples only, the texts as well."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, FileNotFoundError) as error:
        raise RunError(f"{path}: not readable as a token table ({error}); make it again") from error
    with file:
        missing = [name for name in SCHEMA.names if name not in file.schema_arrow.names]
        if missing:
            raise RunError(f"{path}: no column {missing[0]!r}, so it is no token table; make it again")
        metadata = json.loads((file.schema_arrow.metadata or {}).get(_KEY, b"{}"))
        table = file.read(columns=list(_NUMBERS)) if first_examples is None else _first(file, first_examples)
    return TokenTable(
        columns={name: table.column(name).to_numpy() for name in _NUMBERS},
        texts={name: table.column(name).to_pylist() for name in _TEXTS if name in table.column_names},
        metadata=metadata,
    )


def _first(file: pq.ParquetFile, examples: int) -> pa.Table:
    """Row groups hold whole examples in order, so reading ends with the first that lies beyond."""
    parts = []
    for group in range(file.num_row_groups):
        part = file.read_row_group(group)
        keep = part.column("example").to_numpy() < examples
        parts.append(part.filter(pa.array(keep)))
        if not keep.all():
            break
    return pa.concat_tables(parts) if parts else file.read()


class TableWriter:
    """Row groups into a file that nobody sees before it is whole; made by `writing`."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self.tokens = 0

    def append(self, columns: Mapping[str, Any]) -> None:
        """One row group."""
        table = pa.table({name: columns[name] for name in SCHEMA.names}, schema=self._writer.schema)
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self.tokens += table.num_rows


@contextmanager
def writing(path: Path, metadata: Mapping[str, Any]) -> Iterator[TableWriter]:
    """Write a table beside its place, and put it there when all went well."""
    schema = SCHEMA.with_metadata({_KEY: json.dumps(metadata).encode()})
    with written_beside(path) as beside, pq.ParquetWriter(beside, schema, compression="zstd") as writer:
        yield TableWriter(writer)
