"""What is done for one cell: only what is missing, weights that are dropped, and why a process of a step failed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, cells, finish
from trimsft.errors import UsageError
from trimsft.runs import RunDirectory
from trimsft.shipped import find_recipe
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running import job as jobs
from trimsft.study.running.job import CellJob, StepError, all_needs, command_of, is_call
from trimsft.study.running.job import tell_nobody as quietly
from trimsft.study.running.training import updates_of, write_token_rows
from trimsft.study.running.workers import Task
from trimsft.study.scales import LAB, SMALL

BOTH = frozenset({"scores", "tokens"})


def make_job(out: Path, *, keep: bool = True) -> tuple[CellJob, Cell]:
    (cell,) = cells("good")
    return CellJob(StudyFolder(out), replace(SCALE, keep_weights=keep), BOTH, {cell.name: cell}), cell


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
    job.do(Task(cell.name), quietly)
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
    replace(job, needs=all_needs(job.scale, {"tokens"})).do(Task(cell.name), quietly)
    assert weights.exists(), "there are no scores yet"
    finish(job, cell)
    assert all_needs(job.scale, {"scores"}) == (BOTH if not keep else {"scores"})
    assert job.do(Task(cell.name), quietly) == {}
    assert (weights.exists(), checkpoint.exists(), config.exists()) == (keep, keep, True)
    assert job.missing(cell) == []
    if not keep:
        with pytest.raises(UsageError, match="its weights were deleted after its evaluation; to measure more, remove"):
            job.take(cell, "evaluate", quietly)


def test_with_gpus_a_step_is_a_process_of_its_own_and_hands_back_why_it_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, cell = make_job(tmp_path)
    job = replace(job, scale=replace(job.scale, device="cuda", rows=None), needs=frozenset({"scores"}))
    run = RunDirectory(job.folder.run(cell))
    run.mark_finished()
    run.write_manifest(weights="dropped")
    with pytest.raises(StepError, match=r"^its weights were deleted after its evaluation; to measure more") as failed:
        job.do(Task(cell.name), quietly)
    assert not failed.value.was_killed and "Traceback" in capfd.readouterr().err
    for code, reason, was_killed in ((3, "exit code 3", False), (-9, "killed by signal 9: too little memory?", True)):
        monkeypatch.setattr(jobs, "launch", lambda command, code=code, **how: code)
        with pytest.raises(StepError) as failed:
            job.do(Task(cell.name), quietly)
        assert str(failed.value) == f"evaluating ended ({reason})" and failed.value.was_killed is was_killed


def test_small_models_and_those_on_a_cpu_do_without_unless_vllm_generates() -> None:
    for scale in (LAB, replace(LAB, device="cuda"), replace(SMALL, device="cpu", engine="transformers")):
        assert is_call("train", scale) and is_call("evaluate", scale) and is_call("tokens", scale)
        with_vllm = replace(scale, engine="vllm")
        assert is_call("train", with_vllm) and not is_call("evaluate", with_vllm)
    assert not is_call("evaluate", SMALL)


def test_several_processes_are_launched_by_accelerate_and_on_a_cpu_by_torchrun() -> None:
    order, step = Path("order"), ["-m", "trimsft.study.running", "order"]
    assert command_of(order, 1, "cuda") == [sys.executable, *step]
    two = command_of(order, 2, "cuda")
    accelerate = ["-m", "accelerate.commands.launch", "--config_file", str(find_recipe("accelerate/fsdp2.yaml"))]
    assert two[1:5] == accelerate and two[-3:] == step and two[two.index("--num_processes") + 1] == "2"
    assert command_of(order, 2, "cpu")[1:5] == ["-m", "torch.distributed.run", "--nproc_per_node", "2"]


def test_updates_are_known_beforehand_where_the_data_is_the_labs() -> None:
    sft = Cell(model="lab", objective="sft")
    assert updates_of(LAB, sft) == 50 and updates_of(SMALL, Cell(model="smollm2", objective="sft")) == 0
    assert updates_of(LAB, replace(sft, fields=(("num_train_epochs", 2), ("per_device_train_batch_size", "25")))) == 96
    assert updates_of(LAB, Cell(model="lab", objective="base")) == 0


def test_tokens_are_measured_on_the_same_training_rows_in_every_cell(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    rows, rendering = write_token_rows(folder, LAB, Cell(model="lab", objective="sft", seed=2))
    trained = {json.loads(line)["problem"] for line in folder.training_data(0).read_text().splitlines()}
    assert len(rows) == LAB.table_rows and {row["problem"] for row in rows} <= trained
    losses = {"assistant_only_loss": False, "completion_only_loss": None}
    cut = {"max_length": 256, "truncation_mode": "keep_start"}
    assert rendering == {"template": "auto", "system_prompt": None, **cut, **losses}
    again, _ = write_token_rows(folder, LAB, Cell(model="lab", objective="base"))
    assert again == rows
