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


def on_cuda(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value.cuda() for name, value in batch.items()}


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("objective", [SFT(), TrimSFT(**BAND)], ids=["sft", "trim"])
def test_patched_model_agrees_with_the_formula(kind, objective) -> None:
    model = make_model(kind).cuda()
    batch = on_cuda(make_batch())
    expected_loss, expected = plain_step(unpatched(model).cuda(), [batch], objective)
    model.zero_grad()
    outputs = patch(model, objective, skip_below=0.0)(**batch)
    outputs.token_loss.backward()
    # Triton's float32 matmuls and torch's both sum in another order
    assert outputs.token_loss.item() == pytest.approx(expected_loss, rel=2e-5)
    assert_same_gradients(gradients_of(model), expected, 2e-4)


def train(kind: type[Any], model: Any, folder: Path, **settings: Any) -> Any:
    trainer = make_trainer(kind, model, folder, PAIRS, use_cpu=False, dataloader_pin_memory=True, **settings)
    trainer.train()
    return trainer


@pytest.mark.parametrize("settings", [{}, {"packing": True, "max_length": 32}, {"gradient_checkpointing": True}])
def test_sft_is_trl_sft(tmp_path, settings) -> None:
    theirs = train(SFTTrainer, make_model(), tmp_path / "theirs", **settings)
    ours = train(TrimSFTTrainer, make_model(), tmp_path / "ours", objective="sft", **settings)
    assert logged(ours, "loss") == pytest.approx(logged(theirs, "loss"), rel=LOSS_ERROR)
    for got, expected in zip(ours.grads, theirs.grads, strict=True):
        assert_same_gradients(got, expected, 2e-4)


def train_twice(kind: str, folder: Path, switch: str, **settings: Any) -> tuple[Any, Any]:
    """Trained with a setting off and on."""
    return tuple(
        train(TrimSFTTrainer, make_model(kind), folder / str(on), **{switch: on}, **settings) for on in (False, True)
    )


@pytest.mark.parametrize("objective", ["sft", "dft", "trim"])
def test_bfloat16_stays_near_float32(tmp_path, objective) -> None:
    single, half = train_twice("llama", tmp_path, "bf16", objective=objective)
    assert logged(half, "loss") == pytest.approx(logged(single, "loss"), rel=0.05)
    assert logged(single, "peak_memory_gib")[0] > 0 and logged(half, "peak_memory_gib")[0] > 0


@pytest.mark.skipif(not importlib.util.find_spec("liger_kernel"), reason="liger-kernel is not installed")
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_liger_layers_change_nothing(tmp_path, kind) -> None:
    plain, liger = train_twice(kind, tmp_path, "use_liger_kernel")
    for name in ("loss", "nll"):
        assert logged(liger, name) == pytest.approx(logged(plain, name), rel=1e-3)


def test_compiled_layers_change_nothing(tmp_path, monkeypatch) -> None:
    # with torch_compile transformers lets every matmul of the process round to TF32, those of later tests, too
    monkeypatch.setattr(torch.backends, "fp32_precision", torch.backends.fp32_precision)
    plain, compiled = train_twice("qwen2", tmp_path, "torch_compile")
    torch.compiler.reset()
    assert logged(compiled, "loss") == pytest.approx(logged(plain, "loss"), rel=1e-3)
