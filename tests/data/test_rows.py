"""Settings of the data; loading, checking and sampling: which rows there are, and what bad data gets."""

import dataclasses
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from transformers import HfArgumentParser

from trimsft.data.encode import encode, load_training_data
from trimsft.data.load import NUMINA, DataConfig, load_rows
from trimsft.errors import DataError, UsageError

from .toys import CHAT, ROWS, local, make_tokenizer, split, write

TRL_ROWS = [
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {"prompt": "a", "completion": "b"},
    {"text": "a"},
    {"input_ids": [1, 2, 3]},
]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sample": 0}, "sample: must be at least 1, got 0"),
        ({"template": "chatt"}, "template: unknown name 'chatt'; did you mean 'chat'"),
        ({"drop_overlap": True}, "drop_overlap: has no effect without benchmarks_dir"),
        ({"problem_column": "solution"}, "solution_column: is the problem_column too"),
        ({"dataset_name": " "}, "dataset_name: is missing"),
    ],
)
def test_settings_are_checked_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        DataConfig(**{"dataset_name": "d", **options})


def test_settings_are_options_of_a_command() -> None:
    words = [
        "--dataset_name",
        "d",
        "--sample",
        "5",
        "--drop_overlap",
        "--benchmarks_dir",
        "b",
        "--system_prompt",
        "",
        "--template",
        "plain",
    ]
    (config,) = HfArgumentParser(DataConfig).parse_args_into_dataclasses(words)
    assert config == DataConfig(
        "d", sample=5, drop_overlap=True, benchmarks_dir="b", system_prompt="", template="plain"
    )


def test_settings_stand_beside_those_of_trl() -> None:
    from trl import ModelConfig, SFTConfig

    names = [{field.name for field in dataclasses.fields(kind)} for kind in (SFTConfig, ModelConfig)]
    assert {field.name for field in dataclasses.fields(DataConfig)}.isdisjoint(set.union(*names))


@pytest.mark.parametrize(
    ("rows", "settings", "says"),
    [
        (ROWS, {"dataset_config": "a"}, "dataset_config: has no effect on local data"),
        (ROWS, {"dataset_revision": "b"}, "dataset_revision: has no effect on local data"),
        (ROWS, {"dataset_train_split": "c"}, "dataset_train_split: has no effect on local data"),
        ([{"q": "1", "a": "2"}], {}, "problem_column: .* no column 'problem' or 'solution', it has q, a; name"),
        (TRL_ROWS[:1], {"problem_column": "query"}, "problem_column: .* has no column 'query' .*, it has messages"),
        ([{"text": "a"}], {"template": "plain"}, "template: has no effect on data without 'problem'"),
        ([{"text": "a"}], {"system_prompt": ""}, "system_prompt: has no effect on data without 'problem'"),
        ([{"text": "a"}], {"benchmarks_dir": "HERE"}, "benchmarks_dir: has no effect on data without 'problem'"),
        ([{"text": "a"}, {"text": {"b": 1}}], {}, r"train\.jsonl: 'text' must hold text, and holds Json"),
        ([{"text": "a"}, {"text": ""}], {}, r"train\.jsonl, line 2: text is missing or empty"),
    ],
)
def test_data_that_settings_do_not_fit(tmp_path: Path, rows: list[Any], settings: dict[str, Any], says: str) -> None:
    if "benchmarks_dir" in settings:
        (tmp_path / "toys").mkdir()
        settings = {"benchmarks_dir": str(Path(write(tmp_path / "toys" / "toy.jsonl", ROWS)).parent)}
    with pytest.raises(DataError, match=says):
        load_training_data(local(tmp_path, rows, **settings), make_tokenizer(), with_eval=False)


def test_other_column_names(tmp_path: Path) -> None:
    rows = [{"question": row["problem"], "answer": row["solution"]} for row in ROWS]
    config = local(tmp_path, rows, problem_column="question", solution_column="answer")
    assert load_rows(config)["answer"][:] == [row["solution"] for row in ROWS]
    tokenizer = make_tokenizer(chat=CHAT)
    assert split(tokenizer, encode(load_rows(config), tokenizer, config)[2])[1] == "It is \\boxed{3}.<eos>"


def test_several_files_of_several_formats(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ROWS[:2])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(ROWS[2]).encode()))
    (tmp_path / "c.json").write_text(json.dumps(ROWS[3:5]))
    (tmp_path / "d.csv").write_text("solution,problem\nb,a\n")
    large = pa.table({name: pa.array(["z"], pa.large_string()) for name in ("problem", "solution")})
    pq.write_table(large, tmp_path / "e.parquet")
    rows = load_rows(DataConfig(dataset_name=str(tmp_path)))
    assert rows["problem"][:] == [*(row["problem"] for row in ROWS[:5]), "a", "z"]
    assert len(list(tmp_path.iterdir())) == 5  # nothing was written beside them


@pytest.mark.parametrize(
    "bad",
    [
        {"problem": "p"},
        {"problem": "p", "solution": None},
        {"problem": " \n", "solution": "s"},
        {"problem": "p", "solution": 3},
        {"problem": ["p"], "solution": "s"},
        {"problem": "p", "solution": "\ud800"},
    ],
)
def test_rows_without_problem_or_solution(tmp_path: Path, bad: dict[str, Any], caplog: Any) -> None:
    rows = [ROWS[0], bad, ROWS[1], bad, bad]
    with pytest.raises(DataError, match=r"train.jsonl, line 2: 'problem' or 'solution' .* \(and 2 more rows\)"):
        load_rows(local(tmp_path, rows))
    with pytest.raises(DataError, match=r"line 1: .* not text.*; correct them, or drop them; set drop_incomplete=True"):
        load_rows(local(tmp_path, [bad, *ROWS]))
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        kept = load_rows(local(tmp_path, rows, drop_incomplete=True))
    assert kept["problem"][:] == [ROWS[0]["problem"], ROWS[1]["problem"]]
    assert "dropped 3 of 5 rows; the first: " in caplog.text
    with pytest.raises(DataError, match=r"no row is left|no column"):
        load_rows(local(tmp_path, [bad], drop_incomplete=True))


