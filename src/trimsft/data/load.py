"""Rows of local files or of the hub, checked and sampled; an error names the place, as a person would look for it.

    {"problem": "What is 1+1?", "solution": "It is \\\\boxed{2}."}      train.jsonl, line 1

Files are JSON Lines, JSON, CSV (each also gzipped) and Parquet. They are not read by `datasets`, which pads tools with
nulls, makes dates of text and numbers of cells. Nothing heavy is imported before rows are read.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import random
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.formats import (
    CONVERTERS,
    FORMS,
    KNOWN,
    Row,
    as_known,
    as_known_rows,
    at,
    find_form,
    is_nothing,
    is_trl,
    require_types,
)
from trimsft.data.templates import TEMPLATE_NAMES, Rendering, check_template_name
from trimsft.errors import DataError, TrimSFTError, and_more, one_line
from trimsft.hub import asking_hub
from trimsft.options import option
from trimsft.runs.files import read_unpacked

if TYPE_CHECKING:
    from datasets import Dataset

NUMINA = "AI-MO/NuminaMath-CoT"
NUMINA_SAMPLE = 20_000
SUFFIXES = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz", ".json.gz", ".csv.gz")
Kind = Literal["problem-solution", "trl"]
Split = Literal["train", "test"]
log = logging.getLogger("trimsft")


def _option(default: Any, sentence: str, **more: Any) -> Any:
    """Declare a field as the parser of the Hugging Face trainers reads it."""
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
        """True where `dataset_name` means files; a typing error in a path must not become a question to the hub."""
        name = self.dataset_name
        looks_local = name.startswith(("/", ".", "~")) or "," in name or "\\" in name or name.count("/") > 1
        return looks_local or name.lower().endswith(SUFFIXES) or Path(name).exists()

    def refuse(self, names: Iterable[str], problem: str) -> None:
        """Refuse settings that would do nothing to this data: a mistake, not a wish."""
        for name in names:
            if getattr(self, name) != getattr(DataConfig, name):
                problem = f"has no effect on {problem} ({self.dataset_name})"
                raise DataError(problem, field=name, value=getattr(self, name), hint="remove it")


@dataclass(frozen=True, kw_only=True)
class RowSettings(Rendering):
    """Which rows are measured, and how they are rendered: settings of `trimsft tokens` and `trimsft audit`."""

    data: str = option(
        metavar="DATA",
        help="Dataset of the hub, or local files (.jsonl .json .csv .parquet, .gz), in any form that train takes.",
    )
    limit: int | None = option(None, help="Use only this many rows, the first ones.", least=1)
    problem_column: str = option("problem", metavar="NAME", help="The column of problems.")
    solution_column: str = option("solution", metavar="NAME", help="The column of solutions.")
    drop_incomplete: bool = option(
        False,
        flags=("--drop-incomplete",),
        help="Drop and count rows without problem or solution, instead of refusing the data.",
    )

    def read(self, **sample: Any) -> tuple[list[Row], Loaded]:
        """Return the rows as `trimsft train` reads them, in the columns of their form, and where they come from."""
        names = ("drop_incomplete", "problem_column", "solution_column")
        config = DataConfig(dataset_name=self.data, **{name: getattr(self, name) for name in names}, **sample)
        try:
            loaded = load(config)
            rows = plain_rows(loaded.rows, config)
        except TrimSFTError as error:  # by the names of these settings
            error.field = {"dataset_name": "data", "sample_seed": "seed"}.get(error.field or "", error.field)
            raise
        is_pairs = "problem" in rows[0]
        for name in ("assistant_only_loss",) if is_pairs else ("template", "system_prompt", "drop_incomplete"):
            if getattr(self, name) != getattr(type(self), name):
                where = "problems and solutions" if is_pairs else "rows without problem and solution"
                problem = f"has no effect on {where} ({self.data})"
                raise DataError(problem, field=name, value=getattr(self, name), hint="leave it out")
        return rows, loaded


@dataclass(frozen=True)
class Source:
    """Rows of one file or of one split of the hub, and where each of them stands in it."""

    name: str
    """The path, or the name on the hub."""
    records: list[Row] | Dataset
    numbers: Sequence[int]
    """The line or item of each row, from 1; in Parquet and on the hub its row, from 0."""
    unit: str
    """The thing that `numbers` count: line, item or row."""

    @property
    def columns(self) -> list[str]:
        """Every name that some row has, in order of appearance."""
        if isinstance(self.records, list):
            return list(dict.fromkeys(name for record in self.records for name in record))
        return list(self.records.column_names)

    @property
    def places(self) -> Iterable[str]:
        """The place of each row."""
        return (f"{self.name}, {self.unit} {number}" for number in self.numbers)

    def column(self, name: str) -> Iterable[Any]:
        """Yield one value a row, None where a row lacks it; of a table with a piece at a time in memory."""
        if isinstance(self.records, list):
            yield from (record.get(name) for record in self.records)
        else:
            for batch in self.records.select_columns([name]).iter(batch_size=1000):
                yield from batch[name]


@dataclass(frozen=True)
class Loaded:
    """The rows of one split, and where they come from."""

    rows: Dataset
    sources: list[Source]
    numbers: Sequence[int]
    """The number of each row among those of all sources, from 0."""


def load_rows(config: DataConfig, *, split: Split = "train") -> Dataset:
    """Return the rows of one split, checked; the training split is sampled where the settings ask for it."""
    return load(config, split).rows


def load(config: DataConfig, split: Split = "train") -> Loaded:
    """Return the same with the places of the rows."""
    if split == "test" and config.dataset_test_file is not None:
        sources = [read_file(path) for path in list_files(config.dataset_test_file, field="dataset_test_file")]
    elif not config.is_local:
        sources = [_ask_hub(config, config.dataset_train_split if split == "train" else config.dataset_test_split)]
    elif split == "test":
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    else:
        config.refuse(("dataset_config", "dataset_revision", "dataset_train_split"), "local data")
        sources = [read_file(path) for path in list_files(config.dataset_name)]
    kinds = [kind_of(source.columns, config, source.name) for source in sources]
    if len(set(kinds)) > 1:
        odd, columns = sources[kinds.index("trl")].name, f"{config.problem_column!r} and {config.solution_column!r}"
        raise DataError(f"{odd}: no columns {columns}, which other files here have")
    if kinds[0] == "trl":
        rows = _join([_converted(source, config) for source in sources])
        numbers: Sequence[int] = range(len(rows))
    else:
        rows, numbers = _join_pairs(sources, config)
    chosen = _sample(len(rows), config) if split == "train" else None
    if chosen is not None:
        rows, numbers = rows.select(chosen), [numbers[row] for row in chosen]
    return Loaded(rows, sources, numbers)


def kind_of(columns: list[str], config: DataConfig, where: str) -> Kind:
    """Return whether rows with these columns are rendered here, or in a form that TRL tokenises itself."""
    form = find_form(columns, config.pair)
    if form is not None:
        return "trl" if is_trl(form) else "problem-solution"
    missing = [name for name in ("problem_column", "solution_column") if getattr(config, name) not in columns]
    absent = " or ".join(repr(getattr(config, name)) for name in missing)
    problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
    raise DataError(problem, field=missing[0], hint=f"name the right columns, or bring one of the forms {KNOWN}")


def plain_rows(rows: Dataset, config: DataConfig) -> list[Row]:
    """Return loaded rows as token tables take them: problem and solution, or the columns of a form of TRL's."""
    if kind_of(rows.column_names, config, config.dataset_name) == "trl":
        if images := {"image", "images"} & set(rows.column_names):
            raise DataError(f"rows with the column {images.pop()!r} have no token table", field="dataset_name")
        return as_known_rows(rows)[1]
    pairs = zip(rows[config.problem_column], rows[config.solution_column], strict=True)
    return [{"problem": problem, "solution": solution} for problem, solution in pairs]


