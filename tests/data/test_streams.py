"""Rows that are read while they are trained: the same ones, refused by place, and resumed."""

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset

from tests.data.test_chat import FORMS, QWEN, SPECIAL
from tests.data.toys import CHAT, ROWS, make_tokenizer, write
from tests.train import tiny
from trimsft.data.encode import load_training_data
from trimsft.data.load import DataConfig, load_rows, plain_rows, stream_rows
from trimsft.errors import DataError
from trimsft.train import TrimSFTTrainer, parse


def test_a_stream_has_the_rows_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", ROWS[:2])
    (tmp_path / "b.json").write_text(json.dumps(ROWS[2:3]))
    pq.write_table(pa.Table.from_pylist(ROWS[3:5]), tmp_path / "d.parquet")
    (tmp_path / "e.jsonl.gz").write_bytes(gzip.compress(json.dumps({**ROWS[5], "weight": 0.5}).encode()))
    config = DataConfig(dataset_name=str(tmp_path), streaming=True)
    assert list(stream_rows(config)) == plain_rows(load_rows(config))
    for form in ("sharegpt", "objects", "calls completed"):
        config = DataConfig(dataset_name=write(tmp_path / "a.jsonl", FORMS[form]), streaming=True)
        assert list(stream_rows(config)) == plain_rows(load_rows(config)), form
    asked = []

    def load_dataset(*args: Any, **options: Any) -> Any:
        asked.append(options)
        return Dataset.from_list([{"q": "1", "a": "2", "more": 3}]).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = DataConfig(dataset_name="some/data", problem_column="q", solution_column="a", streaming=True)
    assert list(stream_rows(config)) == [{"problem": "1", "solution": "2"}] and asked[0]["streaming"]


def test_tokens_of_a_stream_are_those_of_the_data(tmp_path: Path) -> None:
    chats = [*FORMS["objects"], {**FORMS["objects"][0], "weight": 0.5}]
    for rows, chat in ((ROWS, CHAT), (chats, QWEN)):
        tokenizer, path = make_tokenizer(chat=chat, special=SPECIAL), write(tmp_path / "a.jsonl", rows)
        held, stream = (
            load_training_data(DataConfig(dataset_name=path, streaming=one), tokenizer, with_eval=False)[0]
            for one in (False, True)
        )
        for one, other in zip(stream, held, strict=True):
            weights = one.pop("token_weights")
            assert other == one | ({"token_weights": weights} if "token_weights" in held.column_names else {})
            assert [label != -100 for label in one["labels"]] == [weight > 0 for weight in weights]
        assert max(weights) == (0.5 if rows is chats else 1)


def test_files_with_shares_take_turns(tmp_path: Path) -> None:
    files = [
        write(tmp_path / name, [{"problem": f"{name}{n}", "solution": "s"} for n in range(400)])
        for name in ("a.jsonl", "b.jsonl")
    ]
    words = ["--model", "m", "--data", f"{files[0]}:0.75", f"{files[1]}:0.25", "--use_cpu", "true"]
    name = parse(words).data.dataset_name
    assert name == f"{files[0]}:0.75,{files[1]}:0.25"
    rows = [row["problem"] for row in stream_rows(DataConfig(dataset_name=name, streaming=True)).take(400)]
    first = [row for row in rows if row[0] == "a"]
    assert 270 < len(first) < 330 and first == [f"a.jsonl{n}" for n in range(len(first))]
    assert rows == [row["problem"] for row in stream_rows(DataConfig(dataset_name=name, streaming=True)).take(400)]


def test_what_streams_cannot_do_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS[:2], {"problem": "x"}])
    with pytest.raises(DataError, match=r"a\.jsonl, line 3: 'problem' or 'solution' is missing or blank"):
        list(stream_rows(DataConfig(dataset_name=path, streaming=True)))
    for field, value in (("sample", 3), ("eval_split", 0.5)):
        with pytest.raises(DataError, match=f"{field}: has no effect on rows that are streamed"):
            stream_rows(DataConfig(dataset_name=path, streaming=True, **{field: value}))


def test_a_stream_is_trained_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Batches that were trained are read again and left out: the weights are the same."""
    rows = [{"prompt": tiny.words(3, n), "completion": " " + tiny.words(4, 50 + n)} for n in range(40)]
    config = DataConfig(dataset_name=write(tmp_path / "a.jsonl", rows), streaming=True)

    def trainer() -> TrimSFTTrainer:
        data, _ = load_training_data(config, tiny.make_tokenizer(), with_eval=False)
        return tiny.make_ours(tmp_path / "run", data, max_steps=4, save_strategy="steps", save_steps=2)

    whole, resumed = trainer(), trainer()
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
