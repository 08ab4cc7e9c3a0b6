"""`trimsft train` as a process: what it prints, its exit codes, and how signals and kills end it.

A run that was ended at any moment goes on by the same command, and ends with the bytes of one that never was.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader
from transformers import TrainerControl

from tests.train.processes import SAVING, Child, Finished, command, signalled, two_ranks
from tests.train.tiny_run import as_words, make_fields
from trimsft.errors import Interrupted
from trimsft.runs import RunDirectory
from trimsft.train import checkpoints, train_model
from trimsft.train.checkpoints import Stopping, keep_workers

STEPS = 6


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return make_fields(tmp_path_factory.mktemp("inputs"), max_steps=STEPS)


@pytest.fixture(scope="module")
def whole(fields: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Made by the command, never interrupted."""
    run = RunDirectory(tmp_path_factory.mktemp("whole") / "run")
    done = command(["train", *as_words(fields), "--output_dir", str(run.path)], run.path.with_name("log")).wait()
    assert done.code == 0, done.err[-4000:]
    assert [line.split("  ")[0] for line in done.out.splitlines()[:-1]] == [f"step {n}/6" for n in range(1, 7)]
    assert f"the model is in {run.model_dir}" in done.err.splitlines()[-1]
    assert "trimsft train --model_name_or_path" in run.read_manifest()["command"]
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def words(fields: dict[str, Any], run: RunDirectory) -> list[str]:
    return ["train", *as_words(fields), "--output_dir", str(run.path)]


def weights(run: RunDirectory) -> bytes:
    return (run.model_dir / "model.safetensors").read_bytes()


def assert_as_if_never_interrupted(run: RunDirectory, whole: RunDirectory) -> None:
    assert weights(run) == weights(whole)
    records, expected = (
        [json.loads(line) for line in each.telemetry_path.read_text().splitlines() if '"loss"' in line]
        for each in (run, whole)
    )
    for record in (*records, *expected):
        del record["time"], record["tokens_per_second"]
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert records == expected


def last_line(done: Finished) -> str:
    assert "Traceback" not in done.err, done.err[-4000:]
    line = done.err.rstrip().splitlines()[-1]
    assert line.startswith("trimsft: ")
    return line


def test_the_process_makes_what_the_function_makes(whole, fields, run) -> None:
    assert weights(train_model(**fields, output_dir=run.path).run) == weights(whole)
    other = train_model(**fields, output_dir=run.path.with_name("other"), seed=7).run
    assert weights(other) != weights(whole)  # else the tests below would say nothing


def test_a_refusal_is_one_line_and_exit_code_2(words, run, tmp_path) -> None:
    done = command([*words, "--objective", "sft", "--bandwidth", "2"], tmp_path / "log").wait()
    assert done.code == 2 and not done.out and not run.path.exists()
    assert last_line(done) == "trimsft: objective 'sft' has no parameter 'bandwidth'; it takes no parameters"


@pytest.mark.parametrize("wrong", [("--learning_rate", "0.5"), ("--dataset_name", "./nowhere.jsonl")])
def test_all_ranks_are_refused_together(wrong, whole, words, tmp_path) -> None:
    """By the main process: another's run, data that is not there."""
    if wrong[0] == "--learning_rate":
        words = [*words, "--output_dir", str(whole.path)]
    first, second = two_ranks(lambda log, **ranks: command([*words, *wrong], log, **ranks), tmp_path)
    assert first.code == second.code == 2
    assert wrong[1] in last_line(first) and "trimsft:" not in second.err


def test_what_is_printed_without_training(words, run, tmp_path) -> None:
    for arguments, parts in (
        ([*words, "--dry-run"], ("device: ", "steps: 6\n", "rows: 4\n", "seconds: ")),
        ([*words, "--dry-run", "--json", "--gpus", "2xA6000"], ('"gpus": "2xA6000"', '"gib": ', '"downloads": ')),
        (["train", "--help-all"], ("--objective", "--margin", "--problem_column", "--lora_r", "--fsdp")),
    ):
        done = command(arguments, tmp_path / "log").wait()
        assert done.code == 0, done.err[-4000:]
        assert [part for part in parts if part not in done.out] == []
    assert not run.path.exists()


def test_asked_to_end_it_saves_and_goes_on_later(whole, words, run, fields, tmp_path) -> None:
    """Also as shells start what stands in the background: with SIGINT ignored."""
    asked = (
        (signal.SIGINT, 130, "interrupted", 1),
        (signal.SIGTERM, 143, "terminated", 3),
        (signal.SIGHUP, 129, "hung up", 5),
    )
    for number, code, how, step in asked:
        done = signalled(words, tmp_path / "log", number, step=step).wait()
        assert done.code == code, done.err[-4000:]
        place = run.train_dir / f"checkpoint-{step}"
        assert f"{how} after step {step} of 6; {place} is saved; rerun the command to resume" in last_line(done)
        assert place.is_dir() and not run.model_dir.exists()
    assert f"continuing from {run.train_dir / 'checkpoint-3'}" in done.err
    train_model(**fields, output_dir=run.path)
    assert_as_if_never_interrupted(run, whole)


