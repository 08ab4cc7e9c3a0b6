"""What one sees while it works: a line for each run on a terminal, a line for each change elsewhere; all on stderr.

Base         done                              60.4
SFT          evaluating   ━━━━━━━━━━────  71 %
TrimSFT      training     ━━━━──────────  14/50
DFT          waiting
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimsft.study.quickstart.settings import LABELS
from trimsft.study.running.live import LiveView

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

BAR = 24


@dataclass
class _Line:
    stage: str = "waiting"
    done: int = 0
    total: int = 0
    note: str = ""


class Progress(LiveView):
    """`with Progress(console, names) as progress: progress.show("sft", "training", 3, 50)`."""

    def __init__(self, console: Console, names: Sequence[str]) -> None:
        self._lines = {name: _Line() for name in names}
        super().__init__(console, self._table)

    def show(self, name: str, stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
        """Where a run stands now."""
        line = self._lines[name]
        changed = line.stage != stage
        line.stage, line.done, line.total, line.note = stage, done, total, note
        if changed:
            self.say(f"{LABELS[name]}: {stage}{', ' + note if note else ''}")

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for name, line in self._lines.items():
            counted = line.total > 0 and not line.note
            bar = ProgressBar(line.total, line.done, width=BAR) if counted else Text(line.note)
            count = f"{line.done:,}/{line.total:,}" if counted else ""
            style = {"waiting": "dim", "failed": "red", "done": "green"}.get(line.stage, "")
            table.add_row(f"  {LABELS[name]}", Text(line.stage, style=style), bar, count)
        table.add_row("", Text(self.clock(), style="dim"), "", "")
        return table
