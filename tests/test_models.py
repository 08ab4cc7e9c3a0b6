"""Models are loaded whole or not at all: tensors that are missing, of another shape or not finite, adapters, shards,
configurations that nobody should build."""

import builtins
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.tokens import tiny
from trimsft.errors import UsageError
from trimsft.models import load_config, load_merged, load_model

TENSOR = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_folder(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


@pytest.fixture
def adapter(folder: Path, tmp_path: Path) -> Path:
    """A LoRA of the model in `folder`."""
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    get_peft_model(load_model(folder, dtype="auto"), lora).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def change(file: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite a file of tensors."""
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def refused(folder: Path, problem: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_model(folder, dtype="auto")
    assert problem in str(refusal.value)
    assert refusal.value.field == "model"


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda tensors: tensors.pop(TENSOR), f"is not whole: it lacks the tensor {TENSOR};"),
    "shape": (lambda tensors: tensors.update({TENSOR: torch.ones(3, 3)}), f"another shape has the tensor {TENSOR};"),
    "nan": (lambda tensors: tensors[TENSOR][0].fill_(float("nan")), f"numbers that are not finite in {TENSOR};"),
    "infinity": (lambda tensors: tensors[TENSOR][0].fill_(float("-inf")), f"not finite in {TENSOR};"),
    "all": (lambda tensors: tensors.clear(), "is not whole: its files hold fewer numbers than its config.json says"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_tensor_is_named_in_one_line(folder: Path, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
    edit, problem = DAMAGE[damage]
    change(folder / "model.safetensors", edit)
    refused(folder, problem)
    assert "REPORT" not in capfd.readouterr().err  # the library's table


def test_a_tensor_that_the_model_has_no_use_for_is_mentioned(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    change(folder / "model.safetensors", lambda tensors: tensors.update(extra=torch.ones(3)))
    with caplog.at_level(logging.WARNING, "trimsft"):
        load_model(folder, dtype="auto")
    assert "no use for the tensor extra" in caplog.text


def test_an_adapter_is_loaded_and_checked_with_its_base(adapter: Path, folder: Path) -> None:
    ours, theirs = load_model(adapter, dtype="auto"), AutoModelForCausalLM.from_pretrained(adapter, dtype="auto")
    tensors = theirs.state_dict()
    assert ours.state_dict().keys() == tensors.keys()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in ours.state_dict().items())
    assert load_config(adapter).vocab_size == load_config(folder).vocab_size

    weights = adapter / "adapter_model.safetensors"
    kept = weights.read_bytes()
    first = next(iter(load_file(weights)))
    change(weights, lambda tensors: tensors.pop(first))
    refused(adapter, "adapter' is not whole: it lacks the tensor model.layers.0.self_attn.q_proj.lora_A")
    weights.write_bytes(kept)
    change(folder / "model.safetensors", lambda tensors: tensors.pop(TENSOR))
    refused(adapter, f"model' is not whole: it lacks the tensor {TENSOR}")
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": 3}')
    refused(adapter, "base_model_name_or_path must be a name, got 3")


def test_a_head_trained_with_an_adapter_is_loaded_with_it(folder: Path, tmp_path: Path) -> None:
    lora = LoraConfig(r=2, target_modules=["q_proj"], modules_to_save=["lm_head"], init_lora_weights=False)
    tuned = get_peft_model(load_model(folder, dtype="auto"), lora)
    torch.nn.init.normal_(tuned.base_model.model.lm_head.weight)
    tuned.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    ids = torch.arange(9)[None]
    with torch.no_grad():
        wanted = tuned.eval()(ids).logits
        torch.testing.assert_close(load_model(tmp_path / "adapter", dtype="auto")(ids).logits, wanted)
        merged = load_merged(tmp_path / "adapter")(ids).logits
        torch.testing.assert_close(merged, wanted, rtol=1e-4, atol=1e-4)  # products of matrices in another order


def test_a_shard_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    load_model(folder, dtype="auto").save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    gone = next((tmp_path / "shards").glob("model-00002*"))
    gone.unlink()
    refused(tmp_path / "shards", gone.name)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_hidden_layers": 10**9},
        {"vocab_size": 10**15},
        {"vocab_size": 10**8},
        {"hidden_size": -4},
        {"hidden_size": "many"},
        {"num_attention_heads": 0},
        {"model_type": "nobody"},
        {"model_type": 3},
        {"rope_parameters": [[]]},
        {"layer_types": 1},
        {"dtype": "float99"},
    ],
)
def test_a_damaged_configuration_is_refused_in_one_line(folder: Path, settings: dict[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    refused(folder, str(folder))


def test_code_of_a_folder_is_never_run_nor_asked_about(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, ran = folder / "config.json", tmp_path / "ran"
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.setattr(builtins, "input", lambda *question: "y")
    refused(folder, "custom code")
    assert not ran.exists()
