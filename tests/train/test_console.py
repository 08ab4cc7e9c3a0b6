"""The lines a person reads while a model trains."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from tests.train.tiny import PAIRS, make_model, make_trainer
from trimsft.train import TrimSFTTrainer
from trimsft.train.telemetry import ReadablePrinter, ReadableProgress, readable, summary

LOGS = {
    "loss": 0.14812,
    "nll": 0.9312,
    "mean_token_accuracy": 0.762,
    "gap_p05": -3.3,
    "gap_p50": 3.92,
    "gap_p95": 14.1,
    "mean_weight": 0.2311,
    "effective_ratio": 0.35,
    "skipped": 0.43,
    "grad_norm": 1.25,
    "learning_rate": 5e-5,
    "tokens_per_second": 31200.4,
    "peak_memory_gib": 20.06,
    "epoch": 0.1,
}


def test_a_training_step() -> None:
    line = readable(LOGS, 120, 834)
    for part in (
        "step 120/834  loss 0.1481  nll 0.9312  acc 76.2%  gap 3.9 [-3.3, 14.1]  weight 0.231  R_eff 35%",
        "skipped 43%",
        "lr 5.0e-05",
        "31,200 tok/s",
        "20.1 GiB",
    ):
        assert part in line
    assert "\n" not in line and "   " not in line


def test_an_evaluation() -> None:
    line = readable({f"eval_{name}": value for name, value in LOGS.items()}, 120, 834)
    assert line.startswith("eval at step 120/834  loss 0.1481  nll 0.9312")
    assert "skipped" not in line


def test_what_is_not_there_is_left_out() -> None:
    assert readable({"loss": 0.0}, 1, 2) == "step 1/2  loss 0"


def test_the_last_line() -> None:
    state = SimpleNamespace(global_step=3, max_steps=9)
    end = {"train_runtime": 3725.9, "train_loss": 0.12345}
    assert summary(end, state) == "trained in 1:02:05, mean loss 0.1235"
    # the steps since the last log are in the same record
    assert summary({**end, "nll": 2.5}, state).splitlines()[0] == "step 3/9  nll 2.5"


def said(kind: type[Any], logs: dict[str, Any], capsys: pytest.CaptureFixture[str], *, first: bool = True) -> str:
    state = SimpleNamespace(is_world_process_zero=first, global_step=3, max_steps=9)
    callback = kind()
    if kind is ReadableProgress:
        callback.training_bar = SimpleNamespace(write=print)
    callback.on_log(None, state, None, logs=logs)
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", [ReadablePrinter, ReadableProgress])
def test_both_print_the_same(kind: type[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert said(kind, LOGS, capsys) == readable(LOGS, 3, 9) + "\n"
    ending = {"train_runtime": 61.0, "train_loss": 0.5, "total_flos": 1e9}
    assert said(kind, ending, capsys) == "trained in 0:01:01, mean loss 0.5\n"
    assert said(kind, {"my_figure": 2, "total_flos": 1e9}, capsys) == "my_figure 2\n"
    assert said(kind, LOGS, capsys, first=False) == ""


class Mine(PrinterCallback):
    pass


@pytest.mark.parametrize("quiet", [True, False])
def test_they_replace_those_of_the_trainer_and_no_others(quiet: bool, tmp_path: Path) -> None:
    trainer = make_trainer(
        TrimSFTTrainer, make_model(), tmp_path, PAIRS, {"callbacks": [Mine(), TrainerCallback()]}, disable_tqdm=quiet
    )
    kinds = [type(callback) for callback in trainer.callback_handler.callbacks]
    assert PrinterCallback not in kinds and ProgressCallback not in kinds
    assert kinds.count(ReadablePrinter if quiet else ReadableProgress) == 1
    assert (ReadableProgress if quiet else ReadablePrinter) not in kinds
    assert Mine in kinds and TrainerCallback in kinds


def test_a_whole_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"eval_dataset": {"held": Dataset.from_list(PAIRS[:2])}}
    trainer = make_trainer(TrimSFTTrainer, make_model(), tmp_path, PAIRS, options, eval_strategy="steps", eval_steps=2)
    capsys.readouterr()
    trainer.train()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert re.match(r"step 1/2  loss [\d.]+  nll [\d.]+  acc ", lines[0])
    assert re.match(r"step 2/2  loss ", lines[1])
    assert lines[2].startswith("eval") and re.search(r"loss [\d.]+", lines[2])
    assert re.match(r"trained in 0:00:\d\d, mean loss [\d.]+", lines[3])
