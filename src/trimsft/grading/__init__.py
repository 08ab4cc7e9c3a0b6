"""Grading: is the answer that a response states the gold? See docs/grading.md for the rules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trimsft.grading.rules import GRADER_VERSION, Grade, Grading, Rules

if TYPE_CHECKING:
    from trimsft.grading.boxes import extract_answer
    from trimsft.grading.grader import Grader, grade
    from trimsft.grading.own import Scorer, load_scorer

__all__ = [
    "GRADER_VERSION", "Grade", "Grader", "Grading", "Rules", "Scorer", "extract_answer", "grade", "load_scorer",
]  # fmt: skip

_HOMES = {"extract_answer": "boxes", "Grader": "grader", "grade": "grader", "Scorer": "own", "load_scorer": "own"}


def __getattr__(name: str) -> Any:
    """The grader brings mpmath along; who only reads settings or problems does not wait for it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
