"""What is done for one cell: only what is missing, weights that are dropped, and what a failed command said."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, cells, finish
from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running.execution import all_needs
from trimsft.study.running.steps import CellJob, StepError, evaluate, is_call, last_word, launch_command
from trimsft.study.running.training import write_token_rows
from trimsft.study.scales import LAB, SMALL, find_recipe

BOTH = frozenset({"scores", "tokens"})


def make_job(out: Path, *, keep: bool = True) -> tuple[CellJob, Cell]:
    (cell,) = cells("good")
    return CellJob(Place(out), replace(SCALE, keep_weights=keep), BOTH, {cell.name: cell}), cell


def quietly(*what: object, **how_far: object) -> None:
    pass


def test_steps_that_are_done_are_not_missing(tmp_path: Path) -> None:
    job, cell = make_job(tmp_path)
    assert job.missing(cell) == ["train", "evaluate", "tokens"]
    assert job.missing(Cell(model="good", objective="base")) == ["evaluate", "tokens"]
    finish(job, cell)
    assert job.missing(cell) == ["tokens"]
    job.place.tokens(cell).touch()
    assert job.missing(cell) == []
    more = replace(job, scale=replace(job.scale, benchmarks=("toy", "another")))
    assert more.missing(cell) == ["evaluate"]


@pytest.mark.parametrize("keep", [True, False])
def test_weights_go_once_nothing_needs_them(tmp_path: Path, keep: bool) -> None:
    job, cell = make_job(tmp_path, keep=keep)
    run = RunDirectory(job.place.run(cell))
    weights, config = run.model_dir / "model.safetensors", run.model_dir / "config.json"
    checkpoint = run.train_dir / "checkpoint-50"
    for path in (weights, config, checkpoint / "optimizer.pt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    finish(job, cell)
    assert all_needs(job.scale, {"scores"}) == (BOTH if not keep else {"scores"})
    job.place.tokens(cell).touch()
    assert job.do(cell.name, quietly) == {}
    assert (weights.exists(), checkpoint.exists(), config.exists()) == (keep, keep, True)
    assert job.place.is_done(cell, job.scale, BOTH)
    if not keep:
        with pytest.raises(StepError, match="its weights were deleted after its evaluation; to measure more, remove"):
            evaluate(job, cell, quietly)


def test_weights_stay_while_there_are_no_scores(tmp_path: Path) -> None:
    job, cell = make_job(tmp_path, keep=False)
    job = replace(job, needs=all_needs(job.scale, {"tokens"}))
    run = RunDirectory(job.place.run(cell))
    run.model_dir.mkdir(parents=True)
    (run.model_dir / "model.safetensors").touch()
    run.mark_finished()
    job.place.tokens(cell).touch()
    job.do(cell.name, quietly)
    assert (run.model_dir / "model.safetensors").exists()


def test_a_done_cell_has_no_failure_any_more(tmp_path: Path) -> None:
    job, cell = make_job(tmp_path)
    job.place.note_failure(cell, "disk full")
    assert job.place.read_failure(cell) == "disk full"
    finish(job, cell)
    job.place.tokens(cell).touch()
    job.do(cell.name, quietly)
    assert job.place.read_failure(cell) == ""


def test_with_gpus_a_step_is_a_process_of_its_own_and_says_why_it_failed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job, cell = make_job(tmp_path)
    job = replace(job, scale=replace(job.scale, device="cuda", rows=None), needs=frozenset({"scores"}))
    run = RunDirectory(job.place.run(cell))
    run.mark_finished()
    run.write_manifest(weights="dropped")
    with pytest.raises(StepError, match="evaluating ended with exit code 1"):
        job.do(cell.name, quietly)
    assert "\ntrimsft: its weights were deleted after its evaluation" in capfd.readouterr().err


def test_small_models_and_those_on_a_cpu_do_without_unless_vllm_generates() -> None:
    for scale in (LAB, replace(LAB, device="cuda"), replace(SMALL, device="cpu", engine="transformers")):
        assert is_call("train", scale) and is_call("evaluate", scale) and is_call("tokens", scale)
        with_vllm = replace(scale, engine="vllm")
        assert is_call("train", with_vllm) and not is_call("evaluate", with_vllm)
    assert not is_call("evaluate", SMALL)


def test_what_a_command_said_last_is_found_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert last_word(log) == ""
    log.write_text("trimsft: estimate: 3 GiB\nKeyError: old\n")
    before = log.stat().st_size
    with log.open("a") as file:
        file.write("Traceback (most recent call last):\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.\nbye\n")
    assert last_word(log, before) == "torch.OutOfMemoryError: CUDA out of memory."
    with log.open("a") as file:
        file.write("trimsft: max_length: 2 leaves no trained token\nUserWarning: nothing\n")
    assert last_word(log, before) == "max_length: 2 leaves no trained token"
    assert last_word(log, log.stat().st_size) == ""


def test_several_processes_are_launched_by_accelerate() -> None:
    one = launch_command(["--objective", "sft"], 1, "cuda")
    assert one == [sys.executable, "-m", "trimsft", "train", "--objective", "sft"]
    two = launch_command(["--objective", "sft"], 2, "cuda")
    assert two[1:5] == [
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        str(find_recipe("accelerate/fsdp2.yaml")),
    ]
    assert two[two.index("--num_processes") + 1] == "2"
    assert two[-5:] == ["-m", "trimsft", "train", "--objective", "sft"]


def test_tokens_are_measured_on_the_same_training_rows_in_every_cell(tmp_path: Path) -> None:
    place = Place(tmp_path)
    rows, rendering = write_token_rows(place, LAB, Cell(model="lab", objective="sft", seed=2))
    trained = {json.loads(line)["problem"] for line in place.training_data(0).read_text().splitlines()}
    assert len(rows) == LAB.table_rows and {row["problem"] for row in rows} <= trained
    assert rendering == {"template": "auto", "system_prompt": None, "max_length": 256}
    again, _ = write_token_rows(place, LAB, Cell(model="lab", objective="base"))
    assert again == rows
