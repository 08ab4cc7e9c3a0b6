"""The file of a token table: what is read of it, and what is no token table."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimsft.errors import RunError
from trimsft.text.templates import SYSTEM_PROMPT
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.table import SCHEMA, as_arrow, difference, read_metadata, read_token_table, same_tokens, writing


def columns_of(example: list[int], **changed):
    count = len(example)
    columns = {
        "example": np.array(example, dtype=np.int32),
        "position": np.arange(count, dtype=np.int32),
        "token_id": np.arange(count, dtype=np.int32),
        "text": [f"word {number}" for number in range(count)],
        "category": (np.arange(count) % 4).astype(np.int8),
        "competitor_id": np.zeros(count, dtype=np.int32),
        "competitor_text": ["the"] * count,
        "rank": np.ones(count, dtype=np.int32),
    }
    floats = np.linspace(0, 1, count).astype(np.float32)
    return columns | dict.fromkeys(("nll", "gap", "entropy", "gradient_norm"), floats) | changed


@pytest.fixture
def path(tmp_path):
    """Three row groups: examples 0 and 1, 4, and 6 and 7."""
    with writing(tmp_path / "t.parquet", {"model": "m"}) as table:
        for examples in ([0, 0, 1], [4, 4], [6, 6, 6, 7]):
            table.append(columns_of(examples))
    return tmp_path / "t.parquet"


def test_categories_are_indexes_in_memory_and_words_in_the_file(path) -> None:
    table = read_token_table(path)
    assert table["category"].dtype == np.int8
    assert table["category"].tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 3]
    words = pq.read_table(path)["category"].to_pylist()
    assert [CATEGORIES[kind] for kind in table["category"]] == words
    assert table.texts == {} and "text" not in table.columns  # texts take most of the time


def test_some_examples_are_read_with_their_texts_from_their_row_groups_alone(path, monkeypatch) -> None:
    groups = []
    read = pq.ParquetFile.read_row_groups
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda file, some: groups.append(some) or read(file, some))
    table = read_token_table(path, examples=[7, 4])
    assert groups == [[1, 2]]
    assert table["example"].tolist() == [4, 4, 7]
    assert table["category"].tolist() == [0, 1, 3]
    assert table.texts["text"] == ["word 0", "word 1", "word 3"]
    first = read_token_table(path, first_examples=1)
    assert first["example"].tolist() == [0, 0] and groups[-1] == [0]
    none = read_token_table(path, examples=[2, 99])
    assert len(none) == 0 and none.texts["text"] == []
    with pytest.raises(ValueError, match="examples: give these or first_examples"):
        read_token_table(path, examples=[1], first_examples=1)


def test_metadata_carry_the_version(path) -> None:
    assert read_metadata(path) == json.loads(pq.read_schema(path).metadata[b"trimsft"]) == {"schema": 2, "model": "m"}


@pytest.mark.parametrize("missing", ["category", "gap"])
def test_a_table_without_a_column_is_to_be_made_again(missing, tmp_path) -> None:
    pq.write_table(as_arrow(columns_of([0, 0]), SCHEMA).drop_columns([missing]), tmp_path / "old.parquet")
    with pytest.raises(RunError, match=f"no column '{missing}', so it is no token table"):
        read_token_table(tmp_path / "old.parquet")


@pytest.mark.parametrize(
    ("told", "age"), [({}, r"an older version .*schema 1"), ({"schema": 9}, r"a newer version .*schema 9")]
)
def test_a_table_of_another_version_is_to_be_made_again(told, age, tmp_path) -> None:
    table = as_arrow(columns_of([0, 0]), SCHEMA).drop_columns(["category"])
    metadata = {"trimsft": json.dumps({"model": "m", **told})}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "old.parquet")
    with pytest.raises(RunError, match=f"no column 'category': it was made by {age}, here 2.; make it again"):
        read_token_table(tmp_path / "old.parquet")


def test_categories_nobody_knows_are_refused(tmp_path) -> None:
    table = as_arrow(columns_of([0, 0]), SCHEMA)
    odd = pa.array(["verb", "symbol"]).dictionary_encode()
    pq.write_table(table.set_column(4, "category", odd), tmp_path / "odd.parquet")
    with pytest.raises(RunError, match=r"category \['verb'\] is not one of .*make it again"):
        read_token_table(tmp_path / "odd.parquet")


def test_categories_in_any_order(tmp_path) -> None:
    table = as_arrow(columns_of([0, 0]), SCHEMA)
    words = pa.array(["other", "numeric"]).dictionary_encode()
    pq.write_table(table.set_column(4, "category", words), tmp_path / "t.parquet")
    assert read_token_table(tmp_path / "t.parquet")["category"].tolist() == [3, 0]


def test_no_file(tmp_path) -> None:
    for path in (tmp_path / "none.parquet", tmp_path):
        with pytest.raises(RunError, match="not readable as a token table"):
            read_token_table(path)


def table_of(path, metadata, **changed):
    with writing(path, metadata) as table:
        table.append(columns_of([0, 0, 1], **changed))
    return read_token_table(path)


def test_tables_of_the_same_tokens(tmp_path) -> None:
    data = {"data": {"rows": 2, "sha256": "a" * 64}, "template": "chat"}
    base = table_of(tmp_path / "a.parquet", data)
    tuned = table_of(tmp_path / "b.parquet", data, gap=np.ones(3, dtype=np.float32))
    same_tokens({"Base": base, "TrimSFT": tuned})
    same_tokens({"Base": base})
    rows = table_of(tmp_path / "c.parquet", {**data, "data": {"rows": 2, "sha256": "b" * 64}})
    with pytest.raises(RunError, match="'Base' and 'SFT' are not about the same tokens: data is 2 rows, aaa"):
        same_tokens({"Base": base, "TrimSFT": tuned, "SFT": rows})
    ids = np.array([9, 9, 9], dtype=np.int32)
    with pytest.raises(RunError, match="their tokenizers differ"):
        same_tokens({"Base": base, "SFT": table_of(tmp_path / "d.parquet", data, token_id=ids)})
    cut = table_of(tmp_path / "e.parquet", {**data, "max_length": 9}, token_id=ids)
    with pytest.raises(RunError, match="max_length is None and 9"):
        same_tokens({"Base": base, "SFT": cut})


def test_tables_of_other_prompts_are_refused_though_their_tokens_are_the_same(tmp_path) -> None:
    data = {"data": {"rows": 2, "sha256": "a" * 64}, "template": "chat", "prompts": ["[user]x", "[user]y"]}
    base = table_of(tmp_path / "a.parquet", data)
    for key, value, message in (
        ("template", "plain", "template is 'chat' and 'plain'; make both with the same one"),
        ("system_prompt", "hello", "system_prompt is 'Please reason .* and 'hello'; make both"),
        ("system_prompt", f"{SYSTEM_PROMPT} {'x ' * 99}", r"system_prompt is 'Please reason .* and .*make both"),
        ("prompts", ["[user]x", "<user>y"], "their chat templates make other prompts"),
    ):
        other = table_of(tmp_path / "b.parquet", {**data, key: value})
        with pytest.raises(RunError, match=f"'Base' and 'SFT' are not about the same tokens: {message}"):
            same_tokens({"Base": base, "SFT": other})
    for harmless in ({"system_prompt": SYSTEM_PROMPT}, {"max_length": 99}, {"prompts": []}):
        assert difference(base, table_of(tmp_path / "b.parquet", {**data, **harmless})) is None
