"""`--dry-run` of a study: which cells are missing, and what they take on named GPUs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.study.stub import finish, job_of
from trimsft import cli
from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import plan_cells
from trimsft.study.scales import LAB, SCALES

PAPER = SCALES["paper"]

CELLS = [Cell(model="Qwen2.5-Math-1.5B", objective=name) for name in ("base", "sft")]


def test_what_is_done_is_not_planned(tmp_path: Path) -> None:
    scale, sft = replace(LAB, benchmarks=("toy",)), Cell(model="lab", objective="sft")
    assert plan_cells([sft], scale, StudyFolder(tmp_path)).cells == [sft.name]
    finish(job_of(tmp_path, scale), sft)
    plan = plan_cells([sft], scale, StudyFolder(tmp_path))
    assert (plan.cells, plan.already_done, plan.gpu_hours) == ([], 1, None)


def test_hours_memory_and_downloads_of_the_paper(tmp_path: Path) -> None:
    plan = plan_cells(CELLS, PAPER, StudyFolder(tmp_path / "out"), "2xA6000")
    base = plan_cells(CELLS[:1], PAPER, StudyFolder(tmp_path / "out"), "2xA6000")
    # recomputed layers: 8 operations for each parameter and token; then one of two GPUs waits for the other
    training = 8 * 1.54e9 * 20_000 * 526 / (155e12 * 0.5) / 3600
    assert plan.gpu_hours - 3 * base.gpu_hours == pytest.approx(training, rel=0.15)
    assert "to download: Qwen/Qwen2.5-Math-1.5B, licence apache-2.0" in plan.notes
    assert "Qwen2.5-Math-1.5B: about 15 GiB of each GPU in training" in plan.notes


def test_what_cannot_fit_names_the_way_out(tmp_path: Path) -> None:
    large = [Cell(model="Llama3.1-8B", objective="sft")]
    with pytest.raises(UsageError, match=r"gpus: a step takes .*; with dtype=bfloat16 and bf16=false"):
        plan_cells(large, PAPER, StudyFolder(tmp_path), "2xA6000")
    with pytest.raises(UsageError, match="gpus: has no effect on a CPU"):
        plan_cells([Cell(model="lab", objective="sft")], LAB, StudyFolder(tmp_path), "2xA6000")


def test_the_commands_print_a_plan(tmp_path: Path) -> None:
    words = ["study", "run", "main", "--scale", "paper", "--model", "Qwen2.5-Math-1.5B", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(cli.app, [*words, "--dry-run", "--gpus", "2xA6000"]).stdout
    assert "5 cells to run, 0 done, " in shown and "GPU hours" in shown
    sweep = ["sweep", "--grid", "margin=0,1", "--model", "mine=lab", "--dry-run", "--out", str(tmp_path / "out")]
    missing = json.loads(CliRunner().invoke(cli.app, [*sweep, "--json"]).stdout)
    points = [f"mine/trim-margin{margin}-bandwidth0.8/seed0" for margin in (0, 1)]
    assert (missing["cells"], missing["gpu_hours"]) == (["mine/sft/seed0", *points], None)
    refused = CliRunner().invoke(cli.app, [*words, "--gpus", "2xA6000"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1) and "--dry-run" in refused.stderr
    assert not (tmp_path / "out").exists()
