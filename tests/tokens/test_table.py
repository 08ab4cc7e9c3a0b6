"""The file of a token table: what is read of it, and what is no token table."""

import json
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.tokens.by_hand import hand_table
from tests.tokens.tiny import make_table
from trimsft.data.templates import SYSTEM_PROMPT
from trimsft.errors import RunError
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.table import as_arrow, incomparable, read_metadata, read_token_table, write_table


def columns_of(example: list[int], **changed):
    count = len(example)
    made = hand_table(np.linspace(0, 1, count), example=example, rank=np.ones(count)).columns
    texts = {"text": [f"word {number}" for number in range(count)], "competitor_text": ["the"] * count}
    return {**made, **texts, "category": np.arange(count) % 4, **changed}


@pytest.fixture
def path(tmp_path):
    write_table(tmp_path / "t.parquet", as_arrow(columns_of([0, 0, 1, 4, 4, 6, 6, 6, 7])), {"model": "m"})
    return tmp_path / "t.parquet"


def test_categories_are_indexes_in_memory_and_words_in_the_file(path) -> None:
    table = read_token_table(path)
    assert table["category"].dtype == np.int8
    assert table["category"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    words = pq.read_table(path)["category"].to_pylist()
    assert [CATEGORIES[kind] for kind in table["category"]] == words
    assert table.texts == {} and "text" not in table.columns  # texts take most of the time
    assert read_metadata(path) == json.loads(pq.read_schema(path).metadata[b"trimsft"]) == {"schema": 3, "model": "m"}
    other_order = pa.array(["other", "numeric"]).dictionary_encode()
    pq.write_table(as_arrow(columns_of([0, 0])).set_column(4, "category", other_order), path)
    assert read_token_table(path)["category"].tolist() == [3, 0]


def test_some_examples_are_read_with_their_texts(path) -> None:
    table = read_token_table(path, examples=[7, 4])
    assert table["example"].tolist() == [4, 4, 7]
    assert table["category"].tolist() == [3, 0, 0]
    assert table.texts["text"] == ["word 3", "word 4", "word 8"]
    none = read_token_table(path, examples=[2, 99])
    assert len(none) == 0 and none.texts["text"] == []


@pytest.mark.parametrize(
    ("metadata", "missing", "says"),
    [
        (None, "gap", "no column 'gap', so it is no token table"),
        ({"model": "m"}, "gap", "no column 'gap', so it is no token table of this version; make it again"),
        (None, None, "column 'category' holds what is no category; make it again"),
    ],
)
def test_what_is_no_table_of_this_version_is_refused(metadata, missing, says, tmp_path) -> None:
    table = as_arrow(columns_of([0, 0]))
    odd = pa.array(["verb", "symbol"]).dictionary_encode()
    table = table.drop_columns([missing]) if missing else table.set_column(4, "category", odd)
    known = {"trimsft": json.dumps(metadata)} if metadata else None
    pq.write_table(table.replace_schema_metadata(known), tmp_path / "old.parquet")
    with pytest.raises(RunError, match=says):
        read_token_table(tmp_path / "old.parquet")
    with pytest.raises(RunError, match="not readable as a token table"):
        read_token_table(tmp_path)


IDS = np.array([9, 9, 9], dtype=np.int32)
DATA = {"data": {"rows": 2, "sha256": "a" * 64}, "template": "chat", "prompts": ["[user]x", "[user]y"]}


@pytest.mark.parametrize(
    ("facts", "changed", "says"),
    [
        ({}, {"gap": np.ones(3, dtype=np.float32)}, None),
        ({"system_prompt": SYSTEM_PROMPT}, {}, None),
        ({"max_length": 99}, {}, None),
        ({"data": {"rows": 2, "sha256": "b" * 64}}, {}, "data is 2 rows, aaa"),
        ({}, {"token_id": IDS}, "3 and 3 tokens; their tokenizers differ"),
        ({"max_length": 9}, {"token_id": IDS}, "max_length is None and 9"),
        ({"template": "plain"}, {}, "template is 'chat' and 'plain'; make both with the same one"),
        ({"system_prompt": "hello"}, {}, "system_prompt is 'Please reason .* and 'hello'; make both"),
        ({"prompts": ["[user]x", "<user>y"]}, {}, "their chat templates make other prompts"),
    ],
)
def test_tables_of_other_tokens_or_after_other_prompts_are_refused(facts, changed, says, tmp_path) -> None:
    tables = []
    for metadata, columns in ((DATA, {}), (DATA | facts, changed)):
        write_table(tmp_path / "t.parquet", as_arrow(columns_of([0, 0, 1], **columns)), metadata)
        tables.append(read_token_table(tmp_path / "t.parquet"))
    base, other = tables
    errors = incomparable({"Base": base, "TrimSFT": base, "SFT": other})
    assert list(errors) == (["SFT"] if says else [])
    assert not says or re.search(f"'Base' and 'SFT' are not about the same tokens: {says}", str(errors["SFT"]))


def test_a_damaged_table_is_refused_in_one_line_or_read_as_it_was(tmp_path) -> None:
    """Bits that flip in a page are seen by its checksum; the rest by the reader."""
    path = make_table(tmp_path / "t.parquet", [["It", " is", " so", "."] * 20] * 6)
    content, whole, rng = path.read_bytes(), read_token_table(path, examples=range(6)), random.Random(0)
    refusals = []
    for place in rng.sample(range(len(content) * 3 // 4), 120):
        cut = content[:place]
        flipped = cut + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
        path.write_bytes(rng.choice([cut, flipped, flipped]))
        try:
            table = read_token_table(path, examples=range(6))
        except RunError as error:
            refusals.append(str(error))
        else:
            assert all(np.array_equal(table[name], whole[name]) for name in whole.columns)
            assert table.texts == whole.texts
    assert len(refusals) > 100
    assert all(str(path) in said and "make it again" in said for said in refusals)
