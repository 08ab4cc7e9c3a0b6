"""The work on one cell and its folder: what is missing, weights that are dropped, ranks, damaged files, refusals."""

import json
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.study.stub import SCALE, cells, finish, is_running
from trimsft.errors import RunError, TrimSFTError, UsageError
from trimsft.runs import RunDirectory
from trimsft.shipped import find_recipe
from trimsft.study import folder as steps
from trimsft.study.cell import Cell
from trimsft.study.folder import Job, StudyFolder, check_study, launch_command, token_rows, training_settings
from trimsft.study.run import read_status, run_cells
from trimsft.study.scales import LAB, SCALES, ModelAt, Scale, ScaleOptions

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


@pytest.mark.parametrize(("script", "reason"), [("exit(3)", "code 3"), ("os.kill(os.getpid(), 9)", "code -9")])
def test_ranks_that_fail_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str) -> None:
    job, cell = make_job(tmp_path)
    job = replace(job, scale=replace(job.scale, models={"good": ModelAt(path="good", gpus=2)}))
    monkeypatch.setattr(steps, "launch_command", lambda *_: [sys.executable, "-c", f"import os; {script}"])
    with pytest.raises(TrimSFTError, match=f"the training ended .*{reason}"):
        job.run(cell)


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


def test_accelerate_launches_ranks_on_gpus_and_torchrun_elsewhere() -> None:
    words = ["train", "--config", "x.yaml"]
    two = launch_command(2, "cuda", words)
    accelerate = ["-m", "accelerate.commands.launch", "--config_file", str(find_recipe("accelerate/fsdp2.yaml"))]
    assert two[1:5] == accelerate and two[two.index("--num_processes") + 1] == "2"
    assert two[-5:] == ["-m", "trimsft", *words]
    assert launch_command(2, "cpu", words)[1:5] == ["-m", "torch.distributed.run", "--nproc_per_node", "2"]


def test_a_process_ends_with_its_step_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, cell = make_job(tmp_path)
    job = replace(job, scale=replace(job.scale, device="cuda", rows=None))
    monkeypatch.setattr(steps, "redirect_output", lambda _: None)
    monkeypatch.setattr(Job, "train", finish)
    assert job.attempt(cell).seconds.keys() == {"train"}


def test_every_cell_measures_the_same_rows(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    rows, rendering = token_rows(folder, LAB, Cell(model="lab", objective="sft", seed=2))
    trained = {json.loads(line)["problem"] for line in folder.training_data(0).read_text().splitlines()}
    assert len(rows) == LAB.table_rows and {row["problem"] for row in rows} <= trained
    losses = {"completion_only_loss": None}
    cut = {"max_length": 256, "truncation_mode": "keep_start"}
    assert rendering == {"template": "auto", "system_prompt": None, **cut, **losses}
    again, _ = token_rows(folder, LAB, Cell(model="lab", objective="base"))
    assert again == rows


# ---- damaged files, secrets, links

CELL, TINY = Cell(model="lab", objective="sft"), replace(LAB, rows=4, table_rows=2)
DEEP = "[" * 100_000


def records(**cell: Any) -> str:
    return json.dumps([CELL.as_dict() | cell])


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    folder = StudyFolder(tmp_path / "study")
    folder.settle(TINY, [CELL])
    return folder


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.yaml", text) for text in ("3", "a: &a [*a]")),
        *(("config.yaml", change) for change in ({"benchmarks": []}, {"rows": "many"})),
        *(("cells.json", text) for text in (DEEP, '[{"model": "lab"}]', records(model="../x"))),
    ],
)
def test_a_damaged_file_is_named_in_one_line(folder: StudyFolder, file: str, content: Any) -> None:
    path = folder.out / file
    path.write_text(content if isinstance(content, str) else json.dumps(asdict(TINY) | content))
    with pytest.raises(RunError) as refusal:
        read_status(folder.out)
    assert str(path) in str(refusal.value) and len(str(refusal.value)) < 400


def test_a_failure_is_kept_without_secrets(folder: StudyFolder) -> None:
    folder.note_failure(CELL, "cannot reach https://me:hunter2@host/x")
    assert folder.failure(CELL).read_text() == "cannot reach https://***@host/x"
    with pytest.raises(UsageError, match="'hub_token' is a secret, which a study writes down; set HF_TOKEN"):
        ScaleOptions(fields=("hub_token=hf_x",)).to_scale()


def test_damaged_rows_are_named(folder: StudyFolder) -> None:
    folder.token_rows.parent.mkdir(parents=True, exist_ok=True)
    folder.token_rows.write_text('{"problem": "a", "solution": "b"}\n{"prob')
    with pytest.raises(UsageError, match=r"token-rows\.jsonl, line 2: not usable JSON"):
        token_rows(folder, TINY, CELL)


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


def test_without_flash_attention_cells_train_with_sdpa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sft = Cell(model="Qwen2.5-Math-1.5B", objective="sft")

    def attention(scale: Scale) -> Any:
        return training_settings(StudyFolder(tmp_path), scale, sft).model.attn_implementation

    for is_there, found in ((False, "sdpa"), (True, "flash_attention_2")):
        monkeypatch.setattr("trimsft.train.config.has_flash_attention", lambda is_there=is_there: is_there)
        assert attention(PAPER) == found
        assert attention(replace(PAPER, device="cpu")) == "sdpa"
        eager = {**PAPER.defaults, "attn_implementation": "eager"}
        assert attention(replace(PAPER, defaults=eager)) == "eager", "what was asked for"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmarks": ("lab-easy", "gone.jsonl")}, "benchmarks: no such file: 'gone.jsonl'"),
        ({"sampling": {"temperature": -1}}, "temperature: must be at least 0"),
    ],
)
def test_what_no_evaluation_would_take_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)):
        check_study(replace(LAB, **change), StudyFolder(tmp_path / "out"))


def test_a_run_asks_the_hub_and_a_dry_run_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*what: Any, **how: Any) -> None:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    scale = replace(LAB, benchmarks=("lab-easy", "math500"))
    check_study(scale, StudyFolder(tmp_path))
    with pytest.raises(UsageError, match=r"'math500'"):
        check_study(scale, StudyFolder(tmp_path), is_at_hand=True)
    check_study(LAB, StudyFolder(tmp_path), is_at_hand=True)
