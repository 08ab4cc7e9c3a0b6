"""Datasets that stand in for the ones TRL's SFT tests load by name: same configurations, columns and splits.

A stand-in is a folder which `datasets.load_dataset` reads as it would a repository:

    datasets/trl-internal-testing/zen/README.md                                     names the configurations
    datasets/trl-internal-testing/zen/standard_language_modeling/train.parquet      17 rows
    datasets/trl-internal-testing/zen/standard_language_modeling/test.parquet        2 rows

17 rows of training make 3 steps of 8 an epoch and 9 steps in all: one test asks for checkpoint-9. They are about
8 tokens each, so that they pack into three sequences of 64, as two tests ask.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TRAIN_ROWS, TEST_ROWS = 17, 2

SUBJECTS = ["The river", "A short proof", "The kettle", "An old map", "The second train", "A quiet room"]
VERBS = ["needs", "finds", "keeps", "shows", "outlives"]
OBJECTS = ["patience", "its own level", "more light than noise", "one careful reader", "the long way home"]

Row = dict[str, Any]


def sentence(i: int) -> tuple[str, str]:
    """The i-th of 30 sentences in two halves, e.g. ("The river needs", " patience.")."""
    subject, verb, ending = SUBJECTS[i % 6], VERBS[i % 5], OBJECTS[(i * 2 + i // 5) % 5]
    return f"{subject} {verb}", f" {ending}."


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def assistant(text: str, **extra: Any) -> Row:
    return {"role": "assistant", "content": text, **extra}


def zen(config: str, i: int) -> Row:
    head, tail = sentence(i)
    question = f"How does '{head}' go on?"
    rows = {
        "standard_language_modeling": {"text": head + tail},
        "standard_prompt_completion": {"prompt": head, "completion": tail},
        "standard_implicit_prompt_preference": {"chosen": head + tail, "rejected": head + " nothing."},
        "conversational_language_modeling": {"messages": [user(question), assistant(head + tail)]},
        "conversational_prompt_completion": {"prompt": [user(question)], "completion": [assistant(head + tail)]},
    }
    return rows[config]


def harmony(config: str, i: int) -> Row:
    """Assistant turns with a thinking part, and arguments for the chat template in a column of their own."""
    head, tail = sentence(i)
    turns = [user(f"How does '{head}' go on?")], [assistant(head + tail, thinking="Recall the rest of it.")]
    kwargs = {"reasoning_effort": ("low", "medium", "high")[i % 3], "model_identity": "You are a small model."}
    if config == "language_modeling":
        return {"messages": turns[0] + turns[1], "chat_template_kwargs": kwargs}
    return {"prompt": turns[0], "completion": turns[1], "chat_template_kwargs": kwargs}


def toolcall(config: str, i: int) -> Row:
    """One call of one tool a row; the tools are a JSON string, as a table cannot hold differing schemas."""
    room = f"room {i}"
    parameters = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
    tool = {"name": "read_meter", "description": "Reads the meter of a room.", "parameters": parameters}
    call = {"type": "function", "function": {"name": "read_meter", "arguments": {"room": room}}}
    messages = [
        {"role": "user", "content": f"What does the meter of {room} say?", "name": None, "tool_calls": None},
        {"role": "assistant", "content": None, "name": None, "tool_calls": [call]},
        {"role": "tool", "content": str(20 + i), "name": "read_meter", "tool_calls": None},
        {"role": "assistant", "content": f"It says {20 + i}.", "name": None, "tool_calls": None},
    ]
    return {"messages": messages, "tools": json.dumps([{"type": "function", "function": tool}])}


def imdb(config: str, i: int) -> Row:
    head, tail = sentence(i)
    return {"text": head + tail, "label": i % 2}


def dolly(config: str, i: int) -> Row:
    return zen("conversational_language_modeling", i)


# repository: (maker of a row, configurations, rows of training)
DATASETS: dict[str, tuple[Any, list[str], int]] = {
    "trl-internal-testing/zen": (
        zen,
        [
            "standard_language_modeling",
            "standard_prompt_completion",
            "standard_implicit_prompt_preference",
            "conversational_language_modeling",
            "conversational_prompt_completion",
        ],
        TRAIN_ROWS,
    ),
    "trl-internal-testing/harmony": (harmony, ["language_modeling", "prompt_completion"], TRAIN_ROWS),
    "trl-internal-testing/toolcall": (toolcall, ["language_modeling"], TRAIN_ROWS),
    "trl-internal-testing/dolly-chatml-sft": (dolly, ["default"], TRAIN_ROWS),
    "stanfordnlp/imdb": (imdb, ["default"], 100),
}


def write_dataset(folder: Path, name: str) -> None:
    """One parquet file a split, and a README.md that names the configurations."""
    from datasets import Dataset

    make, configs, train_rows = DATASETS[name]
    listing = ["---", "configs:"]
    for config in configs:
        (folder / config).mkdir(parents=True, exist_ok=True)
        listing += [f"- config_name: {config}", "  data_files:"]
        rows = [make(config, i) for i in range(train_rows + max(TEST_ROWS, train_rows // 10))]
        for split, part in (("train", rows[:train_rows]), ("test", rows[train_rows:])):
            Dataset.from_list(part).to_parquet(folder / config / f"{split}.parquet")
            listing += [f"  - split: {split}", f"    path: {config}/{split}.parquet"]
    (folder / "README.md").write_text("\n".join([*listing, "---", ""]))
