"""Checkpoints: a killed training goes on; what is torn is never used, what is good stays."""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import peft
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from transformers import Trainer

from tests.train.tiny import PAIRS, Evil, make_model, make_trainer
from trimsft.errors import RunError, WriteError, exit_code
from trimsft.train.checkpoints import (
    COMPLETE,
    STAGING,
    AtomicCheckpoints,
    clear_staging,
    latest_checkpoint,
    mark_complete,
    opened_as_data,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def shared_trainer(tmp_path_factory: pytest.TempPathFactory) -> AtomicCheckpoints:
    folder = tmp_path_factory.mktemp("saves")
    trainer = make_trainer(AtomicCheckpoints, make_model(), folder, PAIRS, optim="adamw_torch")
    trainer.create_optimizer_and_scheduler(10)
    return trainer


@pytest.fixture
def trainer(shared_trainer: AtomicCheckpoints, tmp_path: Path) -> Iterator[AtomicCheckpoints]:
    settings = dict(vars(shared_trainer.args))
    state = dict(vars(shared_trainer.state))
    shared_trainer.args.output_dir = str(tmp_path)
    yield shared_trainer
    vars(shared_trainer.args).update(settings)
    vars(shared_trainer.state).update(state)


def save(trainer: AtomicCheckpoints, step: int) -> Path:
    trainer.state.global_step = step
    trainer._save_checkpoint(trainer.model, trial=None)
    return Path(str(trainer.args.output_dir)) / f"checkpoint-{step}"


def test_a_checkpoint_is_complete_readable_and_without_secrets(trainer) -> None:
    trainer.args.push_to_hub, trainer.args.hub_token = True, "hf_secret"  # nothing is pushed
    saved = save(trainer, 3)
    marker = json.loads((saved / COMPLETE).read_text())
    sizes = {path.name: path.stat().st_size for path in saved.iterdir() if path.name != COMPLETE}
    assert marker == {"step": 3, "files": sizes}
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} < set(sizes)
    assert not any(b"hf_secret" in path.read_bytes() for path in saved.iterdir())
    assert latest_checkpoint(saved.parent) == saved


def test_rotation_keeps_the_newest_and_the_best(trainer, tmp_path) -> None:
    trainer.args.save_total_limit = 2
    for step in (8, 9):
        save(trainer, step)
    trainer.state.best_global_step = 10
    best = save(trainer, 10)
    assert trainer.state.best_model_checkpoint == str(best)
    assert json.loads((best / "trainer_state.json").read_text())["best_model_checkpoint"] == str(best)
    for step in (11, 12):
        save(trainer, step)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-12"]
    trainer.args.save_total_limit = 1
    save(trainer, 13)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-13"]


@pytest.mark.parametrize(("limit", "left"), [(2, ["checkpoint-2", "checkpoint-4"]), (1, ["checkpoint-4"])])
def test_rotation_removes_torn_checkpoints_first(trainer, tmp_path, limit, left) -> None:
    """Whatever the times of files say, which a copy or another machine's clock may have made."""
    save(trainer, 2)
    torn = save(trainer, 8)
    os.truncate(torn / "optimizer.pt", 1000)
    os.utime(torn, (4e9, 4e9))
    trainer.args.save_total_limit = limit
    save(trainer, 4)  # continued from 2
    assert names(tmp_path) == left and latest_checkpoint(tmp_path) == tmp_path / "checkpoint-4"


def test_nothing_is_saved_through_a_link(trainer, tmp_path) -> None:
    (tmp_path / "elsewhere" / "checkpoint-1").mkdir(parents=True)
    (tmp_path / STAGING).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=f"{STAGING}: is a link, which is not written through"):
        save(trainer, 2)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["checkpoint-1"]


