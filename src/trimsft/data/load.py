"""Local training files: JSON Lines, JSON, CSV (each also gzipped) and Parquet, read so that an error names the place.

A row keeps the number of the line it began on, because that is what the reader of an error message can open:

    {"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}      train.jsonl, line 1
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import DataError, one_line
from trimsft.runs.files import read_unpacked

if TYPE_CHECKING:
    import pyarrow as pa


import logging
import random
import re
import textwrap
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from trimsft.data.formats import (
    CONVERTERS,
    KNOWN,
    as_known,
    as_known_rows,
    at,
    columns_of,
    find_form,
    is_nothing,
    is_trl,
    require_types,
)
from trimsft.data.templates import TEMPLATE_NAMES, check_template_name
from trimsft.errors import and_more
from trimsft.hub import asking_hub

if TYPE_CHECKING:
    from datasets import Dataset


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


NUMINA = "AI-MO/NuminaMath-CoT"
NUMINA_SAMPLE = 20_000
Kind = Literal["problem-solution", "trl"]
log = logging.getLogger("trimsft")


def _option(default: Any, sentence: str, **more: Any) -> Any:
    """A field as the parser of the Hugging Face trainers reads it."""
    return field(default=default, metadata={"help": sentence, **more})


@dataclass
class DataConfig:
    """Which rows are trained on, and how they are rendered: options of `trimsft train`."""

    dataset_name: str = _option(
        "", "Dataset of the hub, or local files or folders (.jsonl .json .csv .parquet), joined by commas."
    )
    dataset_config: str | None = _option(None, "Hub only: the configuration.")
    dataset_revision: str | None = _option(None, "Hub only: branch, tag or commit.")
    dataset_train_split: str = _option("train", "Hub only: the split to train on.")
    dataset_test_split: str = _option("test", "Hub only: the split to evaluate on.")
    dataset_test_file: str | None = _option(None, "Local files to evaluate on, where eval_strategy is set.")
    problem_column: str = _option("problem", "The column of problems.")
    solution_column: str = _option("solution", "The column of solutions.")
    sample: int | None = _option(None, f"Rows chosen at random; by default {NUMINA_SAMPLE:,} of {NUMINA}, else all.")
    sample_seed: int = _option(0, "Seed of the random choice of rows.")
    template: str = _option(
        "auto",
        "How a problem becomes a prompt; auto: the model's chat template, or plain if it has none.",
        choices=list(TEMPLATE_NAMES),
    )
    system_prompt: str | None = _option(
        None, "System message of chat, first line of plain; by default the recipe's, '' for none."
    )
    benchmarks_dir: str | None = _option(
        None, "Folder of benchmarks (*.jsonl with a field problem): count training rows equal to one."
    )
    drop_overlap: bool = _option(False, "Drop the training rows that are benchmark problems.")
    drop_incomplete: bool = _option(
        False, "Drop and count rows without problem or solution, instead of refusing the data."
    )
    reference: str | None = _option(
        None, "Token table (trimsft tokens) of a reference model over the same rows, or its run, for rho-1, iw-sft, ..."
    )

    def __post_init__(self) -> None:
        check_template_name(self.template)
        if self.sample is not None and self.sample < 1:
            hint = "leave it out to use all rows"
            raise DataError("must be at least 1", field="sample", value=self.sample, hint=hint)
        if self.drop_overlap and self.benchmarks_dir is None:
            hint = "name the folder of benchmarks"
            raise DataError("has no effect without benchmarks_dir", field="drop_overlap", hint=hint)
        if self.problem_column == self.solution_column:
            column, hint = self.solution_column, "name the other one"
            raise DataError("is the problem_column too", field="solution_column", value=column, hint=hint)
        if not self.dataset_name.strip():
            raise DataError("is missing", field="dataset_name", hint="name a dataset of the hub or a local file")

    @property
    def pair(self) -> tuple[str, str]:
        """The columns of problems and solutions."""
        return self.problem_column, self.solution_column

    @property
    def is_local(self) -> bool:
        """Whether `dataset_name` means files here; a typing error in a path must not become a question to the hub."""
        name = self.dataset_name
        looks_local = name.startswith(("/", ".", "~")) or "," in name or "\\" in name or name.count("/") > 1
        return looks_local or name.lower().endswith(SUFFIXES) or Path(name).exists()


def load_rows(config: DataConfig, *, split: Literal["train", "test"] = "train") -> Dataset:
    """The rows of one split, checked; the training split is sampled where the settings ask for it."""
    if split == "test" and config.dataset_test_file is not None:
        return _load_files(config.dataset_test_file, config, "dataset_test_file")
    if not config.is_local:
        name = config.dataset_train_split if split == "train" else config.dataset_test_split
        rows = _load_from_hub(config, name)
    elif split == "test":
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    else:
        _refuse_hub_settings(config)
        rows = _load_files(config.dataset_name, config, "dataset_name")
    return _sample(rows, config) if split == "train" else rows


def kind_of(columns: list[str], config: DataConfig, where: str) -> Kind:
    """Whether rows with these columns are rendered here, or in a form that TRL tokenises itself."""
    form = find_form(columns, config.pair)
    if form is not None:
        return "trl" if is_trl(form) else "problem-solution"
    missing = [name for name in ("problem_column", "solution_column") if getattr(config, name) not in columns]
    absent = " or ".join(repr(getattr(config, name)) for name in missing)
    problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
    raise DataError(problem, field=missing[0], hint=f"name the right columns, or bring one of the forms {KNOWN}")


def plain_rows(rows: Dataset, config: DataConfig) -> list[dict[str, Any]]:
    """Loaded rows as token tables take them: problem and solution, or the columns of a form of TRL's."""
    images = {"image", "images"} & set(rows.column_names)
    if kind_of(rows.column_names, config, config.dataset_name) == "trl":
        if images:
            raise DataError(f"rows with the column {images.pop()!r} have no token table", field="dataset_name")
        return as_known_rows(rows)[1]
    pairs = zip(rows[config.problem_column], rows[config.solution_column], strict=True)
    return [{"problem": problem, "solution": solution} for problem, solution in pairs]


