"""Which form data has, and what rows of alpaca and sharegpt become, from files and from the hub."""

from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from trimsft.data.formats import find_form
from trimsft.data.load import DataConfig, load_rows
from trimsft.errors import DataError

from .toys import ROWS, local, write

ALPACA = [
    {"instruction": "Add.", "input": "1 and 2", "output": "3"},
    {"instruction": "Say hello.", "input": "", "output": "Hello."},
]
PAIRS = [{"problem": "Add.\n\n1 and 2", "solution": "3"}, {"problem": "Say hello.", "solution": "Hello."}]
SHAREGPT = [
    {"system": "Be brief.", "conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]},
    {"system": None, "conversations": [{"from": "user", "value": "a"}, {"from": "assistant", "value": ""}]},
]
MESSAGES = [
    {"messages": [{"role": role, "content": text} for role, text in turns]}
    for turns in ([("system", "Be brief."), ("user", "1+1?"), ("assistant", "2")], [("user", "a"), ("assistant", "")])
]


@pytest.mark.parametrize(
    ("columns", "form"),
    [
        ("problem solution messages", "problem-solution"),  # as AI-MO/NuminaMath-CoT
        ("prompt prompt_id messages", "messages"),  # as HuggingFaceH4/ultrachat_200k
        ("prompt completion messages text", "prompt-completion"),
        ("input_ids labels text", "tokenised"),
        ("instruction input output text", "text"),  # as tatsu-lab/alpaca; was so before alpaca was known
        ("instruction output", "alpaca"),
        ("id conversations", "sharegpt"),
        ("question answer", None),
    ],
)
def test_the_form_is_known_by_its_columns(columns: str, form: str | None) -> None:
    assert find_form(columns.split()) == form


@pytest.mark.parametrize(("rows", "become"), [(ALPACA, PAIRS), (SHAREGPT, MESSAGES)], ids=["alpaca", "sharegpt"])
@pytest.mark.parametrize("place", ["jsonl", "parquet", "hub"])
def test_what_the_forms_of_others_become(
    rows: list[Any], become: list[Any], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = DataConfig(dataset_name="someone/something")
    if place == "hub":
        monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: Dataset.from_list(rows))
    elif place == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
        config = DataConfig(dataset_name=str(tmp_path / "a.parquet"))
    else:
        config = local(tmp_path, rows)
    assert load_rows(config).to_list() == become


def test_files_of_several_forms_are_joined_where_they_become_one(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS[:1])
    write(tmp_path / "b.jsonl", ALPACA)
    assert load_rows(DataConfig(dataset_name=str(tmp_path))).to_list() == [ROWS[0], *PAIRS]


def test_columns_by_which_trl_would_take_rows_for_something_else_are_dropped(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "prompt_id": 3, **MESSAGES[0]}]
    assert load_rows(local(tmp_path, rows)).column_names == ["prompt_id", "messages"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"conversations": [{"from": "bird", "value": "x"}]}, r"line 3: a turn of conversations must have 'from'"),
        ({"conversations": [{"from": "human", "value": None}]}, r"line 3: a turn of conversations .* and 'value', a"),
        ({"conversations": [{"from": "human", "value": "x"}], "images": ["x"]}, "line 3: 'images' is not read in this"),
        ({"conversations": []}, r"line 3: messages is missing or empty"),
    ],
)
def test_chats_that_cannot_be_read(bad: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        load_rows(local(tmp_path, [*SHAREGPT, bad]))


@pytest.mark.parametrize("lacks", [{"output": " "}, {"output": 3}, {"instruction": None}, {"instruction": ["a"]}])
def test_rows_of_alpaca_without_problem_or_solution(lacks: dict[str, Any], tmp_path: Path) -> None:
    rows = [ALPACA[1], {**ALPACA[1], **lacks}]
    with pytest.raises(DataError, match=r"train.jsonl, line 2: 'instruction' or 'output' is missing, blank or"):
        load_rows(local(tmp_path, rows))
    assert load_rows(local(tmp_path, rows, drop_incomplete=True)).to_list() == PAIRS[1:]
