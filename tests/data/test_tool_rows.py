"""Rows with tool calls and tools are trained as `load_dataset` and TRL's trainer alone would train them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import trl
from datasets import Dataset, disable_progress_bars, load_dataset

from tests.data.toys import make_tokenizer, write
from tests.train.tiny import make_config, make_model
from trimsft.data.chat import TrlEncoder
from trimsft.data.formats import as_known_rows
from trimsft.data.load import DataConfig, load_rows, plain_rows
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

disable_progress_bars()
QWEN = Path(trl.__file__).parent.joinpath("chat_templates", "qwen2_5.jinja").read_text()
SPECIAL = ("<bos>", "<eos>", "<|im_start|>", "<|im_end|>")
Row = dict[str, Any]


def tool(name: str, properties: Row) -> Row:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


def call(name: str, arguments: Any) -> Row:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = {
    "add": tool("add", {"a": {"type": "integer"}, "b": {"type": "integer"}}),
    "weather": tool("weather", {"city": {"type": "string", "enum": ["Rome", "Paris"]}}),
    "now": tool("now", {}),
}
CALLS = [
    ("add", {"a": 1, "b": 2}),
    ("weather", {"city": "Rome", "when": {"day": 3, "parts": ["am", None]}}),
    ("now", {}),
    ("add", {"a": "x/é", "more": [1, "two", {"three": 3}]}),
]


def chats(arguments: Callable[[Any], Any] = lambda value: value, **always: Any) -> list[Row]:
    """Rows of messages, no two with the same tool, arguments or schema; `always` stands in every message."""
    rows: list[Row] = []
    for name, value in CALLS:
        asked = {"role": "assistant", "content": "", "tool_calls": [call(name, arguments(value))]}
        turns = [{"role": "user", "content": f"{name}?"}, asked, {"role": "tool", "name": name, "content": "3"}]
        turns += [{"role": "assistant", "content": "It is 3."}]
        rows.append({"messages": [{**always, **turn} for turn in turns], "tools": [TOOLS[name]]})
    rows.append({"messages": [{**always, "role": role, "content": "Hi"} for role in ("user", "assistant")]})
    return rows


def cut(row: Row, at: int = 3) -> Row:
    rest = {name: value for name, value in row.items() if name != "messages"}
    return {"prompt": row["messages"][:at], "completion": row["messages"][at:], **rest}


def spoken(row: Row) -> Row:
    names = {"role": "from", "content": "value"}
    turns = [{names.get(name, name): value for name, value in turn.items()} for turn in row["messages"]]
    return {"conversations": turns, **({"tools": row["tools"]} if "tools" in row else {})}


PADDED = {"content": None, "tool_calls": None, "name": None}
FORMS = {
    "objects": chats(),
    "strings": chats(json.dumps),
    "both": chats(lambda value: json.dumps(value) if "city" in value else value),
    "same keys": chats(**PADDED),
    "same keys, both": chats(lambda value: json.dumps(value) if "city" in value else value, **PADDED),
    "tools as text": [{**row, "tools": json.dumps(row["tools"]) if "tools" in row else None} for row in chats()],
    "prompt and completion": [cut(row) for row in chats()[:4]],
    "calls completed": [cut(row, at=1) for row in chats()],
    "sharegpt": [spoken(row) for row in chats()],
}


def labels_of(dataset: Any, folder: Path, kind: Any, **options: Any) -> list[tuple[list[int], list[int]]]:
    tokenizer = make_tokenizer(chat=QWEN, special=SPECIAL)
    config = make_config(TrimSFTConfig if kind is TrimSFTTrainer else trl.SFTConfig, folder, max_length=None, **options)
    model = make_model(vocab_size=len(tokenizer))
    rows = kind(model, config, train_dataset=dataset, processing_class=tokenizer).train_dataset
    return list(zip(rows["input_ids"], rows["labels"], strict=True))


def loaded(kind: str, path: str, cache: Path) -> Dataset:
    """What `load_dataset` and TRL make of a file, chats as messages."""
    rows = load_dataset(kind, data_files=path, split="train", cache_dir=str(cache))
    return rows.map(trl.maybe_convert_to_chatml, remove_columns={"conversations"} & set(rows.column_names))


def place_of(folder: Path, rows: list[Row], place: str) -> tuple[str, Dataset]:
    """Data at some kind of place, and what it is."""
    folder.mkdir()
    path = write(folder / "a.jsonl", rows)
    expected = loaded("json", path, folder.parent)
    if place in ("json", "data"):
        (folder / "a.json").write_text(json.dumps(rows if place == "json" else {"data": rows}))
        path = str(folder / "a.json")
    elif place == "parquet":
        path = str(folder / "a.parquet")
        load_dataset("json", data_files=str(folder / "a.jsonl"), split="train", cache_dir=str(folder)).to_parquet(path)
        expected = loaded("parquet", path, folder.parent)
    elif place == "folder":
        write(folder / "a.jsonl", rows[:2])
        write(folder / "b.jsonl", rows[2:])
        path = str(folder)
    elif place == "mixed":
        loaded("json", path, folder).select([0]).to_parquet(folder / "0.parquet")
        write(folder / "a.jsonl", rows[1:])
        path = str(folder)
    return path, expected


@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_tokens_are_those_of_load_dataset_and_trl(form, only, tmp_path) -> None:
    path, expected = place_of(tmp_path / "data", FORMS[form], "jsonl")
    wanted = labels_of(expected, tmp_path, trl.SFTTrainer, assistant_only_loss=only)
    config = DataConfig(dataset_name=path)
    rows = load_rows(config)
    assert labels_of(rows, tmp_path, TrimSFTTrainer, assistant_only_loss=only) == wanted
    encoder = TrlEncoder(make_tokenizer(chat=QWEN, special=SPECIAL), only)
    measured = [encoder.encode(row) for row in plain_rows(rows, config)]
    labels = [[token if is_on else -100 for token, is_on in zip(*row, strict=True)] for row in measured]
    assert [(ids, row) for (ids, _), row in zip(measured, labels, strict=True)] == wanted


@pytest.mark.parametrize("place", ["jsonl", "json", "data", "folder", "parquet", "mixed", "hub"])
@pytest.mark.parametrize("form", ["both", "same keys, both", "tools as text", "sharegpt"])
def test_every_place_gives_what_load_dataset_gives(form, place, tmp_path, monkeypatch) -> None:
    path, expected = place_of(tmp_path / "data", FORMS[form], place)
    if place == "hub":
        hub = load_dataset("json", data_files=path, split="train", cache_dir=str(tmp_path))
        monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: hub)
        path = "someone/something"
    rows = load_rows(DataConfig(dataset_name=path))
    assert sorted(rows.column_names) == sorted(expected.column_names)
    columns = expected.column_names
    assert [{name: row[name] for name in columns} for row in rows] == list(expected)


def test_what_is_trained_is_what_the_file_says(tmp_path) -> None:
    tokenizer = make_tokenizer(chat=QWEN)
    for form in ("objects", "same keys", "sharegpt"):
        config = DataConfig(dataset_name=write(tmp_path / f"{form}.jsonl", FORMS[form]))
        encoder = TrlEncoder(tokenizer)
        memory, file = (
            [tokenizer.decode(encoder.encode(row)[0]) for row in rows]
            for rows in (as_known_rows(FORMS[form])[1], plain_rows(load_rows(config), config))
        )
        assert file == memory
        assert '{"name": "add", "arguments": {"a": 1, "b": 2}}' in file[0]
        assert "null" not in file[0] + file[2] and '"parts": ["am", null]' in file[1]
