"""Cells side by side: none is repeated, one that fails is tried again and costs no other, and folders are shared."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.stub import KILLED, SCALE, SCORES, InlineCrew, StubJob, cells, finish, job_of
from trimsft.errors import RunError, UsageError
from trimsft.runs import RunDirectory, RunLock
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running import checks, execution
from trimsft.study.running.execution import Event, Outcome, in_order
from trimsft.study.running.job import CellJob
from trimsft.study.running.planning import plan_cells
from trimsft.study.running.status import read_status
from trimsft.study.running.workers import Done, Failed, Message, Task
from trimsft.study.scales import ModelAt, Scale


@pytest.fixture(autouse=True)
def _stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "CellJob", StubJob)
    monkeypatch.setattr(execution, "POLL", 0.05)


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "make_crew", lambda job, executor, workers, cells: InlineCrew(job))


inline = pytest.mark.usefixtures("_inline")


def run_cells(asked: list[Cell], scale: Scale, out: Path, **options: object) -> Outcome:
    return execution.run_cells(asked, scale, StudyFolder(out), **options)  # type: ignore[arg-type]


def count_states(out: Path) -> Counter[str]:
    return Counter(state.state for state in read_status(out))


def attempts(out: Path, cell: Cell) -> int:
    return len(list(StudyFolder(out).run(cell).glob("attempt-*")))


@inline
def test_a_cell_that_fails_is_tried_again_and_costs_no_other(tmp_path: Path) -> None:
    events: list[Event] = []
    good, flaky, bad, dying = asked = cells("good", "flaky", "bad", "dying")
    outcome = run_cells(asked, SCALE, tmp_path, retries=1, on_event=events.append)
    assert outcome.done == {cell: tmp_path / "runs" / cell.name for cell in (good, flaky)}
    assert outcome.failed == {bad: "learning_rate: must not be below 0, got -1", dying: KILLED}
    assert [attempts(tmp_path, cell) for cell in asked] == [1, 2, 2, 2]
    assert {event.cell for event in events if event.state == "retrying"} == {flaky, bad, dying}
    states = {state.cell: (state.state, state.note) for state in read_status(tmp_path)}
    assert states[good] == states[flaky] == ("done", "")
    assert states[bad] == ("failed", outcome.failed[bad])
    assert states[dying] == ("failed", outcome.failed[dying])

    again = run_cells(asked, SCALE, tmp_path, retries=0)  # what is done stays, the rest is tried
    assert again.done.keys() == outcome.done.keys() and again.failed.keys() == outcome.failed.keys()
    assert [attempts(tmp_path, cell) for cell in asked] == [1, 2, 3, 3]


@inline
def test_the_last_trainings_go_before_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two a core: then no core waits for the training of another. What is trained already is evaluated in its turn."""
    steps: list[str] = []

    class Stepwise(CellJob):
        def _timed(self, cell: Cell, step: str, tell: object) -> float:
            steps.append(f"{step} {cell.seed}")
            if step == "train":
                RunDirectory(self.folder.run(cell)).mark_finished()
            else:
                finish(self, cell)
            return 1.0

    monkeypatch.setattr(execution, "CellJob", Stepwise)
    monkeypatch.setattr(InlineCrew, "cores", 1)
    asked = cells("good", seeds=5)
    RunDirectory(StudyFolder(tmp_path).run(asked[3])).mark_finished()
    outcome = run_cells(asked, SCALE, tmp_path)
    whole = ["train 0", "evaluate 0", "train 1", "evaluate 1"]
    assert steps == [*whole, "train 2", "evaluate 3", "train 4", "evaluate 2", "evaluate 4"]
    assert set(outcome.done) == set(asked) and outcome.seconds[asked[4]] == {"train": 1.0, "evaluate": 1.0}
    steps.clear()
    run_cells(asked, replace(SCALE, keep_weights=False), tmp_path / "dropped")  # weights of one cell at a time
    assert steps[-6:] == [f"{step} {seed}" for seed in (3, 4) for step in ("train", "evaluate", "tokens")]


