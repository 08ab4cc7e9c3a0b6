"""Local training files: JSON Lines, JSON, CSV (each also gzipped) and Parquet, read so that an error names the place.

A row keeps the number of the line it began on, because that is what the reader of an error message can open:

    {"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}      train.jsonl, line 1
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import DataError, one_line
from trimsft.runs.files import read_unpacked

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz")
_LONGEST_FIELD = 2**31 - 1  # what a C long holds everywhere; csv's own limit of 128 KiB is short for a solution


@dataclass(frozen=True)
class FileRows:
    """The rows of one file, and where each of them stands in it."""

    path: Path
    records: list[dict[str, Any]] | pa.Table
    numbers: Sequence[int]  # the line or item of each row, from 1; in Parquet its row, from 0
    unit: str  # what `numbers` count: line, item or row

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def columns(self) -> list[str]:
        """Every name that some row has, in order of appearance."""
        if not isinstance(self.records, list):
            return list(self.records.column_names)
        return list(dict.fromkeys(name for record in self.records for name in record))

    def column(self, name: str) -> list[Any]:
        """Return one value a row; None where a row lacks it."""
        if isinstance(self.records, list):
            return [record.get(name) for record in self.records]
        values: list[Any] = self.records.column(name).to_pylist()
        return values

    def rows(self) -> Iterable[dict[str, Any]]:
        """Return the rows with all their columns, those of JSON in Parquet decoded."""
        from datasets import Dataset

        try:
            return self.records if isinstance(self.records, list) else Dataset(self.records)
        except ValueError as error:  # a type that datasets has no name for
            raise DataError(f"{self.path}: cannot be read ({one_line(error)})") from error


def list_files(where: str, *, field: str = "dataset_name") -> list[Path]:
    """The files that a path, a folder or several of them joined by commas stand for; an error blames `field`."""
    names = [where] if Path(where).expanduser().exists() else where.split(",")
    files: list[Path] = []
    for name in names:
        path = Path(name.strip()).expanduser()
        if not name.strip() or not path.exists():
            raise DataError("no such file or folder", field=field, value=name.strip())
        members = sorted(child for child in path.iterdir() if _readable(child)) if path.is_dir() else [path]
        if not members:
            raise DataError(f"the folder holds no file ending in {', '.join(SUFFIXES)}", field=field, value=str(path))
        files += members
    return files


def read_file(path: Path) -> FileRows:
    """All rows of one file; its name says the format."""
    suffix = next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise DataError(f"{path}: unknown format", hint=f"the name must end in one of {', '.join(SUFFIXES)}")
    read = _READERS[suffix.removesuffix(".gz")]
    try:
        rows = read(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    if len(rows) == 0:
        raise DataError(f"{path}: holds no rows")
    return rows


def is_text(value: Any) -> bool:
    """Whether a value can be a problem or a solution: a string that is not blank and is valid Unicode."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return False
    return True


def _readable(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(SUFFIXES)


def _read_jsonl(path: Path) -> FileRows:
    records, numbers = [], []
    lines = read_unpacked(path).split(b"\n")  # at \n only: U+2028 within a string stays
    for number, line in enumerate(lines, start=1):
        text = _decode(line, path, number)
        if text.strip():
            place = f"{path}, line {number}"
            records.append(_as_object(_parse_json(text, place), place))
            numbers.append(number)
    return FileRows(path, records, numbers, "line")


def _read_json(path: Path) -> FileRows:
    content = _parse_json(_decode(read_unpacked(path), path), str(path), has_lines=True)
    items = content.get("data") if isinstance(content, dict) else content
    if not isinstance(items, list):
        raise DataError(f'{path}: must hold a list of objects or {{"data": [...]}}', hint="one object a line is .jsonl")
    records = [_as_object(item, f"{path}, item {number}") for number, item in enumerate(items, start=1)]
    return FileRows(path, records, range(1, len(records) + 1), "item")


def _read_csv(path: Path) -> FileRows:
    text = _decode(read_unpacked(path), path)
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        lines = [(number, cells) for number, cells in _numbered(text, path) if cells]
    finally:
        csv.field_size_limit(limit)
    (number, header), *lines = lines or [(1, [])]
    if len(set(header)) < len(header):
        raise DataError(f"{path}, line {number}: the header names a column twice: {', '.join(header)}")
    for number, cells in lines:
        if len(cells) != len(header):
            raise DataError(f"{path}, line {number}: {len(cells)} cells where the header has {len(header)}")
    records = [dict(zip(header, cells, strict=True)) for _, cells in lines]
    return FileRows(path, records, [number for number, _ in lines], "line")


def _numbered(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Each record with the line it began on: quoted cells may span several."""
    reader, begins = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    try:
        for cells in reader:
            yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {begins}: not CSV ({one_line(error)})") from error


def _read_parquet(path: Path) -> FileRows:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # this one file; a dataset reader would look at its neighbours too
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except pa.ArrowException as error:
        raise DataError(f"{path}: not Parquet ({one_line(error)})") from error
    return FileRows(path, table, range(table.num_rows), "row")


_READERS: dict[str, Callable[[Path], FileRows]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


def _decode(content: bytes, path: Path, first_line: int = 1) -> str:
    try:
        return content.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + error.object.count(b"\n", 0, error.start)
        raise DataError(f"{path}, line {line}: not UTF-8 (byte {error.object[error.start]:#04x})") from error


def _parse_json(text: str, place: str, *, has_lines: bool = False) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{place}, line {error.lineno}" if has_lines else place
        hint = "one object a line is .jsonl" if has_lines else None
        raise DataError(f"{where}: not JSON ({error.msg} at column {error.colno})", hint=hint) from error
    except RecursionError as error:
        raise DataError(f"{place}: not usable JSON (nested too deeply)") from error
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(f"{place}: not usable JSON ({one_line(error)})") from error


def _as_object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{place}: must be an object with named fields, got {type(value).__name__}")
    return value
