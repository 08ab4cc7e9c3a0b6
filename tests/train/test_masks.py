"""Batches without an attention mask: where that changes nothing, and nowhere else."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
from transformers import TrainerCallback
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from tests.train.tiny import (
    ARCHITECTURES,
    BAND,
    LOSS_ERROR,
    assert_same_gradients,
    gradients_of,
    make_batch,
    make_model,
    make_ours,
)
from trimsft import TrimSFT
from trimsft.train import batches, patch
from trimsft.train.batches import is_causal, looks_left, with_mask_if_needed

CAUSAL = [kind for kind in ARCHITECTURES if is_causal(make_model(kind))]


def step(model: Any, batch: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model(**batch).token_loss
    loss.backward()
    return loss.item(), gradients_of(model)


@pytest.mark.parametrize("kind", CAUSAL)
def test_no_trained_token_sees_padding_on_the_right(kind) -> None:
    model, batch = patch(make_model(kind), TrimSFT(**BAND), skip_below=0.0), make_batch(rows=6)
    expected_loss, expected = step(model, batch)
    mask = batch.pop("attention_mask")
    assert not mask.all()
    batch["input_ids"] = torch.where(mask.bool(), batch["input_ids"], 7)  # whatever stands there
    with batches._not_packed():
        loss, found = step(model, batch)
    assert loss == pytest.approx(expected_loss, rel=LOSS_ERROR)
    assert_same_gradients(found, expected)


# which batches ------------------------------------------------------------------------------------------------------


class OnCuda:
    """What the trainer would do on a GPU."""

    def __init__(
        self, model: Any, collator: Any = None, aux_loss: bool = False, context_parallel: bool = False
    ) -> None:
        self.model = model.train()
        self.args = SimpleNamespace(device=torch.device("cuda"), packing=True, padding_free=False, max_length=40)
        self.data_collator = collator or DataCollatorForLanguageModeling(pad_token_id=0)
        self.padding_free = getattr(self.data_collator, "padding_free", False)
        self.accelerator = SimpleNamespace(parallelism_config=SimpleNamespace(cp_enabled=context_parallel))
        self.aux_loss_enabled = aux_loss
        self.looks_left = looks_left(self)


def test_a_batch_of_trls_collator_goes_without_a_mask_on_a_gpu() -> None:
    batch = make_batch()
    given, context = with_mask_if_needed(batch, OnCuda(make_model()))
    assert set(batch) - set(given) == {"attention_mask"}
    assert not isinstance(context, nullcontext)


class PadsLeft(DataCollatorForLanguageModeling):  # type: ignore[misc]
    pass


def with_prefix() -> Any:
    return peft.get_peft_model(make_model(), peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))


def eager() -> Any:
    model = make_model()
    model.set_attn_implementation("eager")
    return model


@pytest.mark.parametrize(
    "trainer",
    [
        lambda: OnCuda(make_model(), PadsLeft(pad_token_id=0)),
        lambda: OnCuda(make_model("mixtral"), aux_loss=True),
        lambda: OnCuda(make_model(), context_parallel=True),
        lambda: OnCuda(with_prefix()),
        lambda: OnCuda(eager()),
    ],
    ids=["another collator", "loss of a router", "context parallel", "prefix", "eager"],
)
def test_a_mask_that_may_matter_stays(trainer) -> None:
    batch = make_batch()
    given, context = with_mask_if_needed(batch, trainer())
    assert given is batch and isinstance(context, nullcontext)


def test_a_training_does_without_cudnn_attention_and_leaves_torch_as_it_was(tmp_path) -> None:
    seen, allowed = [], torch.backends.cuda.cudnn_sdp_enabled()

    class Looks(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())

    make_ours(tmp_path, options={"callbacks": [Looks()]}).train()
    assert seen and not any(seen) and torch.backends.cuda.cudnn_sdp_enabled() is allowed