# ---- the hub


def _load_from_hub(config: DataConfig, split: str) -> Dataset:
    import datasets

    name = config.dataset_name
    try:
        with asking_hub(name):
            rows: Any = datasets.load_dataset(
                name, config.dataset_config, split=split, revision=config.dataset_revision
            )
    except Exception as error:  # network, hub and format errors come as many types
        reason = f"{type(error).__name__}: {textwrap.shorten(one_line(error), 300)}"
        revision = f" at {config.dataset_revision}" if config.dataset_revision else ""
        problem = f"cannot load split {split!r} of {name!r}{revision} from the hub ({reason})"
        hint = "for local data pass the path of a file, such as data/train.jsonl"
        raise DataError(problem, field="dataset_name", hint=hint) from error
    if len(rows) == 0:
        raise DataError(f"split {split!r} of {name!r} holds no rows", field="dataset_name")
    named = _named(rows.column_names, config)
    rows = as_known(rows, f"{name} ({split})", config.pair)
    if kind_of(rows.column_names, config, name) == "trl":
        require_types(rows, f"{name} ({split})")
        return rows
    rows = rows.select_columns([config.problem_column, config.solution_column])
    complete: list[bool] = []
    for batch in rows.with_format(None).iter(batch_size=1000):
        complete += _complete(batch[config.problem_column], batch[config.solution_column])
    bad = [_lacking(f"{name} ({split}), row {row}", named) for row, fine in enumerate(complete) if not fine]
    _refuse_incomplete(bad, len(rows), config)
    return rows.select([row for row, fine in enumerate(complete) if fine]) if bad else rows


def _refuse_hub_settings(config: DataConfig) -> None:
    """An option that would do nothing is a mistake, not a wish."""
    for name in ("dataset_config", "dataset_revision", "dataset_train_split"):
        if getattr(config, name) != getattr(DataConfig, name):
            problem, value = f"has no effect on local data ({config.dataset_name})", getattr(config, name)
            raise DataError(problem, field=name, value=value, hint="remove it")


# ---- local files


