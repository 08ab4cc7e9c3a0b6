"""A training that is told to end saves a checkpoint, is not taken for a finished one, and goes on."""

import os
import signal
from datetime import timedelta
from typing import Any

import pytest
from accelerate.data_loader import prepare_data_loader
from torch import distributed
from torch.utils.data import DataLoader

from tests.train.tiny_run import make_fields
from trimsft.errors import Stopped
from trimsft.runs import RunDirectory
from trimsft.train import TrimSFTConfig, TrimSFTTrainer, train_model
from trimsft.train.stopping import Stopping, keep_workers


def test_sigterm_with_a_checkpoint_just_in_time_of_transformers(tmp_path, monkeypatch) -> None:
    fields = make_fields(tmp_path, output_dir=tmp_path / "run", max_steps=4, save_strategy="no")
    step, sent = TrimSFTTrainer.training_step, []

    def terminated(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 1 and not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return step(trainer, *args, **kwargs)

    monkeypatch.setattr(TrimSFTTrainer, "training_step", terminated)
    with pytest.raises(Stopped, match="after step 2 of 4"):
        train_model(**fields, enable_jit_checkpoint=True)
    run = RunDirectory(tmp_path / "run")
    assert not run.is_finished() and (run.train_dir / "checkpoint-2" / "complete.json").exists()
    assert train_model(**fields, enable_jit_checkpoint=True).steps == 4
    assert run.is_finished()


def test_ranks_that_agree_to_end_wait_no_longer_than_any_other_collective(tmp_path, monkeypatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "new_group", lambda **settings: asked.update(settings))
    Stopping().on_train_begin(TrimSFTConfig(str(tmp_path), ddp_timeout=15, bf16=False), None, None)
    assert asked["timeout"] == timedelta(seconds=15)


def test_a_launcher_says_how_long_it_waits_for_the_checkpoint(monkeypatch, capfd) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "240")
    with Stopping() as stopping:
        stopping.on_train_begin(None, None, None)
        os.kill(os.getpid(), signal.SIGTERM)
    assert capfd.readouterr().err == (
        "trimsft: stopping after this step, with a checkpoint; the launcher waits 240 seconds for it\n"
    )


@pytest.mark.parametrize("prepare", [lambda loader: loader, prepare_data_loader], ids=["plain", "accelerate"])
def test_processes_that_load_data_outlive_sigterm(prepare) -> None:
    """Slurm sends it to every process of a step; a loader whose worker dies ends the training before it is saved."""
    loader = keep_workers(prepare(DataLoader(range(8), batch_size=1, num_workers=1, persistent_workers=True)))  # type: ignore[arg-type]
    rows = iter(loader)
    loaded = [int(next(rows))]
    workers = getattr(loader, "base_dataloader", loader)._iterator._workers
    os.kill(workers[0].pid, signal.SIGTERM)
    assert loaded + [int(row) for row in rows] == list(range(8))
