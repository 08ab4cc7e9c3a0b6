"""What a sweep varies: `--grid FIELD=VALUES`, where the field is any of `trimsft train`.

    >>> [axis.values for axis in read_axes(["margin=0:1:0.5", "bandwidth=0.1,2"])]
    [(0.0, 0.5, 1.0), (0.1, 2.0)]

VALUES are a list (0.5,1,2) or a range with both ends (0:6:1 is 0, 1, ..., 6). Several axes make their product. With an
axis `objective`, a field that one of them does not take is left out for that one, which is then made once:

    >>> [point.label for point in points(read_axes(["objective=trim,dft", "margin=1,2"]), "lab")]
    ['TrimSFT (margin 1, bandwidth 0.8)', 'TrimSFT (margin 2, bandwidth 0.8)', 'DFT']
"""

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from trimsft.errors import UsageError
from trimsft.objectives import OBJECTIVES
from trimsft.study.cell import PARAMETERS, Cell, refuse_secrets, takes_of

OBJECTIVE = "objective"
MOST_VALUES = 1000  # values of one range at most: more are a slip of the pen
ELSEWHERE = {"seed": "--seeds", "model_name_or_path": "--model", "dataset_name": "--data", "output_dir": "--out"}
"""Fields that a sweep sets itself, and the option that says how."""


@dataclass(frozen=True)
class Axis:
    """One field and the values it takes."""

    field: str
    values: tuple[Any, ...]


def read_axes(texts: Sequence[str]) -> list[Axis]:
    """The axes that these texts describe; raises `UsageError` for one that cannot be."""
    axes = [_read_axis(text) for text in texts]
    for number, axis in enumerate(axes):
        if axis.field in [other.field for other in axes[:number]]:
            raise _refused(f"{axis.field!r} is there twice", hint="give all of its values in one")
    return axes


def points(axes: Sequence[Axis], model: str, objective: str = "trim") -> list[Cell]:
    """The product of the axes, each setting once; raises `UsageError` for one that could not be trained.

    Args:
        model: the name of all of them within the scale.
        objective: of all points, unless it is an axis itself.
    """
    listed = next((axis.values for axis in axes if axis.field == OBJECTIVE), ())
    names = listed or (objective,)
    for name in names:
        try:
            takes_of(name)  # an unknown one ends here, with the nearest known
        except UsageError as error:
            if not listed:
                raise
            raise _refused(str(error)) from error
    others = [axis for axis in axes if axis.field != OBJECTIVE]
    for axis in others:
        if not any(takes(name, axis.field) for name in names):
            who = ", ".join(name for name in OBJECTIVES if takes(name, axis.field))
            problem = f"{axis.field!r} has no effect with objective {' or '.join(names)}"
            raise _refused(problem, hint=f"it is a field of {who}")
    cells = []
    for name in names:
        fields = [[(axis.field, value) for value in axis.values] for axis in others if takes(name, axis.field)]
        for product in itertools.product(*fields):
            _require_trainable({OBJECTIVE: name, **dict(product)})
            cells.append(Cell(model=model, objective=name, fields=product))
    return list(dict.fromkeys(cells))


def left_out(axes: Sequence[Axis], objective: str = "trim") -> list[str]:
    """For each objective that does not take all fields of the grid, a sentence that says so."""
    names = next((axis.values for axis in axes if axis.field == OBJECTIVE), (objective,))
    without = {name: [axis.field for axis in axes if not takes(name, axis.field)] for name in names}
    return [
        f"{name} takes no {' and no '.join(fields)}: these values make no further runs of it."
        for name, fields in without.items()
        if fields
    ]


def takes(objective: str, field: str) -> bool:
    """Whether the field has an effect with this objective; those that are no objective's own always have."""
    return field not in PARAMETERS or field in takes_of(objective)


def _require_trainable(fields: dict[str, Any]) -> None:
    """Make the settings of `trimsft train`, long before anything is trained."""
    from trimsft.train.settings import make_settings

    try:
        make_settings({"model_name_or_path": "unknown", "dataset_name": "unknown", "output_dir": "unknown", **fields})
    except UsageError as error:
        raise _refused(str(error)) from error


# ---- reading


def _read_axis(text: str) -> Axis:
    field, equals, listed = text.partition("=")
    field, listed = field.strip().removeprefix("--").replace("-", "_"), listed.strip()
    if not equals or not field or not listed:
        raise _refused("must be FIELD=VALUES, such as margin=0:6:1 or bandwidth=0.5,1,2", value=text)
    coerce = _reader_of(field)
    is_range = ":" in listed and field != OBJECTIVE  # module:Attribute is none
    words = _range(field, listed) if is_range else [word.strip() for word in listed.split(",")]
    values = tuple(coerce(word) for word in words)
    for number, value in enumerate(values):
        if value in values[:number]:
            raise _refused(f"{field} has the value {words[number]} twice", hint="give it once")
    return Axis(field, values)


def _range(field: str, text: str) -> list[str]:
    """Decimals, not floats: 0.1:0.5:0.1 has 0.3 and not 0.30000000000000004."""
    wrong = _refused(
        "a range is START:STOP:STEP with STEP above 0 and STOP not below START, such as 0:6:1", value=f"{field}={text}"
    )
    try:
        start, stop, step = (Decimal(word.strip()) for word in text.split(":"))
    except (InvalidOperation, ValueError):
        raise wrong from None
    if not all(number.is_finite() for number in (start, stop, step)) or step <= 0 or stop < start:
        raise wrong
    count = int((stop - start) / step) + 1
    if count > MOST_VALUES:
        raise _refused(f"{field}={text} has {count:,} values", hint=f"make the step larger: {MOST_VALUES} at most")
    return [_plain(start + number * step) for number in range(count)]


def _plain(number: Decimal) -> str:
    """Without an exponent, and whole numbers without a point, so that a field of whole numbers takes them."""
    return f"{int(number)}" if number == number.to_integral_value() else f"{number:f}"


def _reader_of(field: str) -> Any:
    """What makes a value of a word, by the type that `trimsft train` gives the field."""
    from trimsft.train.settings import Parser

    parser = Parser()
    actions = {
        option.removeprefix("--"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    _require_field(field, actions)

    def read(word: str) -> Any:
        try:
            if not word:
                raise UsageError("empty")
            return vars(parser.parse_known_args([f"--{field}", word])[0])[field]
        except UsageError:
            choices = actions[field].choices
            kinds = {bool: "true or false", int: "a whole number", float: "a number"}
            right = kinds.get(type(actions[field].default), f"a value that trimsft train takes for --{field}")
            right = f"one of {', '.join(map(str, choices))}" if choices else right
            raise _refused(f"{field} must be {right}", value=word) from None

    return read


def _require_field(field: str, actions: dict[str, Any]) -> None:
    if field in ELSEWHERE:
        raise _refused(f"{field!r} is not for a grid", hint=f"{ELSEWHERE[field]} sets it")
    if field not in actions or field in ("help", "config"):
        near = difflib.get_close_matches(field, actions, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "trimsft train --help-all lists every field"
        raise _refused(f"no field {field!r}", hint=hint)
    refuse_secrets([field], field="grid")
    if actions[field].nargs not in (None, "?"):
        raise _refused(f"{field!r} takes a list of values", hint="a grid can only vary fields of one")


def _refused(problem: str, **details: Any) -> UsageError:
    return UsageError(problem, field="grid", **details)
