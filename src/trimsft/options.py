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
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trimsft.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known of a field beside its type and default."""

    help: str
    """A sentence; the command line adds the default by itself."""
    flags: tuple[str, ...] = ()
    """Names on the command line, where they are not --field-name; a bool with one flag has no --no- form."""
    argument: str | None = None
    """The metavar of a positional argument; None for options."""
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    inline: type | None = None
    """A dataclass whose own options stand on the command line in place of this field."""


def option(default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None, **known: Any) -> Any:
    """A dataclass field with an `Option`; takes its fields as keywords."""
    metadata = {"option": Option(**known)}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def options_of(kind: type) -> dict[str, Option]:
    """The options of a dataclass, by field."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["option"] for field in fields if "option" in field.metadata}


def check_options(settings: Any) -> None:
    """Refuse values beyond their bounds and names that are not among the choices; None passes."""
    for name, known in options_of(type(settings)).items():
        value = getattr(settings, name)
        if value is None:
            continue
        if known.choices and value not in known.choices:
            raise unknown_name(name, value, known.choices)
        if known.least is not None or known.above is not None or known.most is not None:
            _check_number(name, value, known)


def _check_number(name: str, value: Any, known: Option) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError("must be a number", field=name, value=value)
    for is_kept, bound in (
        (known.least is None or value >= known.least, f"at least {known.least}"),
        (known.above is None or value > known.above, f"above {known.above}"),
        (known.most is None or value <= known.most, f"at most {known.most}"),
    ):
        if not is_kept:
            raise UsageError(f"must be {bound}", field=name, value=value)


def unknown_name(field: str, name: object, known: Collection[str]) -> UsageError:
    """The error for a name that does not exist: the nearest one and the list."""
    near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.4)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown name {name!r}", field=field, hint=f"{guess}known: {', '.join(known)}")


def given_options(settings: Any) -> Mapping[str, Any]:
    """The fields that differ from their defaults."""
    changed = {}
    for field in dataclasses.fields(settings):
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if getattr(settings, field.name) != default:
            changed[field.name] = getattr(settings, field.name)
    return changed
