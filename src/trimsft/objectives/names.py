"""Objectives by name."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

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
OBJECTIVES: dict[str, type[BuiltinObjective]] = {**PAPER_OBJECTIVES}
PAPER_NAMES = dict(zip(PAPER_OBJECTIVES, ("SFT", "FSFT", "DFT", "TrimSFT", "TrimSFT-E", "TrimSFT-H"), strict=True))
"""What the paper calls them, in the order of its tables."""


def make_objective(name: str, **parameters: float) -> BuiltinObjective:
    """The objective of that name, for instance `make_objective("trim", margin=1.0)`."""
    if name not in OBJECTIVES:
        raise unknown_name("objective", name, OBJECTIVES)
    kind = OBJECTIVES[name]
    fields = [field.name for field in dataclasses.fields(kind)]
    for parameter in parameters:
        if parameter not in fields:
            takes = f"it takes {', '.join(fields)}" if fields else "it takes no parameters"
            raise ValueError(f"objective {name!r} has no parameter {parameter!r}; {takes}")
    return kind(**parameters)
