"""Token tables of every form of data hold the tokens and labels that training has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, disable_progress_bars

from tests.data.toys import write
from tests.tokens.tiny import make_tokenizer as make_byte_tokenizer
from tests.train.tiny import make_config, make_model, make_tokenizer
from trimsft.data.encode import load_training_data
from trimsft.data.load import DataConfig
from trimsft.tokens.measure import TokenSettings
from trimsft.tokens.table import read_token_table
from trimsft.tokens.write import write_token_table
from trimsft.train import TrimSFTConfig, TrimSFTTrainer

disable_progress_bars()
USER, ANSWER = ({"role": role, "content": text} for role, text in [("user", "w1 w2"), ("assistant", "w3 w4 w5")])
CHATS = [[USER, ANSWER], [USER, ANSWER, USER, {"role": "assistant", "content": "w6"}]]
FORMS: dict[str, list[dict[str, Any]]] = {
    "pairs": [{"problem": "w1 w2 w9", "solution": "w3 w4"}, {"problem": "w7", "solution": "w8 <eos>"}],
    "alpaca": [{"instruction": "w1", "input": "w2 w9", "output": "w3"}, {"instruction": "w1", "output": "w4"}],
    "messages": [{"messages": chat, "prompt": "unused"} for chat in CHATS],
    "sharegpt": [
        {"conversations": [{"from": "human", "value": "w1"}, {"from": "gpt", "value": "w2 w3"}], "system": "w5"},
        {"conversations": [{"from": "user", "value": "w1 w4"}, {"from": "assistant", "value": "w2"}], "system": None},
    ],
    "chats": [{"prompt": chat[:-1], "completion": chat[-1:]} for chat in CHATS],
    "texts": [{"prompt": "w1 w2", "completion": " w3 w4"}, {"prompt": "w1", "completion": " w5 <eos>"}],
    "text": [{"text": "w1 w2 w3 w4"}, {"text": "w5 w6 <eos>"}],
    "tokens": [{"input_ids": [9, 10, 11, 1], "labels": [-100, 10, -100, 1]}, {"input_ids": [9, 1], "labels": [9, 1]}],
    "masked": [{"input_ids": [9, 8], "assistant_masks": [0, 1]}, {"input_ids": [9, 8], "assistant_masks": [1, 1]}],
}  # fmt: skip
CASES: list[tuple[str, dict[str, Any]]] = [
    *((form, {}) for form in FORMS),
    *((form, {"train_on": one}) for form in ("messages", "sharegpt", "chats") for one in ("all", "assistant", "last")),
    *((form, {"completion_only_loss": False}) for form in ("chats", "texts")),
    *(
        (form, {"max_length": 8, "truncation_mode": mode})
        for form in ("messages", "texts", "text")
        for mode in ("keep_start", "keep_end")
    ),
]


def trained(dataset: Any) -> list[list[int]]:
    """The labels of each row that enter a loss: nothing predicts the first token."""
    return [[label for label in labels[1:] if label != -100] for labels in dataset["labels"]]


def measured(path: Path, rows: int) -> list[list[int]]:
    table = read_token_table(path)
    return [table["token_id"][table["example"] == row].tolist() for row in range(rows)]


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model()


@pytest.mark.filterwarnings("ignore:The `'keep_end'` truncation mode is deprecated:FutureWarning")
@pytest.mark.parametrize(("form", "options"), CASES)
def test_a_table_has_the_labels_of_the_training(form, options, model, tmp_path) -> None:
    tokenizer, data = make_tokenizer(), write(tmp_path / "train.jsonl", FORMS[form])
    train_on = options.get("train_on")
    lengths = {name: value for name, value in options.items() if name in ("max_length", "truncation_mode")}
    config = make_config(TrimSFTConfig, tmp_path, **{"max_length": None, **lengths})
    only = {"completion_only_loss": options.get("completion_only_loss")}
    if form == "texts":  # which TRL tokenises
        config.completion_only_loss = only["completion_only_loss"]
    settings = DataConfig(dataset_name=data, system_prompt=None, train_on=train_on)
    given, _ = load_training_data(settings, tokenizer, with_eval=False, **only)
    labels = trained(TrimSFTTrainer(model, config, train_dataset=given, processing_class=tokenizer).train_dataset)
    assert any(labels)
    # from the file, as the command reads it, and from rows in memory
    for number, rows in enumerate((TokenSettings(models=("m",), data=data).read()[0], FORMS[form])):
        path = write_token_table(model, rows, tmp_path / f"{number}.parquet", tokenizer=tokenizer, **options)
        assert [row for row in measured(path, len(rows)) if row] == [row for row in labels if row]


def test_tokens_that_merge_across_the_border_of_prompt_and_completion(tmp_path) -> None:
    tokenizer, rows = make_byte_tokenizer(adds_bos=True), [{"prompt": "It is s", "completion": "o. It is so."}]
    model = make_model(vocab_size=len(tokenizer))
    config = make_config(TrimSFTConfig, tmp_path)
    dataset = TrimSFTTrainer(
        model, config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer
    ).train_dataset
    path = write_token_table(model, rows, tmp_path / "t.parquet", tokenizer=tokenizer)
    assert measured(path, 1) == trained(dataset)
    assert tokenizer.decode(measured(path, 1)[0]) == " so. It is so.<eos>"  # " so" is one token


def test_gaps_of_a_turn_are_those_after_all_turns_before_it(model, tmp_path) -> None:
    """The user's turns are context: a table of the answers is part of the table of all tokens."""
    tokenizer, rows = make_tokenizer(), FORMS["messages"]
    paths = [
        write_token_table(model, rows, tmp_path / f"{train_on}.parquet", tokenizer=tokenizer, train_on=train_on)
        for train_on in ("all", "assistant")
    ]
    every, answers = (read_token_table(path) for path in paths)
    assert (answers.metadata["train_on"], every.metadata["train_on"]) == ("assistant", "all")
    first = [tokenizer.apply_chat_template(row["messages"], return_dict=True)["input_ids"].index(8) for row in rows]
    for row in range(len(rows)):
        whole, part = every["example"] == row, answers["example"] == row
        # w3 is the first token that is trained of both rows; positions count from it
        places = np.searchsorted(every["position"][whole], answers["position"][part] + first[row])
        assert every["token_id"][whole][places].tolist() == answers["token_id"][part].tolist()
        assert every["gap"][whole][places].tolist() == answers["gap"][part].tolist()
    assert answers.metadata["prompts"][0].split() == ["<user>", "w1", "w2", "<eos>", "<assistant>"]
