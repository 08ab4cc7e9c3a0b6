"""Checkpoints: a killed training goes on as if nothing had happened; what is torn is never used, what is good stays."""

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Trainer

from tests.train.tiny import PAIRS, make_model, make_trainer
from trimsft.errors import RunError, WriteError, exit_code
from trimsft.runs import fingerprint_file
from trimsft.train.checkpoints import SEAL, STAGING, AtomicCheckpoints, clear_staging, latest_checkpoint, opened_as_data


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


def test_a_checkpoint_is_sealed_and_pushed_under_its_final_name(trainer, monkeypatch) -> None:
    pushed = []

    def push(self: Trainer, folder: str) -> None:
        pushed.append((folder, (Path(folder) / SEAL).exists()))

    monkeypatch.setattr(Trainer, "_push_from_checkpoint", push)
    trainer.args.push_to_hub = True
    saved = save(trainer, 3)
    sealed = json.loads((saved / SEAL).read_text())
    assert sealed["step"] == 3
    assert sealed["files"] == {
        path.name: [path.stat().st_size, fingerprint_file(path)] for path in saved.iterdir() if path.name != SEAL
    }
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"} < set(sealed["files"])
    assert latest_checkpoint(saved.parent) == saved
    assert pushed == [(str(saved), True)]


def test_rotation_keeps_the_newest_and_the_best(trainer, tmp_path) -> None:
    trainer.args.save_total_limit = 2
    for step in (8, 9):
        save(trainer, step)
    trainer.state.best_global_step = 10
    best = save(trainer, 10)
    assert trainer.state.best_model_checkpoint == str(best)
    assert json.loads((best / "trainer_state.json").read_text())["best_model_checkpoint"] == str(best)
    save(trainer, 11)
    save(trainer, 12)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-12"]
    assert trainer.state.best_model_checkpoint == str(best)
    trainer.args.save_total_limit = 1
    save(trainer, 13)
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-13"]


def test_rotation_removes_torn_checkpoints_first(trainer, tmp_path) -> None:
    save(trainer, 2)
    torn = save(trainer, 8)
    os.truncate(torn / "optimizer.pt", 1000)
    trainer.args.save_total_limit = 2
    save(trainer, 4)  # continued from 2
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-4"]
    save(trainer, 8)
    trainer.args.save_total_limit = 1
    save(trainer, 6)  # continued from 4, by choice
    assert names(tmp_path) == ["checkpoint-6"]


def test_no_secret_is_saved_and_files_follow_the_umask(trainer) -> None:
    trainer.args.hub_token, trainer.args.model_init_kwargs = "hf_secret", {"token": "hf_secret", "revision": "main"}
    mask = os.umask(0o027)
    try:
        saved = save(trainer, 1)
    finally:
        os.umask(mask)
    assert not any(b"hf_secret" in path.read_bytes() for path in saved.iterdir())
    assert {path.stat().st_mode & 0o777 for path in saved.iterdir()} == {0o640}
    kept = torch.load(saved / "training_args.bin", weights_only=False)
    assert kept.hub_token is None and kept.model_init_kwargs == {"revision": "main"}
    assert trainer.args.hub_token == "hf_secret"


def test_a_checkpoint_of_the_same_name_is_replaced_or_stays(trainer, tmp_path, monkeypatch) -> None:
    saved = save(trainer, 4)
    (saved / SEAL).unlink()
    (saved / "left_over").write_text("x")
    save(trainer, 4)
    assert (saved / SEAL).exists() and not (saved / "left_over").exists()
    (saved / "mark").write_text("old")
    rename = os.rename

    def refuse(source: Path, target: Path) -> None:
        if source == tmp_path / STAGING / "checkpoint-4":
            raise PermissionError(errno.EPERM, "not permitted")
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(PermissionError):
        save(trainer, 4)
    assert (saved / "mark").exists() and names(tmp_path) == ["checkpoint-4"]


def test_a_kill_while_replacing_the_only_checkpoint_loses_nothing(trainer, tmp_path) -> None:
    saved = save(trainer, 4)
    # where a kill between the two renames leaves things
    (tmp_path / STAGING).mkdir()
    shutil.copytree(saved, tmp_path / STAGING / "checkpoint-4")
    saved.rename(tmp_path / STAGING / "replaced-checkpoint-4")
    assert latest_checkpoint(tmp_path) is None
    clear_staging(tmp_path)
    assert latest_checkpoint(tmp_path) == saved and names(tmp_path) == ["checkpoint-4"]


def fill_disk(*args: Any, **kwargs: Any) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        full.write(b"0")


def fail_as_torch_does(*args: Any) -> None:
    raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534")


