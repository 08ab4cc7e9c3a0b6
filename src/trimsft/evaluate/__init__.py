"""Evaluation: repeated sampling, grading, scores and their comparison."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimsft.evaluate.metrics import majority_at_k, pass_at_k
    from trimsft.evaluate.run import Evaluated, evaluate
    from trimsft.evaluate.settings import EvalSettings
    from trimsft.grading import Grade, grade

__all__ = ["EvalSettings", "Evaluated", "Grade", "evaluate", "grade", "majority_at_k", "pass_at_k"]


def __getattr__(name: str) -> Any:
    """Grading brings mpmath and numpy along; who only asks for help does not wait for them."""
    for module in ("settings", "run", "metrics") if name in __all__ else ():
        if hasattr(home := import_module(f"{__name__}.{module}"), name):
            return getattr(home, name)
    return getattr(import_module("trimsft.grading"), name)
