"""Rows of local files or of the hub, checked and sampled; an error names file and line.

load_rows(DataConfig("a.jsonl:0.7,b.jsonl:0.3"))       # a dataset
stream_rows(DataConfig("a.jsonl", streaming=True))     # the same rows, none of them held
"""

from __future__ import annotations

import difflib
import logging
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.files import SHARE, SUFFIXES, list_files, place_of, read_parquet, read_records, suffix_of
from trimsft.data.formats import (
    BECOMES,
    CONVERTERS,
    FORMS,
    KNOWN,
    PAIR,
    Row,
    columns_of_form,
    find_form,
    is_filled,
    known_row,
    known_rows,
    make_dataset,
    refuse_blank,
)
from trimsft.data.templates import TEMPLATE_NAMES, TRAIN_ON, Rendering, check_template_name
from trimsft.data.weights import parse_weights
from trimsft.errors import DataError, TrimSFTError, one_line
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

    def read(self, **sample: Any) -> tuple[list[Row], list[str]]:
        """Return the rows as `trimsft train` reads them, and where they come from."""
        columns: dict[str, Any] = {"problem_column": self.problem_column, "solution_column": self.solution_column}
        try:
            loaded, places = load(DataConfig(dataset_name=self.data, **columns, **sample))
            rows = plain_rows(loaded)
        except TrimSFTError as error:  # by the names of these settings
            error.field = {"dataset_name": "data", "sample_seed": "seed"}.get(error.field or "", error.field)
            raise
        refuse_of_other_forms(self, is_pairs="problem" in rows[0])
        return rows[: self.limit], places


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
        refuse(settings, ("template", "system_prompt"), "data without problems and solutions")


# ---- rows of one split


def load_rows(config: DataConfig, *, split: Split = "train") -> Dataset:
    """Return the rows of one split, checked; those to train on may be sampled."""
    return load(config, split)[0]


def load(config: DataConfig, split: Split = "train") -> tuple[Dataset, list[str]]:
    """Return the same and the place of each row: of files its line or item; in Parquet and on the hub its row."""
    from datasets import Dataset, concatenate_datasets

    shares: list[float] = []
    if not config.is_local and not (split == "test" and config.dataset_test_file):
        name = config.dataset_train_split if split == "train" else config.dataset_test_split
        sources = [_of_dataset(_ask_hub(config, name), f"{config.dataset_name} ({name})", config)]
    elif split == "train" or config.dataset_test_file is not None:
        files, shares = _files(config, split)
        sources = [_of_file(path, config) for path in files]
    else:
        hint = "name a file or turn evaluation off"
        raise DataError("is needed to evaluate on local data", field="dataset_test_file", hint=hint)
    form, parts, places = sources[0][0], [rows for _, rows, _ in sources], [one for *_, some in sources for one in some]
    for other, _, (place, *_) in sources:
        if other != form:
            raise DataError(f"{place}: its rows are not of the form {form}, as those before are")
    if all(isinstance(rows, Dataset) for rows in parts):
        whole = concatenate_datasets(parts)
    else:
        whole = make_dataset([row for rows in parts for row in rows])
    sizes = [len(some) for *_, some in sources]
    numbers = _drawn(sizes, shares, config.sample_seed) if shares else range(len(places))
    wanted = config.sample if split == "train" else None
    if wanted is not None and wanted < len(numbers):
        numbers = choose(numbers, wanted, config.sample_seed)
    elif wanted is not None and wanted > len(numbers):
        log.warning("sample: %s rows wanted, %s are there; all are used", f"{wanted:,}", f"{len(numbers):,}")
    if len(numbers) == len(places):
        return whole, places
    return whole.select(numbers), [places[number] for number in numbers]


def _files(config: DataConfig, split: Split) -> tuple[list[Path], list[float]]:
    """Return local files, and their shares where they have some."""
    if split == "test":
        return list_files(config.dataset_test_file or "", field="dataset_test_file"), []
    refuse(config, ("dataset_config", "dataset_revision", "dataset_train_split"), "local data")
    files = list_files(config.dataset_name)
    shares = [float(share) for share in SHARE.findall(config.dataset_name)]
    if shares and (len(shares) < len(files) or min(shares) <= 0):
        problem = "needs a share above 0 for every file (a.jsonl:0.7,b.jsonl:0.3), and none for a folder"
        raise DataError(problem, field="dataset_name", value=config.dataset_name)
    return files, shares


def _drawn(sizes: Sequence[int], shares: Sequence[float], seed: int) -> list[int]:
    """Draw rows of files that follow each other: as many as can be, so that these are the shares of the files."""
    total, start = min(size / share for size, share in zip(sizes, shares, strict=True)), 0
    drawn = list[int]()
    for size, share in zip(sizes, shares, strict=True):
        drawn += sorted(choose(range(start, start + size), round(total * share), seed))
        start += size
    return drawn


