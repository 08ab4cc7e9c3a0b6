"""Cells side by side: none is repeated, one that fails is tried again and costs no other, and folders are shared."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import SCALE, SCORES, cells, finish, job_of
from trimsft.errors import RunError, UsageError
from trimsft.runs import RunDirectory, locked
from trimsft.study import run
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.plan import plan_cells
from trimsft.study.run import Event, Outcome, read_status
from trimsft.study.scales import ModelAt, Scale

inline = pytest.mark.usefixtures("inline")


def run_cells(asked: list[Cell], scale: Scale, out: Path, **options: object) -> Outcome:
    return run.run_cells(asked, scale, StudyFolder(out), **options)  # type: ignore[arg-type]


def attempts(out: Path, *some: Cell) -> list[int]:
    return [len(list(StudyFolder(out).run(cell).glob("attempt-*"))) for cell in some]


@inline
def test_a_failed_cell_is_tried_again_and_costs_no_other(tmp_path: Path) -> None:
    events: list[Event] = []
    good, flaky, bad, dying = asked = cells("good", "flaky", "bad", "dying")
    outcome = run_cells(asked, SCALE, tmp_path, retries=1, on_event=events.append)
    assert outcome.done == {cell: tmp_path / "runs" / cell.name for cell in (good, flaky)}
    assert outcome.failed == {bad: "learning_rate: must not be below 0, got -1", dying: "killed"}
    assert attempts(tmp_path, *asked) == [1, 2, 2, 0]
    assert {event.cell for event in events if event.state == "retrying"} == {flaky, bad, dying}
    states = {state.cell: (state.state, state.note) for state in read_status(tmp_path)}
    assert states[good] == states[flaky] == ("done", "")
    assert states[bad] == ("failed", outcome.failed[bad]) and states[dying] == ("failed", "killed")
    again = run_cells(asked, SCALE, tmp_path, retries=0)  # what is done stays, the rest is tried
    assert again.done.keys() == outcome.done.keys() and again.failed.keys() == outcome.failed.keys()
    assert attempts(tmp_path, *asked) == [1, 2, 3, 0]


@inline
def test_more_of_cells_without_weights_is_refused(tmp_path: Path) -> None:
    scale = replace(SCALE, keep_weights=False)
    job = job_of(tmp_path, scale)
    one, _ = trained = cells("good", seeds=2)
    for cell in trained:
        finish(job, cell)
        job.folder.tokens(cell).touch()
        RunDirectory(job.folder.run(cell)).write_manifest(weights="dropped")
    run_cells(trained, scale, tmp_path)
    more = replace(scale, benchmarks=("toy", "another"))
    with pytest.raises(RunError, match=r"good/sft/seed0 has no weights any more.*; ask for.*--keep"):
        run_cells(trained, more, tmp_path)
    with pytest.raises(RunError, match="has no weights any more"):
        plan_cells([one], more, StudyFolder(tmp_path), SCORES)
    assert StudyFolder(tmp_path).read_scale().benchmarks == ("toy",)


@inline
def test_a_study_without_flash_attention_records_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimsft.train.config.has_flash_attention", lambda: False)
    scale = replace(SCALE, device="cuda", models={"good": ModelAt(path="good", recipe="qwen3-4b-base.yaml")})
    for seeds in (1, 2):  # the same once more is no other scale
        run_cells(cells("good", seeds=seeds), scale, tmp_path)
        assert StudyFolder(tmp_path).read_scale().defaults["attn_implementation"] == "sdpa"


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


@pytest.mark.usefixtures("stubs")
def test_cells_of_others_are_left_to_them_and_taken_over(tmp_path: Path) -> None:
    finished, dropped, ours = cells("good", seeds=3)
    locks = contextlib.ExitStack()
    for cell in (finished, dropped):
        locks.enter_context(locked(StudyFolder(tmp_path).claim(cell)))
    seen: list[tuple[Cell, str, str]] = []

    def follow(event: Event) -> None:
        seen.append((event.cell, event.state, event.note))
        if event.state == "done" and event.cell == ours:
            states = {state.cell: state for state in read_status(tmp_path)}
            assert states[dropped].state == "running" and states[dropped].note.startswith("training, process ")
            finish(job_of(tmp_path), finished)
            locks.close()

    outcome = run_cells([finished, dropped, ours], SCALE, tmp_path, workers=1, on_event=follow)
    assert set(outcome.done) == {finished, dropped, ours} and set(outcome.seconds) == {dropped, ours}
    holders = {cell: note for cell, state, note in seen if state == "elsewhere" and note}
    assert set(holders) == {finished, dropped}
    assert all(holder.startswith("process ") and " on " in holder for holder in holders.values())
    assert attempts(tmp_path, finished, dropped, ours) == [0, 1, 1]


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for wrong, scale, options, message in (
        ("good", SCALE, {"executor": "slurm"}, "executor: unknown name 'slurm'; known: local, ray"),
        ("good", SCALE, {"needs": frozenset({"figures"})}, "needs: unknown name 'figures'"),
        ("lost", SCALE, {}, "models: unknown name 'lost'"),
        ("good", replace(SCALE, device="cuda"), {}, "gpus: good/sft/seed0 needs 1 and there are 0"),
    ):
        with pytest.raises(UsageError, match=message):
            run_cells(cells(wrong), scale, out, **options)
    assert not out.exists()
