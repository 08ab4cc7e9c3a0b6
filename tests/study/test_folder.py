"""The work on one cell and its folder: what is missing, weights that are dropped, ranks, refusals."""

import json
import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.study.stub import SCALE, cells, finish, is_running
from trimsft.errors import RunError, UsageError
from trimsft.runs import RunDirectory
from trimsft.study import folder as steps
from trimsft.study.cell import Cell
from trimsft.study.folder import Job, StudyFolder, check_study, token_rows, training_settings
from trimsft.study.run import run_cells
from trimsft.study.scales import LAB, SCALES, ScaleOptions

PAPER = SCALES["paper"]


def make_job(out: Path, *, keep: bool = True) -> tuple[Job, Cell]:
    (cell,) = cells("good")
    return Job(StudyFolder(out), replace(SCALE, keep_weights=keep)), cell


def test_steps_that_are_done_are_not_missing(tmp_path: Path) -> None:
    job, cell = make_job(tmp_path)
    assert job.missing(cell) == ["train", "evaluate", "tokens"]
    assert job.missing(Cell(model="good", objective="base")) == ["evaluate", "tokens"]
    job.folder.note_failure(cell, "disk full")
    finish(job, cell)
    assert job.missing(cell) == []
    more = replace(job, scale=replace(job.scale, benchmarks=("toy", "another")))
    assert more.missing(cell) == ["evaluate"]
    job.run(cell)
    assert not job.folder.failure(cell).exists(), "a done cell has none any more"


@pytest.mark.parametrize("keep", [True, False])
def test_weights_go_once_nothing_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool) -> None:
    job, cell = make_job(tmp_path, keep=keep)
    run = RunDirectory(job.folder.run(cell))
    weights, config = run.model_dir / "model.safetensors", run.model_dir / "config.json"
    checkpoint = run.train_dir / "checkpoint-50"
    for path in (weights, config, checkpoint / "optimizer.pt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    finish(job, cell)
    job.folder.tokens(cell).unlink()
    monkeypatch.setattr(Job, "measure", lambda *_: None)
    job.run(cell)
    assert weights.exists(), "its tokens are not measured yet"
    job.folder.tokens(cell).touch()
    assert job.run(cell) == {} and job.missing(cell) == []
    assert (weights.exists(), checkpoint.exists(), config.exists()) == (keep, keep, True)


def test_an_interruption_ends_the_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, cell = make_job(tmp_path)
    pid = tmp_path / "pid"
    script = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"

    def interrupt(seconds: float) -> None:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(steps, "launch_command", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(steps, "time", SimpleNamespace(sleep=interrupt))
    with pytest.raises(KeyboardInterrupt):
        job._launch(cell)
    assert not is_running(int(pid.read_text()))


def test_every_cell_measures_the_same_rows(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    rows, rendering = token_rows(folder, LAB, Cell(model="lab", objective="sft", seed=2))
    trained = {json.loads(line)["problem"] for line in folder.training_data(0).read_text().splitlines()}
    assert len(rows) == LAB.table_rows and {row["problem"] for row in rows} <= trained
    assert (rendering["template"], rendering["max_length"]) == ("auto", 256)
    again, _ = token_rows(folder, LAB, Cell(model="lab", objective="base"))
    assert again == rows


# ---- secrets, links

CELL, TINY = Cell(model="lab", objective="sft"), replace(LAB, rows=4, table_rows=2)


def test_a_failure_is_kept_without_secrets(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.note_failure(CELL, "cannot reach https://me:hunter2@host/x")
    assert folder.failure(CELL).read_text() == "cannot reach https://***@host/x"
    with pytest.raises(UsageError, match="'hub_token' is a secret"):
        ScaleOptions(fields=("hub_token=hf_x",)).to_scale()


@pytest.mark.parametrize("place", ["data", "runs/lab", "runs/lab/sft/seed0/log.txt", ".lock"])
def test_a_study_with_a_link_in_it_is_not_written(tmp_path: Path, place: str) -> None:
    link, target = tmp_path / "study" / place, tmp_path / "target"
    link.parent.mkdir(parents=True)
    target.write_text("kept")
    link.symlink_to(target)
    with pytest.raises(RunError, match="is a link, which is not written through") as refused:
        run_cells([], TINY, StudyFolder(tmp_path / "study"))
    assert str(refused.value).startswith(f"{link}: ") and target.read_text() == "kept"


# ---- what is looked at before anything is run


@pytest.mark.parametrize(("is_there", "attention"), [(False, "sdpa"), (True, "flash_attention_2")])
def test_without_flash_attention_cells_train_with_sdpa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, attention: str
) -> None:
    monkeypatch.setattr("trimsft.train.config.has_flash_attention", lambda: is_there)
    sft = Cell(model="Qwen2.5-Math-1.5B", objective="sft")
    eager = {**PAPER.defaults, "attn_implementation": "eager"}  # what was asked for
    for scale, one in ((PAPER, attention), (replace(PAPER, defaults=eager), "eager")):
        assert training_settings(StudyFolder(tmp_path), scale, sft).model.attn_implementation == one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmarks": ("lab-easy", "gone.jsonl")}, "benchmarks: no such file: 'gone.jsonl'"),
        ({"sampling": {"temperature": -1}}, "temperature: must be at least 0"),
    ],
)
def test_what_no_evaluation_would_take_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        check_study(replace(LAB, **change), StudyFolder(tmp_path / "out"), [CELL])


def test_other_code_of_an_own_objective_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, folder = Cell(model="lab", objective="examples.own_objective:Contest"), StudyFolder(tmp_path)
    for code, can_go_on in (("before", True), ("after", False)):
        monkeypatch.setattr(steps, "fingerprint_objective", lambda _, code=code: [code])
        with nullcontext() if can_go_on else pytest.raises(RunError, match="holds a run with other code"):
            steps.check_code(folder, [own])
        RunDirectory(folder.run(own)).write_manifest(objective={"fingerprint": ["before"]})