def _ask_hub(config: DataConfig, split: str) -> Source:
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
    return Source(f"{name} ({split})", rows, range(len(rows)), "row")


def _converted(source: Source, config: DataConfig) -> Source:
    convert = CONVERTERS.get(find_form(source.columns, config.pair) or "")
    if convert is None:
        return source
    return replace(
        source, records=[at(place, convert, row) for place, row in zip(source.places, source.records, strict=True)]
    )


def _join_pairs(sources: list[Source], config: DataConfig) -> tuple[Dataset, list[int]]:
    """Return problems and solutions only, since other columns need not fit into a table, and the rows' numbers."""
    from datasets import Dataset, Features, Value, concatenate_datasets

    features = Features({name: Value("string") for name in config.pair})
    tables, complete, bad = [], [], []
    for given in sources:
        source = _converted(given, config)
        fine = [is_text(one) and is_text(other) for one, other in zip(*map(source.column, config.pair), strict=True)]
        if isinstance(source.records, Dataset):  # stays on the disk
            table = source.records.select_columns(list(config.pair))
            tables.append(table if all(fine) else table.select(compress(range(len(fine)), fine)))
        else:
            columns = {name: list(compress(source.column(name), fine)) for name in config.pair}
            tables.append(Dataset.from_dict(columns, features=features))
        names = config.pair if source is given else FORMS["alpaca"]
        lacks = f"{' or '.join(map(repr, names))} is missing, blank or not text"
        bad += [f"{place}: {lacks}" for place, is_fine in zip(source.places, fine, strict=True) if not is_fine]
        complete += fine
    if bad:
        problem = f"{bad[0]}{and_more(len(bad), 'rows')}"
        if not any(complete):
            raise DataError(f"{problem}: no row is left")
        if not config.drop_incomplete:
            raise DataError(problem, hint="correct them, or drop them", remedy=("drop_incomplete", True))
        log.warning("dropped %s of %s rows; the first: %s", f"{len(bad):,}", f"{len(complete):,}", problem)
    tables = [table if table.features == features else table.cast(features) for table in tables if len(table)]
    return concatenate_datasets(tables), list(compress(range(len(complete)), complete))


