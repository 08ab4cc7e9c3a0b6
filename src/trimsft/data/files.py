"""Rows of local files: JSON Lines and JSON, each also gzipped, and Parquet; an error names the line.

They are not read by `datasets`, which pads tools with nulls and makes dates of text.

    for number, row in read_records(Path("train.jsonl.gz")):   # as they are read
        ...
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import DataError, one_line

if TYPE_CHECKING:
    from datasets import Dataset

LONGEST_LINE = 2**30
"""Bytes: a few packed ones can be any number of unpacked ones."""
SHARE = re.compile(r":(\d*\.?\d+)\s*(?=,|$)")
"""The share of a file: a.jsonl:0.7,b.jsonl:0.3."""


def list_files(where: str, *, field: str = "dataset_name") -> list[Path]:
    """Return the files that paths and folders joined by commas stand for; an error blames `field`."""
    names = [where] if Path(where).expanduser().exists() else where.split(",")
    files: list[Path] = []
    for name in names:
        path = Path(SHARE.sub("", name).strip()).expanduser()
        if not name.strip() or not path.exists():
            raise DataError("no such file or folder", field=field, value=name.strip())
        members = [path]
        if path.is_dir():
            members = sorted(one for one in path.iterdir() if one.is_file() and suffix_of(one) and one.name[0] != ".")
        if not members:
            raise DataError(f"the folder holds no file ending in {', '.join(SUFFIXES)}", field=field, value=str(path))
        files += members
    return files


def read_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file, each with its number, as they are read."""
    suffix, number = suffix_of(path), None
    if suffix is None:
        raise DataError(f"{path}: unknown format", hint=f"the name must end in one of {', '.join(SUFFIXES)}")
    read, _ = _READERS[suffix.removesuffix(".gz")]
    try:
        for number, row in read(path):
            if not isinstance(row, dict):
                raise DataError(f"{place_of(path, number)}: must be an object, got {type(row).__name__}")
            yield number, row
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    if number is None:
        raise DataError(f"{path}: holds no rows")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text, which end at \\n alone: U+2028 within a string stays."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), start=1):
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                bad = f"byte {error.object[error.start]:#04x}"
                raise DataError(f"{path}, line {number}: not UTF-8 ({bad})") from error


def _read_jsonl(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            yield number, _parsed(line, f"{path}, line {number}")


def _read_json(path: Path) -> Iterator[tuple[int, Any]]:
    items = _parsed("".join(_lines(path)), str(path))
    if not isinstance(items, list):
        raise DataError(f"{path}: must hold a list of objects", hint="one object a line is .jsonl")
    yield from enumerate(items, start=1)


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also of an integer of 9,000 digits
        raise DataError(f"{place}: not usable JSON ({one_line(error)})") from error


def read_parquet(path: Path) -> Dataset:
    """Return the table of this one file; a dataset reader would look at its neighbours, too."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset

    try:
        return Dataset(pq.ParquetFile(path, page_checksum_verification=True).read())
    except (pa.ArrowException, OSError, ValueError) as error:  # also of unknown types
        raise DataError(f"{path}: not usable Parquet ({one_line(error)})") from error


def _read_parquet(path: Path) -> Iterator[tuple[int, Any]]:
    yield from enumerate(read_parquet(path))


_READERS = {".parquet": (_read_parquet, "row"), ".jsonl": (_read_jsonl, "line"), ".json": (_read_json, "item")}
"""How a format is read, and what its rows are counted by."""
SUFFIXES = (*_READERS, ".jsonl.gz", ".json.gz")


def suffix_of(path: Path) -> str | None:
    """Return the end of a name by which its format is known."""
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def place_of(path: Path, number: int) -> str:
    """Return the words for one row of a file."""
    _, unit = _READERS[(suffix_of(path) or "").removesuffix(".gz")]
    return f"{path}, {unit} {number}"


def is_text(value: Any) -> bool:
    """Return whether a value is a string that is not blank and is valid Unicode."""
    # half of a surrogate pair, which JSON can spell, is none
    return isinstance(value, str) and bool(value.strip()) and not re.search("[\ud800-\udfff]", value)
