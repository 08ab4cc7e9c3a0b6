"""Rows of local files or of the hub, checked and sampled; an error names the place, as a person would look for it.

Files are JSON Lines, JSON, CSV (each also gzipped) and Parquet. They are not read by `datasets`, which pads tools with
nulls, makes dates of text and numbers of cells.

    load_rows(DataConfig("a.jsonl:0.7,b.jsonl:0.3"))       # a dataset
    stream_rows(DataConfig("a.jsonl", streaming=True))     # the same rows, none of them held
"""

from __future__ import annotations

import csv
import difflib
import gzip
import json
import logging
import random
import re
import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, compress, count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.formats import (
    CONVERTERS,
    FORMS,
    KNOWN,
    PAIR,
    WEIGHT,
    Row,
    as_known,
    as_known_rows,
    at,
    find_form,
    is_nothing,
)
from trimsft.data.templates import TEMPLATE_NAMES, TRAIN_ON, Rendering, check_template_name
from trimsft.data.weights import parse_weights
from trimsft.errors import DataError, TrimSFTError, and_more, one_line
from trimsft.models import asking_hub
from trimsft.options import option

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

LONGEST_LINE = 2**30  # bytes
Split = Literal["train", "test"]
_SHARE = re.compile(r":(\d*\.?\d+)\s*(?=,|$)")  # of a file: a.jsonl:0.7,b.jsonl:0.3
log = logging.getLogger("trimsft")


def _option(default: Any, sentence: str, **more: Any) -> Any:
    """Declare a field as the parser of the Hugging Face trainers reads it."""
    return field(default=default, metadata={"help": sentence, **more})


@dataclass
class DataConfig:
    """Which rows are trained on, and how they are rendered: options of `trimsft train`."""

    dataset_name: str = _option("", "Dataset of the hub, or local files or folders, joined by commas.")
    dataset_config: str | None = _option(None, "Hub only: the configuration.")
    dataset_revision: str | None = _option(None, "Hub only: branch, tag or commit.")
    dataset_train_split: str = _option("train", "Hub only: the split to train on.")
    dataset_test_split: str = _option("test", "Hub only: the split to evaluate on.")
    dataset_test_file: str | None = _option(None, "Local files to evaluate on, where eval_strategy is set.")
    eval_split: float | None = _option(None, "Share of the training rows that is evaluated on instead, such as 0.05.")
    problem_column: str = _option("problem", "The column of problems.")
    solution_column: str = _option("solution", "The column of solutions.")
    sample: int | None = _option(None, "Rows chosen at random (default: all).")
    sample_seed: int = _option(0, "Seed of the random choice of rows.")
    template: str = _option(
        "auto", "How a problem becomes a prompt (auto: chat or plain).", choices=list(TEMPLATE_NAMES)
    )
    system_prompt: str | None = _option(None, "System message; by default the recipe's, '' for none.")
    benchmarks_dir: str | None = _option(None, "Folder of benchmarks: count training problems equal to one of theirs.")
    drop_overlap: bool = _option(False, "Drop the training rows that are benchmark problems.")
    drop_incomplete: bool = _option(False, "Drop and count rows that lack a column, instead of refusing the data.")
    streaming: bool = _option(False, "Read rows while they are trained, and hold none of them; needs max_steps.")
    train_on: str | None = _option(None, "Turns of messages: assistant (default), last or all.", choices=TRAIN_ON)
    weights: str | None = _option(None, 'Weights by role, span or /pattern/: "prompt=0.1, thinking=0.5, boxed=2".')

    def __post_init__(self) -> None:
        check_template_name(self.template)
        parse_weights(self.weights)
        if self.sample is not None and self.sample < 1:
            raise DataError("must be at least 1", field="sample", value=self.sample)
        if self.eval_split is not None and not 0 < self.eval_split < 1:
            raise DataError("must be between 0 and 1", field="eval_split", value=self.eval_split)
        if self.eval_split is not None and self.dataset_test_file is not None:
            raise DataError("has no effect beside dataset_test_file", field="eval_split", value=self.eval_split)
        if self.drop_overlap and self.benchmarks_dir is None:
            raise DataError("has no effect without benchmarks_dir", field="drop_overlap")
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
        return looks_local or _SHARE.sub("", name).lower().endswith(SUFFIXES) or Path(name).exists()

    def refuse(self, names: Iterable[str], problem: str) -> None:
        """Refuse settings that would do nothing to this data: a mistake, not a wish."""
        for name in names:
            if getattr(self, name) != getattr(DataConfig, name):
                problem = f"has no effect on {problem} ({self.dataset_name})"
                raise DataError(problem, field=name, value=getattr(self, name), hint="remove it")


