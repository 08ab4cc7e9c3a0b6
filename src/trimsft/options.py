"""Settings that are declared once: dataclasses whose fields carry their help and bounds.

>>> @dataclass(frozen=True, kw_only=True)
... class Settings:
...     samples: int = option(8, help="Samples of each problem (0: greedy decoding only).", least=0)
...     __post_init__ = check_options
>>> Settings(samples=-1)
Traceback (most recent call last):
trimsft.errors.UsageError: samples: must be at least 0, got -1
"""

import dataclasses
import difflib
import math
import numbers
import os
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Option:
    """The facts of a field beside its type and default."""

    help: str = ""  # a sentence; the command line adds the default by itself
    flags: tuple[str, ...] = ()  # if not --field-name; a bool with one has no --no- form
    argument: str | None = None  # the metavar of a positional argument; None for options
    metavar: str = ""  # what --help calls a text that an option takes
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()


def option(default: Any = dataclasses.MISSING, **known: Any) -> Any:
    """Declare a dataclass field with an `Option`; takes its fields as keywords."""
    return dataclasses.field(default=default, metadata={"option": Option(**known)})


def options_of(kind: type) -> dict[str, Option]:
    """Return the options of a dataclass, by field."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}


def given_options(settings: Any) -> Mapping[str, Any]:
    """Return the fields that differ from their defaults."""
    values = vars(settings)
    return {one.name: values[one.name] for one in dataclasses.fields(settings) if values[one.name] != one.default}


_NUMBERS: dict[Any, Any] = {int: numbers.Integral, float: numbers.Real}  # also those of numpy


def check_options(settings: Any) -> None:
    """Refuse values of another type than their field's, beyond bounds or not among the choices.

    A text or path is taken for the other where the field wants that, and alone for a list of one.
    """
    hints = typing.get_type_hints(type(settings))
    for name, known in options_of(type(settings)).items():
        value = _converted(name, getattr(settings, name), hints[name])
        object.__setattr__(settings, name, value)  # most are frozen
        if isinstance(value, int | float):
            for is_kept, bound in (
                (math.isfinite(value), "a finite number"),
                (known.least is None or value >= known.least, f"at least {known.least}"),
                (known.above is None or value > known.above, f"above {known.above}"),
                (known.most is None or value <= known.most, f"at most {known.most}"),
            ):
                if not is_kept:
                    raise UsageError(f"must be {bound}", field=name, value=value)
        for one in value if isinstance(value, tuple) else (value,):
            if known.choices and isinstance(one, str) and one not in known.choices:
                raise unknown_name(name, one, known.choices)


def _converted(name: str, value: Any, hint: Any) -> Any:
    """Return a value as what a field takes; refuse what is of another type."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    for kind in kinds:
        inner = typing.get_args(kind)
        entries = (value,) if isinstance(value, str | Path) else value
        if inner and isinstance(entries, list | tuple):
            return tuple(_converted(name, one, inner[0]) for one in entries)
        if kind in (str, Path) and isinstance(value, str | Path) and (value or kind is str):
            return str(value) if kind is str else Path(os.path.expanduser(value))
        if not inner and isinstance(value, bool) == (kind is bool) and isinstance(value, _NUMBERS.get(kind, kind)):
            return value if isinstance(value, int | float | None) else kind(value)
    raise UsageError(f"must be {hint.__name__ if isinstance(hint, type) else hint}", field=name, value=value)


def unknown_name(field: str, name: object, known: Collection[str]) -> UsageError:
    """Return the error for a name that does not exist: the nearest one and the list."""
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown name {name!r}", field=field, hint=f"{guess}known: {', '.join(known)}")
