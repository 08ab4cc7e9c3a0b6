"""Streams in Python: the tokens of a dataset, and training that goes on where it was."""

from pathlib import Path

import torch
from datasets import IterableDataset

from tests.train import tiny
from trimsft.train import TrimSFTTrainer


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