@dataclass(frozen=True, kw_only=True)
class RowSettings(Rendering):
    """Which rows are measured, and how they are rendered: settings of `trimsft tokens` and `trimsft audit`."""

    data: str = option(metavar="DATA", help="Dataset of the hub, or local files, in any form that train takes.")
    limit: int | None = option(None, help="Use only this many rows, the first ones.", least=1)
    problem_column: str = option("problem", metavar="NAME", help="The column of problems.")
    solution_column: str = option("solution", metavar="NAME", help="The column of solutions.")
    drop_incomplete: bool = option(False, flags=("--drop-incomplete",), help="Drop rows that lack a column.")

    def read(self, **sample: Any) -> tuple[list[Row], Loaded]:
        """Return the rows as `trimsft train` reads them, in the columns of their form, and where they come from."""
        names = ("drop_incomplete", "problem_column", "solution_column")
        config = DataConfig(dataset_name=self.data, **{name: getattr(self, name) for name in names}, **sample)
        try:
            loaded = load(config)
            rows = plain_rows(loaded.rows)
        except TrimSFTError as error:  # by the names of these settings
            error.field = {"dataset_name": "data", "sample_seed": "seed"}.get(error.field or "", error.field)
            raise
        is_pairs = "problem" in rows[0]
        for name in ("train_on",) if is_pairs else ("template", "system_prompt"):
            if getattr(self, name) != getattr(type(self), name):
                where = "problems and solutions" if is_pairs else "rows without problem and solution"
                problem = f"has no effect on {where} ({self.data})"
                raise DataError(problem, field=name, value=getattr(self, name), hint="leave it out")
        return rows, loaded


# ---- rows of one split


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
    share: float | None = None  # of the rows of all sources, where several are mixed

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
        """Return one value a row, None where a row lacks it; of a table with a piece at a time in memory."""
        if isinstance(self.records, list):
            return (record.get(name) for record in self.records)
        if name not in self.records.column_names:
            return (None for _ in self.numbers)
        return (value for batch in self.records.select_columns([name]).iter(batch_size=1000) for value in batch[name])


@dataclass(frozen=True)
class Loaded:
    """The rows of one split, as problem and solution or in a form of TRL's, and where they come from."""

    rows: Dataset
    sources: list[Source]
    numbers: Sequence[int]
    """The number of each row among those of all sources, from 0."""


def load_rows(config: DataConfig, *, split: Split = "train") -> Dataset:
    """Return the rows of one split, checked; the training split is sampled where the settings ask for it."""
    return load(config, split).rows


def load(config: DataConfig, split: Split = "train") -> Loaded:
    """Return the same with the places of the rows."""
    sources = _read_sources(config, split)
    known = [_in_known_form(source, config) for source in sources]
    form, fits, bad = find_form(known[0].columns) or "", list[bool](), list[str]()
    for source in known:
        if find_form(source.columns) != form:
            raise DataError(f"{source.name}: its rows are not of the form {form}, as those of {known[0].name} are")
        for place, values in zip(source.places, zip(*map(source.column, FORMS[form]), strict=True), strict=True):
            fits.append(_is_filled(form, values))
            bad += [] if fits[-1] else [place]
    if bad:
        problem = f"{bad[0]}: {_needed(sources[0].columns, config)} is missing or blank{and_more(len(bad), 'rows')}"
        if not any(fits):
            raise DataError(f"{problem}: no row is left")
        if not config.drop_incomplete:
            raise DataError(problem, hint="correct them, or drop them", remedy=("drop_incomplete", True))
        log.warning("dropped %s of %s rows; the first: %s", f"{len(bad):,}", f"{len(fits):,}", problem)
    if any(source.share is not None for source in sources):
        fits = _mixed(fits, sources, config.sample_seed)
    rows, numbers = _as_table(known, fits), list(compress(count(), fits))
    chosen = _sample(len(rows), config) if split == "train" else range(len(rows))
    return Loaded(rows.select(chosen), sources, [numbers[row] for row in chosen])