@pytest.mark.parametrize("fail", [fill_disk, fail_as_torch_does])
def test_a_full_disk_is_said_and_costs_no_earlier_checkpoint(trainer, tmp_path, monkeypatch, fail) -> None:
    saved = save(trainer, 1)
    monkeypatch.setattr(Trainer, "_save_rng_state", fail)
    if fail is fail_as_torch_does:  # another failure is left as it is
        with pytest.raises(RuntimeError, match="unexpected pos"):
            save(trainer, 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(WriteError, match=r"output_dir: no space for checkpoint-2 .* checkpoints are intact") as full:
        save(trainer, 2)
    assert exit_code(full.value) == 1
    assert names(tmp_path) == ["checkpoint-1"] and latest_checkpoint(tmp_path) == saved


def test_resuming_takes_the_newest_whole_checkpoint(trainer, tmp_path, monkeypatch) -> None:
    resumed: list[Any] = []
    monkeypatch.setattr(Trainer, "train", lambda self, checkpoint=None: resumed.append(checkpoint))
    with pytest.raises(RunError, match="holds no whole checkpoint"):
        trainer.train(resume_from_checkpoint=True)
    good, torn = save(trainer, 1), save(trainer, 2)
    os.truncate(torn / "model.safetensors", 1000)
    (tmp_path / STAGING / "checkpoint-3").mkdir(parents=True)
    trainer.train(resume_from_checkpoint=True)
    trainer.train()
    assert resumed == [str(good), None] and names(tmp_path) == ["checkpoint-1", "checkpoint-2"]
    with pytest.raises(RunError, match=r"checkpoint-2' is torn \(model.safetensors has 1000 bytes"):
        trainer.train(str(torn))


def flip(path: Path) -> None:
    """Change one bit, in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a bit of the weights": (lambda saved: flip(saved / "model.safetensors"), "model.safetensors has another content"),
    "a bit of the optimizer": (lambda saved: flip(saved / "optimizer.pt"), "optimizer.pt has another content"),
    "a file cut short": (lambda saved: os.truncate(saved / "rng_state.pth", 100), "rng_state.pth has 100 bytes"),
    "a file missing": (lambda saved: (saved / "scheduler.pt").unlink(), "scheduler.pt is missing"),
    "no seal": (lambda saved: (saved / SEAL).unlink(), f"{SEAL} is missing"),
    "a broken seal": (lambda saved: (saved / SEAL).write_text("{}"), "cannot be read"),
    "a seal of files elsewhere": (
        lambda saved: (saved / SEAL).write_text('{"files": {"../checkpoint-1/optimizer.pt": [9, ""]}}'), "no file of it"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_newest_checkpoint_is_skipped(trainer, tmp_path, caplog, damage, message) -> None:
    good, torn = save(trainer, 1), save(trainer, 2)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-11").write_text("a file")
    damage(torn)
    with caplog.at_level(logging.WARNING, logger="trimsft"):
        assert latest_checkpoint(tmp_path) == good
    assert f"{torn} is skipped: " in caplog.text and message in caplog.text
    if message != f"{SEAL} is missing":  # of another trainer it may be, if it is named
        with pytest.raises(RunError, match=r"checkpoint-2' is torn"):
            trainer.train(str(torn))


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt"])
def test_a_checkpoint_without_optimizer_is_not_continued(trainer, name) -> None:
    """As save_only_model leaves it; transformers would begin with moments of 0, or with the warm-up, without a word."""
    saved = save(trainer, 1)
    (saved / name).unlink()
    (saved / SEAL).unlink()
    with pytest.raises(RunError, match=r"lacks the state of the optimizer or scheduler .*; train anew"):
        trainer.train(resume_from_checkpoint=str(saved))


def test_a_checkpoint_opens_where_the_user_lets_others_open(trainer, monkeypatch) -> None:
    """torch refuses to open anything where both of its variables are set."""
    saved = save(trainer, 1)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with opened_as_data(saved):
        torch.load(saved / "optimizer.pt")
    assert os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] == "1" and "TORCH_FORCE_WEIGHTS_ONLY_LOAD" not in os.environ


OTHER_KINDS = {
    "global_step7": "with DeepSpeed",
    "pytorch_model_fsdp.bin": r"with FSDP \(FULL_STATE_DICT\)",
    "pytorch_model_fsdp_0": r"with FSDP \(SHARDED_STATE_DICT\)",
}


@pytest.mark.parametrize(("name", "kind"), OTHER_KINDS.items())
def test_files_of_another_kind_of_training_are_refused(trainer, tmp_path, name, kind) -> None:
    saved = save(trainer, 1)
    (saved / name).mkdir()
    says = f"checkpoint-1' has the files of a training {kind}, and this one runs without FSDP and DeepSpeed; start it"
    for wanted in (True, str(saved)):
        with pytest.raises(RunError, match=says):
            trainer.train(resume_from_checkpoint=wanted)
