"""What a grade is, and what a benchmark may declare about its answers.

>>> Rules.of_row({"answer": "4.2", "unit": "%", "error": "1e-1"}, benchmark="olympiadbench")
Rules(multiple=False, tolerance=None, absolute=0.1, unit='%')
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["correct", "wrong", "no_answer", "truncated", "timeout", "unparsable"]

GRADER_VERSION = "4"  # raised whenever a grade may change: caches and stored samples carry it

DECIMAL_TOLERANCE = 1e-6
"""Relative; between a decimal and an exact value that is no integer, as in 0.3333333 and 1/3."""

PUBLISHED_TOLERANCE = 1e-4
"""Relative; what the harnesses behind published Minerva figures allow for its physical answers."""


@dataclass(frozen=True)
class Grade:
    """The verdict on one response."""

    correct: bool
    status: Status  # correct | wrong | no_answer | truncated | timeout | unparsable; only the first is correct
    answer: str | None  # the answer as the model wrote it, None where there is none


@dataclass(frozen=True)
class Rules:
    """Grading options of one problem; the default suits MATH, AMC, AIME and GSM8K."""

    multiple: bool = False
    """The gold is several values, in any order; boxes that follow each other count as one list."""
    tolerance: float | None = None
    """Relative tolerance between numbers, unless both are written as integers; None: see `DECIMAL_TOLERANCE`."""
    absolute: float | None = None  # absolute tolerance between numbers: the `error` column of OlympiadBench
    unit: str | None = None
    """Unit of the gold where the gold itself has none; an answer may carry it, but no other."""

    def __post_init__(self) -> None:
        for name in ("tolerance", "absolute"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 <= value < 1):
                raise ValueError(f"{name}={value!r}: expected a number in [0, 1), or None")

    @classmethod
    def of_row(cls, row: Mapping[str, Any], benchmark: str = "") -> Rules:
        """The rules that a benchmark's row declares in `is_multiple_answer`, `unit` and `error`."""
        error = row.get("error")
        return cls(
            multiple=bool(row.get("is_multiple_answer")),
            tolerance=PUBLISHED_TOLERANCE if benchmark == "minerva" else None,
            absolute=float(error) if error else None,
            unit=row.get("unit") or None,
        )
