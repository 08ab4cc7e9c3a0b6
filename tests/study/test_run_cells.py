"""Cells side by side: none is repeated, one that fails costs no other, and folders are shared."""

import contextlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, cells
from trimsft.errors import RunError, RunInUse, UsageError
from trimsft.runs import locked
from trimsft.study import run
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.run import CellState, Outcome, read_status
from trimsft.study.scales import ModelAt, Scale

inline = pytest.mark.usefixtures("inline")


def run_cells(asked: list[Cell], scale: Scale, out: Path, **options: object) -> Outcome:
    return run.run_cells(asked, scale, StudyFolder(out), **options)  # type: ignore[arg-type]


def attempts(out: Path, *some: Cell) -> list[int]:
    return [len(list(StudyFolder(out).run(cell).glob("attempt-*"))) for cell in some]


@inline
def test_a_failed_cell_costs_no_other_and_is_tried_by_the_next_start(tmp_path: Path) -> None:
    good, flaky, bad, dying = asked = cells("good", "flaky", "bad", "dying")
    outcome = run_cells(asked, SCALE, tmp_path)
    assert outcome.done == {good: tmp_path / "runs" / good.name}
    reason = "learning_rate: must not be below 0, got -1"
    assert outcome.failed == {flaky: reason, bad: reason, dying: "killed"}
    states = {state.cell: (state.state, state.note) for state in read_status(tmp_path)}
    assert states == {
        good: ("done", ""),
        flaky: ("failed", reason),
        bad: ("failed", reason),
        dying: ("failed", "killed"),
    }
    again = run_cells(asked, SCALE, tmp_path)  # what is done stays, the rest is tried
    assert set(again.done) == {good, flaky} and set(again.failed) == {bad, dying}
    assert attempts(tmp_path, *asked) == [1, 2, 2, 0]


@inline
def test_a_study_grows_by_seeds_and_models(tmp_path: Path) -> None:
    run_cells(cells("good"), SCALE, tmp_path)
    grown = cells("good", seeds=2)
    outcome = run_cells(grown, SCALE, tmp_path)
    assert set(outcome.done) == set(grown) and attempts(tmp_path, *grown) == [1, 1]
    assert list(outcome.seconds) == [grown[1]]
    other = replace(SCALE, models={"new": ModelAt(path="elsewhere")}, benchmarks=("toy",))
    run_cells(cells("new"), other, tmp_path)
    assert set(StudyFolder(tmp_path).read_scale().models) == {*SCALE.models, "new"}
    with pytest.raises(RunError, match="samples: was 8, now 3"):
        run_cells(cells("good"), replace(SCALE, samples=3), tmp_path)
    with pytest.raises(RunError, match=r"models\.new\.path: was 'elsewhere', now 'there'"):
        run_cells(cells("new"), replace(other, models={"new": ModelAt(path="there")}), tmp_path)


@inline
def test_a_second_process_is_refused_and_told_who_works_there(tmp_path: Path) -> None:
    first = "from trimsft.runs import RunDirectory; import sys, time\n"
    first += "with RunDirectory(sys.argv[1]).lock(): print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", first, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(RunInUse, match=f"{tmp_path}: in use by process {other.pid} on "):
            run_cells(cells("good"), SCALE, tmp_path)
        other.kill()
    assert attempts(tmp_path, *cells("good")) == [0]


@pytest.mark.usefixtures("stubs")
def test_a_cell_that_an_orphan_still_saves_is_waited_for(tmp_path: Path) -> None:
    (cell,), states = cells("good"), list[CellState]()
    orphan = contextlib.ExitStack()
    orphan.enter_context(locked(StudyFolder(tmp_path).claim(cell)))

    def end_orphan(event: CellState) -> None:
        if event.state == "running":
            states.extend(read_status(tmp_path))
            orphan.close()

    assert set(run_cells([cell], SCALE, tmp_path, on_event=end_orphan).done) == {cell}
    assert states[0].state == "running" and states[0].note.startswith("training, process ")


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for model, device, message in (
        ("lost", "cpu", "models: unknown name 'lost'"),
        ("good", "cuda", "gpus: a training needs 1 and there are 0"),
    ):
        with pytest.raises(UsageError, match=message):
            run_cells(cells(model), replace(SCALE, device=device), out)
    assert not out.exists()
