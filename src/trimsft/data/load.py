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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.formats import (
    BECOMES,
    CONVERTERS,
    FORMS,
    KNOWN,
    PAIR,
    Row,
    at,
    columns_of_form,
    find_form,
    is_nothing,
    known_row,
    known_rows,
    make_dataset,
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
        refuse_of_other_forms(self, is_pairs="problem" in rows[0])
        return rows[: self.limit], loaded


def refuse(settings: DataConfig | RowSettings, names: Iterable[str], where: str) -> None:
    """Refuse settings that would do nothing to this data: a mistake, not a wish."""
    for name in names:
        value = getattr(settings, name)
        if value != getattr(type(settings), name):
            raise DataError(f"has no effect on {where}", field=name, value=value, hint="remove it")


def refuse_of_other_forms(settings: DataConfig | RowSettings, *, is_pairs: bool) -> None:
    """Refuse settings that are for rows of another form."""
    if is_pairs:
        refuse(settings, ("train_on",), "problems and solutions, whose prompts are always masked")
    else:
        columns = f"{settings.problem_column!r} and {settings.solution_column!r}"
        refuse(settings, ("template", "system_prompt"), f"data without {columns}")


# ---- rows of one split


@dataclass(frozen=True)
class Loaded:
    """The rows of one split, as problem and solution or in a form of TRL's, and where they come from."""

    rows: Dataset
    places: list[str]
    """The file and line of each row; of .json its item; in Parquet and on the hub its row, from 0."""
    numbers: list[int]
    """The number of each row among all that were read, from 0."""


def load_rows(config: DataConfig, *, split: Split = "train") -> Dataset:
    """Return the rows of one split, checked; the training split is sampled where the settings ask for it."""
    return load(config, split).rows


def load(config: DataConfig, split: Split = "train") -> Loaded:
    """Return the same with the places of the rows."""
    sources = _read_sources(config, split)
    first = sources[0]
    for source in sources:
        if source.form != first.form:
            problem = f"{source.name}: its rows are not of the form {first.form}, as those of {first.name} are"
            raise DataError(problem)
    places = [place for source in sources for place in source.places]
    fits = [fit for source in sources for fit in source.fits]
    if bad := [place for place, fit in zip(places, fits, strict=True) if not fit]:
        problem = f"{bad[0]}: {first.needed} is missing or blank{and_more(len(bad), 'rows')}"
        if not any(fits):
            raise DataError(f"{problem}: no row is left")
        if not config.drop_incomplete:
            raise DataError(problem, hint="correct them, or drop them", remedy=("drop_incomplete", True))
        log.warning("dropped %s of %s rows; the first: %s", f"{len(bad):,}", f"{len(fits):,}", problem)
    numbers = [number for number, fit in enumerate(fits) if fit]
    if first.share is not None:
        numbers = _mixed(numbers, sources, config.sample_seed)
    rows = _as_table(sources, numbers)
    chosen = _sample(len(rows), config) if split == "train" else range(len(rows))
    numbers = [numbers[row] for row in chosen]
    return Loaded(rows.select(chosen), [places[number] for number in numbers], numbers)


@dataclass(frozen=True)
class Source:
    """Rows of one file or of one split of the hub, as problem and solution or in a form of TRL's."""

    name: str
    rows: list[Row] | Dataset
    form: str
    needed: str  # the columns that every row must fill, by their own names
    places: list[str]
    fits: list[bool]  # whether a row fills them
    share: float | None = None  # of the rows of all sources, where several are mixed


def _read_sources(config: DataConfig, split: Split) -> list[Source]:
    if not config.is_local and not (split == "test" and config.dataset_test_file):
        name = config.dataset_train_split if split == "train" else config.dataset_test_split
        rows = _ask_hub(config, name)
        return [_source(f"{config.dataset_name} ({name})", rows, range(len(rows)), "row", config)]
    if split == "train":
        parts = _parts(config)
    elif config.dataset_test_file:
        parts = [(path, None) for path in list_files(config.dataset_test_file, field="dataset_test_file")]
    else:
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    sources = []
    for path, share in parts:
        if _suffix_of(path) == ".parquet":
            rows = _read_parquet(path)
            numbers = range(len(rows))
        else:
            numbers, rows = map(list, zip(*read_records(path), strict=True))
        sources.append(_source(str(path), rows, numbers, _unit(path), config, share))
    return sources


def _source(
    name: str, rows: Any, numbers: Iterable[int], unit: str, config: DataConfig, share: float | None = None
) -> Source:
    """Return rows in a form that is trained, with their places; refuse those of none."""
    if len(rows) == 0:
        raise DataError(f"{name}: holds no rows")
    is_list = isinstance(rows, list)
    columns = list(dict.fromkeys(column for row in rows for column in row)) if is_list else rows.column_names
    form = _form_of(columns, config, name)
    places = [f"{name}, {unit} {number}" for number in numbers]
    final, fits = BECOMES.get(form, form), list[bool]()
    if is_list or form in CONVERTERS:
        rows = [at(place, known_row, row, form, config.pair) for place, row in zip(places, rows, strict=True)]
        fits = [is_filled(final, row) for row in rows]
    else:  # stays on the disk, with a piece at a time in memory
        needed = config.pair if form == PAIR else FORMS[form]
        names = dict(zip(needed, FORMS[form], strict=True))
        names |= {name: name for name in columns_of_form(form) if name in columns and name not in FORMS[form]}
        rows = rows.select_columns(list(names)).rename_columns(names)
        for piece in rows.select_columns(list(FORMS[form])).iter(batch_size=1000):
            fits += [is_filled(form, dict(zip(piece, row, strict=True))) for row in zip(*piece.values(), strict=True)]
    return Source(name, rows, final, _needed(form, config), places, fits, share)


def _form_of(columns: Collection[str], config: DataConfig, where: str) -> str:
    """Return the form of rows with these columns; refuse those of none."""
    form = find_form(columns, config.pair)
    if form is None:
        field = "solution_column" if config.problem_column in columns else "problem_column"
        absent = " or ".join(repr(name) for name in config.pair if name not in columns)
        problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
        raise DataError(problem, field=field, hint=f"name the right columns, or bring one of the forms {KNOWN}")
    return form


def _needed(form: str, config: DataConfig) -> str:
    return " or ".join(map(repr, config.pair if form == PAIR else FORMS[form]))


def is_filled(form: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row has what its form needs."""
    values = [row.get(name) for name in FORMS[form]]
    return all(map(is_text, values)) if form == PAIR else not any(map(is_nothing, values))


def is_text(value: Any) -> bool:
    """Return whether a value can be a problem or a solution: a string that is not blank and is valid Unicode."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return False
    return True


def _as_table(sources: list[Source], numbers: list[int]) -> Dataset:
    """Return the rows of all sources that have these numbers, in one table of one type."""
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets

    try:
        if all(isinstance(source.rows, Dataset) for source in sources):
            return concatenate_datasets([source.rows for source in sources]).select(numbers)
        rows = [row for source in sources for row in source.rows]
        return make_dataset([rows[number] for number in numbers])
    except (pa.ArrowException, ValueError, TypeError, LookupError, OverflowError) as error:
        where = ", ".join(source.name for source in sources)
        raise DataError(f"{where}: rows do not fit into one table ({one_line(error)})") from error


def plain_rows(rows: Dataset) -> list[Row]:
    """Return loaded rows as token tables take them: in the columns of their form alone."""
    if images := {"image", "images"} & set(rows.column_names):
        raise DataError(f"rows with the column {images.pop()!r} have no token table", field="dataset_name")
    return known_rows(rows)[1]


# ---- shares and samples


def _parts(config: DataConfig) -> list[tuple[Path, float | None]]:
    """Return the files of the training data and their shares, where they have some."""
    refuse(config, ("dataset_config", "dataset_revision", "dataset_train_split"), "local data")
    if not _SHARE.search(config.dataset_name):
        return [(path, None) for path in list_files(config.dataset_name)]
    parts = list[tuple[Path, float | None]]()
    for name in config.dataset_name.split(","):
        share, files = _SHARE.search(name), list_files(name)
        if share is None or float(share[1]) <= 0 or len(files) > 1:
            problem = "needs a share above 0 for every file, such as a.jsonl:0.7,b.jsonl:0.3, and none for a folder"
            raise DataError(problem, field="dataset_name", value=name)
        parts.append((files[0], float(share[1])))
    return parts


def _mixed(numbers: list[int], sources: list[Source], seed: int) -> list[int]:
    """Leave rows out at random until those of each source have its share, and as many as possible are left."""
    owners = [owner for owner, source in enumerate(sources) for _ in source.places]
    own: list[list[int]] = [[] for _ in sources]
    for number in numbers:
        own[owners[number]].append(number)
    total = min(len(rows) / (source.share or 1) for rows, source in zip(own, sources, strict=True))
    chosen = [choose(rows, round(total * (one.share or 1)), seed) for rows, one in zip(own, sources, strict=True)]
    log.info("mixed: %s", ", ".join(f"{one.name} {len(rows):,}" for rows, one in zip(chosen, sources, strict=True)))
    return sorted(number for rows in chosen for number in rows)


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


# ---- streams and the hub


def stream_rows(config: DataConfig) -> IterableDataset:
    """Return the rows to train on as they are read, in the order of the data; files with shares take turns at random.

    No row is held, so nothing can be chosen among them.
    """
    from datasets import IterableDataset, interleave_datasets

    refuse(config, ("sample", "eval_split", "drop_incomplete"), "rows that are streamed")
    if config.is_local:
        parts = _parts(config)
        paths, shares = [str(path) for path, _ in parts], [share for _, share in parts if share is not None]
        given: list[Any] = [[path] for path in paths] if shares else [paths]
    else:
        shares, given = [], [_ask_hub(config, config.dataset_train_split, streaming=True)]
    streams = [IterableDataset.from_generator(_streamed, gen_kwargs={"rows": one, "config": config}) for one in given]
    if not shares:
        return streams[0]
    odds = [share / sum(shares) for share in shares]
    return interleave_datasets(streams, probabilities=odds, seed=config.sample_seed)


def _streamed(rows: Any, config: DataConfig) -> Iterator[Row]:
    """Yield the rows of files, one after the other, or of a stream of the hub, in the form of the first."""
    if isinstance(rows, list):
        placed = ((f"{path}, {_unit(path)} {number}", row) for path in rows for number, row in read_records(Path(path)))
    else:
        placed = ((f"{config.dataset_name}, row {number}", row) for number, row in enumerate(rows))
    form = ""
    for place, row in placed:
        form = form or _form_of(row, config, place)
        known = at(place, known_row, row, form, config.pair)
        if not is_filled(BECOMES.get(form, form), known):
            raise DataError(f"{place}: {_needed(form, config)} is missing or blank")
        yield known


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
