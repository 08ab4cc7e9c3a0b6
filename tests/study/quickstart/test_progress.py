"""Lines for a log, a display for a terminal."""

import io

from rich.console import Console

from trimsft.study.quickstart.progress import Progress


def shown(terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, color_system=None)
    with Progress(console, ["base", "trim"]) as progress:
        progress.show("trim", "training", 0, 50)
        progress.show("trim", "training", 14, 50)
        progress.show("base", "failed", note="no [such] file")
    return file.getvalue()


def test_a_log_gets_a_line_for_each_change() -> None:
    assert shown(terminal=False).splitlines() == [
        "0:00  TrimSFT: training",
        "0:00  Base: failed, no [such] file",
    ]


def test_a_terminal_sees_every_run_and_how_far_it_is() -> None:
    text = shown(terminal=True)
    assert "TrimSFT" in text and "14/50" in text
    assert "no [such] file" in text
