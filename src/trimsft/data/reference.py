"""Log-probabilities of a reference model beside the rows to train on, from a table that `trimsft tokens` has made.

    input_ids           prompt tokens | It     is     \\boxed{2}. <eos>
    labels              -100 ... -100 | It     is     \\boxed{2}. <eos>
    reference_logprobs  nan  ...  nan | -0.11  -0.02  ...

The table must be of the same rows, rendered alike and tokenised alike; a token that it lacks has nan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
from datasets import Dataset
from numpy.typing import NDArray

from trimsft.data.templates import PromptTemplate
from trimsft.errors import DataError, TrimSFTError, one_line
from trimsft.head import IGNORED
from trimsft.runs.parsing import parse_json

COLUMN = "reference_logprobs"
_COLUMNS = ("example", "token_id", "nll")
_HINT = "make it again of these rows: trimsft tokens REFERENCE --data DATA"


def fingerprint_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """A hash of rows in the columns of their form, by which a token table is known to be of the same ones."""
    digest = hashlib.sha256()
    for row in rows:
        content = [row["problem"], row["solution"]] if "problem" in row else row
        digest.update(json.dumps(content, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def table_of(reference: str) -> Path:
    """The table that a setting names: a file, or the one in a run directory."""
    path = Path(reference).expanduser()
    table = path / "tokens.parquet" if path.is_dir() else path
    if not table.is_file():
        hint = "trimsft tokens REFERENCE --data DATA makes one"
        raise DataError("there is no such token table", field="reference", value=str(table), hint=hint)
    return table


def add_reference(
    encoded: Dataset, reference: str, rows: Sequence[Mapping[str, str]], template: PromptTemplate
) -> Dataset:
    """The tokenised rows with the column `reference_logprobs`.

    Args:
        encoded: `input_ids` and `labels` of the rows, at full length.
        rows: the same, as problem and solution.
        template: what renders their prompts.
    """
    path = table_of(reference)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata = parse_json((file.schema_arrow.metadata or {}).get(b"trimsft", b"{}"))
            _require_same(metadata, rows, template)
            table = {column: file.read(columns=[column]).column(column).to_numpy() for column in _COLUMNS}
    except TrimSFTError:
        raise
    except Exception as error:  # Arrow raises whatever the file makes it
        problem = f"{path} is not readable as a token table ({one_line(error)})"
        raise DataError(problem, field="reference", hint=_HINT) from error
    values = _aligned(encoded, table, cuts_front=metadata.get("truncation_mode") == "keep_end")
    return encoded.add_column(COLUMN, values, feature=datasets.List(datasets.Value("float32")))


def _require_same(metadata: Any, rows: Sequence[Mapping[str, str]], template: PromptTemplate) -> None:
    """Refuse a table that is of other rows or other prompts."""
    data = metadata.get("data", {}) if isinstance(metadata, dict) else {}
    if data.get("sha256") != fingerprint_rows(rows):
        problem = f"the table is of other rows than the {len(rows):,} to train on"
        raise DataError(problem, field="reference", hint=_HINT + " with the same sample and seed")
    prompts = metadata.get("prompts") or []
    rendered = template.render([row["problem"] for row in rows[: len(prompts)]])
    if any(not prompt.startswith(kept) for kept, prompt in zip(prompts, rendered, strict=True)):  # long ones are cut
        hint = "make both with the same template and system prompt"
        raise DataError("the table has other prompts for the same problems", field="reference", hint=hint)


def _aligned(encoded: Dataset, table: Mapping[str, NDArray[Any]], *, cuts_front: bool) -> list[NDArray[np.float32]]:
    """The reference of every token of every row; a row may be cut, in the table, at one of its ends."""
    bounds = np.searchsorted(table["example"], np.arange(len(encoded) + 1))
    values = []
    for number, labels in enumerate(encoded.with_format("numpy")["labels"]):
        part = slice(bounds[number], bounds[number + 1])
        places = np.flatnonzero(np.asarray(labels) != IGNORED)
        count = bounds[number + 1] - bounds[number]
        places = places[len(places) - count :] if cuts_front else places[:count]
        if len(places) != count or not np.array_equal(np.asarray(labels)[places], table["token_id"][part]):
            raise DataError(f"the table has other tokens in row {number}", field="reference", hint=_HINT)
        row = np.full(len(labels), np.nan, dtype=np.float32)
        row[places] = -table["nll"][part]
        values.append(row)
    return values
