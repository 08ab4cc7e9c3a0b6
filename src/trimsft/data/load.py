"""Rows of local files or of the hub, checked and sampled; an error names file and line.

load_rows(DataConfig("a.jsonl:0.7,b.jsonl:0.3"))       # a dataset
stream_rows(DataConfig("a.jsonl", streaming=True))     # the same rows, none of them held
"""

from __future__ import annotations

import difflib
import logging
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.files import SHARE, SUFFIXES, list_files, read_parquet, read_records, suffix_of, unit_of
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
    is_filled,
    known_row,
    known_rows,
    make_dataset,
)
from trimsft.data.templates import TEMPLATE_NAMES, TRAIN_ON, Rendering, check_template_name
from trimsft.data.weights import parse_weights
from trimsft.errors import DataError, TrimSFTError, and_more, one_line
from trimsft.options import option

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset

Split = Literal["train", "test"]
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
    eval_split: float | None = _option(None, "Share of the training rows to evaluate on, such as 0.05.")
    problem_column: str = _option("problem", "The column of problems.")
    solution_column: str = _option("solution", "The column of solutions.")
    sample: int | None = _option(None, "Rows chosen at random (default: all).")
    sample_seed: int = _option(0, "Seed of the random choice of rows.")
    template: str = _option(
        "auto", "How a problem becomes a prompt (auto: chat or plain).", choices=list(TEMPLATE_NAMES)
    )
    system_prompt: str | None = _option(None, "System message; by default the recipe's, '' for none.")
    drop_incomplete: bool = _option(False, "Drop and count rows that lack a column.")
    streaming: bool = _option(False, "Read rows while they are trained; needs max_steps.")
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
        """True where `dataset_name` means files: a mistyped path must not become a question to the hub."""
        name = self.dataset_name
        looks_local = name.startswith(("/", ".", "~")) or "," in name or "\\" in name or name.count("/") > 1
        return looks_local or SHARE.sub("", name).lower().endswith(SUFFIXES) or Path(name).exists()


@dataclass(frozen=True, kw_only=True)
class RowSettings(Rendering):
    """Which rows `trimsft tokens` and `trimsft audit` measure, and how they are rendered."""

    data: str = option(metavar="DATA", help="Dataset of the hub, or local files, as train takes them.")
    limit: int | None = option(None, help="Use only this many rows, the first ones.", least=1)
    problem_column: str = option("problem", metavar="NAME", help="The column of problems.")
    solution_column: str = option("solution", metavar="NAME", help="The column of solutions.")
    drop_incomplete: bool = option(False, flags=("--drop-incomplete",), help="Drop rows that lack a column.")

    def read(self, **sample: Any) -> tuple[list[Row], Loaded]:
        """Return the rows as `trimsft train` reads them, and where they come from."""
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
    """Rows of a file or a split, as problem and solution or in a form of TRL's, and their places."""

    name: str
    form: str
    rows: Any  # a list where they were read from text, else a dataset
    places: list[str]
    """The file and line of each row; of .json its item; in Parquet and on the hub its row, from 0."""

    def select(self, numbers: Sequence[int]) -> Loaded:
        """Return only the rows with these numbers."""
        rows = [self.rows[one] for one in numbers] if isinstance(self.rows, list) else self.rows.select(numbers)
        return replace(self, rows=rows, places=[self.places[one] for one in numbers])


def load_rows(config: DataConfig, *, split: Split = "train") -> Dataset:
    """Return the rows of one split, checked; those to train on may be sampled."""
    rows: Dataset = load(config, split).rows
    return rows


def load(config: DataConfig, split: Split = "train") -> Loaded:
    """Return the same with the places of the rows."""
    if not config.is_local and not (split == "test" and config.dataset_test_file):
        name = config.dataset_train_split if split == "train" else config.dataset_test_split
        sources = [_source(f"{config.dataset_name} ({name})", "row", _ask_hub(config, name), config)]
    elif split == "train":
        sources = _mixed(_parts(config), config)
    elif config.dataset_test_file is not None:
        paths = list_files(config.dataset_test_file, field="dataset_test_file")
        sources = [_read_file(path, config) for path in paths]
    else:
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    first, places = sources[0], [place for source in sources for place in source.places]
    for source in sources:
        if source.form != first.form:
            problem = f"its rows are not of the form {first.form}, as those of {first.name} are"
            raise DataError(f"{source.name}: {problem}")
    loaded = Loaded(first.name, first.form, _as_table(sources), places)
    wanted = config.sample if split == "train" else None
    if wanted is not None and wanted < len(places):
        return loaded.select(choose(range(len(places)), wanted, config.sample_seed))
    if wanted is not None and wanted > len(places):
        log.warning("sample: %s rows wanted, %s are there; all are used", f"{wanted:,}", f"{len(places):,}")
    return loaded


def _read_file(path: Path, config: DataConfig) -> Loaded:
    if suffix_of(path) == ".parquet":
        return _source(str(path), "row", read_parquet(path), config)
    pairs = list(read_records(path))
    return _source(str(path), unit_of(path), [row for _, row in pairs], config, [number for number, _ in pairs])


