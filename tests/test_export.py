"""An exported folder is the trained model: the same logits in plain transformers, with all that a server asks for."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner, Result

from trimsft import cli, export_model, lab
from trimsft.data.encode import load_tokenizer
from trimsft.errors import UsageError, WriteError
from trimsft.models import load_model

BASE = lab.base_model_path()
RANK, SCALE = 4, 2.0
PROBLEM = "Problem: Start with 7. Add 5. Multiply by 3. What is the result?\nSolution:"


def make_adapter(folder: Path, *, tokenizer: bool = True) -> Path:
    torch.manual_seed(0)
    config = LoraConfig(r=RANK, lora_alpha=SCALE * RANK, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    tuned = get_peft_model(load_model(BASE, dtype=torch.float32), config)
    for name, weight in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    tuned.save_pretrained(folder)
    if tokenizer:
        load_tokenizer(BASE).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_adapter(tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def exported(adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_model(adapter, tmp_path_factory.mktemp("exported") / "model").folder


def run(*words: str) -> Result:
    return CliRunner().invoke(cli.app, ["export", *map(str, words)], catch_exceptions=False)


@torch.no_grad()
def logits(model: torch.nn.Module) -> torch.Tensor:
    ids = AutoTokenizer.from_pretrained(BASE)(PROBLEM, return_tensors="pt")["input_ids"]
    return model.eval()(ids).logits.double()


def test_a_merged_adapter_has_the_logits_of_base_and_adapter(adapter: Path, exported: Path) -> None:
    """Two orders of the same float32 sums: no further from float64 than four times what the unmerged one is."""
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    tuned = PeftModel.from_pretrained(base, adapter)
    apart = logits(tuned)
    merged = logits(AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32))
    exact = logits(tuned.double())
    rounding = (apart - exact).abs().max()
    assert (merged - exact).abs().max() <= 4 * rounding
    assert (logits(load_model(BASE, dtype=torch.float32)) - exact).abs().max() > 1e4 * rounding  # the adapter matters


def test_merged_weights_are_the_sum_but_for_rounding(adapter: Path, exported: Path) -> None:
    """float32 rounds by 2^-24: a dot product of RANK terms, its scaling and the sum by RANK + 2 of these."""
    merged, base, added = (load_file(folder / name) for folder, name in (
        (exported, "model.safetensors"), (BASE, "model.safetensors"), (adapter, "adapter_model.safetensors"),
    ))  # fmt: skip
    assert merged.keys() == base.keys()
    for layer in range(3):
        for name in ("q_proj", "v_proj"):
            key = f"model.layers.{layer}.self_attn.{name}"
            down, up = (added[f"base_model.model.{key}.lora_{part}.weight"].double() for part in "AB")
            before = base[f"{key}.weight"].double()
            size = before.abs() + SCALE * (up.abs() @ down.abs())
            error = (merged[f"{key}.weight"].double() - before - SCALE * (up @ down)).abs()
            assert (error <= (RANK + 2) * 2**-24 * size).all()
    untouched = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(merged[untouched], base[untouched].float())


def test_the_folder_has_what_servers_and_converters_read(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "chat_template.jinja",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in exported.iterdir())  # also for the server's user
    config = json.loads((exported / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"] and "quantization_config" not in config
    # transformers 4, which llama.cpp's converter runs with, knows no TokenizersBackend
    assert json.loads((exported / "tokenizer_config.json").read_text())["tokenizer_class"] == "PreTrainedTokenizerFast"
    messages = [{"role": "user", "content": "1 + 1?"}]
    ours, theirs = (AutoTokenizer.from_pretrained(folder) for folder in (exported, BASE))
    assert ours.apply_chat_template(messages) == theirs.apply_chat_template(messages)


@pytest.mark.parametrize(("known", "ends"), [(None, 1), (0, [1, 0]), ([1, 3], [1, 3])])
def test_generation_ends_with_the_token_that_was_trained(known, ends, adapter: Path, tmp_path: Path) -> None:
    """The base of an adapter may know another end than the tokenizer that it was trained with."""
    base = shutil.copytree(BASE, tmp_path / "base")
    settings = json.loads((base / "generation_config.json").read_text())
    (base / "generation_config.json").write_text(json.dumps(settings | {"eos_token_id": known}))
    tuned = shutil.copytree(adapter, tmp_path / "adapter")
    facts = json.loads((tuned / "adapter_config.json").read_text())
    (tuned / "adapter_config.json").write_text(json.dumps(facts | {"base_model_name_or_path": str(base)}))
    folder = export_model(tuned, tmp_path / "model").folder
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == ends


def test_a_run_in_another_dtype_by_the_command(tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    shutil.copytree(BASE, run_directory / "model")
    (run_directory / "manifest.json").write_text("{}")
    result = run(run_directory, "--out", tmp_path / "model", "--dtype", "bfloat16", "--json")
    facts = json.loads(result.stdout)
    assert facts["parameters"] == 2_537_216 and facts["dtype"] == "bfloat16" and not facts["is_merged"]
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    before = load_file(BASE / "model.safetensors")
    assert all(torch.equal(weights[name], before[name].bfloat16()) for name in before)
    assert (tmp_path / "model" / "README.md").read_bytes() == (BASE / "README.md").read_bytes()
    assert "bfloat16" in run(tmp_path / "model", "--out", tmp_path / "again").stdout  # auto keeps it


def test_an_adapter_without_a_tokenizer_takes_its_base_s(tmp_path: Path) -> None:
    folder = export_model(make_adapter(tmp_path / "adapter", tokenizer=False), tmp_path / "model").folder
    assert AutoTokenizer.from_pretrained(folder).eos_token == AutoTokenizer.from_pretrained(BASE).eos_token


def refusal(model: Path, out: Path, **options: str) -> str:
    before = sorted(out.parent.iterdir())
    with pytest.raises(UsageError) as refused:
        export_model(model, out, **options)
    assert sorted(out.parent.iterdir()) == before
    return str(refused.value)


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(adapter: Path, tmp_path: Path) -> None:
    assert refusal(BASE, adapter) == f"out: is there already, got {str(adapter)!r}; name a folder that is not"
    torn = shutil.copytree(adapter, tmp_path / "torn")
    tensors = load_file(torn / "adapter_model.safetensors")
    tensors.pop("base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight")
    save_file(tensors, torn / "adapter_model.safetensors")
    assert "it lacks the tensor" in refusal(torn, tmp_path / "out")
    prompts = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    get_peft_model(load_model(BASE, dtype=torch.float32), prompts).save_pretrained(tmp_path / "prompts")
    assert "of the kind PROMPT_TUNING, which cannot be merged" in refusal(tmp_path / "prompts", tmp_path / "out")
    large = shutil.copytree(BASE, tmp_path / "large")
    weights = load_file(large / "model.safetensors")
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], 1e5, dtype=torch.float32)
    save_file(weights, large / "model.safetensors", metadata={"format": "pt"})
    assert "float16' has numbers that are not finite in model.norm.weight" in refusal(
        large, tmp_path / "out", dtype="float16"
    )


def test_quantised_weights_are_refused_before_they_are_loaded(tmp_path: Path) -> None:
    folder = shutil.copytree(BASE, tmp_path / "four-bit")
    config = json.loads((folder / "config.json").read_text())
    four_bit = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": four_bit}))
    result = run(folder, "--out", tmp_path / "out")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "has quantised weights" in result.stderr and not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot be written"):
        export_model(BASE, tmp_path / "file" / "model")