def _join(sources: list[Source]) -> Dataset:
    """Return rows in forms of TRL's with all their columns, in one table."""
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets

    for source in sources:  # a row without what its form needs would break somewhere inside TRL
        needed, records = FORMS[find_form(source.columns) or ""], source.records
        if not isinstance(records, list) and not any(records.data.column(name).null_count for name in needed):
            continue  # a table's own counts say so, without reading it
        values = zip(*map(source.column, needed), strict=True)
        empty = [place for place, row in zip(source.places, values, strict=True) if any(map(is_nothing, row))]
        if empty:
            more = and_more(len(empty), "rows")
            raise DataError(f"{empty[0]}: {' or '.join(needed)} is missing or empty{more}")
    where = ", ".join(source.name for source in sources)
    try:
        if all(isinstance(source.records, Dataset) for source in sources):
            joined = concatenate_datasets([source.records for source in sources])
        else:
            # one type for all files, and none that pads tools and arguments with the names of those of other rows
            records = [record for source in sources for record in source.records]
            names = dict.fromkeys(name for source in sources for name in source.columns)
            columns = {name: [record.get(name) for record in records] for name in names}
            joined = Dataset.from_dict(columns, on_mixed_types="use_json")
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
        raise DataError(f"{where}: rows do not fit into one table ({one_line(error)})") from error
    require_types(joined, where)
    return as_known(joined, where)


def _sample(rows: int, config: DataConfig) -> list[int] | None:
    """Choose rows at random, the same everywhere: Python promises that `Random(seed).random()` never changes."""
    wanted = NUMINA_SAMPLE if config.sample is None and config.dataset_name == NUMINA else config.sample
    if wanted is None or wanted == rows:
        return None
    if wanted > rows:
        log.warning("sample: %s rows wanted, %s are there; all are used", f"{wanted:,}", f"{rows:,}")
        return None
    generator = random.Random(config.sample_seed)
    keys = [generator.random() for _ in range(rows)]
    return sorted(range(rows), key=keys.__getitem__)[:wanted]


