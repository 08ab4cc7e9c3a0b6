"""Objectives by name: those of the package, of installed packages (entry points), and `module:Attribute`."""

from __future__ import annotations

import inspect
from typing import Any, TypeAlias, cast

from trimsft.errors import UsageError
from trimsft.objectives.auto import AutoTrim
from trimsft.objectives.base import Objective
from trimsft.objectives.family import EAFT, TALR, InfoSFT, PAlpha, PThreshold
from trimsft.objectives.own import fingerprints_of, installed_objectives, load_objective, require_reference
from trimsft.objectives.paper import BANDWIDTH, DFT, FSFT, GAMMA, MARGIN, SFT, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.options import unknown_name

PARAMETERS = {"margin": MARGIN, "bandwidth": BANDWIDTH, "gamma": GAMMA}

BuiltinObjective: TypeAlias = SFT | FSFT | DFT | TrimSFT | TrimSFTEasy | TrimSFTHard

PAPER_OBJECTIVES: dict[str, type[BuiltinObjective]] = {
    "sft": SFT,
    "fsft": FSFT,
    "dft": DFT,
    "trim": TrimSFT,
    "trim-e": TrimSFTEasy,
    "trim-h": TrimSFTHard,
}
"""Those of the paper, in the order of its tables."""
OBJECTIVES: dict[str, type[Any]] = {
    **PAPER_OBJECTIVES,
    "auto-trim": AutoTrim,
    "p-alpha": PAlpha,
    "p-threshold": PThreshold,
    "eaft": EAFT,
    "infosft": InfoSFT,
    "talr": TALR,
}
PAPER_NAMES = dict(zip(PAPER_OBJECTIVES, ("SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"), strict=True))
"""What the paper calls them, in the order of its tables."""
NAMES = PAPER_NAMES | {
    "auto-trim": "AutoTrim",
    "p-alpha": "p^alpha",
    "p-threshold": "p threshold",
    "eaft": "EAFT",
    "infosft": "InfoSFT",
    "talr": "TALR",
}
"""What tables call each objective of the package."""
REQUIRED: Any = inspect.Parameter.empty
"""The default of a parameter that has none."""


def make_objective(name: str, **parameters: float) -> Objective:
    """The objective of that name, for instance `make_objective("trim", margin=1.0)`.

    A name that is not of the package loads code: see `trimsft.objectives.own`.
    """
    kind = find_objective(name)
    known = parameters_of(name)
    for parameter in parameters:
        if parameter not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes no parameters"
            raise UsageError(f"objective {name!r} has no parameter {parameter!r}; {takes}")
    if not inspect.isclass(kind):
        return cast("Objective", kind)
    if missing := next((each for each in known if known[each] is REQUIRED and each not in parameters), None):
        raise UsageError(f"objective {name!r} needs its parameter {missing!r}; give it a default")
    return cast("Objective", kind(**parameters))


def find_objective(name: str) -> Any:
    """The class of that name, or where it is one's own also an object or a function; unknown ones are refused."""
    require_known(name)
    return OBJECTIVES[name] if name in OBJECTIVES else load_objective(name)


def parameters_of(name: str) -> dict[str, Any]:
    """What the objective of that name takes, and the defaults; `REQUIRED` where there is none."""
    kind = find_objective(name)
    if not inspect.isclass(kind):
        return {}
    each = inspect.signature(kind).parameters.values()
    return {one.name: one.default for one in each if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}


def fingerprint_objective(name: str) -> list[str] | None:
    """SHA-256 of the files that an objective of one's own is in; None for those of the package, which has a version."""
    return None if name in OBJECTIVES else fingerprints_of(name)


def require_known(name: str) -> None:
    """Refuse what can be no objective; loads nothing."""
    if ":" in name:
        require_reference(name)
    elif name not in OBJECTIVES and name not in (installed := installed_objectives()):
        raise unknown_name("objective", name, (*OBJECTIVES, *installed))


def display_name(name: str) -> str:
    """What tables call an objective: TrimSFT for trim, MyObjective for my_module:MyObjective; loads nothing.

    >>> display_name("trim-e"), display_name("my_package.my_module:MyObjective")
    ('TrimSFT-E', 'MyObjective')
    """
    return NAMES.get(name) or name.rpartition(":")[2]
