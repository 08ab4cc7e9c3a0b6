"""Objectives of one's own: `my_package.my_module:MyObjective`, or the name of an entry point in `trimsft.objectives`.

    >>> load_objective("trimsft.objectives:DFT")
    <class 'trimsft.objectives.paper.DFT'>
    >>> load_objective("trimsft.objectives:TrimSft")
    Traceback (most recent call last):
    trimsft.errors.UsageError: objective: module 'trimsft.objectives' has no 'TrimSft'; did you mean 'TrimSFT'?

Loading runs code; see `trimsft.own_code` for when that is allowed.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Any

from trimsft import own_code
from trimsft.errors import UsageError
from trimsft.objectives.base import WeighsTokens

GROUP = "trimsft.objectives"
KINDS = "a class whose objects have weights(tokens), such an object, or a function from TokenStats to weights"


def require_reference(name: str) -> None:
    """Refuse what has not the form module:Attribute."""
    own_code.require_reference(name, field="objective", example="my_package.my_module:MyObjective")


def installed_objectives() -> dict[str, list[str]]:
    """What installed packages offer, by name: module:Attribute of each; none of them is imported."""
    offered: dict[str, list[str]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        values = offered.setdefault(point.name, [])
        values += [point.value] if point.value not in values else []
    return offered


def load_objective(name: str) -> Any:
    """The class, object or function of that name; raises `UsageError` where there is none."""
    loaded = own_code.load_attribute(_reference(name), field="objective", name=name)
    if not _weighs(loaded):
        raise UsageError(f"{name!r} weighs no tokens", field="objective", hint=f"name {KINDS}")
    return loaded


def fingerprints_of(name: str) -> list[str]:
    """SHA-256 of the files that the objective of that name is in."""
    return own_code.fingerprints(_reference(name), load_objective(name))


def _reference(name: str) -> str:
    """module:Attribute, of an entry point what it stands for."""
    values = [name] if ":" in name else installed_objectives().get(name, [name])
    if len(values) > 1:
        both = " and ".join(sorted(values))
        problem = f"{name!r} is defined by two packages, {both}"
        raise UsageError(problem, field="objective", hint="name the one you mean by module:Attribute")
    require_reference(values[0])
    return values[0]


def _weighs(loaded: Any) -> bool:
    if inspect.isclass(loaded):
        return callable(getattr(loaded, "weights", None))
    if isinstance(loaded, WeighsTokens):
        return callable(loaded.weights)
    try:
        inspect.signature(loaded).bind(None)
    except (TypeError, ValueError):
        return False
    return True
