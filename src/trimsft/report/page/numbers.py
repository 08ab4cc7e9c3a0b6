"""Figures as the page shows them."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 1) -> str:
    """A figure with so many digits; a dash where there is none, never a negative zero."""
    if value is None or not math.isfinite(value):
        return "–"  # noqa: RUF001
    return f"{round(value, digits) or 0.0:.{digits}f}"