@pytest.mark.parametrize("name", ["gone.jsonl", "./gone", "~/gone", "/gone", "a/b/c", "x.jsonl,y.jsonl", "gone.CSV.gz"])
def test_a_path_that_does_not_exist_is_not_asked_of_the_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: pytest.fail("asked the hub"))
    with pytest.raises(DataError, match="no such file or folder"):
        load_rows(DataConfig(dataset_name=name))


@pytest.mark.parametrize("row", TRL_ROWS, ids=lambda row: next(iter(row)))
def test_forms_of_trl_pass_through(tmp_path: Path, row: dict[str, Any]) -> None:
    train, test = load_training_data(local(tmp_path, [row, row]), make_tokenizer(), with_eval=False)
    assert (train.kind, train.dataset.to_list(), test) == ("trl", [row, row], None)
    train.dataset.select([0]).to_parquet(tmp_path / "more.parquet")
    assert load_rows(DataConfig(dataset_name=str(tmp_path))).to_list() == [row] * 3
    write(tmp_path / "problems.jsonl", ROWS)
    with pytest.raises(DataError, match="no columns 'problem' and 'solution', which other files here have"):
        load_rows(DataConfig(dataset_name=str(tmp_path)))


def test_what_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    rows = [{**row, "messages": []} for row in ROWS]

    def load_dataset(*args: Any, **kwargs: Any) -> Dataset:
        asked.append((args, kwargs))
        return Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    config = DataConfig(dataset_name="some/data", dataset_config="en", dataset_revision="abc")
    assert load_rows(config).column_names == ["problem", "solution"]
    load_rows(config, split="test")
    assert asked == [(("some/data", "en"), {"split": split, "revision": "abc"}) for split in ("train", "test")]
    rows += [{"problem": "p", "solution": None}, {"problem": "", "solution": "s"}]
    with pytest.raises(DataError, match=r"some/data \(train\), row 8: .* \(and 1 more rows\)"):
        load_rows(config)
    assert load_rows(DataConfig(dataset_name="some/data", drop_incomplete=True)).to_list() == ROWS


def test_the_dataset_of_the_paper_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Dataset.from_dict({"problem": [str(n) for n in range(20_010)], "solution": ["s"] * 20_010})
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: many)
    assert len(load_rows(DataConfig(NUMINA))) == 20_000
    assert len(load_rows(DataConfig(NUMINA, sample=7))) == 7
    assert len(load_rows(DataConfig(dataset_name="other/data"))) == 20_010
    assert len(load_rows(DataConfig(NUMINA), split="test")) == 20_010


def test_no_network_is_one_line_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(
        DataError, match=r"cannot load split 'train' of 'no/where' at v2 from the hub .* data/train.jsonl"
    ) as error:
        load_rows(DataConfig(dataset_name="no/where", dataset_revision="v2"))
    assert "\n" not in str(error.value)


def test_a_sample_is_the_same_everywhere(tmp_path: Path, caplog: Any) -> None:
    """Random(0).random() of the eight rows orders them so, on every machine and Python."""
    assert load_rows(local(tmp_path, sample=5))["problem"][:] == [f"What is {n}+1?" for n in (3, 7, 5, 2, 4)]
    other = load_rows(local(tmp_path, sample=5, sample_seed=1))["problem"][:]
    assert other != load_rows(local(tmp_path, sample=5))["problem"][:] and len(set(other)) == 5
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        assert load_rows(local(tmp_path, sample=1000)).to_list() == ROWS
    assert "sample: 1,000 rows wanted, 8 are there; all are used" in caplog.text


def test_evaluation_data(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(chat=CHAT)
    test_file = write(tmp_path / "held_out.jsonl", ROWS[:3])
    config = local(tmp_path, sample=2, dataset_test_file=test_file)
    train, test = load_training_data(config, tokenizer, with_eval=True)
    assert test is not None
    assert (len(train.dataset), len(test.dataset), test.kind, test.overlap) == (2, 3, "problem-solution", None)
    with pytest.raises(DataError, match="dataset_test_file: is needed"):
        load_training_data(local(tmp_path), tokenizer, with_eval=True)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"text": ["a"]}, r"train\.jsonl: 'text' must hold text, and holds List"),
        ({"text": {"a": 1}}, "'text' must hold text"),
        ({"messages": "hello"}, "'messages' must hold messages, and holds Value"),
        ({"messages": [{"content": "a"}]}, "'messages' must hold messages"),
        ({"prompt": [[1]], "completion": "a"}, "'prompt' must hold text or messages"),
        ({"prompt": "a", "completion": [{"role": "user", "content": "a"}]}, "must both hold text or both messages"),
        ({"input_ids": "abc"}, "'input_ids' must hold token ids"),
        ({"input_ids": [1, 2], "labels": ["a", "b"]}, "'labels' must hold token ids"),
        ({"text": "a", "": 10**30}, "rows do not fit into one table"),
    ],
)
def test_columns_that_trl_could_not_render_are_refused(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says):
        load_rows(local(tmp_path, [row, row]))
