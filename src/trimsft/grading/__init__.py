"""Grading: is the answer that a response states the gold? See docs/grading.md for the rules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimsft.grading.kinds import GRADER_VERSION, Grade, Grading, Rules

if TYPE_CHECKING:
    from trimsft.grading.grader import Grader, Scorer, grade, load_scorer

__all__ = ["GRADER_VERSION", "Grade", "Grader", "Grading", "Rules", "Scorer", "grade", "load_scorer"]


def __getattr__(name: str) -> Any:
    """Import the grader when it is first used: reading settings or problems does not wait for mpmath."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.grader"), name)
