"""A table that is redrawn on a terminal; elsewhere a line for each change. What progress views are made of."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from typing_extensions import Self


class LiveView:
    """`with` it, the renderable is shown and redrawn; `say` is for consoles that are no terminal."""

    def __init__(self, console: Console, renderable: Callable[[], Any]) -> None:
        from rich.live import Live

        self._console = console
        self._began = time.monotonic()
        # draws once as it is made, so what is drawn must be there before
        self._live = Live(console=console, get_renderable=renderable, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """With the time since the beginning; nothing on a terminal, which shows it anyway."""
        if not self._console.is_terminal:
            self._console.print(f"{self.clock()}  {text}", markup=False, soft_wrap=True)

    def clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02d}"
