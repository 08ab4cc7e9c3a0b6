"""The one model of a table: cells that show rounded numbers and hold the figures behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from trimsft.intervals import Interval

UP, DOWN = "↑", "↓"
NOTHING = "-"
"""What readers see where there is nothing to show."""


def rounded(value: float, digits: int, sign: str = "") -> str:
    """The number in text, without a negative zero; nothing for NaN."""
    return "" if math.isnan(value) else f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # -0 + 0 is 0


def points(share: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return rounded(100 * share, 1, "+")


@dataclass(frozen=True)
class Cell:
    """What is shown, and the unrounded figures behind it for the formats that programs read."""

    text: str  # A name, which may be anything, or a rounded number; empty where there is nothing to show
    spread: str = ""  # the interval, as shown
    marker: str = ""  # an arrow where a difference is significant
    bold: bool = False
    data: Interval | float | None = None  # the figure itself; None for text

    @classmethod
    def of(
        cls, interval: Interval | None, marker: str = "", *, sign: str = "", bold: bool = False, scale: int = 100
    ) -> Cell:
        """A share with its interval, shown in percent (or times another `scale`); empty where there is none."""
        if interval is None:
            return cls("")
        value, low, high = (rounded(scale * end, 1, sign) for end in (interval.value, interval.low, interval.high))
        return cls(value, f"[{low}, {high}]", marker, bold, interval)


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    left: tuple[int, ...] = (0,)
    """The columns of names, which are aligned to the left; numbers are aligned to the right."""

    def __post_init__(self) -> None:
        for cells in self.rows:
            if len(cells) != len(self.header):
                raise ValueError(f"rows: must have {len(self.header)} cells as the header has, got {len(cells)}")


def mark_best(
    rows: Sequence[Sequence[Cell]],
    *,
    groups: Sequence[str] | None = None,
    best: Callable[[Iterable[float]], float] = max,
    also_ties: bool = True,
) -> tuple[tuple[Cell, ...], ...]:
    """Rows with the best number of each column in bold, and all that are shown as the same number.

    Args:
        groups: a name for each row; rows of different names are not compared.
        also_ties: mark a column, too, where all numbers of a group are shown as the same.
    """
    groups = groups or [""] * len(rows)
    shown: dict[tuple[str, int], list[float]] = {}
    for group, cells in zip(groups, rows, strict=True):
        for column, cell in enumerate(cells):
            if cell.data is not None:
                shown.setdefault((group, column), []).append(float(cell.text))

    def is_best(group: str, column: int, cell: Cell) -> bool:
        values = shown.get((group, column), [])
        is_marked = cell.data is not None and (also_ties or len(set(values)) > 1)
        return is_marked and float(cell.text) == best(values)

    return tuple(
        tuple(replace(cell, bold=is_best(group, column, cell)) for column, cell in enumerate(cells))
        for group, cells in zip(groups, rows, strict=True)
    )
