"""One cell of a study: a model, what it is trained with, a seed; and the name of its run directory.

    >>> Cell(model="lab", objective="trim").name
    'lab/trim-margin1.5-bandwidth0.8/seed0'
    >>> Cell(model="lab", objective="trim", fields=(("margin", 1.5),)) == Cell(model="lab", objective="trim")
    True

What an objective takes and is not given stands at its default, so that one training is one cell in every study.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimsft.objectives import OBJECTIVES, make_objective

BASE = "base"
PARAMETERS = ("margin", "bandwidth", "gamma")
"""What objectives take; these come first in a name."""
OWN = ("objective", "seed", "output_dir", "model_name_or_path")
"""Fields of `trimsft train` that a cell or its study sets itself."""
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a study; equal cells are the same run."""

    model: str
    """Its name within the scale, such as "lab" or "Qwen2.5-Math-1.5B"."""
    objective: str
    """ "base" (evaluated as it is) or a name of `make_objective`."""
    fields: tuple[tuple[str, Any], ...] = ()
    """Margin, bandwidth, gamma and any other field of `trimsft train`; sorted."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_model_name(self.model)
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed: must be a whole number of at least 0, got {self.seed!r}")
        given = dict(self.fields)
        if len(given) < len(self.fields):
            raise ValueError(f"fields: one is given twice in {self.fields!r}")
        object.__setattr__(self, "fields", tuple(sorted(self._complete(given).items())))

    def _complete(self, given: dict[str, Any]) -> dict[str, Any]:
        """With the objective's own parameters; what has no effect is refused."""
        for name in given:
            if name in OWN:
                raise ValueError(f"fields: {name!r} belongs to the cell itself or to its study; leave it out")
        if self.objective == BASE:
            if given:
                raise ValueError(
                    f"fields: {next(iter(given))!r} has no effect on objective 'base', which is not trained"
                )
            return {}
        takes = takes_of(self.objective)
        for name in PARAMETERS:
            if name in given and name not in takes:
                raise ValueError(f"{name}: {given[name]!r} has no effect with objective {self.objective!r}; remove it")
        made = make_objective(self.objective, **{name: given[name] for name in takes if name in given})
        return {name: getattr(made, name) for name in takes} | given

    @property
    def name(self) -> str:
        """A relative path, readable and of this cell alone."""
        shown = sorted(self.fields, key=lambda field: (_rank(field[0]), field[0]))
        method = "-".join([self.objective, *(f"{name}{_text(value)}" for name, value in shown)])
        return f"{self.model}/{method}/seed{self.seed}"

    @property
    def is_base(self) -> bool:
        return self.objective == BASE

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field that differs from the scale's."""
        return dict(self.fields).get(field, default)

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "objective": self.objective,
            "fields": dict(self.fields),
            "seed": self.seed,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Cell:
        """What `as_dict` wrote."""
        return cls(
            model=record["model"],
            objective=record["objective"],
            fields=tuple(record["fields"].items()),
            seed=record["seed"],
        )


def takes_of(objective: str) -> tuple[str, ...]:
    """The parameters of an objective; an unknown one is refused with the nearest name."""
    kind = OBJECTIVES.get(objective) or type(make_objective(objective))
    return tuple(field.name for field in dataclasses.fields(kind))


def check_model_name(name: str) -> None:
    if not _SAFE.fullmatch(name):
        raise ValueError(
            f"model: {name!r} must be a name of letters, digits and . _ + -; write NAME=PATH to give it one"
        )


def _rank(field: str) -> int:
    return PARAMETERS.index(field) if field in PARAMETERS else len(PARAMETERS)


def _text(value: Any) -> str:
    """A value as part of a file name; what cannot be one is told apart by its hash."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(float(value)).removesuffix(".0")
    text = str(value)
    if _SAFE.fullmatch(text):
        return f"={text}"
    shown = re.sub(r"[^A-Za-z0-9._+]+", "_", text)[-40:].strip("_")
    return f"={shown}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"
