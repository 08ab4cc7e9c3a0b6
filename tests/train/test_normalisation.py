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
    make_trainer,
    plain_step,
    record_batches,
    trained,
    unpatched,
)
from trimsft.train import TrimSFTTrainer


def train(folder: Path, rows: Any, size: int, accumulated: int, **settings: Any) -> tuple[Any, Any]:
    """A trainer after its training, and the weights it began with."""
    settings = {"max_steps": 1, "max_length": None} | settings
    trainer = make_trainer(
        TrimSFTTrainer,
        make_model(),
        folder,
        rows,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=accumulated,
        **settings,
    )
    before = unpatched(trainer.model).train()
    trainer.batches = record_batches(trainer)
    trainer.train()
    return trainer, before


@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_one_batch_of_eight_however_it_is_accumulated(objective: str, tmp_path: Path) -> None:
    whole, before = train(tmp_path, PAIRS, 8, 1, objective=objective)
    [(batch, _)] = whole.batches
    loss, gradients = plain_step(before, [batch], whole.objective)
    assert logged(whole, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
    assert_same_gradients(whole.grads[0], gradients)
    for size, accumulated in ((4, 2), (2, 4), (1, 8)):
        parts, _ = train(tmp_path, PAIRS, size, accumulated, objective=objective)
        assert len(parts.batches) == accumulated
        assert logged(parts, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert logged(parts, "weighted_loss") == pytest.approx([loss], rel=LOSS_ERROR)
        assert_same_gradients(parts.grads[0], gradients)


def test_a_mean_of_means_would_be_seen(tmp_path: Path) -> None:
    """The lengths above are so uneven that the usual mistake is far outside of the tolerance."""
    parts, before = train(tmp_path, PAIRS, 1, 8)
    means = [plain_step(before, [batch], parts.objective)[0] for batch, _ in parts.batches]
    assert sum(means) / len(means) != pytest.approx(logged(parts, "loss")[0], rel=1e-3)


def test_a_last_step_with_fewer_micro_batches(tmp_path: Path) -> None:
    """Eight rows, two at a time, three times a step: the second step has one micro-batch."""
    trainer, before = train(tmp_path, PAIRS, 2, 3, max_steps=2, learning_rate=0.0)
    batches = [batch for batch, _ in trainer.batches]
    assert len(batches) == 4
    for step, micro_batches in enumerate((batches[:3], batches[3:])):
        loss, gradients = plain_step(before, micro_batches, trainer.objective)
        assert logged(trainer, "loss")[step] == pytest.approx(loss, rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[step], gradients)


def test_packed_and_padded_rows_make_the_same_step(tmp_path: Path) -> None:
    padded, _ = train(tmp_path, PAIRS, 8, 1)
    packed, _ = train(tmp_path, PAIRS, 1, 16, packing=True, max_length=60, shuffle_dataset=False)
    free, _ = train(tmp_path, PAIRS, 4, 2, padding_free=True)
    assert 1 < len(packed.batches) < 8
    for trainer in (packed, free):
        assert sum(trained(batch) for batch, _ in trainer.batches) == logged(padded, "trained_tokens")[0]
        assert logged(trainer, "loss") == pytest.approx(logged(padded, "loss"), rel=LOSS_ERROR)
        assert_same_gradients(trainer.grads[0], padded.grads[0])


def test_one_process_does_not_care_whether_ranks_share_their_count(tmp_path: Path) -> None:
    shared, alone = (
        train(tmp_path, PAIRS, 2, 4, average_tokens_across_devices=average)[0] for average in (True, False)
    )
    assert_same_gradients(shared.grads[0], alone.grads[0])


# nothing to train on ------------------------------------------------------------------------------------------------


def row(length: int, ignored: int) -> dict[str, list[int]]:
    ids = list(range(10, 10 + length))
    return {"input_ids": ids, "labels": [-100] * ignored + ids[ignored:]}


def test_a_micro_batch_without_a_trained_token(tmp_path: Path) -> None:
    rows = [row(9, 9), row(12, 4), row(5, 5), row(20, 2)]
    some, before = train(tmp_path, rows, 1, 4)
    loss, gradients = plain_step(before, [batch for batch, _ in some.batches if trained(batch)], some.objective)
    assert logged(some, "loss") == pytest.approx([loss], rel=LOSS_ERROR)
    assert_same_gradients(some.grads[0], gradients)
    assert logged(some, "trained_tokens") == [8 + 18] and logged(some, "num_tokens") == [46]
    assert sorted(len(outputs.tokens) for _, outputs in some.batches) == [0, 0, 8, 18]


def test_a_label_that_nothing_predicts_does_not_count(tmp_path: Path) -> None:
    """The first token of a row has no predecessor."""
    first = {"input_ids": [10, 11, 12], "labels": [10, -100, -100]}
    trainer, before = train(tmp_path, [first, row(6, 0)], 1, 2)
    assert logged(trainer, "trained_tokens") == [5]
    assert logged(trainer, "loss") == pytest.approx(
        [plain_step(before, [batch for batch, _ in trainer.batches], trainer.objective)[0]], rel=LOSS_ERROR
    )


@pytest.mark.parametrize("objective", ["sft", "trim"])
def test_a_step_without_a_trained_token(objective: str, tmp_path: Path) -> None:
    trainer, before = train(tmp_path, [row(9, 9), row(5, 5)], 1, 2, objective=objective)
    assert logged(trainer, "loss") == [0.0]
    assert all(torch.all(gradient == 0) for gradient in trainer.grads[0].values())
    assert logged(trainer, "num_tokens") == [14]
    assert not logged(trainer, "nll") and not logged(trainer, "trained_tokens")
    for name, weight in before.named_parameters():
        assert torch.equal(trainer.model.get_parameter(name), weight)


def test_trl_agrees_on_a_step_without_a_trained_token(tmp_path: Path) -> None:
    settings = {"max_steps": 1, "max_length": None}
    plain = make_trainer(SFTTrainer, make_model(), tmp_path, [row(9, 9), row(5, 5)], **settings)
    plain.train()
    assert logged(plain, "loss") == [0.0] and logged(plain, "num_tokens") == [14]
