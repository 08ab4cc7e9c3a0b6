"""A tiny study of the lab from nothing to its tables: what it leaves, and that nothing is done twice."""

from pathlib import Path

import pytest
from rich.console import Console

from trimsft.scoring.records import load_run
from trimsft.runs import RunDirectory
from trimsft.study import command, studies
from trimsft.study.cells import Cell
from trimsft.study.command import Running, StudyOutcome, rebuild_tables, run_study, show_outcome
from trimsft.study.places import Place
from trimsft.study.running.execution import Outcome
from trimsft.study.running.status import CellState, read_status, status_table
from trimsft.study.scales import LAB
from trimsft.study.studies import STUDIES
from trimsft.study.tables import writing
from trimsft.study.tables.results import load_results

SCALE = LAB.tiny()
BASE, SFT, TRIM = (Cell(model="lab", objective=objective) for objective in ("base", "sft", "trim"))


def quiet() -> Console:
    return Console(stderr=True, highlight=False, width=200)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StudyOutcome]:
    out = tmp_path_factory.mktemp("study") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "COMPARED", ("base", "sft", "trim"))
        return out, run_study(STUDIES["main"], SCALE, out, quiet(), running=Running(workers=2))


def written(out: Path) -> dict[str, int]:
    files = [*out.glob("runs/**/model.safetensors"), *out.glob("runs/**/samples.jsonl")]
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in files}


def test_every_cell_is_an_ordinary_run_directory(finished: tuple[Path, StudyOutcome]) -> None:
    out, outcome = finished
    assert not outcome.has_failed and set(outcome.cells.done) == {BASE, SFT, TRIM}
    assert outcome.cells.done[TRIM] == out / "runs" / "lab" / "trim-margin1.5-bandwidth0.8" / "seed0"
    run = RunDirectory(outcome.cells.done[TRIM])
    assert run.is_finished() and "objective" not in run.config_path.read_text()  # trim is the default
    assert "objective: sft" in RunDirectory(outcome.cells.done[SFT]).config_path.read_text()
    assert {score.benchmark for score in load_run(run.path)} == set(LAB.benchmarks)
    assert {state.state for state in read_status(out)} == {"done"}


def test_results_are_those_of_the_run_directories(finished: tuple[Path, StudyOutcome]) -> None:
    out, _ = finished
    results = load_results([BASE, SFT, TRIM, Cell(model="lab", objective="dft")], out)
    assert set(results) == {BASE, SFT, TRIM}
    for scores in results.values():
        assert [score.benchmark for score in scores] == list(LAB.benchmarks)
        assert {(score.problems, score.samples) for score in scores} == {(2, 2)}


def test_tables_are_written_and_can_be_made_again(finished: tuple[Path, StudyOutcome]) -> None:
    out, outcome = finished
    assert outcome.files and all(path.is_file() for path in outcome.files)
    assert {".md", ".tex", ".csv"} <= {path.suffix for path in outcome.files}
    before = written(out)
    assert {path.name for path in rebuild_tables("main", out)} == {path.name for path in outcome.files}
    assert written(out) == before


def test_a_second_study_shares_cells_and_adds_what_it_needs(
    finished: tuple[Path, StudyOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = finished
    before = written(out)
    outcome = run_study(STUDIES["weights"], SCALE, out, quiet())
    assert set(outcome.cells.done) == {BASE} and set(outcome.cells.seconds[BASE]) == {"tokens"}
    assert (outcome.cells.done[BASE] / "tokens.parquet").stat().st_size > 0
    assert written(out) == before
    monkeypatch.setattr(studies, "COMPARED", ("base", "sft", "trim"))
    again = run_study(STUDIES["main"], SCALE, out, quiet())
    assert again.cells.seconds == {} and written(out) == before
    assert STUDIES["weights"].needs == {"tokens"}


def test_tables_are_of_all_that_was_asked_for_and_not_of_the_last_request_alone(
    finished: tuple[Path, StudyOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = finished
    monkeypatch.setattr(studies, "COMPARED", ("base", "sft", "trim"))
    whole = (out / "tables" / "main" / "main.csv").read_text()
    monkeypatch.setattr(command, "run_cells", lambda cells, *_, **__: Outcome({BASE: out}, {}))
    assert not run_study(STUDIES["main"], SCALE, out, quiet()).table_error
    assert (out / "tables" / "main" / "main.csv").read_text() == whole

    asked: list[list[Cell]] = []
    more = Cell(model="lab", objective="sft", seed=2)
    Place(out).remember([more], {"scores"})
    monkeypatch.setattr(writing, "write_study", lambda study, scale, cells, out: asked.append(cells) or [])
    run_study(STUDIES["main"], SCALE, out, quiet())
    assert set(asked[0]) == {BASE, SFT, TRIM, more}


def test_the_outcome_counts_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for done, words in (([BASE], "1 cell is done"), ([BASE, SFT], "2 cells are done")):
        outcome = Outcome(dict.fromkeys(done, Path("out")), {})
        show_outcome(StudyOutcome("main", Path("out"), outcome), Console())
        assert words in capsys.readouterr().out


def test_status_names_stay_apart_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    trims = [
        Cell(model="Qwen2.5-Math-1.5B", objective="trim", fields=(("margin", margin), ("bandwidth", 0.8)))
        for margin in (1.0, 10.0)
    ]
    states = [CellState(cell, "failed", "a reason that takes many words " * 5) for cell in trims]
    Console(width=80).print(status_table(states))
    said = capsys.readouterr().out
    column = "".join(line[: line.index("failed")] if "failed" in line else line for line in said.splitlines())
    assert "…" not in said and "margin1-" in column.replace(" ", "") and "margin10-" in column.replace(" ", "")


def test_a_cell_without_a_folder_is_named_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "COMPARED", ("base", "sft"))
    (tmp_path / "runs" / "lab").mkdir(parents=True)
    (tmp_path / "runs" / "lab" / "sft").touch()  # where a folder belongs
    outcome = run_study(STUDIES["main"], SCALE, tmp_path, quiet(), running=Running(workers=1, retries=0))
    assert set(outcome.cells.done) == {BASE} and outcome.has_failed
    (line,) = outcome.failures()
    assert line.startswith("lab/sft/seed0: ") and line.endswith("; the same command tries it again")


def test_settings_that_training_refuses_stop_a_study_before_it_begins(tmp_path: Path) -> None:
    from dataclasses import replace

    wrong = replace(SCALE, defaults={**SCALE.defaults, "learning_rat": 1e-4})
    with pytest.raises(ValueError, match="--learning_rat: no such field; did you mean --learning_rate"):
        run_study(STUDIES["main"], wrong, tmp_path / "out", quiet())
    assert not (tmp_path / "out").exists()