def test_a_kill_while_replacing_the_only_checkpoint_loses_nothing(trainer, tmp_path) -> None:
    saved = save(trainer, 4)
    (saved / COMPLETE).unlink()
    (saved / "left_over").touch()
    save(trainer, 4)  # a torn one of the same name is replaced
    assert latest_checkpoint(tmp_path) == saved and not (saved / "left_over").exists()
    # where a kill between the two renames leaves things
    (tmp_path / STAGING).mkdir()
    shutil.copytree(saved, tmp_path / STAGING / "checkpoint-4")
    saved.rename(tmp_path / STAGING / "replaced-checkpoint-4")
    assert latest_checkpoint(tmp_path) is None
    clear_staging(tmp_path)
    assert latest_checkpoint(tmp_path) == saved and names(tmp_path) == ["checkpoint-4"]


def fail_as_torch_does(*args: Any) -> None:
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")


def test_a_full_disk_is_reported_and_costs_no_earlier_checkpoint(trainer, tmp_path, monkeypatch) -> None:
    saved = save(trainer, 1)
    monkeypatch.setattr(Trainer, "_save_rng_state", fail_as_torch_does)
    with pytest.raises(RuntimeError, match="unexpected pos"):  # another failure is left as it is
        save(trainer, 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(WriteError, match=r"output_dir: no space for checkpoint-2 .* checkpoints are intact") as full:
        save(trainer, 2)
    assert exit_code(full.value) == 1
    assert names(tmp_path) == ["checkpoint-1"] and latest_checkpoint(tmp_path) == saved


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda saved: os.truncate(saved / "rng_state.pth", 100), "rng_state.pth has 100 bytes"),
        (lambda saved: (saved / "scheduler.pt").unlink(), "scheduler.pt is missing"),
        (lambda saved: (saved / COMPLETE).unlink(), f"{COMPLETE} is missing"),
        (lambda saved: (saved / COMPLETE).write_text("{}"), "cannot be read"),
    ],
    ids=["a file cut short", "a file missing", "no marker", "a broken marker"],
)
def test_resuming_takes_the_newest_whole_checkpoint(trainer, tmp_path, caplog, monkeypatch, damage, message) -> None:
    resumed: list[Any] = []
    monkeypatch.setattr(Trainer, "train", lambda self, checkpoint=None: resumed.append(checkpoint))
    with pytest.raises(RunError, match="holds no whole checkpoint"):
        trainer.train(resume_from_checkpoint=True)
    good, torn = save(trainer, 1), save(trainer, 2)
    for other in ("checkpoint-best", f"{STAGING}/checkpoint-3"):
        (tmp_path / other).mkdir(parents=True)
    (tmp_path / "checkpoint-11").write_text("a file")
    damage(torn)
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        trainer.train(resume_from_checkpoint=True)
    trainer.train()
    assert resumed == [str(good), None] and STAGING not in names(tmp_path)
    assert f"{torn} is skipped: " in caplog.text and message in caplog.text
    if (torn / COMPLETE).exists():  # else it may be another trainer's
        with pytest.raises(RunError, match=rf"checkpoint-2' is torn \(.*{message}"):
            trainer.train(str(torn))


@pytest.mark.parametrize(
    ("name", "other"), [("optimizer.pt", "optimizer.bin"), ("optimizer.pt", "optimizer_0"), ("scheduler.pt", "gone")]
)
def test_a_checkpoint_without_its_state_is_not_continued(trainer, name, other) -> None:
    """As save_only_model, FSDP and DeepSpeed leave it."""
    saved = save(trainer, 1)
    (saved / name).rename(saved / other)
    (saved / COMPLETE).unlink()
    with pytest.raises(RunError, match=f"checkpoint-1' lacks {name}, of a training like this one .*; choose another"):
        trainer.train(resume_from_checkpoint=str(saved))


def test_a_checkpoint_of_one_process_is_not_continued_by_fsdp(trainer, monkeypatch) -> None:
    saved = save(trainer, 1)
    monkeypatch.setattr(trainer, "is_fsdp_enabled", True)
    monkeypatch.setattr(trainer.accelerator.state, "fsdp_plugin", Mock(), raising=False)
    with pytest.raises(RunError, match=r"checkpoint-1' lacks optimizer.bin, of a training like this one"):
        trainer.train(resume_from_checkpoint=str(saved))


BEST = {
    "max_steps": 3, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
    "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "learning_rate": 0.5,
    "greater_is_better": True,  # the worst, so that the best is not the last
}  # fmt: skip