def test_all_ranks_end_after_the_same_step(words, run, tmp_path) -> None:
    """Though only the second was asked to."""
    first, second = two_ranks(
        lambda log, **ranks: signalled(words, log, signal.SIGTERM, step=3, rank=1, **ranks), tmp_path
    )
    assert first.code == second.code == 143, first.err[-4000:] + second.err[-4000:]
    assert "terminated after step 3 of 6" in last_line(first) and "trimsft:" not in second.err
    assert sorted(path.name for path in run.train_dir.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-3"]


def test_killed_while_it_saves_it_goes_on(whole, words, run, fields, tmp_path) -> None:
    done = signalled(words, tmp_path / "log", signal.SIGKILL, step=4, moment="optimizer").wait()
    assert done.code == -signal.SIGKILL
    assert sorted(path.name for path in run.train_dir.iterdir() if path.is_dir()) == ["_saving", "checkpoint-2"]
    train_model(**fields, output_dir=run.path)
    assert_as_if_never_interrupted(run, whole)
    names = sorted(path.name for path in run.train_dir.iterdir())
    assert names == sorted(path.name for path in whole.train_dir.iterdir())


def test_a_second_ctrl_c_ends_at_once(monkeypatch, capfd) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stopping() as heeding:
        with pytest.raises(Interrupted):  # nothing is trained yet
            os.kill(os.getpid(), signal.SIGTERM)
        heeding.on_train_begin(None, None, None)
        monkeypatch.setattr(heeding, "_process", 0)
        os.kill(os.getpid(), signal.SIGTERM)  # a forked worker leaves it to the training
        monkeypatch.undo()
        assert capfd.readouterr().err == ""
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # as `timeout` sends it
        at_once = "stopping after this step, with a checkpoint; press Ctrl-C again to stop at once"
        assert capfd.readouterr().err.count(at_once) == 1
        heeding.on_evaluate(None, None, control := TrainerControl())  # it may be long
        assert control.should_save
        monkeypatch.setattr(checkpoints, "SAME_SIGNAL_SECONDS", -1.0)
        os.kill(os.getpid(), signal.SIGTERM)  # of Slurm at the time limit: the checkpoint comes first
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_processes_that_load_data_outlive_sigterm() -> None:
    """Slurm sends it to every process; a loader whose worker dies ends the training."""
    plain: Any = DataLoader(range(8), batch_size=1, num_workers=1, persistent_workers=True)  # type: ignore[arg-type]
    loader = keep_workers(prepare_data_loader(plain))
    rows = iter(loader)
    loaded = [int(next(rows))]
    workers = loader.base_dataloader._iterator._workers
    os.kill(workers[0].pid, signal.SIGTERM)
    assert loaded + [int(row) for row in rows] == list(range(8))


@pytest.mark.soak
def test_killed_at_every_step_and_moment_of_a_save(whole, words, run, fields, tmp_path) -> None:
    words = [*words, "--save_steps", "1"]
    for step, moment in enumerate(SAVING, start=1):
        assert signalled(words, tmp_path / "log", signal.SIGKILL, step=step, moment=moment).wait().code == -9
        is_named = moment in ("name", "everything")
        assert (run.train_dir / f"checkpoint-{step}").exists() == is_named
        assert (run.train_dir / "_saving" / f"checkpoint-{step}").exists() != is_named
        if moment in ("weights", "optimizer", "random numbers"):  # the step is lost, and made again
            assert signalled(words, tmp_path / "log", signal.SIGKILL, step=step, moment="everything").wait().code == -9
    train_model(**{**fields, "save_steps": 1}, output_dir=run.path)
    assert_as_if_never_interrupted(run, whole)


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_two_ranks_are_ended_and_go_on(number, words, run, tmp_path) -> None:
    def never(log: Path, **ranks: str) -> Child:
        return command([*words, "--output_dir", str(tmp_path / "whole")], log, **ranks)

    def ended(log: Path, **ranks: str) -> Child:
        return signalled(words, log, number, step=3, rank=int(ranks["RANK"]), **ranks)

    assert [done.code for done in two_ranks(never, tmp_path)] == [0, 0]
    assert all(done.code in (-9, 143) for done in two_ranks(ended, tmp_path))
    assert [done.code for done in two_ranks(lambda log, **ranks: command(words, log, **ranks), tmp_path)] == [0, 0]
    assert_as_if_never_interrupted(run, RunDirectory(tmp_path / "whole"))
