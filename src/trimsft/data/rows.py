"""`DataConfig`, and the rows it stands for: of the hub or of local files, checked, with the place of whatever is
wrong, and sampled. Nothing heavy is imported before rows are read."""

from __future__ import annotations

import logging
import random
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trimsft.data.forms import (
    KNOWN,
    as_known,
    as_known_file,
    as_known_rows,
    columns_of,
    find_form,
    is_trl,
    refuse_gaps,
    require_types,
)
from trimsft.data.readers import SUFFIXES, FileRows, is_text, list_files, read_file
from trimsft.data.templates import TEMPLATE_NAMES, check_template_name
from trimsft.errors import DataError, and_more, one_line
from trimsft.hub import asking_hub

if TYPE_CHECKING:
    from datasets import Dataset

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
