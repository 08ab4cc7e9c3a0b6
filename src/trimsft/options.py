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
from enum import Enum
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
    """The metavar of a positional argument, which may be given by its flags, too, if it has some; None for options."""
    metavar: str = ""
    """What --help calls a text that an option takes."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
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


def check_options(settings: Any) -> None:
    """Refuse values of another type than their field's, beyond their bounds or not among the choices.

    Where a field holds paths, texts become paths first, and `~` the home that a shell has not put in its place.
    """
    hints = typing.get_type_hints(type(settings))
    for name, known in options_of(type(settings)).items():
        value, hint = getattr(settings, name), hints[name]
        if not _fits(value, hint) and _fits(paths := _with_paths(value, hint), hint):
            value = paths
        check_value(name, value, hint, known)
        is_list = type(value) in (list, tuple)
        entries = [one.expanduser() if isinstance(one, Path) else one for one in (value if is_list else [value])]
        object.__setattr__(settings, name, type(value)(entries) if is_list else entries[0])  # most are frozen


def _with_paths(value: Any, hint: Any) -> Any:
    """Return the value with paths for texts, where the hint says so; an empty text names nothing, and stays."""
    if isinstance(value, str) and value and Path in _kinds(hint):
        return Path(value)
    if type(value) in (list, tuple) and any(typing.get_args(kind)[:1] == (Path,) for kind in _kinds(hint)):
        return type(value)(_with_paths(entry, Path) for entry in value)
    return value


def check_value(name: str, value: Any, hint: Any, known: Option) -> None:
    """Refuse a value that its type hint or its option does not allow; what a hint allows None for may be None."""
    if not _fits(value, hint):
        kinds = dict.fromkeys(_name_of(kind) for kind in _kinds(hint) if kind is not type(None))
        is_unquoted = str in _kinds(hint) and not isinstance(value, list | dict | None)
        quoted = "put it in quotes" if is_unquoted else None
        raise UsageError(f"must be {' or '.join(kinds)}", field=name, value=value, hint=quoted)
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError("must be a number" if math.isnan(value) else "must be finite", field=name, value=value)
    if isinstance(value, int | float):
        for is_kept, bound in (
            (known.least is None or value >= known.least, f"at least {known.least}"),
            (known.above is None or value > known.above, f"above {known.above}"),
            (known.most is None or value <= known.most, f"at most {known.most}"),
            (known.below is None or value < known.below, f"below {known.below}"),
        ):
            if not is_kept:
                raise UsageError(f"must be {bound}", field=name, value=value)
    for one in value if isinstance(value, list | tuple) else [value]:
        if known.choices and isinstance(one, str) and one not in known.choices:
            raise unknown_name(name, one, known.choices)
        if isinstance(one, Path):
            check_path(name, one)
    _check_texts(name, value)


def check_path(name: str, value: str | Path) -> Path:
    """Return the path from the home that `~` stands for; refuses what cannot name a file or folder, there or not."""
    try:
        path = Path(value).expanduser()
        path.exists()
    except (OSError, ValueError, RuntimeError) as error:  # too long, not allowed, the home of nobody
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot be a path ({reason})", field=name, value=str(value)) from error
    return path


def _check_texts(name: str, value: Any) -> None:
    """Refuse characters that no file could hold, also within lists and dictionaries."""
    if isinstance(value, str | Path):
        text = str(value)
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
            raise UsageError("holds characters that cannot be written", field=name, value=text)
    elif isinstance(value, Mapping):
        _check_texts(name, [*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for entry in value:
            _check_texts(name, entry)


def _fits(value: Any, hint: Any) -> bool:
    return any(_is_of(value, kind) for kind in _kinds(hint))


def _kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows one of."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_of(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Literal:
        return value in inner
    if not isinstance(origin, type):  # Any, type variables
        return True
    if issubclass(origin, Enum):
        return isinstance(value, origin) or value in [member.value for member in origin]
    if isinstance(value, bool):
        return origin is bool
    if origin in (int, float):
        return isinstance(value, numbers.Integral if origin is int else numbers.Real)
    if not isinstance(value, origin):
        return False
    if issubclass(origin, Mapping) or not inner or isinstance(value, str):
        return True
    return all(_fits(entry, inner[0]) for entry in typing.cast("Collection[Any]", value))


_NAMES: dict[type, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path",
    dict: "names and values",
}  # fmt: skip


def _name_of(kind: Any) -> str:
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin is Literal:
        return " or ".join(repr(value) for value in inner)
    if origin in _NAMES:
        return _NAMES[origin]
    if isinstance(origin, type) and issubclass(origin, Enum):
        return f"one of {', '.join(str(member.value) for member in origin)}"
    return f"a list of {_name_of(inner[0])}" if inner else f"a {getattr(kind, '__name__', kind)}"


def from_environment(name: str, default: int) -> int:
    """Return a whole number that launchers such as torchrun put into the environment."""
    value = os.environ.get(name, str(default))
    try:
        return int(value)
    except ValueError:
        problem, hint = f"the environment variable {name} must be a whole number", "unset it, or start by a launcher"
        raise UsageError(problem, value=value, hint=hint) from None


def unknown_name(field: str, name: object, known: Collection[str]) -> UsageError:
    """Return the error for a name that does not exist: the nearest one and the list."""
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown name {name!r}", field=field, hint=f"{guess}known: {', '.join(known)}")


def given_options(settings: Any) -> Mapping[str, Any]:
    """Return the fields that differ from their defaults."""
    changed = {}
    for field in dataclasses.fields(settings):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if getattr(settings, field.name) != default:
            changed[field.name] = getattr(settings, field.name)
    return changed
