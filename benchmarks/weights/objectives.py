"""The objectives that are compared, by what is written on the command line: a name, and parameters after commas.

>>> parse_objective("trim,margin=6,bandwidth=2")
TrimSFT(margin=6.0, bandwidth=2.0)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

from trimsft.errors import UsageError
from trimsft.objectives import OBJECTIVES, display_name, make_objective, needs_of

T = TypeVar("T")

RULES = "benchmarks.weights.rules:"
MAIN = ("sft", "dft", "trim", "trim,margin=6,bandwidth=2", "trim-e", "talr", "auto-trim")
FLOORS = tuple(f"{RULES}Floor,floor={floor:g}" for floor in (0.01, 0.02, 0.03, 0.05, 0.1))
TRIED = tuple(
    RULES + rule
    for rule in (
        *("Rival,floor=0.01", "Rival,floor=0.02", "Rival,floor=0.03", "Rival,floor=0.05"),
        *("Rival,floor=0.02,power=1.5", "Rival,floor=0.02,power=2", "Rival,floor=0.05,power=2"),
        *("Lead,floor=0.02,power=1.5", "Lead,floor=0.05,power=1.5", "Floor,floor=0.03"),
    )
)
EVERY = tuple(dict.fromkeys((*MAIN, *OBJECTIVES)))
SETS = {"main": MAIN, "floors": FLOORS, "tried": TRIED, "every": EVERY}
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
    parameters = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        try:
            parameters[key] = float(value)
        except ValueError:
            raise UsageError("must be like trim,margin=6", field="objectives", value=text) from None
    return make_objective(name, **parameters)


def reference_of(text: str) -> str | None:
    """What an objective is compared with: "base", "sft" (for Rho-1, whose reference has to know the task), or None."""
    if "reference" not in needs_of(parse_objective(text)):
        return None
    return "sft" if text.split(",")[0] == "rho-1" else "base"


def grouped(models: Iterable[T], objective_of: Callable[[T], str], most: int) -> Iterator[list[T]]:
    """At most so many models at once, all compared with the same kind of reference."""
    by_kind: dict[str | None, list[T]] = {None: [], "base": [], "sft": []}
    for model in models:
        by_kind[reference_of(objective_of(model))].append(model)
    for alike in by_kind.values():
        for first in range(0, len(alike), most):
            yield alike[first : first + most]


def table_name(text: str) -> str:
    """What a table calls it: TrimSFT (6, 2).

    >>> table_name("trim,margin=6,bandwidth=2")
    'TrimSFT (6, 2)'
    """
    name, *settings = text.split(",")
    values = ", ".join(setting.partition("=")[2] for setting in settings)
    title = display_name(name)
    return f"{title} ({values})" if values else title
