"""`tokens.parquet`: one line for each trained token, and how it was made in the schema's metadata.

    example position token_id text   category nll   gap   competitor_id competitor_text entropy rank gradient_norm
          0        0       52 "Step" other    0.11  2.31            77 "So"               0.42    1         0.147

With `top`, also the most probable tokens, the gold one among them: top_ids, top_logprobs, top_texts.

Metadata under the key `trimsft`, as JSON: {"schema": 2, "tokens": 4617, "model": "runs/trim/model", "data": {...}, ...}
"""

import json
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.errors import RunError, TrimSFTError, one_line
from trimsft.objectives import TokenStats
from trimsft.runs.files import written_beside
from trimsft.runs.parsing import checked, parse_json
from trimsft.tokens.categories import CATEGORIES

VERSION = 2  # the version of the columns and what they mean; in the metadata as `schema`
SCHEMA = pa.schema(
    [
        ("example", pa.int32()),
        ("position", pa.int32()),  # from 0 at the first trained token of the row; masked ones in between are counted
        ("token_id", pa.int32()),
        ("text", pa.string()),
        ("category", pa.dictionary(pa.int8(), pa.string())),
        ("nll", pa.float32()),
        ("gap", pa.float32()),
        ("competitor_id", pa.int32()),
        ("competitor_text", pa.string()),
        ("entropy", pa.float32()),
        ("rank", pa.int32()),
        ("gradient_norm", pa.float32()),
    ]
)
TOP_SCHEMA = pa.schema(
    [("top_ids", pa.list_(pa.int32())), ("top_logprobs", pa.list_(pa.float32())), ("top_texts", pa.list_(pa.string()))]
)
AGAIN = "make it again with trimsft tokens --overwrite"
_KEY = b"trimsft"
_AT_ONCE = 2**18  # tokens
NUMBERS = tuple(one.name for one in SCHEMA if one.type != pa.string())
_TEXTS = ("text", "competitor_text", "top_texts")
_TOPS = ("top_ids", "top_logprobs")
# floats hardly repeat: a dictionary of them is made and thrown away
_REPEATING = ("example", "position", "token_id", "text", "category", "competitor_id", "competitor_text", "rank")


@dataclass(frozen=True)
class _Metadata:
    """What readers of the metadata rely on, where it is there."""

    schema: int = 1
    model: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    versions: dict[str, Any] | None = None
    template: str | None = None
    system_prompt: str | None = None
    max_length: int | None = None
    truncation_mode: str | None = None
    cut: dict[str, int | None] | None = None
    eos_id: int | list[int] | None = None
    longest: int = 0
    positions: int | None = None


@dataclass(frozen=True)
class TokenTable:
    """A token table in memory: numbers as arrays, texts of those examples that were read with them."""

    columns: Mapping[str, NDArray[Any]]
    """`category` as indexes into `CATEGORIES`; beside texts also `top_ids` and `top_logprobs`, [tokens, k]."""
    texts: Mapping[str, Sequence[Any]]  # text and competitor_text of each token; `top_texts`, k of them
    metadata: Mapping[str, Any]

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["gap"])

    @property
    def example_count(self) -> int:
        return len(np.unique(self["example"]))

    def first_examples(self, most: int) -> list[int]:
        """The numbers of the first examples."""
        numbers: list[int] = np.unique(self["example"])[:most].tolist()
        return numbers

    def parts(self) -> Iterator["TokenTable"]:
        """The table in parts of whole examples, in their order; one that is in memory is its only part.

        Whatever is computed part by part takes no more memory of a larger table; see `trimsft.tokens.stored`.
        """
        yield self

    def slices(self) -> Iterator[slice]:
        """All rows, so many at once that what is computed of them stays small."""
        return (slice(start, start + _AT_ONCE) for start in range(0, len(self), _AT_ONCE))

    def stats(self, rows: slice = slice(None)) -> TokenStats:
        """What objectives weigh; the gold logit itself is not in the table, and none of the package asks for it."""
        gap = torch.from_numpy(self["gap"][rows].copy())
        return TokenStats(
            nll=torch.from_numpy(self["nll"][rows].copy()),
            gap=gap,
            gold_logit=torch.full_like(gap, torch.nan),
            competitor=torch.from_numpy(self["competitor_id"][rows].astype(np.int64)),
            entropy=torch.from_numpy(self["entropy"][rows].copy()),
        )


