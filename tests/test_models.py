"""Models are loaded whole or not at all, merged, and exported as one folder."""

import builtins
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import constants
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from tests.tokens import tiny
from trimsft import cli, export_model, lab, models
from trimsft.errors import UsageError
from trimsft.models import load_config, load_model, load_tokenizer

BASE = lab.base_model_path()
TENSOR = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make_folder(tmp_path_factory.mktemp("models") / "whole")


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def make_adapter(folder: Path, *, base: Path = BASE, tokenizer: bool = True) -> Path:
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    tuned = get_peft_model(load_model(base, dtype=torch.float32), config)
    for name, weight in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    tuned.save_pretrained(folder)
    if tokenizer:
        load_tokenizer(base).save_pretrained(folder)
    return folder


def change(file: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Rewrite a file of tensors."""
    tensors = load_file(file)
    edit(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def edit_json(path: Path, **settings: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def refused(folder: Path, problem: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_model(folder, dtype="auto")
    assert problem in str(refusal.value)
    assert refusal.value.field == "model"


# ---- loading


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "missing": (lambda tensors: tensors.pop(TENSOR), f"is not whole: it lacks the tensor {TENSOR};"),
    "shape": (lambda tensors: tensors.update({TENSOR: torch.ones(3, 3)}), f"another shape has the tensor {TENSOR};"),
    "nan": (lambda tensors: tensors[TENSOR][0].fill_(float("nan")), f"numbers that are not finite in {TENSOR};"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_tensor_is_named_in_one_line(folder: Path, damage: str) -> None:
    edit, problem = DAMAGE[damage]
    change(folder / "model.safetensors", edit)
    refused(folder, problem)


def test_an_adapter_is_loaded_and_checked_with_its_base(folder: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "adapter", base=folder, tokenizer=False)
    tensors = AutoModelForCausalLM.from_pretrained(adapter, dtype="auto").state_dict()
    ours = load_model(adapter, dtype="auto").state_dict()
    assert ours.keys() == tensors.keys()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in ours.items())
    assert load_config(adapter).vocab_size == load_config(folder).vocab_size
    weights = adapter / "adapter_model.safetensors"
    kept, first = weights.read_bytes(), next(iter(load_file(weights)))
    change(weights, lambda tensors: tensors.pop(first))
    refused(adapter, "adapter' is not whole: it lacks the tensor model.layers.0.self_attn.q_proj.lora_A")
    weights.write_bytes(kept)
    change(folder / "model.safetensors", lambda tensors: tensors.pop(TENSOR))
    refused(adapter, f"model' is not whole: it lacks the tensor {TENSOR}")


@pytest.mark.parametrize("settings", [{"hidden_size": "many"}, {"model_type": "nobody"}, {"dtype": "float99"}])
def test_a_damaged_configuration_is_refused(folder: Path, settings: dict[str, Any]) -> None:
    edit_json(folder / "config.json", **settings)
    refused(folder, str(folder))


def test_code_of_a_folder_is_never_run(folder: Path, monkeypatch, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    own = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    edit_json(folder / "config.json", model_type="own", auto_map=own)
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.setattr(builtins, "input", lambda *question: "y")
    refused(folder, "custom code")
    assert not ran.exists()


# ---- export


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    problem = "Problem: Start with 7. Add 5. Multiply by 3. What is the result?\nSolution:"
    ids = AutoTokenizer.from_pretrained(BASE)(problem, return_tensors="pt")["input_ids"]
    return model.eval()(ids).logits.double()


def test_a_merged_adapter_is_one_folder_with_the_logits_of_base_and_adapter(tmp_path: Path) -> None:
    """Two orders of float32 sums: from float64 at most four times as far as the unmerged one."""
    adapter = make_adapter(tmp_path / "adapter")
    exported = export_model(adapter, tmp_path / "model").folder
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    tuned = PeftModel.from_pretrained(base, adapter)
    apart = logits(tuned)
    merged = logits(AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32))
    exact = logits(tuned.double())
    rounding = (apart - exact).abs().max()
    assert (merged - exact).abs().max() <= 4 * rounding
    assert (logits(load_model(BASE, dtype=torch.float32)) - exact).abs().max() > 1e4 * rounding  # the adapter matters
    assert {path.name for path in exported.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja",
    }  # fmt: skip
    # transformers 4, which llama.cpp's converter runs with, knows no TokenizersBackend
    tokenizer = json.loads((exported / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"


@pytest.mark.parametrize(("known", "ends"), [(0, [1, 0]), ([1, 3], [1, 3])])
def test_generation_ends_with_the_token_that_was_trained(known: Any, ends: Any, tmp_path: Path) -> None:
    """The base of an adapter may know another end than the tokenizer that it was trained with."""
    base = shutil.copytree(BASE, tmp_path / "base")
    edit_json(base / "generation_config.json", eos_token_id=known)
    adapter = make_adapter(tmp_path / "adapter", tokenizer=False)  # takes its base's
    edit_json(adapter / "adapter_config.json", base_model_name_or_path=str(base))
    folder = export_model(adapter, tmp_path / "model").folder
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == ends


def test_a_run_in_another_dtype_by_the_command(tmp_path: Path) -> None:
    shutil.copytree(BASE, tmp_path / "run" / "model")
    (tmp_path / "run" / "manifest.json").write_text("{}")
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "model"), "--dtype", "bfloat16", "--json"]
    facts = json.loads(CliRunner().invoke(cli.app, words, catch_exceptions=False).stdout)
    assert facts["dtype"] == "bfloat16" and not facts["is_merged"]
    weights, before = (load_file(folder / "model.safetensors") for folder in (tmp_path / "model", BASE))
    assert all(torch.equal(weights[name], before[name].bfloat16()) for name in before)
    assert export_model(tmp_path / "model", tmp_path / "again").dtype == "bfloat16"  # auto keeps it


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    adapter, large, four_bit = (tmp_path / name for name in ("adapter", "large", "four-bit"))
    make_adapter(adapter)
    change(adapter / "adapter_model.safetensors", lambda tensors: tensors.popitem())
    for copy in (large, four_bit):
        shutil.copytree(BASE, copy)
    name = "model.norm.weight"
    wide = {name: torch.full_like(load_file(BASE / "model.safetensors")[name], 1e5, dtype=torch.float32)}
    change(large / "model.safetensors", lambda tensors: tensors.update(wide))
    quantised = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    edit_json(four_bit / "config.json", quantization_config=quantised)
    before = sorted(tmp_path.iterdir())
    for model, out, problem in (
        (BASE, adapter, f"out: is there already, got {str(adapter)!r}; name a folder that is not"),
        (adapter, tmp_path / "out", "it lacks the tensor"),
        (large, tmp_path / "out", "float16' has numbers that are not finite in model.norm.weight"),
        (four_bit, tmp_path / "out", "has quantised weights"),
    ):
        with pytest.raises(UsageError) as refusal:
            export_model(model, out, dtype="float16")
        assert problem in str(refusal.value) and sorted(tmp_path.iterdir()) == before


def test_without_a_network_what_is_stored_is_taken_at_once(monkeypatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    models._look_for_hub.cache_clear()
    with pytest.raises(UsageError, match=r"cannot load 'nobody/nothing' \(no such folder here, so the hub was asked\)"):
        load_config("nobody/nothing")
    assert constants.HF_HUB_OFFLINE
    models._look_for_hub.cache_clear()
