"""The loss is a sum over the global batch divided by its trained tokens, however the batch is cut up."""

from pathlib import Path
from typing import Any

import pytest
import torch
from trl import SFTTrainer

from tests.train.tiny import (
    LOSS_ERROR,
    PAIRS,
    assert_same_gradients,
    logged,
    make_model,
    make_ours,
    make_trainer,
    plain_step,
    record_batches,
    trained,
    unpatched,
)


def train(folder: Path, rows: Any, size: int, accumulated: int, **settings: Any) -> tuple[Any, Any]:
    """A trainer after its training, and the weights it began with."""
    settings = {"max_steps": 1, "max_length": None} | settings
    sizes = {"per_device_train_batch_size": size, "gradient_accumulation_steps": accumulated}
    trainer = make_ours(folder, rows, **sizes, **settings)
    before = unpatched(trainer.model).train()
    trainer.batches = record_batches(trainer)
    trainer.train()
    return trainer, before


@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_one_batch_of_eight_however_it_is_accumulated(objective, tmp_path) -> None:
    whole, before = train(tmp_path, PAIRS, 8, 1, objective=objective)
    [(batch, _)] = whole.batches
    loss, gradients = plain_step(before, [batch], whole.objective)
    assert logged(whole, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
    assert_same_gradients(whole.grads[0], gradients)
    for size, accumulated in ((4, 2), (2, 4), (1, 8)):
        parts, before = train(tmp_path, PAIRS, size, accumulated, objective=objective)
        assert len(parts.batches) == accumulated
        assert logged(parts, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert logged(parts, "weighted_loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert_same_gradients(parts.grads[0], gradients)
    # the lengths are so uneven that the usual mistake, a mean of means, is far outside of the tolerance
    means = [plain_step(before, [batch], parts.objective)[0] for batch, _ in parts.batches]
    assert sum(means) / len(means) != pytest.approx(loss, rel=1e-3)


def test_a_last_step_with_fewer_micro_batches(tmp_path) -> None:
    """Eight rows, two at a time, three times a step: the second step has one micro-batch."""
    trainer, before = train(tmp_path, PAIRS, 2, 3, max_steps=2, learning_rate=0.0)
    batches = [batch for batch, _ in trainer.batches]
    assert len(batches) == 4
    for step, micro_batches in enumerate((batches[:3], batches[3:])):
        loss, gradients = plain_step(before, micro_batches, trainer.objective)
        assert logged(trainer, "loss")[step] == pytest.approx(loss, rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[step], gradients)


def test_packed_and_padded_rows_make_the_same_step(tmp_path) -> None:
    padded, _ = train(tmp_path, PAIRS, 8, 1)
    packed, _ = train(tmp_path, PAIRS, 1, 16, packing=True, max_length=60, shuffle_dataset=False)
    free, _ = train(tmp_path, PAIRS, 4, 2, padding_free=True, average_tokens_across_devices=False)  # one process
    assert 1 < len(packed.batches) < 8
    for trainer in (packed, free):
        assert sum(trained(batch) for batch, _ in trainer.batches) == logged(padded, "trained_tokens")[0]
        assert logged(trainer, "loss") == pytest.approx(logged(padded, "loss"), rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[0], padded.grads[0])


def row(length: int, ignored: int) -> dict[str, list[int]]:
    ids = list(range(10, 10 + length))
    return {"input_ids": ids, "labels": [-100] * ignored + ids[ignored:]}


def test_a_step_without_a_trained_token(tmp_path) -> None:
    """TRL agrees."""
    rows = [row(9, 9), row(5, 5)]
    plain = make_trainer(SFTTrainer, make_model(), tmp_path, rows, max_steps=1, max_length=None)
    plain.train()
    for objective in ("sft", "trim"):
        trainer, before = train(tmp_path, rows, 1, 2, objective=objective)
        for name, value in (("loss", [0.0]), ("num_tokens", [14])):
            assert logged(trainer, name) == logged(plain, name) == value
        assert all(torch.all(gradient == 0) for gradient in trainer.grads[0].values())
        assert not logged(trainer, "nll") and not logged(trainer, "trained_tokens")
        for name, weight in before.named_parameters():
            assert torch.equal(trainer.model.get_parameter(name), weight)
