"""What is done for one cell: only what is missing, weights that are dropped, and why a process of a step failed."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.study.stub import SCALE, cells, finish, is_running
from trimsft.errors import UsageError
from trimsft.runs import RunDirectory
from trimsft.shipped import find_recipe
from trimsft.study import steps
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.scales import LAB, SMALL
from trimsft.study.steps import Job, StepError, all_needs, command_of, token_rows

BOTH = frozenset({"scores", "tokens"})


def make_job(out: Path, *, keep: bool = True) -> tuple[Job, Cell]:
    (cell,) = cells("good")
    return Job(StudyFolder(out), replace(SCALE, keep_weights=keep), BOTH), cell


def test_steps_that_are_done_are_not_missing(tmp_path: Path) -> None:
    job, cell = make_job(tmp_path)
    assert job.missing(cell) == ["train", "evaluate", "tokens"]
    assert job.missing(Cell(model="good", objective="base")) == ["evaluate", "tokens"]
    job.folder.note_failure(cell, "disk full")
    assert job.folder.read_failure(cell) == "disk full"
    finish(job, cell)
    assert job.missing(cell) == ["tokens"]
    job.folder.tokens(cell).touch()
    assert job.missing(cell) == []
    more = replace(job, scale=replace(job.scale, benchmarks=("toy", "another")))
    assert more.missing(cell) == ["evaluate"]
    job.run(cell)
    assert job.folder.read_failure(cell) == "", "a done cell has none any more"


@pytest.mark.parametrize("keep", [True, False])
def test_weights_go_once_nothing_needs_them(tmp_path: Path, keep: bool) -> None:
    job, cell = make_job(tmp_path, keep=keep)
    run = RunDirectory(job.folder.run(cell))
    weights, config = run.model_dir / "model.safetensors", run.model_dir / "config.json"
    checkpoint = run.train_dir / "checkpoint-50"
    for path in (weights, config, checkpoint / "optimizer.pt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    run.mark_finished()
    job.folder.tokens(cell).touch()
    replace(job, needs=all_needs(job.scale, {"tokens"})).run(cell)
    assert weights.exists(), "there are no scores yet"
    finish(job, cell)
    assert all_needs(job.scale, {"scores"}) == (BOTH if not keep else {"scores"})
    assert job.run(cell) == {} and job.missing(cell) == []
    assert (weights.exists(), checkpoint.exists(), config.exists()) == (keep, keep, True)
    if not keep:
        with pytest.raises(UsageError, match="its weights were deleted after its evaluation; to measure more, remove"):
            job.take(cell, "evaluate")


def test_a_step_in_its_own_process_says_why_it_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, cell = make_job(tmp_path)
    job = replace(job, scale=replace(job.scale, device="cuda", rows=None), needs=frozenset({"scores"}))
    run = RunDirectory(job.folder.run(cell))
    run.mark_finished()
    run.write_manifest(weights="dropped")
    with pytest.raises(StepError, match=r"^its weights were deleted after its evaluation; to measure more"):
        job.run(cell)
    assert "Traceback" in capfd.readouterr().err
    for script, reason in (
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
    ):
        monkeypatch.setattr(steps, "command_of", lambda *_, script=script: [sys.executable, "-c", script])
        with pytest.raises(StepError, match=f"evaluate ended .{reason}"):
            job.run(cell)


def test_an_interrupted_step_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, cell = make_job(tmp_path)
    pid = tmp_path / "pid"
    script = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"

    def interrupt(seconds: float) -> None:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(steps, "command_of", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(steps, "time", SimpleNamespace(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        job._take_elsewhere(cell, "train", 2)
    assert not is_running(int(pid.read_text()))


def test_a_step_is_a_call_where_a_process_would_take_longer(tmp_path: Path) -> None:
    for scale in (LAB, replace(LAB, device="cuda"), replace(SMALL, device="cpu", engine="transformers")):
        job = Job(StudyFolder(tmp_path), scale, BOTH)
        assert all(map(job._is_call, ("train", "evaluate", "tokens")))
        with_vllm = replace(job, scale=replace(scale, engine="vllm"))
        assert with_vllm._is_call("train") and not with_vllm._is_call("evaluate")
    assert not Job(StudyFolder(tmp_path), SMALL, BOTH)._is_call("evaluate")


def test_several_processes_are_launched_by_accelerate_or_torchrun() -> None:
    order, step = Path("order"), ["-m", "trimsft.study.steps", "order"]
    assert command_of(order, 1, "cuda") == [sys.executable, *step]
    two = command_of(order, 2, "cuda")
    accelerate = ["-m", "accelerate.commands.launch", "--config_file", str(find_recipe("accelerate/fsdp2.yaml"))]
    assert two[1:5] == accelerate and two[-3:] == step and two[two.index("--num_processes") + 1] == "2"
    assert command_of(order, 2, "cpu")[1:5] == ["-m", "torch.distributed.run", "--nproc_per_node", "2"]


def test_updates_are_known_beforehand_where_the_data_is_the_labs() -> None:
    sft = Cell(model="lab", objective="sft")
    assert LAB.updates_of(sft) == 50 and SMALL.updates_of(Cell(model="smollm2", objective="sft")) == 0
    assert LAB.updates_of(replace(sft, fields=(("num_train_epochs", 2), ("per_device_train_batch_size", "25")))) == 96


def test_every_cell_measures_the_same_rows(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    rows, rendering = token_rows(folder, LAB, Cell(model="lab", objective="sft", seed=2))
    trained = {json.loads(line)["problem"] for line in folder.training_data(0).read_text().splitlines()}
    assert len(rows) == LAB.table_rows and {row["problem"] for row in rows} <= trained
    losses = {"assistant_only_loss": False, "completion_only_loss": None}
    cut = {"max_length": 256, "truncation_mode": "keep_start"}
    assert rendering == {"template": "auto", "system_prompt": None, **cut, **losses}
    again, _ = token_rows(folder, LAB, Cell(model="lab", objective="base"))
    assert again == rows


def test_a_step_ends_with_whoever_gave_the_order() -> None:
    code = (
        "import threading, time; from trimsft.study import steps; "
        "threading.Thread(target=steps._end_with_input, daemon=True).start(); print('on', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None and child.stdout.readline() == b"on\n"
    assert child.poll() is None
    child.stdin.close()
    child.stdout.close()
    assert child.wait(30) == -signal.SIGTERM
