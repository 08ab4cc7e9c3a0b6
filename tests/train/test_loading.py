"""Weights of checkpoints: all of them are loaded or none, and the best ones are found again."""

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file

from tests.train.distributed_worker import Evil
from tests.train.tiny import PAIRS, make_model, make_trainer
from trimsft.errors import RunError
from trimsft.train.checkpoints import SEAL, AtomicCheckpoints, seal

BEST = {
    "max_steps": 3, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
    "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "learning_rate": 0.5,
    "greater_is_better": True,  # the worst, so that the best is not the last
}  # fmt: skip


def make_choosing(folder: Path, kind: str = "llama", **settings: Any) -> AtomicCheckpoints:
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2])}
    return make_trainer(AtomicCheckpoints, make_model(kind), folder, PAIRS, options, **BEST | settings)


def assert_same_weights(model: Any, folder: Path) -> None:
    saved = type(model).from_pretrained(folder).state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, saved[name]), name


@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_the_best_model_is_loaded_at_the_end(tmp_path, kind) -> None:
    trainer = make_choosing(tmp_path, kind, save_total_limit=1)
    trainer.train()
    best = tmp_path / f"checkpoint-{trainer.state.best_global_step}"
    assert trainer.state.best_global_step < 3 and trainer.state.best_model_checkpoint == str(best)
    assert_same_weights(trainer.model, best)


def test_the_best_model_is_found_after_the_run_was_moved(tmp_path, caplog) -> None:
    make_choosing(tmp_path / "old", learning_rate=0.0).train()  # the first is the best
    (tmp_path / "old").rename(tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "checkpoint-3")
    trainer = make_choosing(tmp_path / "new")
    trainer.train(resume_from_checkpoint=True)
    best = tmp_path / "new" / "checkpoint-1"
    assert trainer.state.best_model_checkpoint == str(best)
    assert_same_weights(trainer.model, best)
    # a best one that was damaged is no model, and one that is gone when the run goes on counts no longer
    weights = bytearray((best / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (best / "model.safetensors").write_bytes(weights)
    with pytest.raises(RunError, match=r"best checkpoint .*checkpoint-1' cannot be loaded: model.safetensors has"):
        trainer._load_best_model()
    shutil.rmtree(best)
    trainer = make_choosing(tmp_path / "new", max_steps=4)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_global_step == 4 and "is forgotten: it is missing" in caplog.text


# what is loaded -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mixtral", "qwen3 moe", "olmoe", "llama tied", "bf16"])
def test_resuming_loads_every_weight(tmp_path, kind) -> None:
    """Of experts, too, which transformers saves in another layout than it holds."""
    changes: dict[str, Any] = {"kind": "gemma2", "dtype": torch.bfloat16} if kind == "bf16" else {"kind": kind}
    first = make_trainer(AtomicCheckpoints, make_model(**changes, seed=1), tmp_path, PAIRS)
    first.save_model(str(tmp_path / "saved"))
    second = make_trainer(AtomicCheckpoints, make_model(**changes), tmp_path, PAIRS)
    held = list(second.model.parameters())
    second._load_from_checkpoint(str(tmp_path / "saved"))
    assert all(one is other for one, other in zip(held, second.model.parameters(), strict=True))
    for name, weight in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], weight), name


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_pickle_from_elsewhere_runs_no_code(tmp_path, name, is_sealed) -> None:
    make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS, save_strategy="steps", save_steps=1).train()
    checkpoint, mark = tmp_path / "checkpoint-1", tmp_path / "mark"
    torch.save(Evil(mark), checkpoint / name)
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    (checkpoint / SEAL).unlink()
    if is_sealed:
        seal(checkpoint, 1)
    trainer = make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS)
    with pytest.raises(RunError, match=r"checkpoint-1 cannot be loaded \(Weights only load failed"):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    assert not mark.exists()


ADAPTERS = {
    "lora": peft.LoraConfig(target_modules=["q_proj"], r=2, modules_to_save=["lm_head"]),
    "prompts": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_resuming_loads_every_weight_of_an_adapter(tmp_path, adapter) -> None:
    first, second = (
        make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS, {"peft_config": adapter}) for _ in range(2)
    )
    for parameter in first.model.parameters():
        if parameter.requires_grad:
            parameter.data.normal_()
    first.save_model(str(tmp_path / "saved"))
    second._load_from_checkpoint(str(tmp_path / "saved"))
    trained = {name: weight for name, weight in second.model.named_parameters() if weight.requires_grad}
    assert trained
    for name, weight in first.model.named_parameters():
        assert not weight.requires_grad or torch.equal(trained[name], weight), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "it lacks model.norm.weight"),
        (lambda weights: weights.update(extra=torch.zeros(2)), "it has, and the model has not, extra"),
        (lambda weights: weights.update({"model.norm.weight": torch.zeros(7)}), "it has in another shape model.norm"),
    ],
    ids=["missing", "unexpected", "another shape"],
)
def test_weights_that_do_not_fit_are_refused(tmp_path, change, message) -> None:
    trainer, saved = make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS), tmp_path / "saved"
    trainer.save_model(str(saved))
    weights = load_file(saved / "model.safetensors")
    change(weights)
    save_file(weights, saved / "model.safetensors", {"format": "pt"})
    before = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    with pytest.raises(RunError, match=message):
        trainer._load_from_checkpoint(str(saved))
    assert all(torch.equal(weight, before[name]) for name, weight in trainer.model.state_dict().items())
