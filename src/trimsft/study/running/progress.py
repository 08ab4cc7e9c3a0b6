"""What one sees while a study runs: on a terminal what is at work and what is done, else a line for each change.

12 of 17 done, 2 running, 1 elsewhere, 1 failed, 1 waiting                                          4:12
lab/trim-margin1-bandwidth2/seed0    training            ━━━━━━━━──────────  14
lab/trim-margin1-bandwidth3/seed0    evaluating lab-easy ━━━━━━━━━━━━━━────  210/360
lab/trim-margin1-bandwidth4/seed0    failed              learning_rate: must not be below 0, got -1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimsft.study.running.execution import Event
from trimsft.study.running.live import LiveView

if TYPE_CHECKING:
    from rich.console import Console, Group

BAR = 18
SHOWN = 20
"""Lines at most: what is at work first, then what went wrong."""
ORDER = ("done", "running", "elsewhere", "retrying", "failed", "waiting")


class Progress(LiveView):
    """`with Progress(console) as progress: run_cells(..., on_event=progress)`."""

    def __init__(self, console: Console) -> None:
        self._latest: dict[str, Event] = {}
        super().__init__(console, self._shown)

    def __call__(self, event: Event) -> None:
        before = self._latest.get(event.cell.name)
        self._latest[event.cell.name] = event
        stage = event.note.partition(" ")[0]
        changed = before is None or before.state != event.state or not before.note.startswith(stage)
        if changed and event.state != "waiting":
            what = event.note if event.state == "running" else f"{event.state}{_note(event)}"
            self.say(f"{event.cell.name}: {what}")

    def summary(self) -> str:
        """How many cells are in which state."""
        counts = {state: self._count(state) for state in ORDER}
        parts = [f"{count} {state}" for state, count in counts.items() if count and state != "done"]
        return ", ".join([f"{counts['done']} of {len(self._latest)} done", *parts])

    def _count(self, state: str) -> int:
        return sum(event.state == state for event in self._latest.values())

    def _shown(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        busy = [
            event
            for state in ("running", "elsewhere", "retrying", "failed")
            for event in self._latest.values()
            if event.state == state
        ]
        for event in busy[:SHOWN]:
            is_running = event.state == "running"
            style = "red" if event.state in ("failed", "retrying") else ""
            bar = ProgressBar(event.total, event.done, width=BAR) if event.total else Text("")
            of = f"{event.done:,}/{event.total:,}" if event.total else f"{event.done:,}" if event.done else ""
            name = Text(f"  {event.cell.name}")
            if is_running:
                table.add_row(name, Text(event.note), bar, of)
            else:
                table.add_row(name, Text(event.state, style=style), Text(event.note, overflow="ellipsis"), "")
        if len(busy) > SHOWN:
            table.add_row(Text(f"  and {len(busy) - SHOWN} more", style="dim"))
        return Group(Text(f"  {self.summary()}  {self.clock()}"), table)


def _note(event: Event) -> str:
    if not event.note:
        return ""
    return f" by {event.note}" if event.state == "elsewhere" else f", {event.note}"
