"""Objectives by name: those of the package, of installed packages (entry points), and `my_module:MyObjective`.

    >>> make_objective("trim", margin=1.0)
    TrimSFT(margin=1.0, bandwidth=0.8)
    >>> make_objective("trimsft.objectives:TrimSft")
    Traceback (most recent call last):
    trimsft.errors.UsageError: objective: module 'trimsft.objectives' has no 'TrimSft'

A name that is not of the package loads code; see `trimsft.own_code` for when that is allowed.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Any, TypeAlias, cast

from trimsft import own_code
from trimsft.errors import UsageError
from trimsft.objectives.auto_trim import AutoTrim
from trimsft.objectives.other_papers import DEFT, EAFT, IDFT, SAFT, TALR, InfoSFT, PAlpha, PThreshold, RankTuner
from trimsft.objectives.paper import BANDWIDTH, DFT, FSFT, GAMMA, MARGIN, SFT, TrimSFT, TrimSFTEasy, TrimSFTHard
from trimsft.objectives.token_stats import Objective, WeighsTokens
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
PAPER_NAMES = dict(zip(PAPER_OBJECTIVES, ("SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"), strict=True))
"""What the paper calls them."""
OBJECTIVES: dict[str, type[Any]] = {
    **PAPER_OBJECTIVES,
    "auto-trim": AutoTrim,
    "p-alpha": PAlpha,
    "p-threshold": PThreshold,
    "eaft": EAFT,
    "infosft": InfoSFT,
    "talr": TALR,
    "saft": SAFT,
    "deft": DEFT,
    "ranktuner": RankTuner,
    "idft": IDFT,
}
NAMES = PAPER_NAMES | {
    "auto-trim": "AutoTrim",
    "p-alpha": "p^alpha",
    "p-threshold": "p threshold",
    "eaft": "EAFT",
    "infosft": "InfoSFT",
    "talr": "TALR",
    "saft": "SAFT",
    "deft": "DEFT",
    "ranktuner": "RankTuner",
    "idft": "IDFT",
}
"""What tables call each objective of the package."""
GROUP = "trimsft.objectives"
"""The entry points by which installed packages offer theirs."""
REQUIRED: Any = inspect.Parameter.empty
"""The default of a parameter that has none."""


def make_objective(name: str, **parameters: Any) -> Objective:
    """Return the objective of that name, for instance `make_objective("trim", margin=1.0)`."""
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
    """Return the class of that name, or where it is the user's own also an object or a function."""
    require_known(name)
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    loaded = own_code.load_attribute(_reference(name), field="objective")
    if not _weighs(loaded):
        hint = (
            "name a class whose objects have weights(tokens), such an object, or a function from TokenStats to weights"
        )
        raise UsageError(f"{name!r} weighs no tokens", field="objective", hint=hint)
    return loaded


def parameters_of(name: str) -> dict[str, Any]:
    """Return what the objective of that name takes, and the defaults; `REQUIRED` where there is none."""
    kind = find_objective(name)
    if not inspect.isclass(kind):
        return {}
    each = inspect.signature(kind).parameters.values()
    return {one.name: one.default for one in each if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}


def fingerprint_objective(name: str) -> list[str] | None:
    """Return the SHA-256 of the files of a user's objective; None for those of the package, which has a version."""
    return None if name in OBJECTIVES else own_code.fingerprints(_reference(name), find_objective(name))


def require_known(name: str) -> None:
    """Refuse what can be no objective; loads nothing."""
    if ":" in name:
        _require_reference(name)
    elif name not in OBJECTIVES and name not in (installed := installed_objectives()):
        raise unknown_name("objective", name, (*OBJECTIVES, *installed))


def display_name(name: str) -> str:
    """Return what tables call an objective: TrimSFT for trim, MyObjective for my_module:MyObjective; loads nothing.

    >>> display_name("trim-e"), display_name("my_package.my_module:MyObjective")
    ('TrimSFT-E', 'MyObjective')
    """
    return NAMES.get(name) or name.rpartition(":")[2]


def installed_objectives() -> dict[str, list[str]]:
    """Return what installed packages offer, by name: module:Attribute of each; none of them is imported."""
    offered: dict[str, list[str]] = {}
    for point in importlib.metadata.entry_points(group=GROUP):
        values = offered.setdefault(point.name, [])
        values += [point.value] if point.value not in values else []
    return offered


def _reference(name: str) -> str:
    """Return module:Attribute, of an entry point what it stands for."""
    values = [name] if ":" in name else installed_objectives().get(name, [name])
    if len(values) > 1:
        both = " and ".join(sorted(values))
        problem = f"{name!r} is defined by two packages, {both}"
        raise UsageError(problem, field="objective", hint="name the one you mean by module:Attribute")
    _require_reference(values[0])
    return values[0]


def _require_reference(name: str) -> None:
    own_code.require_reference(name, field="objective", example="my_package.my_module:MyObjective")


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
