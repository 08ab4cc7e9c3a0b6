"""`torch_compile` of a trainer; traced, but not compiled."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters

from tests.train.tiny import assert_same_gradients, logged, make_model, make_trainer, words
from trimsft.train import TrimSFTTrainer
from trimsft.train.trainer import layers_of

# dynamo hides this warning by a way that does not hide it from pytest
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
ROWS = [{"text": words(12, seed)} for seed in range(8)]  # of one length, traced once
COMPILED = {"torch_compile": True, "torch_compile_backend": "eager"}


def train(folder: Path, resume: bool = False, **settings: Any) -> Any:
    settings = {"save_strategy": "steps", "save_steps": 1, **settings}
    trainer = make_trainer(TrimSFTTrainer, make_model("qwen2"), folder, ROWS, **settings)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-1") if resume else None)
    return trainer


def test_compiled_layers_train_and_resume_as_others_do(tmp_path) -> None:
    torch.compiler.reset()
    counters.clear()
    plain, compiled = train(tmp_path / "plain"), train(tmp_path / "compiled", **COMPILED)
    assert counters["stats"]["unique_graphs"] == 1  # one for both layers, and none for the head
    assert not counters["graph_break"]
    assert logged(compiled, "loss") == logged(plain, "loss")  # dynamo alone reorders no sum
    for got, expected in zip(compiled.grads, plain.grads, strict=True):
        assert_same_gradients(got, expected, 0)
    assert all(layer._compiled_call_impl is None for layer in layers_of(compiled.model))

    weights, expected = (load_file(tmp_path / run / "checkpoint-2/model.safetensors") for run in ("compiled", "plain"))
    assert weights.keys() == expected.keys()
    resumed = train(tmp_path / "compiled", resume=True, **COMPILED)
    assert logged(resumed, "loss") == logged(plain, "loss")
    assert all(
        torch.equal(weight, expected[name]) for name, weight in resumed.model.state_dict().items() if name in expected
    )