# ---- reading


def read_token_table(
    path: Path, *, first_examples: int | None = None, examples: Collection[int] | None = None
) -> TokenTable:
    """All numbers of a table; or, of its first examples or of some, the texts as well, from their row groups alone."""
    if first_examples is not None:
        if examples is not None:
            raise ValueError("examples: give these or first_examples, not both")
        examples = range(first_examples)
    with opened(path) as file:
        metadata = checked_metadata(path, file.schema_arrow)
        if examples is None:  # one column after the other, so that Arrow's copy is of one
            columns = {name: checked_numbers(path, name, file.read(columns=[name])) for name in NUMBERS}
            return TokenTable(columns, {}, metadata)
        table = _examples(file, examples)
        _require_texts(path, table)
        numbers = {name: checked_numbers(path, name, table) for name in NUMBERS}
        numbers |= {name: _matrix(table.column(name)) for name in _TOPS if name in table.column_names}
        texts = {name: table.column(name).to_pylist() for name in _TEXTS if name in table.column_names}
    return TokenTable(numbers, texts, metadata)


def read_metadata(path: Path) -> dict[str, Any]:
    """How a table was made."""
    with opened(path) as file:
        return _metadata_of(path, file.schema_arrow)


@contextmanager
def opened(path: Path) -> Iterator[pq.ParquetFile]:
    """A table to read from; whatever is damaged in it is said in one line."""
    with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield file


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever is damaged in a table, so that it cannot be read here, is said in one line."""
    try:
        yield
    except TrimSFTError:
        raise
    except Exception as error:  # Arrow raises whatever the file makes it
        problem = f"{path}: not readable as a token table ({one_line(error)})"
        raise RunError(problem, hint=AGAIN) from error


def checked_metadata(path: Path, schema: pa.Schema) -> dict[str, Any]:
    """How a table was made, which must have all columns."""
    metadata = _metadata_of(path, schema)
    _require_columns(path, schema, metadata)
    return metadata


def _metadata_of(path: Path, schema: pa.Schema) -> dict[str, Any]:
    content = parse_json((schema.metadata or {}).get(_KEY, b"{}"))
    where = f"{path}: metadata"
    checked(_Metadata, content, where=where, hint=AGAIN)
    return checked(dict[str, Any], content, where=where, hint=AGAIN)


def _require_columns(path: Path, schema: pa.Schema, metadata: Mapping[str, Any]) -> None:
    missing = next((name for name in SCHEMA.names if name not in schema.names), None)
    made = metadata.get("schema", 1)
    if missing is None and made <= VERSION:
        odd = [one for one in SCHEMA if one.name != "category" and schema.field(one.name).type != one.type]
        if odd:
            found = schema.field(odd[0].name).type
            raise RunError(f"{path}: column {odd[0].name!r} holds {found}, not {odd[0].type}", hint=AGAIN)
        return
    if not metadata:
        raise RunError(f"{path}: no column {missing!r}, so it is no token table", hint="trimsft tokens makes one")
    age = "a newer" if made > VERSION else "an older"
    lacking = "" if missing is None else f"no column {missing!r}: "
    problem = f"{path}: {lacking}it was made by {age} version of trimsft (schema {made}, here {VERSION})"
    raise RunError(problem, hint=AGAIN)


def _require_texts(path: Path, table: pa.Table) -> None:
    """Every token must have its texts, and all tokens as many alternatives, each with all that belongs to it."""
    tops = [name for name in TOP_SCHEMA.names if name in table.column_names]
    lengths = {length for name in tops for length in pc.list_value_length(table.column(name)).unique().to_pylist()}
    flat = [pc.list_flatten(table.column(name)) for name in tops] + [table.column(name) for name in _TEXTS[:2]]
    if len(tops) not in (0, len(TOP_SCHEMA)) or len(lengths) > 1 or any(one.null_count for one in flat):
        raise RunError(f"{path}: tokens lack texts or alternatives", hint=AGAIN)


def _examples(file: pq.ParquetFile, examples: Collection[int]) -> pa.Table:
    """The rows of some examples, from the row groups that hold them.

    Which those are says their first column, a few bytes each: a damaged statistic of a group ends the process.
    """
    wanted = np.unique(np.fromiter(examples, dtype=np.int64))

    def kept(table: pa.Table) -> NDArray[np.bool_]:
        return np.isin(table.column("example").to_numpy(), wanted)

    every = range(file.num_row_groups)
    table = file.read_row_groups([at for at in every if kept(file.read_row_group(at, columns=["example"])).any()])
    return table.filter(pa.array(kept(table)))


def checked_numbers(path: Path, name: str, table: pa.Table) -> NDArray[Any]:
    """One of `NUMBERS` as an array; refuses what is no finite number, a negative id or count, or no category."""
    column = table.column(name)
    if name != "category":
        values: NDArray[Any] = column.to_numpy()
        if column.null_count or not np.isfinite(values).all():
            raise RunError(f"{path}: column {name!r} holds what is no finite number", hint=AGAIN)
        if values.dtype.kind == "i" and values.min(initial=0) < 0:
            raise RunError(f"{path}: column {name!r} holds a negative number", hint=AGAIN)
        return values
    parts = [np.empty(0, dtype=np.int8)]
    for chunk in column.chunks:  # each row group has a dictionary of its own
        words = chunk.dictionary.to_pylist() if pa.types.is_dictionary(chunk.type) else [None]
        unknown = [word for word in words if word not in CATEGORIES]
        if unknown or chunk.null_count:
            raise RunError(f"{path}: category {unknown or None} is not one of {CATEGORIES}", hint=AGAIN)
        indexes = np.array([CATEGORIES.index(word) for word in words], dtype=np.int8)
        parts.append(indexes[chunk.indices.to_numpy()])
    return np.concatenate(parts)


def _matrix(column: pa.ChunkedArray) -> NDArray[Any]:
    """Lists of one length as the rows of a matrix."""
    joined = column.combine_chunks()
    flat: NDArray[Any] = joined.flatten().to_numpy()
    return flat.reshape(len(joined), -1) if len(joined) else flat.reshape(0, 0)


def incomparable(tables: Mapping[str, TokenTable]) -> dict[str, RunError]:
    """Why a table is not about the same tokens after the same prompts as the first one; by label, where that is so."""
    errors = {}
    for label, table in list(tables.items())[1:]:
        first_label, first = next(iter(tables.items()))
        if why := _difference(first, table):
            problem = f"{first_label!r} and {label!r} are not about the same tokens: {why.problem}"
            errors[label] = RunError(problem, field=why.field, hint=why.hint)
    return errors


def same_tokens(tables: Mapping[str, TokenTable]) -> None:
    """Refuse tables of which nothing could be compared."""
    for error in incomparable(tables).values():
        raise error


def _difference(one: TokenTable, other: TokenTable) -> RunError | None:
    """What of data, prompts or tokens two tables do not share, and the setting to blame; None if they share all."""
    same = "make both with the same one"
    for key, hint in {"data": "make both from the same rows", "template": same, "system_prompt": same}.items():
        if why := _differs(one, other, key, hint):
            return why
    if _has_same_tokens(one, other):
        # a maximum length has cut both alike, if at all
        prompts = (table.metadata.get("prompts", ()) for table in (one, other))
        if any(was != now for was, now in zip(*prompts, strict=False)):
            problem = "their chat templates make other prompts of the same problems"
            hint = "make both with template='plain'" if "template" in one.metadata else "compare them apart"
            return RunError(problem, field="template", hint=hint)
        return None
    tokenizers = f"{len(one):,} and {len(other):,} tokens; their tokenizers differ"
    settings = ("max_length", "truncation_mode", "assistant_only_loss", "completion_only_loss")
    differences = filter(None, (_differs(one, other, key, same) for key in settings))
    return next(differences, RunError(tokenizers, field="tables", hint="compare them apart"))


def _has_same_tokens(one: TokenTable, other: TokenTable) -> bool:
    names = ("example", "position", "token_id")
    return len(one) == len(other) and all(
        np.array_equal(here[name], there[name]) for here, there in aligned(one, other, names) for name in names
    )


def aligned(one: TokenTable, other: TokenTable, columns: Sequence[str]) -> Iterator[tuple[TokenTable, TokenTable]]:
    """Some columns of two tables of equally many tokens, in parts that begin and end together."""
    sides = [side.parts() for side in (one, other)]
    parts, starts, left = [next(side) for side in sides], [0, 0], len(one)
    while True:
        step = min(len(part) - start for part, start in zip(parts, starts, strict=True))
        here, there = (
            TokenTable({name: part[name][start : start + step] for name in columns}, {}, part.metadata)
            for part, start in zip(parts, starts, strict=True)
        )
        yield here, there
        left -= step
        if left <= 0:
            return
        starts = [start + step for start in starts]
        for side in (0, 1):
            if starts[side] == len(parts[side]):
                parts[side], starts[side] = next(sides[side]), 0


def _differs(one: TokenTable, other: TokenTable, key: str, hint: str) -> RunError | None:
    was, now = (_setting(table.metadata, key) for table in (one, other))
    return None if was == now else RunError(f"{key} is {_shown(was)} and {_shown(now)}", field=key, hint=hint)


def _setting(metadata: Mapping[str, Any], key: str) -> Any:
    has_default = key == "system_prompt" and metadata.get("template") in ("chat", "plain")
    value = metadata.get(key)
    return SYSTEM_PROMPT if has_default and value is None else value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value.get('rows')} rows, {str(value.get('sha256'))[:12]}"
    return repr(textwrap.shorten(value, 80) if isinstance(value, str) else value)


# ---- writing


def schema_with(top: int) -> pa.Schema:
    """The columns of a table with so many alternatives."""
    return pa.unify_schemas([SCHEMA, TOP_SCHEMA]) if top else SCHEMA


def as_arrow(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Columns by name, as arrays, lists or Arrow's own; `category` as indexes into `CATEGORIES`."""
    kind = pa.DictionaryArray.from_arrays(
        pa.array(columns["category"], type=pa.int8()), pa.array(CATEGORIES, type=pa.string())
    )
    return pa.table({name: {**columns, "category": kind}[name] for name in schema.names}, schema=schema)


@contextmanager
def writing(
    path: Path, metadata: Mapping[str, Any], schema: pa.Schema = SCHEMA
) -> Iterator[Callable[[Mapping[str, Any] | pa.Table], None]]:
    """Write a table beside its place, and put it there when all went well; gives what appends a row group."""
    schema = schema.with_metadata({_KEY: json.dumps({"schema": VERSION, **metadata}).encode()})
    repeating = [*_REPEATING, "top_ids.list.element", "top_texts.list.element"]
    repeating = [name for name in repeating if name.partition(".")[0] in schema.names]
    options = {"compression": "zstd", "use_dictionary": repeating, "write_page_checksum": True}
    with written_beside(path) as beside, pq.ParquetWriter(beside, schema, **options) as writer:

        def append(columns: Mapping[str, Any] | pa.Table) -> None:
            table = columns if isinstance(columns, pa.Table) else as_arrow(columns, schema)
            writer.write_table(table, row_group_size=max(1, table.num_rows))

        yield append