def stream_rows(config: DataConfig) -> IterableDataset:
    """Return the rows to train on as they are read, in the order of the data; files with shares take turns at random.

    No row is held, so nothing can be chosen among them.
    """
    from datasets import IterableDataset, interleave_datasets

    config.refuse(("sample", "eval_split", "benchmarks_dir", "drop_incomplete"), "rows that are streamed")
    if config.is_local:
        parts = _parts(config)
        if parts[0][1] is None:  # one after the other
            parts = [([path for paths, _ in parts for path in paths], None)]
        given: list[Any] = [[str(path) for path in paths] for paths, _ in parts]
    else:
        parts, given = [([], None)], [_ask_hub(config, config.dataset_train_split, streaming=True)]
    streams = [IterableDataset.from_generator(_streamed, gen_kwargs={"rows": one, "config": config}) for one in given]
    total = sum(share or 0.0 for _, share in parts)
    odds = [share / total for _, share in parts if share is not None]
    return interleave_datasets(streams, probabilities=odds, seed=config.sample_seed) if odds else streams[0]


def _streamed(rows: Any, config: DataConfig) -> Iterator[Row]:
    """Yield the rows of files, or of a stream of the hub, in the form of the first."""
    if isinstance(rows, list):
        placed = ((f"{path}, {_unit(path)} {number}", row) for path in rows for number, row in read_records(Path(path)))
    else:
        placed = ((f"{config.dataset_name}, row {number}", row) for number, row in enumerate(rows))
    form = ""
    for place, row in placed:
        form = form or _form_of(row, config, place)
        final, (known,) = as_known_rows([at(place, _known, row, form, config)])
        if not _is_filled(final, [known.get(name) for name in FORMS[final]]):
            raise DataError(f"{place}: {_needed(row, config)} is missing or blank")
        yield known


def _form_of(columns: Iterable[str], config: DataConfig, where: str) -> str:
    """Return the form of rows with these columns; refuse those of none."""
    columns = list(columns)
    form = find_form(columns, config.pair)
    if form is None:
        field = "solution_column" if config.problem_column in columns else "problem_column"
        absent = " or ".join(repr(name) for name in config.pair if name not in columns)
        problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
        raise DataError(problem, field=field, hint=f"name the right columns, or bring one of the forms {KNOWN}")
    return form


def _needed(columns: Iterable[str], config: DataConfig) -> str:
    """Return the columns that every row must fill, for a message."""
    form = find_form(list(columns), config.pair) or PAIR
    return " or ".join(map(repr, config.pair if form == PAIR else FORMS[form]))


def _is_filled(form: str, values: Iterable[Any]) -> bool:
    return all(map(is_text, values)) if form == PAIR else not any(map(is_nothing, values))


def _known(row: Row, form: str, config: DataConfig) -> Row:
    """Return a row as problem and solution, or in a form of TRL's."""
    if form in CONVERTERS:
        return CONVERTERS[form](row)
    if form == PAIR:  # other columns need not fit into a table
        names = dict(zip(config.pair, FORMS[PAIR], strict=True)) | ({WEIGHT: WEIGHT} if WEIGHT in row else {})
        return {new: row.get(old) for old, new in names.items()}
    return row


def _in_known_form(source: Source, config: DataConfig) -> Source:
    """Return rows as problem and solution, or in a form of TRL's; refuse those of none."""
    form = _form_of(source.columns, config, source.name)
    if isinstance(source.records, list) or form in CONVERTERS:
        rows = zip(source.places, source.records, strict=True)
        return replace(source, records=[at(place, _known, row, form, config) for place, row in rows])
    if form != PAIR:
        return source
    names = dict(zip(config.pair, FORMS[PAIR], strict=True))
    kept = [*names, *({WEIGHT} & set(source.columns))]
    return replace(source, records=source.records.select_columns(kept).rename_columns(names))


