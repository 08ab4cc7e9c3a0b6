"""The cells of a study on a terminal: a live view while they run, and a table of where they stand.

12 of 17 done, 2 running, 1 elsewhere, 1 failed, 1 waiting  4:12
lab, TrimSFT (margin 1, bandwidth 2), seed 0  training             ━━━━━━━━──────────  14/50
lab, TrimSFT (margin 1, bandwidth 3), seed 0  evaluating lab-easy  ━━━━━━━━━━━━━━────  210/360
lab, TrimSFT (margin 1, bandwidth 4), seed 0  failed               learning_rate: must not be below 0, got -1
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trimsft.study.cell import Cell
from trimsft.study.run import CellState, Event

if TYPE_CHECKING:
    from typing import Self

    from rich.console import Console, Group, RenderableType
    from rich.table import Table

BAR = 18
SHOWN = 20  # lines at most: what is at work first, then what went wrong, then the rest
STYLES = {"failed": "red", "retrying": "red", "done": "green", "waiting": "dim", "missing": "dim", "running": "cyan"}
_AT_WORK = ("running", "elsewhere", "retrying", "failed", "waiting", "done")


class Progress:
    """`with Progress(console) as progress: run_cells(..., on_event=progress)`.

    A terminal shows a table that is redrawn; elsewhere there is a line for each change.

    Args:
        label: what a cell is called.
        result: what came out of a cell that is done, in a few words.
    """

    def __init__(
        self,
        console: Console,
        label: Callable[[Cell], str] = lambda cell: cell.name,
        result: Callable[[Cell], str] = lambda cell: "",
    ) -> None:
        from rich.live import Live

        self._console, self._label, self._result = console, label, result
        self._latest: dict[Cell, Event] = {}
        self._notes: dict[Cell, str] = {}
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._view, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def __call__(self, event: Event) -> None:
        before, self._latest[event.cell] = self._latest.get(event.cell), event
        parts = [event.note, self._result(event.cell) if event.state == "done" else ""]
        self._notes[event.cell] = note = "; ".join(part for part in parts if part)
        is_new = before is None or before.state != event.state or _stage(before) != _stage(event)
        if is_new and event.state != "waiting" and not self._console.is_terminal:
            between = " by " if event.state == "elsewhere" else ", "
            text = note if event.state == "running" else f"{event.state}{between if note else ''}{note}"
            self._console.print(f"{self._clock()}  {self._label(event.cell)}: {text}", markup=False, soft_wrap=True)

    def there(self) -> str:
        """What there is to continue from."""
        done = sum(event.state == "done" for event in self._latest.values())
        if not self._latest:
            return "nothing was begun; rerun the command to start again"
        return f"{done} of {len(self._latest)} trainings and evaluations are done; rerun the command to resume"

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02d}"

    def _view(self) -> Group:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        events = list(self._latest.values())
        if len(events) > SHOWN:
            events = [event for event in events if event.state not in ("waiting", "done")]
            events.sort(key=lambda event: _AT_WORK.index(event.state))
        for event in events[:SHOWN]:
            table.add_row(*self._row(event))
        if len(events) > SHOWN:
            table.add_row(Text(f"  and {len(events) - SHOWN} more", style="dim"))
        counts = _counts([event.state for event in self._latest.values()], _AT_WORK)
        return Group(Text(f"  {counts}  {self._clock()}"), table)

    def _row(self, event: Event) -> list[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        name = Text(f"  {self._label(event.cell)}")
        if event.state != "running":
            state = Text(event.state, style=STYLES.get(event.state, ""))
            return [name, state, Text(self._notes[event.cell], overflow="ellipsis"), ""]
        bar = ProgressBar(event.total, event.done, width=BAR) if event.total else Text("")
        count = f"{event.done:,}/{event.total:,}" if event.total else f"{event.done:,}" if event.done else ""
        return [name, Text(event.note), bar, count]


def _stage(event: Event) -> str:
    """Benchmarks are one stage; reasons of failures differ."""
    return event.note.partition(" ")[0] if event.state == "running" else event.note


def _counts(states: Sequence[str], order: Sequence[str]) -> str:
    counts = Counter(states)
    parts = [f"{counts[state]} {state}" for state in order if counts[state] and state != "done"]
    return ", ".join([f"{counts['done']} of {len(states)} done", *parts])


def cell_label(cell: Cell) -> str:
    """A cell by the names of the paper: "lab, TrimSFT (margin 1, bandwidth 0.5), seed 0"."""
    return f"{cell.model}, {cell.label}" + ("" if cell.is_base else f", seed {cell.seed}")


def status_table(states: Sequence[CellState]) -> Table:
    """For the terminal: what needs looking at first."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    order = ("running", "failed", "missing", "done")
    caption = _counts([state.state for state in states], order)
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("cell", overflow="fold", min_width=20)  # names differ at their ends
    table.add_column("state", no_wrap=True)
    table.add_column("")
    for state in sorted(states, key=lambda state: order.index(state.state)):
        table.add_row(Text(state.cell.name), Text(state.state, style=STYLES[state.state]), Text(state.note))
    return table
