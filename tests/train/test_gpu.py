"""The trainer on CUDA: the Triton head inside it, half precision, Liger's layers."""

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
    words,
)
from trimsft import SFT, TrimSFT
from trimsft.train import TrimSFTTrainer, patch
from trimsft.train.batches import without_cudnn_attention

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


@pytest.mark.parametrize("accumulation", [1, 2])
def test_layers_as_cuda_graphs_change_nothing(tmp_path, monkeypatch, accumulation) -> None:
    """Micro-batches of one length: gradients outlast the graph in whose memory they were made."""
    monkeypatch.setattr(torch.backends, "fp32_precision", torch.backends.fp32_precision)
    # or the compiled run alone would round to TF32, which moves these gradients by 0.5 to 1 %
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
    rows = [{"text": words(12, seed)} for seed in range(16)]
    settings = {"gradient_accumulation_steps": accumulation, "max_steps": 4, "use_cpu": False}
    graphs = {"torch_compile": True, "torch_compile_mode": "reduce-overhead"}
    losses, gradients = [], []
    for name, more in (("plain", {}), ("graphs", graphs)):
        trainer = make_trainer(TrimSFTTrainer, make_model("qwen2"), tmp_path / name, rows, **settings, **more)
        trainer.train()
        losses.append(logged(trainer, "loss"))
        gradients.append(trainer.grads)
    torch.compiler.reset()
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    for got, expected in zip(*reversed(gradients), strict=True):
        assert_same_gradients(got, expected, 2e-4)


def test_attention_with_a_mask_makes_finite_gradients() -> None:
    """Of a length and scores at which cuDNN makes NaN of them in some versions of torch."""
    query, key, value = torch.randn(3, 1, 1, 192, 64, device="cuda").bfloat16()
    query[..., 0], key[..., 0] = 1.0, -960.0
    mask = torch.ones(192, 192, dtype=torch.bool, device="cuda").tril()[None, None]
    with without_cudnn_attention():
        query.requires_grad_()
        torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask).sum().backward()
    assert query.grad.isfinite().all()