def _mixed(fits: list[bool], sources: list[Source], seed: int) -> list[bool]:
    """Leave rows out at random until those of each source have its share, and as many as possible are left."""
    shares = [source.share or 0.0 for source in sources]
    ends = list(accumulate(len(source.numbers) for source in sources))
    rows = [[row for row in range(start, end) if fits[row]] for start, end in pairwise([0, *ends])]
    total = min(len(own) / share for own, share in zip(rows, shares, strict=True))
    counts = [round(total * share) for share in shares]
    kept = {row for own, number in zip(rows, counts, strict=True) for row in choose(own, number, seed)}
    log.info("mixed: %s", ", ".join(f"{source.name} {n:,}" for source, n in zip(sources, counts, strict=True)))
    return [row in kept for row in range(len(fits))]


def _read_sources(config: DataConfig, split: Split) -> list[Source]:
    if split == "test" and config.dataset_test_file is not None:
        return [read_file(path) for path in list_files(config.dataset_test_file, field="dataset_test_file")]
    if not config.is_local:
        name = config.dataset_train_split if split == "train" else config.dataset_test_split
        rows = _ask_hub(config, name)
        if len(rows) == 0:
            raise DataError(f"split {name!r} of {config.dataset_name!r} holds no rows", field="dataset_name")
        return [Source(f"{config.dataset_name} ({name})", rows, range(len(rows)), "row")]
    if split == "test":
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    return [replace(read_file(path), share=share) for paths, share in _parts(config) for path in paths]


def _parts(config: DataConfig) -> list[tuple[list[Path], float | None]]:
    """Return the files of the training data and their shares; without shares they are one part."""
    config.refuse(("dataset_config", "dataset_revision", "dataset_train_split"), "local data")
    if not _SHARE.search(config.dataset_name):
        return [(list_files(config.dataset_name), None)]
    parts = list[tuple[list[Path], float | None]]()
    for name in config.dataset_name.split(","):
        share, files = _SHARE.search(name), list_files(name)
        if share is None or float(share[1]) <= 0:
            raise DataError(
                "needs a share above 0 for every file, such as a.jsonl:0.7,b.jsonl:0.3", field="dataset_name"
            )
        if len(files) > 1:
            raise DataError("a folder has no share: name its files", field="dataset_name", value=name)
        parts.append((files, float(share[1])))
    return parts


def plain_rows(rows: Dataset) -> list[Row]:
    """Return loaded rows as token tables take them: in the columns of their form alone."""
    if images := {"image", "images"} & set(rows.column_names):
        raise DataError(f"rows with the column {images.pop()!r} have no token table", field="dataset_name")
    return as_known_rows(rows)[1]


def _ask_hub(config: DataConfig, split: str, **options: Any) -> Any:
    """Return a split of the hub; a name near that of a file here is taken for a mistake."""
    import datasets

    name, path = config.dataset_name, Path(config.dataset_name)
    here = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    if near := difflib.get_close_matches(path.name, here, n=1, cutoff=0.8):
        hint = f"did you mean {str(path.parent / near[0])!r}?"
        raise DataError("no such file", field="dataset_name", value=name, hint=hint)
    try:
        with asking_hub(name):
            return datasets.load_dataset(
                name, config.dataset_config, split=split, revision=config.dataset_revision, **options
            )
    except Exception as error:  # network, hub and format errors come as many types
        reason = f"{type(error).__name__}: {textwrap.shorten(one_line(error), 300)}"
        problem = f"cannot load split {split!r} of {name!r} from the hub ({reason})"
        hint = "for local data pass the path of a file, such as data/train.jsonl"
        raise DataError(problem, field="dataset_name", hint=hint) from error


def _as_table(sources: list[Source], fits: list[bool]) -> Dataset:
    """Return the rows of all sources that fit, in one table."""
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets

    names = dict.fromkeys(name for source in sources for name in source.columns)
    try:
        if all(isinstance(source.records, Dataset) for source in sources):  # stays on the disk
            joined = concatenate_datasets([source.records for source in sources])
            joined = joined if all(fits) else joined.select(compress(count(), fits))
        else:
            # one type for all files, and none that pads tools and arguments with the names of those of other rows
            values = {name: [one for source in sources for one in source.column(name)] for name in names}
            columns = {name: list(compress(values[name], fits)) for name in names}
            joined = Dataset.from_dict(columns, on_mixed_types="use_json")
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
        where = ", ".join(source.name for source in sources)
        raise DataError(f"{where}: rows do not fit into one table ({one_line(error)})") from error
    return as_known(joined, sources[0].name)


