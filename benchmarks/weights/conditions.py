"""The conditions of the arena: drawn at random from a written distribution, and some with a name.

    >>> condition("choose-2")  # doctest: +NORMALIZE_WHITESPACE
    Condition(formats=('arrows',), slip_rate=0.38, near=True, last_only=True, filler_rate=0.45, updates=60, batch=16,
              rate=0.00078)

`choose-N` are for choosing a rule, `judge-N` for judging it once it is chosen. `spare-N` are for whoever checks later:
do not look at them before.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from trimsft.lab.wording import FAMILIAR, TARGET, UNFAMILIAR

KINDS = ("choose", "judge", "spare")


@dataclass(frozen=True)
class Condition:
    """The rows that a model is trained on, and how long and fast."""

    formats: tuple[str, ...] = (TARGET,)
    """Styles of solutions; each of them in as many rows."""
    slip_rate: float = 0.05
    """Share of steps with a wrong result that the solution carries on with."""
    near: bool = False
    """Slips are of the base's own kind, off by one or ten."""
    last_only: bool = False
    """Only the last step of a solution slips."""
    filler_rate: float = 0.1
    """Share of steps that are followed by a sentence which says nothing."""
    updates: int = 200
    batch: int = 24
    rate: float = 5e-4

    @property
    def rows(self) -> int:
        return self.updates * self.batch

    @property
    def teaches_new(self) -> bool:
        return UNFAMILIAR in self.formats

    @property
    def teaches_only_new(self) -> bool:
        return self.formats == (UNFAMILIAR,)


_NEW = Condition(formats=(UNFAMILIAR,))
NAMED = {
    "default": Condition(),
    "clean": Condition(slip_rate=0.0, filler_rate=0.0),
    "slips40": Condition(slip_rate=0.4),
    "near40": Condition(slip_rate=0.4, near=True),
    "new": _NEW,
    "new-slips40": replace(_NEW, slip_rate=0.4),
    "new-filler50": replace(_NEW, filler_rate=0.5),
    "new-short": replace(_NEW, updates=70),
    "new-short-filler50": replace(_NEW, updates=70, filler_rate=0.5),
    "half-new": Condition(formats=(TARGET, UNFAMILIAR)),
}
"""Conditions in which earlier rules stood out, by name."""


def condition(name: str) -> Condition:
    """Return a condition with a name, or the one that is drawn for `choose-N`, `judge-N` or `spare-N`."""
    return NAMED[name] if name in NAMED else drawn(name)


def drawn(name: str) -> Condition:
    kind, _, number = name.partition("-")
    if kind not in KINDS or not number.isdigit():
        raise ValueError(f"{name!r} is no condition; known: {', '.join(NAMED)}, and {', '.join(KINDS)} with a number")
    rng = random.Random(f"arena/{name}")
    shape = rng.random()
    if shape < 0.3:
        formats: tuple[str, ...] = (TARGET,)
    elif shape < 0.6:
        formats = (UNFAMILIAR,)
    else:  # mixtures, half of them with the new format
        formats = tuple(rng.sample(FAMILIAR, rng.randint(1, 2)))
        formats = (*formats, UNFAMILIAR) if rng.random() < 0.5 else formats
    return Condition(
        formats=formats,
        slip_rate=round(rng.uniform(0, 0.5), 2) if rng.random() < 0.85 else 0.0,
        near=rng.random() < 0.5,
        last_only=rng.random() < 0.25,
        filler_rate=round(rng.uniform(0, 0.6), 2) if rng.random() < 0.7 else 0.0,
        updates=rng.choice([60, 120, 200, 300]),
        batch=rng.choice([8, 16, 24, 64]),
        rate=float(f"{math.exp(rng.uniform(math.log(1e-4), math.log(2e-3))):.1e}"),
    )