def _load_files(where: str, config: DataConfig, field: str) -> Dataset:
    files = [read_file(path) for path in list_files(where, field=field)]
    kinds = [kind_of(rows.columns, config, str(rows.path)) for rows in files]
    if len(set(kinds)) > 1:
        odd, columns = files[kinds.index("trl")].path, f"{config.problem_column!r} and {config.solution_column!r}"
        raise DataError(f"{odd}: no columns {columns}, which other files here have")
    known = [as_known_file(rows, config.pair) for rows in files]
    if kinds[0] == "trl":
        return _join_as_they_are(known)
    return _join_problems(known, [_named(rows.columns, config) for rows in files], config)


def _named(columns: list[str], config: DataConfig) -> tuple[str, ...]:
    """What problem and solution are called in the data."""
    return columns_of("alpaca") if find_form(columns, config.pair) == "alpaca" else config.pair


def _join_problems(files: list[FileRows], named: list[tuple[str, ...]], config: DataConfig) -> Dataset:
    """Problems and solutions only: what else a row holds need not fit into a table."""
    from datasets import Dataset, Features, Value

    names = config.pair
    kept: list[tuple[str, str]] = []
    bad: list[str] = []
    for rows, columns in zip(files, named, strict=True):
        problems, solutions = (rows.column(name) for name in names)
        complete = _complete(problems, solutions)
        pairs = zip(problems, solutions, strict=True)
        kept += [pair for pair, fine in zip(pairs, complete, strict=True) if fine]
        places = zip(rows.numbers, complete, strict=True)
        bad += [_lacking(f"{rows.path}, {rows.unit} {number}", columns) for number, fine in places if not fine]
    _refuse_incomplete(bad, len(kept) + len(bad), config)
    return Dataset.from_dict(
        {name: [pair[side] for pair in kept] for side, name in enumerate(names)},
        features=Features({name: Value("string") for name in names}),
    )


def _join_as_they_are(files: list[FileRows]) -> Dataset:
    from datasets import Dataset, concatenate_datasets

    for rows in files:
        refuse_gaps(rows)
    with _fitting_into_one_table(files):
        tables = [Dataset(rows.records) for rows in files if not isinstance(rows.records, list)]
        if len(tables) == len(files):
            joined = concatenate_datasets(tables)
        else:
            # one type for all files, and none that pads tools and arguments with the names of those of other rows
            records = [record for rows in files for record in rows.rows()]
            names = dict.fromkeys(name for rows in files for name in rows.columns)
            columns = {name: [record.get(name) for record in records] for name in names}
            joined = Dataset.from_dict(columns, on_mixed_types="use_json")
    where = ", ".join(str(rows.path) for rows in files)
    require_types(joined, where)
    return as_known(joined, where)


@contextmanager
def _fitting_into_one_table(files: list[FileRows]) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
        names = ", ".join(str(rows.path) for rows in files)
        raise DataError(f"{names}: rows do not fit into one table ({one_line(error)})") from error


def as_known_file(rows: FileRows, pair: tuple[str, str]) -> FileRows:
    """The rows of a file, those in the form of others converted; each keeps its place."""
    convert = CONVERTERS.get(find_form(rows.columns, pair) or "")
    if convert is None:
        return rows
    places = (f"{rows.path}, {rows.unit} {number}" for number in rows.numbers)
    return replace(rows, records=[at(place, convert, row) for place, row in zip(places, rows.rows(), strict=True)])


def refuse_gaps(rows: FileRows) -> None:
    """A row without what its form needs would break somewhere inside TRL."""
    columns = columns_of(find_form(rows.columns) or "")
    if not isinstance(rows.records, list) and not any(rows.records.column(name).null_count for name in columns):
        return  # the file's own counts say so, without reading it
    values = zip(*(rows.column(name) for name in columns), strict=True)
    empty = [number for number, row in zip(rows.numbers, values, strict=True) if any(map(is_nothing, row))]
    if empty:
        more = and_more(len(empty), "rows")
        raise DataError(f"{rows.path}, {rows.unit} {empty[0]}: {' or '.join(columns)} is missing or empty{more}")


# ---- checking and sampling


