"""`tokens.parquet`: one line for each trained token, and how it was made in the schema's metadata.

    example position token_id text   category nll   gap  competitor_id competitor_text entropy rank gradient_norm
          0        0       52 "Step" other    0.11  2.31            77 "So"               0.42   1         0.147

and `data_weight`, by which the data multiplies the weights of any objective.

Metadata under the key `trimsft`, as JSON.
"""

import json
import textwrap
from collections.abc import Collection, Mapping, Sequence
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

VERSION = 3  # the version of the columns and what they mean; in the metadata as `schema`
SCHEMA = pa.schema(
    [
        ("example", pa.int32()),
        ("position", pa.int32()),  # from 0 at the first trained token; masked ones between count
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
        ("data_weight", pa.float32()),
    ]
)
AGAIN = "make it again with trimsft tokens --overwrite"
NUMBERS = [one.name for one in SCHEMA if one.type != pa.string()]
_TEXTS = ("text", "competitor_text")
_KEY = b"trimsft"


@dataclass(frozen=True)
class _Metadata:
    """The part of the metadata that readers rely on, where it is there."""

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
    """A token table in memory: numbers as arrays, texts of the examples read with them."""

    columns: Mapping[str, NDArray[Any]]
    """`category` as indexes into `CATEGORIES`."""
    texts: Mapping[str, Sequence[Any]]  # text and competitor_text of each token
    metadata: Mapping[str, Any]

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["gap"])

    @property
    def example_count(self) -> int:
        return len(np.unique(self["example"]))

    def first_examples(self, most: int) -> list[int]:
        """Return the numbers of the first examples."""
        return list(map(int, np.unique(self["example"])[:most]))

    def stats(self) -> TokenStats:
        """Return what objectives weigh, without the gold logit."""
        columns = ("nll", "gap", "entropy", "rank", "gradient_norm", "data_weight")
        known = {name: torch.from_numpy(self[name].copy()) for name in columns}
        ids = {"competitor": "competitor_id", "gold": "token_id", "row": "example"}
        known |= {name: torch.from_numpy(self[column].astype(np.int64)) for name, column in ids.items()}
        return TokenStats(gold_logit=torch.full_like(known["gap"], torch.nan), **known)


# ---- reading


def read_token_table(path: Path, *, examples: Collection[int] | None = None) -> TokenTable:
    """Read all numbers of a table; or, of some examples, the texts as well."""
    metadata, table = _read(path, NUMBERS if examples is None else None)
    texts: dict[str, Any] = {}
    if examples is not None:
        wanted = np.fromiter(examples, dtype=np.int64)
        table = table.filter(pa.array(np.isin(table["example"].to_numpy(), wanted)))
        texts = {name: table[name].to_pylist() for name in _TEXTS}
        if None in [*texts["text"], *texts["competitor_text"]]:
            raise RunError(f"{path}: tokens lack texts", hint=AGAIN)
    columns: dict[str, NDArray[Any]] = {}
    for name in NUMBERS:
        column, kind = table[name], "finite number"
        if name == "category":
            column, kind = pc.index_in(column.cast(pa.string()), pa.array(CATEGORIES)).cast(pa.int8()), "category"
        values = columns[name] = column.to_numpy()
        if column.null_count or not np.isfinite(values).all():
            raise RunError(f"{path}: column {name!r} holds what is no {kind}", hint=AGAIN)
        if values.dtype.kind == "i" and values.min(initial=0) < 0:
            raise RunError(f"{path}: column {name!r} holds a negative number", hint=AGAIN)
    return TokenTable(columns, texts, metadata)


def read_metadata(path: Path) -> dict[str, Any]:
    """Read how a table was made."""
    return _read(path, [])[0]


