"""Rows that TrimSFTTrainer takes beside TRL's forms, in Python, without a command."""

from typing import Any

import pytest
from datasets import Dataset, IterableDataset

from tests.data.toys import ROWS, make_tokenizer
from tests.train.tiny import make_model, make_trainer
from trimsft.data.encode import encode
from trimsft.data.load import DataConfig
from trimsft.errors import DataError, UsageError
from trimsft.train import TrimSFTTrainer

CHAT = (
    "{% for m in messages %}[{{ m['role'] }}]{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<end>"
    "{% endgeneration %}{% else %}{{ m['content'] }}<end>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
ALPACA = [{"instruction": row["problem"], "input": "", "output": row["solution"]} for row in ROWS]
SHAREGPT = [
    {"conversations": [{"from": "human", "value": row["problem"]}, {"from": "gpt", "value": row["solution"]}]}
    for row in ROWS
]


def trainer_of(tmp_path: Any, rows: Any, options: Any = None, **settings: Any) -> TrimSFTTrainer:
    tokenizer, settings = make_tokenizer(chat=CHAT), {"max_length": None, **settings}
    options = {"processing_class": tokenizer, **(options or {})}
    return make_trainer(TrimSFTTrainer, make_model(vocab_size=len(tokenizer)), tmp_path, rows, options, **settings)


def columns(dataset: Any) -> tuple[list[Any], list[Any]]:
    return dataset["input_ids"][:], dataset["labels"][:]


def as_the_commands_do() -> tuple[list[Any], list[Any]]:
    return columns(encode(Dataset.from_list(ROWS), make_tokenizer(chat=CHAT), DataConfig("d")))


@pytest.mark.parametrize("rows", [ROWS, ALPACA], ids=["problem-solution", "alpaca"])
def test_problems_and_solutions_become_what_the_commands_make_of_them(rows, tmp_path) -> None:
    several = {"one": Dataset.from_list(ROWS[:2]), "two": Dataset.from_list(ALPACA[:3])}
    trainer = trainer_of(tmp_path, [{**row, "id": 1} for row in rows], {"eval_dataset": several}, max_steps=1)
    assert columns(trainer.train_dataset) == as_the_commands_do()
    assert trainer.length_reports["train"].rows == len(ROWS)
    assert {name: len(part) for name, part in trainer.eval_dataset.items()} == {"one": 2, "two": 3}
    assert trainer.train().training_loss > 0
    assert trainer.evaluate(Dataset.from_list(rows[:2]))["eval_loss"] > 0


@pytest.mark.parametrize("rows", [ROWS, ALPACA, SHAREGPT], ids=["problem-solution", "alpaca", "sharegpt"])
def test_a_stream_is_what_its_rows_are(rows, tmp_path) -> None:
    stream = IterableDataset.from_generator(lambda: iter(rows))  # which does not say its columns
    read = list(trainer_of(tmp_path, stream, max_steps=1).train_dataset)
    held = columns(trainer_of(tmp_path, rows).train_dataset)
    assert ([row["input_ids"] for row in read], [row["labels"] for row in read]) == held


def test_what_trl_takes_stays_trls(tmp_path) -> None:
    rows = [{**row, "text": "the sum"} for row in ROWS]
    trained = trainer_of(tmp_path, rows).train_dataset
    assert make_tokenizer().decode(trained[0]["labels"]) == "the sum<eos>"
    written = trainer_of(tmp_path, ROWS, {"formatting_func": lambda row: row["solution"]}).train_dataset
    assert make_tokenizer().decode(written[0]["labels"]) == ROWS[0]["solution"] + "<eos>"


def test_rows_of_no_known_form(tmp_path) -> None:
    says = "train_dataset: has rows with the columns q, a, which are of no form that is known; known: problem"
    with pytest.raises(DataError, match=says):
        trainer_of(tmp_path, [{"q": "1", "a": "2"}])
    with pytest.raises(UsageError, match="completion_only_loss: false has no effect on problems and solutions"):
        trainer_of(tmp_path, ROWS, completion_only_loss=False)
