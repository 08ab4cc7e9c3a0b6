"""The objectives that are compared, by what is written on the command line: a name, and parameters after commas.

>>> parse_objective("trim,margin=6,bandwidth=2")
TrimSFT(margin=6.0, bandwidth=2.0)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

from trimsft.errors import UsageError
from trimsft.objectives import OBJECTIVES, display_name, make_objective

T = TypeVar("T")

RULES = "benchmarks.weights.rules:"
MAIN = ("sft", "dft", "trim", "trim,margin=6,bandwidth=2", "trim-e", f"{RULES}TALRBatch", "auto-trim")
FLOORS = tuple(f"{RULES}Floor,floor={floor:g}" for floor in (0.01, 0.02, 0.03, 0.05, 0.1))
TRIED = tuple(
    RULES + rule
    for rule in (
        *("Rival,floor=0.01", "Rival,floor=0.02", "Rival,floor=0.03", "Rival,floor=0.05"),
        *("Rival,floor=0.02,power=1.5", "Rival,floor=0.02,power=2", "Rival,floor=0.05,power=2"),
        *("Lead,floor=0.02,power=1.5", "Lead,floor=0.05,power=1.5", "Floor,floor=0.03"),
    )
)
AROUND = tuple(
    f"{RULES}Around,{rule}"
    for rule in ("floor=0.03,reach=0", "floor=0.03,reach=8", "floor=0.1,reach=8", "floor=0.03,reach=8,power=1")
)
RIVALS = (
    *("saft,alpha=0.5", "saft,alpha=0.5,form=geometric", "saft,alpha=0.5,form=harmonic", "talr", "talr,floor=0.1"),
    *("deft", "ranktuner", "idft", "p-threshold,low=0.1"),
)
EVERY = tuple(dict.fromkeys((*MAIN, *OBJECTIVES)))
SETS = {"main": MAIN, "floors": FLOORS, "tried": TRIED, "around": AROUND, "rivals": RIVALS, "every": EVERY}
"""What the names stand for that are sets of objectives."""


def named_objectives(names: list[str]) -> list[str]:
    """Return every objective once, in order; each is read before anything is trained."""
    found = [each for name in names for each in SETS.get(name, (name,))]
    for name in found:
        parse_objective(name)
    return list(dict.fromkeys(found))


@cache
def parse_objective(text: str) -> Any:
    """The same object for the same text: models that share one are weighed together."""
    name, *settings = text.split(",")
    parameters: dict[str, float | str] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if not value:
            raise UsageError("must be like trim,margin=6", field="objectives", value=text)
        try:
            parameters[key] = float(value)
        except ValueError:  # saft,form=harmonic
            parameters[key] = value
    return make_objective(name, **parameters)


def grouped(models: Iterable[T], most: int) -> Iterator[list[T]]:
    """Yield at most so many models at once."""
    left = iter(models)
    while group := list(itertools.islice(left, most)):
        yield group


def table_name(text: str) -> str:
    """What a table calls it: TrimSFT (6, 2).

    >>> table_name("trim,margin=6,bandwidth=2")
    'TrimSFT (6, 2)'
    """
    name, *settings = text.split(",")
    values = ", ".join(setting.partition("=")[2] for setting in settings)
    title = display_name(name)
    return f"{title} ({values})" if values else title
