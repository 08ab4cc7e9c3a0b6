"""Lines for a log, a display for a terminal, and where cells stand by what is on disk."""

import io

import pytest
from rich.console import Console

from trimsft.cli.study import SHOWN, Progress, status_table
from trimsft.study.cell import Cell
from trimsft.study.run import CellState, Event

SFT, DFT = (Cell(model="lab", objective=objective) for objective in ("sft", "dft"))


def shown(*events: Event, terminal: bool, **options: object) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
    with Progress(console, **options) as progress:  # type: ignore[arg-type]
        for event in events:
            progress(event)
    return file.getvalue()


def test_a_log_gets_a_line_for_each_change() -> None:
    events = [
        Event(SFT, "waiting"),
        Event(SFT, "running", "training", 0, 50),
        Event(SFT, "running", "training", 3, 50),
        Event(SFT, "running", "evaluating lab-easy", 3, 9),
        Event(SFT, "running", "evaluating lab-hard", 3, 9),
        Event(SFT, "retrying", "no [such] file"),
        Event(SFT, "done"),
        Event(DFT, "elsewhere", "process 7 on host since noon"),
        Event(DFT, "done", "elsewhere"),
    ]
    assert shown(*events, terminal=False).splitlines() == [
        "0:00  lab/sft/seed0: training",
        "0:00  lab/sft/seed0: evaluating lab-easy",
        "0:00  lab/sft/seed0: retrying, no [such] file",
        "0:00  lab/sft/seed0: done",
        "0:00  lab/dft/seed0: elsewhere by process 7 on host since noon",
        "0:00  lab/dft/seed0: done, elsewhere",
    ]
    named = shown(*events[-1:], terminal=False, label=lambda cell: "DFT", result=lambda cell: "average@8 62.3")
    assert named == "0:00  DFT: done, elsewhere; average@8 62.3\n"


def test_a_terminal_shows_few_cells_and_of_many_the_running() -> None:
    few = shown(
        Event(SFT, "running", "evaluating lab-easy", 210, 360),
        Event(DFT, "failed", "no [such] file"),
        Event(Cell(model="lab", objective="sft", seed=1), "waiting"),
        terminal=True,
    )
    assert "0 of 3 done, 1 running, 1 failed, 1 waiting" in few
    assert "210/360" in few and "no [such] file" in few and "lab/sft/seed1" in few
    many = [Event(Cell(model="lab", objective="sft", seed=seed), "running", "training") for seed in range(SHOWN + 5)]
    text = shown(*many, Event(DFT, "waiting"), terminal=True)
    assert "and 5 more" in text and "lab/dft/seed0" not in text


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
    assert "0 of 2 done, 2 failed" in said
