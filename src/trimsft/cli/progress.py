"""How far long work is: a bar or a line that is redrawn on a terminal, and lines now and then elsewhere.

with progress_lines() as show:
    show("math500: 40 of 4,500 samples, 1.2/s, 310 tokens/s, 1:02:10 left")

Everything goes to stderr, and nothing with --quiet. Redirected, a first line comes at once, the next ones after 5, 10,
20, 40 and then every 60 seconds, so that a log file stays short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trimsft.cli.ending import is_quiet, note

if TYPE_CHECKING:
    from rich.console import Console

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds between two lines


class Lines:
    """Says a text if it is about something new, is the last one, or enough time has passed since the one before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._about = ""
        self._next = self._pause = 0.0

    def __call__(self, text: str, *, about: str = "", is_last: bool = False) -> None:
        now = self._clock()
        if self._about != about or not self._pause:
            self._pause = FIRST_PAUSE
        elif now >= self._next:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        elif not is_last:
            return
        self._about, self._next = about, now + self._pause
        note(text)


@contextmanager
def progress_lines() -> Iterator[Callable[..., None]]:
    """A function that shows how far the work is: `show(text, about="math500", is_last=False)`."""
    console = _console()
    if not console.is_terminal or is_quiet():
        yield Lines()
        return
    with console.status("") as status:
        yield lambda text, **_: status.update(text)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows how many rows of something are done: a bar for each name, or lines."""
    from rich.progress import Progress

    console = _console()
    if not console.is_terminal:
        lines = Lines()
        yield lambda name, done, total: lines(f"{name}: {done:,} of {total:,} rows", about=name, is_last=done == total)
        return
    with Progress(console=console, disable=is_quiet()) as progress:
        bars: dict[str, Any] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(f"{name}: rows")
            progress.update(bars[name], completed=done, total=total)

        yield show


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """A line that says what is going on, where someone is watching."""
    if is_quiet():
        yield lambda text: None
        return
    with _console().status("") as status:
        yield lambda text: status.update(text)


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)
