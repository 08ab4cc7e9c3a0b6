"""Lines for a log, a display for a terminal."""

import io

from rich.console import Console

from trimsft.study.cells import Cell
from trimsft.study.running.execution import Event
from trimsft.study.running.progress import SHOWN, Progress

SFT, DFT = (Cell(model="lab", objective=objective) for objective in ("sft", "dft"))


def shown(*events: Event, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=100, color_system=None)
    with Progress(console) as progress:
        for event in events:
            progress(event)
    return file.getvalue()


def test_a_log_gets_a_line_for_each_change() -> None:
    text = shown(
        Event(SFT, "waiting"),
        Event(SFT, "running", "training", 0),
        Event(SFT, "running", "training", 3),
        Event(SFT, "running", "evaluating lab-easy", 3, 9),
        Event(SFT, "running", "evaluating lab-hard", 3, 9),
        Event(SFT, "retrying", "no [such] file"),
        Event(SFT, "done"),
        Event(DFT, "elsewhere", "process 7 on host since noon"),
        Event(DFT, "done", "elsewhere"),
        terminal=False,
    )
    assert text.splitlines() == [
        "0:00  lab/sft/seed0: training",
        "0:00  lab/sft/seed0: evaluating lab-easy",
        "0:00  lab/sft/seed0: retrying, no [such] file",
        "0:00  lab/sft/seed0: done",
        "0:00  lab/dft/seed0: elsewhere by process 7 on host since noon",
        "0:00  lab/dft/seed0: done, elsewhere",
    ]


def test_a_terminal_sees_what_is_at_work_and_what_went_wrong() -> None:
    text = shown(
        Event(SFT, "running", "evaluating lab-easy", 210, 360),
        Event(DFT, "failed", "out of memory"),
        terminal=True,
    )
    assert "0 of 2 done, 1 running, 1 failed" in text
    assert "210/360" in text and "out of memory" in text


def test_a_terminal_is_not_flooded() -> None:
    many = [Event(Cell(model="lab", objective="sft", seed=seed), "running", "training") for seed in range(SHOWN + 5)]
    assert "and 5 more" in shown(*many, terminal=True)
