"""Evaluation: repeated sampling, grading, scores and their comparison."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.grading import Grade, grade
    from trimsft.scoring.metrics import majority_at_k, pass_at_k

__all__ = ["Grade", "grade", "majority_at_k", "pass_at_k"]

_HOMES = {
    "Grade": "trimsft.grading",
    "grade": "trimsft.grading",
    "majority_at_k": "trimsft.scoring.metrics",
    "pass_at_k": "trimsft.scoring.metrics",
}


def __getattr__(name: str) -> Any:
    """Grading brings sympy and numpy along; who only asks for help does not wait for them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