def _source(name: str, unit: str, rows: Any, config: DataConfig, numbers: Sequence[int] = ()) -> Loaded:
    """Return rows in a form that is trained; those of a dataset stay on the disk."""
    is_list = isinstance(rows, list)
    columns = list(dict.fromkeys(column for row in rows for column in row)) if is_list else rows.column_names
    places = [f"{name}, {unit} {number}" for number in numbers or range(len(rows))]
    form = _form_of(columns, config, name)
    final = BECOMES.get(form, form)
    if is_list or form in CONVERTERS:
        rows = [at(place, known_row, row, form, config.pair) for place, row in zip(places, rows, strict=True)]
        fits = [is_filled(final, row) for row in rows]
    else:
        needed = config.pair if form == PAIR else FORMS[form]
        names = dict(zip(needed, FORMS[form], strict=True))
        names |= {name: name for name in columns_of_form(form) if name in columns and name not in FORMS[form]}
        rows = rows.select_columns(list(names)).rename_columns(names)
        pieces = rows.select_columns(list(FORMS[form])).iter(batch_size=1000)
        values = (row for piece in pieces for row in zip(*piece.values(), strict=True))
        fits = [is_filled(form, dict(zip(FORMS[form], row, strict=True))) for row in values]
    loaded, lacking = Loaded(name, final, rows, places), fits.count(False)
    if fits and all(fits):
        return loaded
    first = places[fits.index(False)] if fits else name
    problem = f"{first}: {_needed(form, config)} is missing or blank{and_more(lacking, 'rows')}"
    if not any(fits):
        raise DataError(f"{problem}: no row is left")
    if not config.drop_incomplete:
        raise DataError(problem, hint="correct them, or drop them by drop_incomplete")
    log.warning("dropped %s of %s rows; the first: %s", f"{lacking:,}", f"{len(fits):,}", problem)
    return loaded.select([number for number, fit in enumerate(fits) if fit])


def _form_of(columns: Collection[str], config: DataConfig, where: str) -> str:
    """Return the form of rows with these columns; refuse those of none."""
    form = find_form(columns, config.pair)
    if form is None:
        field = "solution_column" if config.problem_column in columns else "problem_column"
        absent = " or ".join(repr(name) for name in config.pair if name not in columns)
        problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
        raise DataError(problem, field=field, hint=f"name the right columns, or bring {KNOWN}")
    return form


def _needed(form: str, config: DataConfig) -> str:
    return " or ".join(map(repr, config.pair if form == PAIR else FORMS[form]))


def _as_table(sources: list[Loaded]) -> Dataset:
    """Return the rows of all sources in one table of one type."""
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets

    try:
        if all(isinstance(source.rows, Dataset) for source in sources):
            return concatenate_datasets([source.rows for source in sources])
        return make_dataset([row for source in sources for row in source.rows])
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
    if not SHARE.search(config.dataset_name):
        return [(path, None) for path in list_files(config.dataset_name)]
    parts = list[tuple[Path, float | None]]()
    for name in config.dataset_name.split(","):
        share, files = SHARE.search(name), list_files(name)
        if share is None or float(share[1]) <= 0 or len(files) > 1:
            problem = "needs a share above 0 for every file (a.jsonl:0.7,b.jsonl:0.3), and none for a folder"
            raise DataError(problem, field="dataset_name", value=name)
        parts.append((files[0], float(share[1])))
    return parts


def _mixed(parts: list[tuple[Path, float | None]], config: DataConfig) -> list[Loaded]:
    """Return the rows of files; where they have shares, as many as can be of each, at random."""
    sources = [_read_file(path, config) for path, _ in parts]
    shared = [(source, share) for source, (_, share) in zip(sources, parts, strict=True) if share is not None]
    if not shared:
        return sources
    total = min(len(source.places) / share for source, share in shared)
    numbers = [choose(range(len(source.places)), round(total * share), config.sample_seed) for source, share in shared]
    log.info("mixed: %s", ", ".join(f"{one.name} {len(n):,}" for one, n in zip(sources, numbers, strict=True)))
    return [source.select(sorted(chosen)) for source, chosen in zip(sources, numbers, strict=True)]


def choose(rows: Sequence[int], count: int, seed: int) -> list[int]:
    """Choose rows at random, the same everywhere: `Random(seed).random()` never changes."""
    generator = random.Random(seed)
    keys = {row: generator.random() for row in rows}
    return sorted(rows, key=keys.__getitem__)[:count]


# ---- streams and the hub


def stream_rows(config: DataConfig) -> IterableDataset:
    """Return the rows to train on as they are read and none held; files with shares take turns at random."""
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
    """Yield the rows of files, or of a stream of the hub, in the form of the first."""
    if isinstance(rows, list):
        numbered = ((path, number, row) for path in map(Path, rows) for number, row in read_records(path))
        placed = ((f"{path}, {unit_of(path)} {number}", row) for path, number, row in numbered)
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
        return datasets.load_dataset(
            name, config.dataset_config, split=split, revision=config.dataset_revision, **options
        )
    except Exception as error:  # network, hub and format errors come as many types
        reason = f"{type(error).__name__}: {one_line(error)[:300]}"
        problem = f"cannot load split {split!r} of {name!r} from the hub ({reason})"
        hint = "for local data pass the path of a file, such as data/train.jsonl"
        raise DataError(problem, field="dataset_name", hint=hint) from error
