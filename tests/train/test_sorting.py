"""Micro-batches sorted by length: the same update with less padding."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.tiny import PAIRS, make_model, make_trainer, record_batches
from trimsft.errors import UsageError
from trimsft.train import TrimSFTTrainer
from trimsft.train.batches import sorted_by_length


@pytest.mark.parametrize("objective", ["trim", "auto-trim"])
def test_updates_are_the_same_with_less_padding(objective: str, tmp_path: Path) -> None:
    """In float64; the last update has one micro-batch only, and rows of all updates stay where they were."""
    widths, weights, gradients = [], [], []
    for is_sorted in (False, True):
        model = make_model(dtype=torch.float64)
        sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_steps": 2}
        options = {"objective": objective, "sort_micro_batches": is_sorted, "max_length": None}
        trainer = make_trainer(TrimSFTTrainer, model, tmp_path, PAIRS, **sizes, **options)
        batches = record_batches(trainer)
        trainer.train()
        assert len(batches) == 4
        widths.append([batch["input_ids"].shape[1] for batch, _ in batches])
        gradients.append(trainer.grads)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    plain, by_length = widths
    assert sum(by_length) < sum(plain) and by_length[:3] == sorted(by_length[:3], reverse=True)
    # statistics of tokens, and so weights, are float32 (2**-24 each); sums of the model are float64
    for before, after in zip(*gradients, strict=True):
        for name, gradient in before.items():
            torch.testing.assert_close(after[name], gradient, rtol=0, atol=1e-5 * float(gradient.abs().max()))
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-5)


def test_a_resumed_training_sorts_the_same_rows(tmp_path: Path) -> None:
    sizes = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 6, "save_steps": 3}
    options = {"objective": "auto-trim", "sort_micro_batches": True, "save_strategy": "steps"}

    def start() -> Any:
        return make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, **sizes, **options)

    whole, resumed = start(), start()
    whole.train()
    batches = record_batches(resumed)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert len(batches) == 6
    for name, weight in whole.model.named_parameters():
        assert torch.equal(resumed.model.get_parameter(name), weight)


def test_rows_and_sizes_stay_and_columns_of_padding_go() -> None:
    def batch(*lengths: int) -> dict[str, torch.Tensor]:
        places = torch.arange(max(lengths)).expand(len(lengths), -1)
        mask = (places < torch.tensor(lengths)[:, None]).long()
        ids = (places + 1 + 10 * torch.tensor(lengths)[:, None]) * mask
        return {"input_ids": ids, "attention_mask": mask, "labels": ids.where(mask > 0, -100)}

    first, second, third = sorted_by_length([batch(2, 6), batch(1, 5), batch(3)])
    assert [part["attention_mask"].sum(dim=1).tolist() for part in (first, second, third)] == [[6, 5], [3, 2], [1]]
    assert [part["input_ids"].shape for part in (first, second, third)] == [(2, 6), (2, 3), (1, 1)]
    assert second["input_ids"].tolist() == [[31, 32, 33], [21, 22, 0]]
    assert second["labels"].tolist() == [[31, 32, 33], [21, 22, -100]]
    assert [part["labels"].shape[1] for part in sorted_by_length([batch(2, 6), batch(1, 5)], multiple=4)] == [6, 4]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"attention_mask": torch.tensor([[0, 1, 1]])}, "padded on the right"),
        ({"attention_mask": torch.tensor([[1, 0, 1]])}, "padded on the right"),
        ({"pixel_values": torch.zeros(1, 3, 4, 4)}, "this one has pixel_values"),
        ({"names": ["a row"]}, "this one has names"),
    ],
)
def test_what_cannot_be_sorted_is_refused(changes: dict[str, Any], says: str) -> None:
    batch = {"input_ids": torch.ones(1, 3), "attention_mask": torch.ones(1, 3), **changes}
    with pytest.raises(UsageError, match=f"sort_micro_batches: .*{says}.*turn it off"):
        sorted_by_length([batch, batch])