def _read(path: Path, names: list[str] | None) -> tuple[dict[str, Any], pa.Table]:
    """Return how a table was made, and columns of it; damage is said in one line."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            content = parse_json((schema.metadata or {}).get(_KEY, b"{}"))
            metadata = checked(dict[str, Any], content, where=f"{path}: metadata", hint=AGAIN)
            checked(_Metadata, metadata, where=f"{path}: metadata", hint=AGAIN)
            for one in SCHEMA:
                if one.name not in schema.names:
                    hint = AGAIN if metadata else "trimsft tokens makes one"
                    problem = f"{path}: no column {one.name!r}, so it is no token table of this version"
                    raise RunError(problem, hint=hint)
                kind = schema.field(one.name).type
                if one.name != "category" and kind != one.type:
                    raise RunError(f"{path}: column {one.name!r} holds {kind}, not {one.type}", hint=AGAIN)
            return metadata, file.read(names)
    except TrimSFTError:
        raise
    except Exception as error:  # Arrow raises whatever the file makes it
        raise RunError(f"{path}: not readable as a token table ({one_line(error)})", hint=AGAIN) from error


# ---- comparing


def incomparable(tables: Mapping[str, TokenTable]) -> dict[str, RunError]:
    """Return by label why a table is not about the same tokens and prompts as the first one."""
    errors, known = {}, list(tables.items())
    for label, table in known[1:]:
        first_label, first = known[0]
        if difference := _difference(first, table):
            problem, field, hint = difference
            between = f"{first_label!r} and {label!r} are not about the same tokens"
            errors[label] = RunError(f"{between}: {problem}", field=field, hint=hint)
    return errors


def _difference(one: TokenTable, other: TokenTable) -> tuple[str, str, str] | None:
    """Return what two tables do not share, the setting to blame, and a way out."""
    has_same_tokens = all(np.array_equal(one[name], other[name]) for name in ("example", "position", "token_id"))
    lengths = ("max_length", "truncation_mode", "train_on", "completion_only_loss", "weights")
    # a maximum length that has cut no token is none
    for key in ("data", "template", "system_prompt", *(() if has_same_tokens else lengths)):
        was, now = (_setting(table.metadata, key) for table in (one, other))
        if was != now:
            hint = "make both from the same rows" if key == "data" else "make both with the same one"
            return f"{key} is {shown(was)} and {shown(now)}", key, hint
    if not has_same_tokens:
        return f"{len(one):,} and {len(other):,} tokens; their tokenizers differ", "tables", "compare them apart"
    prompts = (table.metadata.get("prompts", ()) for table in (one, other))
    if any(was != now for was, now in zip(*prompts, strict=False)):
        hint = "make both with template='plain'" if one.metadata.get("template") else "compare them apart"
        return "their chat templates make other prompts of the same problems", "template", hint
    return None


def _setting(metadata: Mapping[str, Any], key: str) -> Any:
    has_default = key == "system_prompt" and metadata.get("template") in ("chat", "plain")
    value = metadata.get(key)
    return SYSTEM_PROMPT if has_default and value is None else value


def shown(value: Any) -> str:
    """Return an entry of the metadata, shortened."""
    if isinstance(value, Mapping):
        return f"{value.get('rows')} rows, {str(value.get('sha256'))[:12]}"
    return repr(textwrap.shorten(value, 80) if isinstance(value, str) else value)


# ---- writing


def as_arrow(columns: Mapping[str, Any]) -> pa.Table:
    """Return columns by name as a table; `category` as indexes into `CATEGORIES`."""
    kinds = pa.array(columns["category"], type=pa.int8())
    category = pa.DictionaryArray.from_arrays(kinds, pa.array(CATEGORIES, type=pa.string()))
    return pa.table({name: {**columns, "category": category}[name] for name in SCHEMA.names}, schema=SCHEMA)


def write_table(path: Path, table: pa.Table, metadata: Mapping[str, Any]) -> None:
    """Write the columns of `as_arrow` whole or not at all."""
    content = json.dumps({"schema": VERSION, **metadata}).encode()
    # floats hardly repeat: a dictionary of them is made and thrown away
    repeating = [one.name for one in table.schema if one.type != pa.float32()]
    options = {"compression": "zstd", "use_dictionary": repeating, "write_page_checksum": True}
    with written_beside(path) as beside:
        pq.write_table(table.replace_schema_metadata({_KEY: content}), beside, **options)