def _of_file(path: Path, config: DataConfig) -> tuple[str, Any, list[str]]:
    """Return the form that the rows of a file become, the rows in it, and their places."""
    if suffix_of(path) == ".parquet":
        return _of_dataset(read_parquet(path), str(path), config)
    placed = [(place_of(path, number), row) for number, row in read_records(path)]
    form = _form_of(placed[0][1], config, placed[0][0])
    return BECOMES.get(form, form), known_rows(placed, form, config.pair), [place for place, _ in placed]


def _of_dataset(rows: Dataset, name: str, config: DataConfig) -> tuple[str, Any, list[str]]:
    """Return the same of a dataset, whose rows stay on the disk where no form is converted."""
    form, places = _form_of(rows.column_names, config, name), [f"{name}, row {number}" for number in range(len(rows))]
    if not places:
        raise DataError(f"{name}: holds no rows")
    if form in CONVERTERS:
        return BECOMES[form], known_rows(list(zip(places, rows, strict=True)), form, config.pair), places
    names = dict(zip(config.pair if form == PAIR else FORMS[form], FORMS[form], strict=True))
    names |= {name: name for name in columns_of_form(form) if name in rows.column_names and name not in FORMS[form]}
    rows = rows.select_columns(list(names)).rename_columns(names)
    pieces = rows.select_columns(list(FORMS[form])).iter(batch_size=1000)
    values = (row for piece in pieces for row in zip(*piece.values(), strict=True))
    fits = [is_filled(form, dict(zip(FORMS[form], row, strict=True))) for row in values]
    refuse_blank([place for place, fit in zip(places, fits, strict=True) if not fit], form, config.pair)
    return form, rows, places


def _form_of(columns: Collection[str], config: DataConfig, where: str) -> str:
    """Return the form of rows with these columns; refuse those of none."""
    form = find_form(columns, config.pair)
    if form is None:
        absent = " or ".join(repr(name) for name in config.pair if name not in columns)
        problem = f"{where} has no column {absent}, it has {', '.join(columns)}"
        raise DataError(problem, field="problem_column", hint=f"name the right columns, or bring {KNOWN}")
    return form


def plain_rows(rows: Dataset) -> list[Row]:
    """Return loaded rows as token tables take them: in the columns of their form alone."""
    if images := {"image", "images"} & set(rows.column_names):
        raise DataError(f"rows with the column {images.pop()!r} have no token table", field="dataset_name")
    form = find_form(rows.column_names) or PAIR
    return [known_row(row, form) for row in rows]


def choose(rows: Sequence[int], count: int, seed: int) -> list[int]:
    """Choose rows at random, the same everywhere: `Random(seed).random()` never changes."""
    generator = random.Random(seed)
    keys = {row: generator.random() for row in rows}
    return sorted(rows, key=keys.__getitem__)[:count]


# ---- streams and the hub


def stream_rows(config: DataConfig) -> IterableDataset:
    """Return the rows to train on as they are read and none held; files with shares take turns at random."""
    from datasets import IterableDataset, interleave_datasets

    refuse(config, ("sample", "eval_split"), "rows that are streamed")
    shares: list[float] = []
    if config.is_local:
        files, shares = _files(config, "train")
        paths = [str(path) for path in files]
        given: list[Any] = [[path] for path in paths] if shares else [paths]
    else:
        given = [_ask_hub(config, config.dataset_train_split, streaming=True)]
    streams = [IterableDataset.from_generator(_streamed, gen_kwargs={"rows": one, "config": config}) for one in given]
    if not shares:
        return streams[0]
    odds = [share / sum(shares) for share in shares]
    return interleave_datasets(streams, probabilities=odds, seed=config.sample_seed)


def _streamed(rows: Any, config: DataConfig) -> Iterator[Row]:
    """Yield the rows of files, or of a stream of the hub, in the form of the first."""
    if isinstance(rows, list):
        placed = ((place_of(path, number), row) for path in map(Path, rows) for number, row in read_records(path))
    else:
        placed = ((f"{config.dataset_name}, row {number}", row) for number, row in enumerate(rows))
    form = ""
    for place, row in placed:
        form = form or _form_of(row, config, place)
        yield from known_rows([(place, row)], form, config.pair)


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
        problem = f"cannot load split {split!r} of {name!r} from the hub ({one_line(error)[:300]})"
        hint = "for local data pass the path of a file, such as data/train.jsonl"
        raise DataError(problem, field="dataset_name", hint=hint) from error