@inline
def test_a_model_whose_trainings_all_fail_alike_is_given_up_after_two(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = cells("bad", seeds=4)
    asked = [*bad, *cells("good")]
    outcome = run_cells(asked, SCALE, tmp_path, retries=1)
    assert set(outcome.done) == set(cells("good")) and set(outcome.failed) == set(bad[:2])
    assert [attempts(tmp_path, cell) for cell in bad] == [1, 1, 0, 0]
    assert caplog.messages == ["bad: 2 more trainings would fail alike and stay missing"]
    assert count_states(tmp_path) == {"done": 1, "failed": 2, "missing": 2}


def test_a_cell_whose_second_attempt_was_under_way_when_its_kind_was_given_up_is_done_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = asked = cells("flaky", seeds=2)

    class Crew(InlineCrew):
        def work(self, waiting: list[Task]) -> Iterator[Message]:
            first, second = waiting.pop(0), waiting.pop(0)  # both at once
            yield Failed(first, "too little memory")
            again = waiting.pop(0)
            yield Failed(second, "too little memory")
            assert again == first and not waiting, "those that fail alike are given up"
            finish(self._job, one)
            yield Done(again, {})

    monkeypatch.setattr(execution, "make_crew", lambda job, executor, workers, cells: Crew(job))
    outcome = run_cells(asked, SCALE, tmp_path, retries=1)
    assert set(outcome.done) == {one} and set(outcome.failed) == {other}


@inline
def test_other_settings_and_trainings_that_had_begun_are_tried(tmp_path: Path) -> None:
    rates = [Cell(model="bad", objective="sft", fields=(("learning_rate", rate),)) for rate in (1, 2, 3)]
    run_cells(rates, SCALE, tmp_path, retries=0)
    assert [attempts(tmp_path, cell) for cell in rates] == [1, 1, 1]
    begun = cells("bad", seeds=3)
    for cell in begun:
        telemetry = RunDirectory(StudyFolder(tmp_path).run(cell)).telemetry_path
        telemetry.parent.mkdir(parents=True)
        telemetry.write_text("{}\n")
    run_cells(begun, SCALE, tmp_path, retries=0)
    assert [attempts(tmp_path, cell) for cell in begun] == [1, 1, 1]


@inline
def test_more_of_cells_whose_weights_are_gone_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    scale = replace(SCALE, keep_weights=False)
    job = job_of(tmp_path, scale=scale)
    one, _ = trained = cells("good", seeds=2)
    for cell in trained:
        finish(job, cell)
        job.folder.tokens(cell).touch()
        RunDirectory(job.folder.run(cell)).write_manifest(weights="dropped")
    run_cells(trained, scale, tmp_path)
    more = replace(scale, benchmarks=("toy", "another"))
    with pytest.raises(RunError, match=r"2 cells have no weights any more.*such as good/sft/seed0; ask for") as told:
        run_cells(trained, more, tmp_path)
    assert "--keep-weights" in str(told.value) and "\n" not in str(told.value)
    with pytest.raises(RunError, match="1 cell has no weights any more"):
        plan_cells([one], more, StudyFolder(tmp_path), SCORES)
    assert StudyFolder(tmp_path).read_scale().benchmarks == ("toy",)


@inline
def test_a_study_without_flash_attention_records_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_flash_attention", lambda: False)
    scale = replace(SCALE, device="cuda", models={"good": ModelAt(path="good", recipe="qwen3-4b-base.yaml")})
    for seeds in (1, 2):  # the same once more is no other scale
        run_cells(cells("good", seeds=seeds), scale, tmp_path)
        assert StudyFolder(tmp_path).read_scale().defaults["attn_implementation"] == "sdpa"


@inline
def test_a_study_is_extended_by_seeds_and_models_and_repeats_nothing(tmp_path: Path) -> None:
    run_cells(cells("good"), SCALE, tmp_path)
    grown = cells("good", seeds=2)
    outcome = run_cells(grown, SCALE, tmp_path)
    assert set(outcome.done) == set(grown) and [attempts(tmp_path, cell) for cell in grown] == [1, 1]
    assert list(outcome.seconds) == [grown[1]]
    other = replace(SCALE, models={"new": ModelAt(path="elsewhere")}, benchmarks=("toy",))
    run_cells(cells("new"), other, tmp_path)
    assert set(StudyFolder(tmp_path).read_scale().models) == {*SCALE.models, "new"}
    with pytest.raises(RunError, match="samples: was 8, now 3"):
        run_cells(cells("good"), replace(SCALE, samples=3), tmp_path)
    with pytest.raises(RunError, match=r"models\.new\.path: was 'elsewhere', now 'there'"):
        run_cells(cells("new"), replace(other, models={"new": ModelAt(path="there")}), tmp_path)


def test_what_others_have_taken_is_left_to_them_and_taken_over_if_they_end(tmp_path: Path) -> None:
    finished, dropped, ours = cells("good", seeds=3)
    locks = {cell: RunLock(StudyFolder(tmp_path).claim(cell)) for cell in (finished, dropped)}
    seen: list[tuple[Cell, str, str]] = []

    def follow(event: Event) -> None:
        seen.append((event.cell, event.state, event.note))
        if event.state == "done" and event.cell == ours:
            states = {state.cell: state for state in read_status(tmp_path)}
            assert states[dropped].state == "running" and states[dropped].note.startswith("training, process ")
            finish(job_of(tmp_path), finished)
            for lock in locks.values():
                lock.release()

    outcome = run_cells([finished, dropped, ours], SCALE, tmp_path, workers=1, on_event=follow)
    assert set(outcome.done) == {finished, dropped, ours} and set(outcome.seconds) == {dropped, ours}
    holders = {cell: note for cell, state, note in seen if state == "elsewhere"}
    assert set(holders) == {finished, dropped}
    assert all(holder.startswith("process ") and " on " in holder for holder in holders.values())
    assert [attempts(tmp_path, cell) for cell in (finished, dropped, ours)] == [0, 1, 1]


@inline
def test_a_cell_that_others_finish_at_the_start_is_done(tmp_path: Path) -> None:
    def follow(event: Event) -> None:
        if event.state == "waiting":
            finish(job_of(tmp_path), event.cell)

    asked = cells("good", seeds=2)
    assert set(run_cells(asked, SCALE, tmp_path, on_event=follow).done) == set(asked)
    assert [attempts(tmp_path, cell) for cell in asked] == [0, 0]


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for wrong, scale, options, message in (
        ("good", SCALE, {"executor": "slurm"}, "executor: unknown name 'slurm'; known: local, ray"),
        ("good", SCALE, {"needs": frozenset({"figures"})}, "needs: unknown name 'figures'"),
        ("lost", SCALE, {}, "models: unknown name 'lost'"),
        ("good", replace(SCALE, device="cuda"), {}, "device: needs a GPU, and there is none, got 'cuda'"),
    ):
        with pytest.raises(UsageError, match=message):
            run_cells(cells(wrong), scale, out, **options)
    assert not out.exists()


def test_requests_add_up_and_repeat_nothing(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    one, two = cells("good", seeds=2)
    folder.remember([one], {"scores"})
    folder.remember([one, two], {"tokens"})
    folder.remember([one], {"scores"})
    assert folder.asked_for() == {one: {"scores", "tokens"}, two: {"tokens"}}
    assert len(list((tmp_path / "asked").iterdir())) == 2
    next((tmp_path / "asked").iterdir()).write_text("{}")
    with pytest.raises(RunError, match=r"asked/.*\.json: needs: field required"):
        folder.asked_for()


def test_bases_come_first_then_seed_by_seed() -> None:
    base, trained = Cell(model="good", objective="base"), cells("good", "bad", seeds=2)
    assert in_order([*trained, base, trained[0]]) == [base, trained[0], trained[2], trained[1], trained[3]]
