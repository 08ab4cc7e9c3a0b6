"""Rows of messages and tools: trained as `load_dataset` and TRL alone would."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import trl
from datasets import Dataset, IterableDataset, disable_progress_bars, load_dataset

from tests.data.toys import local, make_tokenizer, split, write
from tests.train.tiny import make_model, make_trainer
from trimsft.data.chat import TrlEncoder
from trimsft.data.encode import load_training_data
from trimsft.data.load import DataConfig, load_rows, plain_rows
from trimsft.errors import DataError
from trimsft.tokens.write import write_token_table
from trimsft.train import TrimSFTTrainer

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
    "same keys, both": chats(lambda value: json.dumps(value) if "city" in value else value, **PADDED),
    "tools as text": [{**row, "tools": json.dumps(row["tools"]) if "tools" in row else None} for row in chats()],
    "prompt and completion": [cut(row) for row in chats()[:4]],
    "calls completed": [cut(row, at=1) for row in chats()],
    "sharegpt": [spoken(row) for row in chats()],
}


def trainer_of(rows: Any, folder: Path, template: str = QWEN, kind: Any = TrimSFTTrainer, **settings: Any) -> Any:
    tokenizer = make_tokenizer(chat=template, special=SPECIAL)
    dataset = Dataset.from_list(rows, on_mixed_types="use_json") if isinstance(rows, list) else rows
    model, options = make_model(vocab_size=len(tokenizer)), {"processing_class": tokenizer}
    return make_trainer(kind, model, folder, dataset, options, max_length=None, **settings)


def labels_of(dataset: Any, folder: Path, kind: Any, **settings: Any) -> list[tuple[list[int], list[int]]]:
    rows = trainer_of(dataset, folder, kind=kind, **settings).train_dataset
    return list(zip(rows["input_ids"], rows["labels"], strict=True))


def loaded(kind: str, path: str, cache: Path) -> Dataset:
    """Load a file as `load_dataset` and TRL do, chats as messages."""
    rows = load_dataset(kind, data_files=path, split="train", cache_dir=str(cache))
    return rows.map(trl.maybe_convert_to_chatml, remove_columns={"conversations"} & set(rows.column_names))


def place_of(folder: Path, rows: list[Row], place: str) -> tuple[str, Dataset]:
    """Data at some kind of place, and what it is."""
    folder.mkdir()
    path = write(folder / "a.jsonl", rows)
    expected = loaded("json", path, folder.parent)
    if place == "json":
        (folder / "a.json").write_text(json.dumps(rows))
        path = str(folder / "a.json")
    elif place == "parquet":
        a_jsonl, path = path, str(folder / "a.parquet")
        load_dataset("json", data_files=a_jsonl, split="train", cache_dir=str(folder)).to_parquet(path)
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
    if form == "sharegpt":  # a dataset made in Python
        given = Dataset.from_list(FORMS[form], on_mixed_types="use_json")
        assert labels_of(given, tmp_path, TrimSFTTrainer, assistant_only_loss=only) == wanted
    tokenizer = make_tokenizer(chat=QWEN, special=SPECIAL)
    encoder = TrlEncoder(tokenizer, "assistant" if only else "all")
    measured = [encoder.encode(row) for row in plain_rows(rows)]
    assert [(ids, np.where(weights > 0, ids, -100).tolist()) for ids, weights in measured] == wanted
    calls = [tokenizer.decode(ids) for ids, _ in measured]  # none has the arguments of another row's tool
    assert (form == "strings") != ('{"name": "add", "arguments": {"a": 1, "b": 2}}' in calls[0])
    assert "null" not in calls[0] + calls[2] and "null" in calls[1]
    # the command makes the same tokens itself
    config = DataConfig(dataset_name=path, train_on=encoder.train_on)
    given, _ = load_training_data(config, tokenizer, with_eval=False)
    assert given.column_names == ["input_ids", "labels"]
    assert list(zip(given["input_ids"], given["labels"], strict=True)) == wanted


@pytest.mark.parametrize(
    ("form", "place"),
    [*(("both", place) for place in ("jsonl", "json", "folder", "parquet", "mixed", "hub")),
     ("same keys, both", "parquet"), ("tools as text", "jsonl"), ("sharegpt", "mixed")],
)  # fmt: skip
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


# ---- what messages say of themselves

TEMPLATES = {path.stem: path.read_text() for path in Path(trl.__file__).parent.glob("chat_templates/*.jinja")}
ANSWERS = [{"role": "assistant", "content": text} for text in ("one", "two", "three")]


def turn(role: str, content: str | None = "Hi", **more: Any) -> Row:
    return {"role": role, "content": content, **more}


def texts(rows: Any, folder: Path, **options: Any) -> list[tuple[str, str]]:
    """The masked and the trained text of each row."""
    trainer = trainer_of(rows, folder, **options)
    return [split(trainer.processing_class, row) for row in trainer.train_dataset]


def chat(switch: Row | None = None, at: int = 1) -> Row:
    messages = [turn("system", "Be brief."), turn("user", "a"), ANSWERS[0], turn("user", "b"), ANSWERS[1]]
    return {"messages": [{**message, **((switch or {}) if n == at else {})} for n, message in enumerate(messages)]}


def wrapped(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


WHOLE = [("system", "Be brief."), ("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")]
OFF = [{"weight": 0}, {"weight": 0.0}, {"train": False}, {"weight": 1, "train": False}]


@pytest.mark.parametrize(("switch", "place"), [*zip(OFF, range(4), strict=True), (OFF[2], 4)])
def test_a_turn_that_is_switched_off_is_masked(switch: Row, place: int, tmp_path: Path) -> None:
    masked, trained = texts([chat(switch, at=place), chat()], tmp_path)[0]
    assert masked == wrapped(*WHOLE[place])
    assert trained == "".join(wrapped(*one) for n, one in enumerate(WHOLE) if n != place)
    one, two = "\none<|im_end|>\n", "\ntwo<|im_end|>\n"  # TRL's template for training marks them so
    if place not in (2, 4):
        return
    off, on = texts([chat(switch, at=place), chat()], tmp_path, assistant_only_loss=True)
    assert (on[1], off[1]) == (one + two, {2: two, 4: one}[place])


PART = {"type": "text", "text": "x", "weight": 0.5}


@pytest.mark.parametrize(
    ("row", "options", "says"),
    [
        (chat({"weight": -0.5}), {}, r"message 1: 'weight' must be .*got -0\.5"),
        (chat({"train": "no"}), {}, "message 1: 'train' must be .*got 'no'"),
        ({**chat(), "weight": float("inf")}, {}, "'weight' must be a finite number"),
        (chat({"weight": 1}), {"assistant_only_loss": True}, "message 1: 'weight' trains a turn of user, and"),
        (chat({"name": "Ann"}), {}, "message 1: .* leaves 'name' of user out"),
        (chat({"reasoning_content": "so"}, at=4), {}, "message 4: .* leaves 'reasoning_content' of assistant out"),
        (
            chat({"content": [PART, {"type": "text", "text": "y", "wieght": 1}]}),
            {},
            "message 1: a part is not text and",
        ),
        (
            chat({"content": [PART, {"type": "image", "text": "y"}]}),
            {},
            "message 1: a part is not text and weight alone",
        ),
        ({"messages": [turn("user"), {"content": "x"}]}, {}, "message 1: must be an object with a role"),
        ({"messages": [turn("user"), turn("assistant", None, tool_calls="x")]}, {}, "message 1: tool_calls must be a"),
        ({**chat(), "tools": "["}, {}, "tools is text that is not JSON"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(row: Row, options: Row, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^train data, row 1: .*{says}"):
        trainer_of([{**dict.fromkeys(row), **chat()}, row], tmp_path, **options)
    stream = trainer_of(
        IterableDataset.from_generator(lambda: iter([chat(), row])), tmp_path, max_steps=1, **options
    ).train_dataset
    with pytest.raises(DataError, match=says):
        list(stream)


CALLED = [turn("user"), turn("assistant", None, tool_calls=[call("add", {"a": 1})]), turn("tool", "3"), ANSWERS[2]]
KNOWS_TOOLS = "{{ tools }}{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}"
SKIPS_CALLS = (
    "{% for m in messages %}[{{ m.role }}]{% if not m.tool_calls %}{{ m.content }}{% endif %}<eos>{% endfor %}"
)
SKIPS_RESULTS = "{% for m in messages if m.role != 'tool' %}{{ m.tool_calls }}{{ m.content }}<eos>{% endfor %}"


@pytest.mark.parametrize(
    ("row", "template", "says"),
    [
        ({**chat(), "tools": [TOOLS["add"]]}, TEMPLATES["llama3"], "row 0: .* leaves 'tools' out"),
        ({"messages": CALLED}, SKIPS_CALLS, "message 1: .* leaves 'tool_calls' of assistant"),
        ({"messages": CALLED, "tools": [TOOLS["add"]]}, KNOWS_TOOLS, "message 1: .* leaves 'tool_calls'"),
        ({"messages": CALLED}, SKIPS_RESULTS, "message 2: .* leaves 'content' of tool"),
        ({"prompt": CALLED[:1], "completion": CALLED[1:]}, SKIPS_CALLS, "message 1: .* leaves 'tool_calls'"),
    ],
)
def test_tools_need_a_template_that_knows_them(row: Row, template: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        trainer_of([row], tmp_path, template)
    tokenizer = make_tokenizer(chat=template, special=SPECIAL)
    with pytest.raises(DataError, match=says):
        write_token_table(make_model(vocab_size=320), [row], tmp_path / "t", tokenizer=tokenizer)
    assert trainer_of([row], tmp_path) is not None  # Qwen's knows tools


def test_turns_of_others_that_are_trained_are_said(tmp_path: Path, caplog: Any) -> None:
    silent = {"prompt": chat()["messages"][:4], "completion": chat()["messages"][4:]}

    def is_said(rows: Any, **settings: Any) -> bool:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="trimsft"):
            trainer_of(rows, tmp_path, **settings)
        return "train data: turns of system and user are trained, too; --train_on assistant" in caplog.text

    assert is_said([chat(), chat()])
    assert is_said(IterableDataset.from_generator(lambda: iter([chat()])), max_steps=1)
    assert is_said([silent], completion_only_loss=False) and not is_said([silent])
    assert not is_said([chat()], assistant_only_loss=True)


def test_a_switch_in_every_form_and_on_every_way(tmp_path: Path) -> None:
    answers = [turn("user"), {**ANSWERS[0], "weight": 0}, turn("user"), {**ANSWERS[1], "weight": 1}]
    spoken = [
        {"from": m["role"], "value": m["content"], **{k: v for k, v in m.items() if k == "weight"}} for m in answers
    ]
    forms = [{"messages": answers}, {"conversations": spoken}, {"prompt": answers[:1], "completion": answers[1:]}]
    for number, row in enumerate(forms):
        for only in (False, True) if "prompt" in row else (True,):
            rows = load_rows(local(tmp_path, [row]))
            stream = IterableDataset.from_generator(lambda rows=rows: iter(rows))
            for given in (rows, [row], stream):
                steps = {} if isinstance(given, Dataset | list) else {"max_steps": 1}
                trained = texts(given, tmp_path, assistant_only_loss=only, **steps)[0][1]
                assert "one" not in trained and "two<|im_end|>" in trained, number
                assert ("Hi" in trained) != only


def test_keys_that_the_template_writes_are_trained(tmp_path: Path) -> None:
    thinks = [turn("user"), turn("assistant", "4", reasoning_content="2+2")]
    row = {"messages": [*thinks, turn("user"), turn("assistant", "5", reasoning_content="2+3")]}
    assert "2+3" in texts([row], tmp_path, template=TEMPLATES["qwen3"])[0][1]
    named = "{% for m in messages %}{{ m.name }}: {{ m.content }}<eos>{% endfor %}"
    assert texts([{"messages": [turn("user", name="Ann")]}], tmp_path, template=named)[0][1] == "Ann: Hi<eos>"
    empty = chat({"name": None, "refusal": None, "audio": {}, "annotations": []}, at=2)
    assert texts([empty], tmp_path) == texts([chat()], tmp_path)
