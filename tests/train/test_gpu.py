"""The trainer on CUDA: the Triton head inside it, half precision, Liger's layers."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from trl import SFTTrainer

from tests.train.tiny import (
    ARCHITECTURES,
    BAND,
    LOSS_ERROR,
    PAIRS,
    assert_same_gradients,
    gradients_of,
    logged,
    make_batch,
    make_model,
    make_trainer,
    plain_step,
    unpatched,
)
from trimsft import SFT, TrimSFT
from trimsft.train import TrimSFTTrainer, patch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # other packages' news; this module is about numbers
]
ON_GPU = {"use_cpu": False, "dataloader_pin_memory": True}


def on_cuda(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.cuda() for name, value in batch.items()}


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("objective", [SFT(), TrimSFT(**BAND)], ids=["sft", "trim"])
def test_patched_model_agrees_with_the_formula(kind: str, objective: Any) -> None:
    model = make_model(kind).cuda()
    batch = on_cuda(make_batch())
    expected_loss, expected = plain_step(unpatched(model).cuda(), [batch], objective)
    model.zero_grad()
    outputs = patch(model, objective, skip_below=0.0)(**batch)
    outputs.token_loss.backward()
    # Triton's float32 matmuls and torch's both sum in another order
    assert outputs.token_loss.item() == pytest.approx(expected_loss, rel=2e-5)
    assert_same_gradients(gradients_of(model), expected, 2e-4)


@pytest.mark.parametrize("settings", [{}, {"packing": True, "max_length": 32}, {"gradient_checkpointing": True}])
def test_sft_is_trl_sft(tmp_path: Path, settings: dict[str, Any]) -> None:
    trainers = {}
    for kind, objective in ((SFTTrainer, {}), (TrimSFTTrainer, {"objective": "sft"})):
        trainer = make_trainer(kind, make_model(), tmp_path / kind.__name__, PAIRS, **ON_GPU, **settings, **objective)
        trainer.train()
        trainers[kind] = trainer
    theirs, ours = trainers[SFTTrainer], trainers[TrimSFTTrainer]
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), rel=LOSS_ERROR)
    for got, expected in zip(ours.grads, theirs.grads, strict=True):
        assert_same_gradients(got, expected, 2e-4)


@pytest.mark.parametrize("objective", ["sft", "dft", "trim"])
def test_bfloat16_stays_near_float32(tmp_path: Path, objective: str) -> None:
    losses = {}
    for bf16 in (False, True):
        trainer = make_trainer(
            TrimSFTTrainer, make_model(), tmp_path / str(bf16), PAIRS, objective=objective, bf16=bf16, **ON_GPU
        )
        trainer.train()
        losses[bf16] = logged(trainer, "loss")
        assert logged(trainer, "peak_memory_gib")[0] > 0
    assert losses[True] == pytest.approx(losses[False], rel=0.05)


@pytest.mark.skipif(not importlib.util.find_spec("liger_kernel"), reason="liger-kernel is not installed")
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_liger_layers_change_nothing(tmp_path: Path, kind: str) -> None:
    runs = {}
    for liger in (False, True):
        trainer = make_trainer(
            TrimSFTTrainer, make_model(kind), tmp_path / str(liger), PAIRS, use_liger_kernel=liger, **ON_GPU
        )
        trainer.train()
        runs[liger] = trainer
    assert logged(runs[True], "loss") == pytest.approx(logged(runs[False], "loss"), rel=1e-3)
    assert logged(runs[True], "nll") == pytest.approx(logged(runs[False], "nll"), rel=1e-3)


def test_compiled_layers_change_nothing(tmp_path: Path) -> None:
    runs = {}
    for compiled in (False, True):
        trainer = make_trainer(
            TrimSFTTrainer, make_model("qwen2"), tmp_path / str(compiled), PAIRS, torch_compile=compiled, **ON_GPU
        )
        trainer.train()
        runs[compiled] = trainer
        torch.compiler.reset()
    assert logged(runs[True], "loss") == pytest.approx(logged(runs[False], "loss"), rel=1e-3)
