"""Evaluation: repeated sampling, grading, scores and their comparison."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.evaluate.metrics import majority_at_k, pass_at_k
    from trimsft.evaluate.run import Evaluated, evaluate, evaluate_model
    from trimsft.evaluate.settings import EvalSettings
    from trimsft.grading import Grade, grade

__all__ = ["EvalSettings", "Evaluated", "Grade", "evaluate", "evaluate_model", "grade", "majority_at_k", "pass_at_k"]

_RUN, _GRADING, _METRICS = "trimsft.evaluate.run", "trimsft.grading", "trimsft.evaluate.metrics"
_HOMES = {
    "EvalSettings": "trimsft.evaluate.settings", "Evaluated": _RUN, "evaluate": _RUN, "evaluate_model": _RUN,
    "Grade": _GRADING, "grade": _GRADING, "majority_at_k": _METRICS, "pass_at_k": _METRICS,
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Grading brings mpmath and numpy along; who only asks for help does not wait for them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