def _sample(rows: int, config: DataConfig) -> Sequence[int]:
    wanted = config.sample
    if wanted is not None and wanted > rows:
        log.warning("sample: %s rows wanted, %s are there; all are used", f"{wanted:,}", f"{rows:,}")
    return range(rows) if wanted is None or wanted >= rows else choose(range(rows), wanted, config.sample_seed)


def choose(rows: Sequence[int], count: int, seed: int) -> list[int]:
    """Choose rows at random, the same everywhere: Python promises that `Random(seed).random()` never changes."""
    generator = random.Random(seed)
    keys = {row: generator.random() for row in rows}
    return sorted(rows, key=keys.__getitem__)[:count]


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
        path = Path(_SHARE.sub("", name).strip()).expanduser()
        if not name.strip() or not path.exists():
            raise DataError("no such file or folder", field=field, value=name.strip())
        members = [path]
        if path.is_dir():
            members = sorted(one for one in path.iterdir() if one.is_file() and _suffix_of(one) and one.name[0] != ".")
        if not members:
            raise DataError(f"the folder holds no file ending in {', '.join(SUFFIXES)}", field=field, value=str(path))
        files += members
    return files


def read_file(path: Path) -> Source:
    """Return all rows of one file; its name says the format."""
    if _suffix_of(path) == ".parquet":
        table = _read_parquet(path)
        return Source(str(path), table, range(len(table)), "row")
    pairs = list(read_records(path))
    return Source(str(path), [row for _, row in pairs], [number for number, _ in pairs], _unit(path))


def read_records(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a file, each with its number, as they are read."""
    suffix, is_empty = _suffix_of(path), True
    if suffix is None:
        raise DataError(f"{path}: unknown format", hint=f"the name must end in one of {', '.join(SUFFIXES)}")
    rows = enumerate(_read_parquet(path)) if suffix == ".parquet" else _READERS[suffix.removesuffix(".gz")](path)
    try:
        for number, row in rows:
            if not isinstance(row, dict):
                problem = f"must be an object with named fields, got {type(row).__name__}"
                raise DataError(f"{path}, {_unit(path)} {number}: {problem}")
            is_empty = False
            yield number, row
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {one_line(error)}") from error
    if is_empty:
        raise DataError(f"{path}: holds no rows")


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text, which end at \\n alone: U+2028 within a string stays."""
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), start=1):
            if len(line) == LONGEST_LINE:  # a few packed bytes can be any number of unpacked ones
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
    content = _parsed("".join(_lines(path)), str(path))
    items = content.get("data") if isinstance(content, dict) else content
    if not isinstance(items, list):
        raise DataError(f'{path}: must hold a list of objects or {{"data": [...]}}', hint="one object a line is .jsonl")
    yield from enumerate(items, start=1)


def _read_csv(path: Path) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(2**31 - 1)  # csv's own limit of 128 KiB is short for a solution
    reader = csv.DictReader(_lines(path), strict=True)
    try:
        names = reader.fieldnames or []
        if len(set(names)) < len(names):
            raise DataError(f"{path}: the header names a column twice: {', '.join(names)}")
        for row in reader:
            if None in row or None in row.values():
                problem = f"has {'more' if None in row else 'fewer'} cells than the header"
                raise DataError(f"{path}, line {reader.line_num}: {problem}")
            yield reader.line_num, row  # where it ends: quoted cells may span several
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV ({one_line(error)})") from error


_READERS = {".jsonl": _read_jsonl, ".json": _read_json, ".csv": _read_csv}
SUFFIXES = (".parquet", *_READERS, *(f"{suffix}.gz" for suffix in _READERS))


def _suffix_of(path: Path) -> str | None:
    return next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)


def _unit(path: str | Path) -> str:
    suffix = (_suffix_of(Path(path)) or "").removesuffix(".gz")
    return {".parquet": "row", ".json": "item"}.get(suffix, "line")


def _read_parquet(path: Path) -> Dataset:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset

    try:
        # this one file; a dataset reader would look at its neighbours too
        return Dataset(pq.ParquetFile(path, page_checksum_verification=True).read())
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not Parquet ({one_line(error)})") from error
    except ValueError as error:  # a type that datasets has no name for
        raise DataError(f"{path}: cannot be read ({one_line(error)})", hint="remove that column") from error


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # the former of an integer with thousands of digits, too
        raise DataError(f"{place}: not usable JSON ({one_line(error)})") from error
