"""Streams in Python: the tokens of a dataset, and training that goes on where it was."""

from pathlib import Path

import torch
from datasets import IterableDataset

from tests.data.test_chat import FORMS, QWEN, SPECIAL
from tests.data.toys import CHAT, ROWS, local, make_tokenizer
from tests.train import tiny
from trimsft.data.encode import load_training_data
from trimsft.train import TrimSFTTrainer


def test_tokens_of_a_stream_are_those_of_the_data(tmp_path: Path) -> None:
    chats = [*FORMS["objects"], {**FORMS["objects"][0], "weight": 0.5}]
    for rows, chat in ((ROWS, CHAT), (chats, QWEN)):
        tokenizer = make_tokenizer(chat=chat, special=SPECIAL)
        held, _ = load_training_data(
            local(tmp_path, rows, train_on="all" if rows is chats else None), tokenizer, with_eval=False
        )
        given = IterableDataset.from_generator(lambda rows=rows: iter(rows))
        options = {"processing_class": tokenizer}
        stream = tiny.make_trainer(
            TrimSFTTrainer,
            tiny.make_model(vocab_size=len(tokenizer)),
            tmp_path,
            given,
            options,
            max_length=None,
            max_steps=1,
        ).train_dataset
        for one, other in zip(stream, held, strict=True):
            weights = one.pop("token_weights")
            assert other == one | ({"token_weights": weights} if "token_weights" in held.column_names else {})
            assert [label != -100 for label in one["labels"]] == [weight > 0 for weight in weights]
        assert max(weights) == (0.5 if rows is chats else 1)


def test_a_stream_is_trained_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """Batches that were trained are read again and left out: the weights are the same."""
    rows = [{"prompt": tiny.words(3, n), "completion": " " + tiny.words(4, 50 + n)} for n in range(40)]

    def trainer() -> TrimSFTTrainer:
        data = IterableDataset.from_generator(lambda: iter(rows))
        return tiny.make_ours(tmp_path / "run", data, max_steps=4, save_strategy="steps", save_steps=2)

    whole, resumed = trainer(), trainer()
    whole.train()
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