def _complete(problems: Iterable[Any], solutions: Iterable[Any]) -> list[bool]:
    return [is_text(problem) and is_text(solution) for problem, solution in zip(problems, solutions, strict=True)]


def _lacking(place: str, columns: tuple[str, ...]) -> str:
    return f"{place}: {' or '.join(map(repr, columns))} is missing, blank or not text"


def _refuse_incomplete(bad: list[str], rows: int, config: DataConfig) -> None:
    """Rows without problem or solution: an error, or a count where the settings say to drop them."""
    if not bad:
        return
    more = and_more(len(bad), "rows")
    what = f"{bad[0]}{more}"
    if len(bad) == rows:
        raise DataError(f"{what}: no row is left")
    if not config.drop_incomplete:
        raise DataError(what, hint="correct them, or drop them", remedy=("drop_incomplete", True))
    log.warning("dropped %s of %s rows; the first: %s", f"{len(bad):,}", f"{rows:,}", what)


def _sample(rows: Dataset, config: DataConfig) -> Dataset:
    """Rows in random order, the same everywhere: Python promises that `Random(seed).random()` never changes."""
    wanted = NUMINA_SAMPLE if config.sample is None and config.dataset_name == NUMINA else config.sample
    if wanted is None or wanted == len(rows):
        return rows
    if wanted > len(rows):
        log.warning("sample: %s rows wanted, %s are there; all are used", f"{wanted:,}", f"{len(rows):,}")
        return rows
    generator = random.Random(config.sample_seed)
    keys = [generator.random() for _ in range(len(rows))]
    return rows.select(sorted(range(len(rows)), key=keys.__getitem__)[:wanted])


# ---- overlap with benchmarks


@dataclass(frozen=True)
class OverlapReport:
    """Which training problems are benchmark problems: equal once lower-cased and without all but letters and digits.

    >>> print(find_overlap(["What is 1+1?", "Find $x$."], {"toy": ["what is 1 + 1"], "other": ["Find $y$."]}))
    1 of 2 training problems is also a benchmark problem (toy 1, other 0): row 0
    """

    checked: int
    per_benchmark: dict[str, int]  # training problems found in each benchmark; one problem may be in several
    rows: tuple[int, ...]  # rows of the training data, after sampling, that are in any benchmark; from 0

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.per_benchmark.items())
        if not self.rows:
            return f"none of {self.checked:,} training problems is also a benchmark problem ({counts})"
        shown = ", ".join(map(str, self.rows[:5])) + (", ..." if len(self.rows) > 5 else "")
        verb, s = ("is also a benchmark problem", "") if len(self.rows) == 1 else ("are also benchmark problems", "s")
        return f"{len(self.rows):,} of {self.checked:,} training problems {verb} ({counts}): row{s} {shown}"


def find_overlap(problems: Iterable[str], benchmarks: Mapping[str, Iterable[str]]) -> OverlapReport:
    """Compare every training problem with every problem of every benchmark."""
    # a problem of symbols alone is nothing to compare by
    known = {name: {_bare(problem) for problem in texts} - {""} for name, texts in benchmarks.items()}
    asked = [_bare(problem) for problem in problems]
    counts = {name: sum(problem in texts for problem in asked) for name, texts in known.items()}
    anywhere = set().union(*known.values())
    return OverlapReport(len(asked), counts, tuple(row for row, problem in enumerate(asked) if problem in anywhere))


def read_benchmarks(folder: str | Path) -> dict[str, list[str]]:
    """The field "problem" of every *.jsonl (or *.jsonl.gz) of a folder, by the name of the file."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataError("no such folder", field="benchmarks_dir", value=str(folder))
    files = sorted(path for path in root.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")) and path.is_file())
    if not files:
        raise DataError("the folder holds no .jsonl file", field="benchmarks_dir", value=str(folder))
    benchmarks = {}
    for path in files:
        rows = read_file(path)
        problems = rows.column("problem")
        for number, problem in zip(rows.numbers, problems, strict=True):
            if not is_text(problem):
                raise DataError(f'{path}, line {number}: no text in the field "problem", which a benchmark needs')
        benchmarks[path.name.removesuffix(".gz").removesuffix(".jsonl")] = problems
    return benchmarks


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", text.lower())