def is_text(value: Any) -> bool:
    """Return whether a value can be a problem or a solution: a string that is not blank and is valid Unicode."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return False
    return True


# ---- local files


def list_files(where: str, *, field: str = "dataset_name") -> list[Path]:
    """Return the files that a path, a folder or several of them joined by commas stand for; an error blames `field`."""
    names = [where] if Path(where).expanduser().exists() else where.split(",")
    files: list[Path] = []
    for name in names:
        path = Path(name.strip()).expanduser()
        if not name.strip() or not path.exists():
            raise DataError("no such file or folder", field=field, value=name.strip())
        members = sorted(filter(_is_readable, path.iterdir())) if path.is_dir() else [path]
        if not members:
            raise DataError(f"the folder holds no file ending in {', '.join(SUFFIXES)}", field=field, value=str(path))
        files += members
    return files


def _is_readable(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.name.lower().endswith(SUFFIXES)


def read_file(path: Path) -> Source:
    """Return all rows of one file; its name says the format."""
    suffix = next((known for known in SUFFIXES if path.name.lower().endswith(known)), None)
    if suffix is None:
        raise DataError(f"{path}: unknown format", hint=f"the name must end in one of {', '.join(SUFFIXES)}")
    read, unit = _READERS[suffix.removesuffix(".gz")]
    try:
        records, numbers = read(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    if len(numbers) == 0:
        raise DataError(f"{path}: holds no rows")
    for number, record in zip(numbers, records if isinstance(records, list) else (), strict=False):
        if not isinstance(record, dict):
            problem = f"must be an object with named fields, got {type(record).__name__}"
            raise DataError(f"{path}, {unit} {number}: {problem}")
    return Source(str(path), records, numbers, unit)


def _read_jsonl(path: Path) -> tuple[list[Row], list[int]]:
    records, numbers = [], []
    lines = read_unpacked(path).split(b"\n")  # at \n only: U+2028 within a string stays
    for number, line in enumerate(lines, start=1):
        text = _decode(line, path, number)
        if text.strip():
            records.append(_parse_json(text, f"{path}, line {number}"))
            numbers.append(number)
    return records, numbers


def _read_json(path: Path) -> tuple[list[Row], Sequence[int]]:
    content = _parse_json(_decode(read_unpacked(path), path), str(path), has_lines=True)
    items = content.get("data") if isinstance(content, dict) else content
    if not isinstance(items, list):
        raise DataError(f'{path}: must hold a list of objects or {{"data": [...]}}', hint="one object a line is .jsonl")
    return items, range(1, len(items) + 1)


def _read_csv(path: Path) -> tuple[list[Row], list[int]]:
    text = _decode(read_unpacked(path), path)
    limit = csv.field_size_limit(2**31 - 1)  # csv's own limit of 128 KiB is short for a solution
    reader, begins = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    lines = []  # each with the number of its first line: quoted cells may span several
    try:
        for cells in reader:
            if cells:
                lines.append((begins, cells))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {begins}: not CSV ({one_line(error)})") from error
    finally:
        csv.field_size_limit(limit)
    (number, header), *lines = lines or [(1, [])]
    if len(set(header)) < len(header):
        raise DataError(f"{path}, line {number}: the header names a column twice: {', '.join(header)}")
    for number, cells in lines:
        if len(cells) != len(header):
            raise DataError(f"{path}, line {number}: {len(cells)} cells where the header has {len(header)}")
    return [dict(zip(header, cells, strict=True)) for _, cells in lines], [number for number, _ in lines]


def _read_parquet(path: Path) -> tuple[Dataset, Sequence[int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset

    try:
        # this one file; a dataset reader would look at its neighbours too
        rows = Dataset(pq.ParquetFile(path, page_checksum_verification=True).read())
    except pa.ArrowException as error:
        raise DataError(f"{path}: not Parquet ({one_line(error)})") from error
    except ValueError as error:  # a type that datasets has no name for
        raise DataError(f"{path}: cannot be read ({one_line(error)})", hint="remove that column") from error
    return rows, range(len(rows))


_READERS: dict[str, tuple[Callable[[Path], tuple[Any, Sequence[int]]], str]] = {
    ".jsonl": (_read_jsonl, "line"),
    ".json": (_read_json, "item"),
    ".csv": (_read_csv, "line"),
    ".parquet": (_read_parquet, "row"),
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
    except (RecursionError, ValueError) as error:  # the latter of an integer with thousands of digits
        reason = "nested too deeply" if isinstance(error, RecursionError) else one_line(error)
        raise DataError(f"{place}: not usable JSON ({reason})") from error


# ---- overlap with benchmarks


@dataclass(frozen=True)
class OverlapReport:
    """Which training problems are benchmark problems: equal once lower-cased and without all but letters and digits.

    >>> print(find_overlap(["What is 1+1?", "Find $x$."], {"toy": ["what is 1 + 1"], "other": ["Find $y$."]}))
    1 of 2 training problems is also a benchmark problem (toy 1, other 0): row 0
    """

    checked: int
    per_benchmark: dict[str, int]  # training problems in each benchmark; one problem may be in several
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

    def bare(text: str) -> str:
        return re.sub(r"[\W_]+", "", text.lower())

    # a problem of symbols alone is nothing to compare by
    known = {name: set(map(bare, texts)) - {""} for name, texts in benchmarks.items()}
    trained = list(map(bare, problems))
    counts = {name: sum(problem in texts for problem in trained) for name, texts in known.items()}
    anywhere = set().union(*known.values())
    return OverlapReport(len(trained), counts, tuple(row for row, problem in enumerate(trained) if problem in anywhere))


def read_benchmarks(folder: str | Path) -> dict[str, list[str]]:
    """Return the field "problem" of every *.jsonl (or *.jsonl.gz) of a folder, by the name of the file."""
    suffixes = (".jsonl", ".jsonl.gz")
    files = [path for path in list_files(str(folder), field="benchmarks_dir") if path.name.endswith(suffixes)]
    if not files:
        raise DataError("the folder holds no .jsonl file", field="benchmarks_dir", value=str(folder))
    benchmarks = {}
    for path in files:
        source = read_file(path)
        problems = list(source.column("problem"))
        for place, problem in zip(source.places, problems, strict=True):
            if not is_text(problem):
                raise DataError(f'{place}: no text in the field "problem", which a benchmark needs')
        benchmarks[path.name.removesuffix(".gz").removesuffix(".jsonl")] = problems
    return benchmarks
