"""A tiny study of the lab from nothing to its tables; nothing is done twice."""

import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from trimsft.cli.study import outcomes_output
from trimsft.evaluate.scores import load_run
from trimsft.runs import RunDirectory
from trimsft.study import paper_tables, scales
from trimsft.study import run as running
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.results import load_results
from trimsft.study.run import CellState, Outcome, StudySettings, read_status, run_study
from trimsft.study.scales import LAB

BASE, SFT, TRIM = (Cell(model="lab", objective=objective) for objective in ("base", "sft", "trim"))


@pytest.fixture(autouse=True, scope="module")
def _three_methods() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(scales.SCALES, "lab", replace(LAB, compared=("base", "sft", "trim")))
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    out = tmp_path_factory.mktemp("study") / "out"
    (outcome,) = run_study(StudySettings(names=("main",), smoke=True, out=out, workers=1))
    return out, outcome


def run(name: str, out: Path) -> Outcome:
    (outcome,) = run_study(StudySettings(names=(name,), smoke=True, out=out))
    return outcome


def written(out: Path) -> dict[str, int]:
    files = [*out.glob("runs/**/model.safetensors"), *out.glob("runs/**/samples.jsonl")]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_every_cell_is_a_run_directory_with_scores(finished: tuple[Path, Outcome]) -> None:
    out, outcome = finished
    assert outcome.failures() == [] and set(outcome.done) == {BASE, SFT, TRIM}
    assert outcome.done[TRIM] == out / "runs" / "lab" / "trim-margin1.5-bandwidth0.8" / "seed0"
    trim, sft = (RunDirectory(outcome.done[cell]) for cell in (TRIM, SFT))
    assert trim.is_finished() and "objective" not in (trim.read_config() or {})  # trim is the default
    assert (sft.read_config() or {})["objective"] == "sft"
    assert {score.benchmark for score in load_run(trim.path)} == set(LAB.benchmarks)
    assert {state.state for state in read_status(out)} == {"done"}
    results = load_results([BASE, SFT, TRIM, Cell(model="lab", objective="dft")], out)
    assert set(results) == {BASE, SFT, TRIM}
    assert {(score.problems, score.samples) for scores in results.values() for score in scores} == {(2, 2)}


def test_a_second_study_shares_cells(finished: tuple[Path, Outcome]) -> None:
    out, outcome = finished
    lines = outcomes_output([outcome]).lines
    assert f"3 cells done: {out}" in lines and f"  {outcome.files[0]}" in lines
    before = written(out)
    weights = run("weights", out)
    assert set(weights.done) == {BASE} and weights.seconds == {} and weights.files
    again = run("main", out)
    assert again.seconds == {} and written(out) == before and again.files == outcome.files
    assert all(path.is_file() for path in again.files)


def test_tables_are_of_all_that_was_requested(finished: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = finished
    more, written_cells = Cell(model="lab", objective="sft", seed=2), list[Cell]()
    StudyFolder(out).settle(StudyFolder(out).read_scale(), [more])
    monkeypatch.setattr(running, "run_cells", lambda cells, *_, **__: Outcome(StudyFolder(out), {BASE: out}))
    monkeypatch.setattr(paper_tables, "write_study", lambda *given: written_cells.extend(given[2]) or [])
    run("main", out)
    assert written_cells == [BASE, SFT, more, TRIM]


@pytest.mark.usefixtures("inline")
def test_a_cell_or_a_table_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_tables, "write_study", lambda *_, **__: 1 / 0)
    blocked = StudyFolder(tmp_path).run(SFT)
    blocked.parent.mkdir(parents=True)
    blocked.touch()  # where a run directory belongs
    outcome = run("main", tmp_path)
    assert set(outcome.done) == {BASE, TRIM}
    failed, tables = outcome.failures()
    assert failed.startswith(f"lab/sft/seed0: {blocked}: cannot be used as a run directory")
    assert failed.endswith(f"see {blocked}/log.txt; rerun the command to try it again")
    assert tables == "tables of main: division by zero; rerun the command"


@pytest.mark.soak
def test_a_worker_that_is_killed_costs_time_and_nothing_else(finished: tuple[Path, Outcome], tmp_path: Path) -> None:
    """The same weights and samples as in a study that nobody disturbed; nobody is left behind."""
    out, killed = tmp_path / "out", list[str]()

    def kill_once(event: CellState) -> None:
        if event.state == "running" and event.note not in killed:
            killed.append(event.note)
            for worker in multiprocessing.active_children():
                os.kill(worker.pid or 0, signal.SIGKILL)

    settings = StudySettings(names=("main",), smoke=True, out=out, workers=1)
    for _ in range(20):
        (outcome,) = run_study(settings, on_event=kill_once)
        if not outcome.failures():
            break
    assert "training" in killed and len(killed) > 1, "each stage that is seen loses its worker once"
    assert outcome.failures() == [] and multiprocessing.active_children() == []
    undisturbed, _ = finished
    assert written(out).keys() == written(undisturbed).keys()
    for name in written(out):
        before, after = (folder.joinpath(name).read_bytes() for folder in (undisturbed, out))
        assert sorted(before.splitlines()) == sorted(after.splitlines()), name
    assert not [path for path in out.rglob(".*") if path.name not in (".claim", ".lock")]
