"""Settings that are declared once: a dataclass whose fields carry their description and bounds, from which a command
line is made and by which values are checked.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Settings:
    ...     samples: int = option(8, help="Samples of each problem (0: greedy decoding only).", least=0)
    ...     engine: str = option("auto", help="Where texts are generated.", choices=("auto", "vllm"))
    ...
    ...     def __post_init__(self) -> None:
    ...         check_options(self)
    >>> Settings(samples=-1)
    Traceback (most recent call last):
    trimsft.errors.UsageError: samples: must be at least 0, got -1
    >>> Settings(engine="vlm")
    Traceback (most recent call last):
    trimsft.errors.UsageError: engine: unknown name 'vlm'; did you mean 'vllm'? known: auto, vllm
    >>> Settings(samples=2.5)
    Traceback (most recent call last):
    trimsft.errors.UsageError: samples: must be a whole number, got 2.5
"""

import dataclasses
import difflib
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union

from trimsft.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known of a field beside its type and default."""

    help: str = ""
    """A sentence; the command line adds the default by itself."""
    flags: tuple[str, ...] = ()
    """Names on the command line, where they are not --field-name; a bool with one flag has no --no- form."""
    argument: str | None = None
    """The metavar of a positional argument; None for options."""
    metavar: str = ""
    """What --help calls a text that an option takes."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    inline: type | None = None
    """A dataclass whose own options stand on the command line in place of this field."""


def option(default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None, **known: Any) -> Any:
    """Declare a dataclass field with an `Option`; takes its fields as keywords."""
    metadata = {"option": Option(**known)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(kind: type) -> dict[str, Option]:
    """Return the options of a dataclass, by field."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}


def given_options(settings: Any) -> Mapping[str, Any]:
    """Return the fields that differ from their defaults."""
    changed = {}
    for field in dataclasses.fields(settings):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if getattr(settings, field.name) != default:
            changed[field.name] = getattr(settings, field.name)
    return changed


# ---- checks


def check_options(settings: Any) -> None:
    """Refuse values of another type than their field's, beyond their bounds or not among the choices.

    Where a field holds paths, texts become paths first, and `~` the home that a shell has not put in its place.
    """
    hints = typing.get_type_hints(type(settings))
    for name, known in options_of(type(settings)).items():
        hint = hints[name]
        value = _with_paths(name, getattr(settings, name), hint)
        if not _fits(value, hint):
            allowed = dict.fromkeys(_words(kind) for kind in _kinds(hint) if kind is not type(None))
            raise UsageError(f"must be {' or '.join(allowed)}", field=name, value=value)
        _check_bounds(name, value, known)
        object.__setattr__(settings, name, value)  # most are frozen


def _check_bounds(name: str, value: Any, known: Option) -> None:
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise UsageError("must be a number" if math.isnan(value) else "must be finite", field=name, value=value)
        for is_kept, bound in (
            (known.least is None or value >= known.least, f"at least {known.least}"),
            (known.above is None or value > known.above, f"above {known.above}"),
            (known.most is None or value <= known.most, f"at most {known.most}"),
        ):
            if not is_kept:
                raise UsageError(f"must be {bound}", field=name, value=value)
    for one in value if isinstance(value, list | tuple) else [value]:
        if known.choices and isinstance(one, str) and one not in known.choices:
            raise unknown_name(name, one, known.choices)


def _with_paths(name: str, value: Any, hint: Any) -> Any:
    """Return the value with paths for texts, where the hint says so; an empty text names nothing, and stays."""
    if Path in _kinds(hint) and isinstance(value, str | Path) and value:
        return check_path(name, value)
    if isinstance(value, list | tuple) and any(typing.get_args(kind)[:1] == (Path,) for kind in _kinds(hint)):
        return type(value)(_with_paths(name, entry, Path) for entry in value)
    return value


def check_path(name: str, value: str | Path) -> Path:
    """Return the path from the home that `~` stands for; refuses what cannot name a file or folder, there or not."""
    try:
        path = Path(value).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, not allowed, the home of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot be a path ({reason})", field=name, value=str(value)) from error
    return path


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows one of."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(_is_of(value, kind) for kind in _kinds(hint))


def _is_of(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Literal:
        return value in inner
    if isinstance(value, bool):
        return origin is bool
    if origin in (int, float):
        return isinstance(value, numbers.Integral if origin is int else numbers.Real)
    if not isinstance(value, origin):
        return False
    if not inner or isinstance(value, str | Mapping):
        return True
    return all(_fits(entry, inner[0]) for entry in typing.cast("Collection[Any]", value))


def _words(kind: Any) -> str:
    """Return what a type is called in a message."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(repr, inner))
    if inner:
        return f"a list of {_words(inner[0])}"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    return names.get(kind, f"a {kind.__name__}")


def unknown_name(field: str, name: object, known: Collection[str]) -> UsageError:
    """Return the error for a name that does not exist: the nearest one and the list."""
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown name {name!r}", field=field, hint=f"{guess}known: {', '.join(known)}")


def from_environment(name: str, default: int) -> int:
    """Return a whole number that launchers such as torchrun put into the environment."""
    value = os.environ.get(name, str(default))
    try:
        return int(value)
    except ValueError:
        problem, hint = f"the environment variable {name} must be a whole number", "unset it, or start by a launcher"
        raise UsageError(problem, value=value, hint=hint) from None