def make_choosing(folder: Path, **settings: Any) -> AtomicCheckpoints:
    options = {"eval_dataset": Dataset.from_list(PAIRS[:2])}
    return make_trainer(AtomicCheckpoints, make_model(), folder, PAIRS, options, **BEST | settings)


def test_the_best_model_is_found_after_the_run_was_moved(tmp_path) -> None:
    first = make_choosing(tmp_path / "old")
    first.train()
    name = f"checkpoint-{first.state.best_global_step}"
    assert name != "checkpoint-3"
    (tmp_path / "old").rename(tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "checkpoint-3")
    trainer, best = make_choosing(tmp_path / "new"), tmp_path / "new" / name
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.best_model_checkpoint == str(best)
    saved = load_file(best / "model.safetensors")
    assert all(torch.equal(trainer.model.get_parameter(name), weight) for name, weight in saved.items())
    shutil.rmtree(best)
    with pytest.raises(RunError, match=r"best checkpoint .*checkpoint-\d' cannot be loaded: it is missing"):
        make_choosing(tmp_path / "new", max_steps=4).train(resume_from_checkpoint=True)


ADAPTERS: dict[str, Any] = {
    "lora": lambda: peft.LoraConfig(target_modules=["q_proj"], r=2, modules_to_save=["lm_head"]),
    "prompts": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}


@pytest.mark.parametrize("kind", ["mixtral", "qwen3 moe", "olmoe", "llama tied", "bf16", *ADAPTERS])
def test_resuming_loads_every_weight(tmp_path, kind) -> None:
    """Of experts, too, which transformers saves in another layout than it holds."""
    changes: dict[str, Any] = {"kind": "gemma2", "dtype": torch.bfloat16} if kind == "bf16" else {"kind": kind}
    options = {"peft_config": ADAPTERS[kind]()} if kind in ADAPTERS else {}
    changes = {} if kind in ADAPTERS else changes
    first, second = (make_trainer(AtomicCheckpoints, make_model(**changes), tmp_path, PAIRS, options) for _ in range(2))
    for parameter in first.model.parameters():
        if parameter.requires_grad:
            parameter.data.normal_()
    first.save_model(str(tmp_path / "saved"))
    held = list(second.model.parameters())
    second._load_from_checkpoint(str(tmp_path / "saved"))
    assert all(one is other for one, other in zip(held, second.model.parameters(), strict=True))
    for name, weight in first.model.named_parameters():
        assert not weight.requires_grad or torch.equal(second.model.get_parameter(name), weight), name


def test_no_library_may_open_a_pickle_as_code(tmp_path, monkeypatch) -> None:
    """torch refuses to open anything where both of its variables are set."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(Evil(tmp_path / "mark"), tmp_path / "evil.pt")
    with pytest.raises(RunError, match="Weights only load failed"), opened_as_data(tmp_path):
        torch.load(tmp_path / "evil.pt", weights_only=False)
    assert not (tmp_path / "mark").exists() and os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1"


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "pytorch_model.bin"])
def test_a_pickle_from_elsewhere_runs_no_code(tmp_path, name) -> None:
    make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS, save_strategy="steps", save_steps=1).train()
    checkpoint, mark = tmp_path / "checkpoint-1", tmp_path / "mark"
    torch.save(Evil(mark), checkpoint / name)
    if name == "pytorch_model.bin":
        (checkpoint / "model.safetensors").unlink()
    (checkpoint / COMPLETE).unlink()
    mark_complete(checkpoint, 1)
    trainer = make_trainer(AtomicCheckpoints, make_model(), tmp_path, PAIRS)
    with pytest.raises(RunError, match=r"checkpoint-1 cannot be loaded \(Weights only load failed"):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights.pop("model.norm.weight"), "missing keys model.norm.weight"),
        (lambda weights: weights.update(extra=torch.zeros(2)), "unexpected keys extra"),
        (lambda weights: weights.update({"model.norm.weight": torch.zeros(7)}), "mismatched keys model.norm"),
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
