r"""What files and servers say, read with suspicion: JSON and YAML that are refused in one line, whatever is in them.

    >>> parse_json(b'{"samples": 8}')
    {'samples': 8}
    >>> parse_yaml("a: &a [1]\nb: *a")
    {'a': [1], 'b': [1]}
    >>> checked(dict[str, bool], {"greedy": 3.5}, where="settings.json")
    Traceback (most recent call last):
    trimsft.errors.RunError: settings.json: greedy: input should be a valid boolean, got 3.5; restore it or remove it

Both parsers raise `ParseError` and nothing else. `read_json` and `checked` say where it stood, as a `RunError`.
"""

import json
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trimsft.errors import RunError, one_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from yaml import Node

Kind = TypeVar("Kind")
RESTORE = "restore it or remove it"
LARGEST_YAML = 2**20
"""Characters of a YAML text: settings are written by hand, and the parser needs a second for as many."""
MOST_NODES = 100_000
"""Values of a YAML text, those counted again that an alias repeats."""


class ParseError(ValueError):
    """A text that is not what it should be; the message is one line."""


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    except ValueError as error:  # bytes that are no UTF-8 and numbers of thousands of digits, too
        raise ParseError(one_line(error)) from error


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text of settings; what aliases make too large or endless is never built."""
    import yaml

    if len(text) > LARGEST_YAML:
        raise ParseError(f"longer than {LARGEST_YAML:,} characters")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_nodes(root)
        return loader.construct_document(root)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    except Exception as error:  # dates and numbers that do not exist, and whatever a tag makes of its value
        raise ParseError(one_line(error)) from error


def _check_nodes(root: "Node") -> None:
    """Walk as far as aliases lead; refuse too many values, and a key that stands twice, of which PyYAML takes one."""
    waiting, count = [root], 0
    while waiting:
        node, count = waiting.pop(), count + 1
        if count > MOST_NODES:
            raise ParseError(f"more than {MOST_NODES:,} values")
        keys = set[tuple[str, str]]()
        for entry in () if isinstance(node.value, str) else node.value:
            if not isinstance(entry, tuple):
                waiting.append(entry)
                continue
            waiting += entry
            key, _ = entry
            if isinstance(key.value, str) and not key.tag.endswith(":merge"):
                if (key.tag, key.value) in keys:
                    raise ParseError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
                keys.add((key.tag, key.value))


def read_json(path: Path, kind: type[Kind], *, hint: str = RESTORE) -> Kind:
    """Return the content of a JSON file as a type or a dataclass; `FileNotFoundError` passes."""
    content = path.read_bytes()
    value: Kind = _validated(str(path), lambda: _adapter(kind).validate_json(content, strict=True), hint)
    return value


def checked(kind: type[Kind], value: Any, *, where: str, hint: str = RESTORE) -> Kind:
    """Return a parsed value as a type or a dataclass; `where` is the place that an error names."""
    result: Kind = _validated(where, lambda: _adapter(kind).validate_python(value), hint)
    return result


def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


_adapters: "dict[Any, TypeAdapter[Any]]" = {}


def _validated(where: str, validate: Callable[[], Any], hint: str) -> Any:
    from pydantic import ValidationError

    try:
        return validate()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = first["msg"][:1].lower() + first["msg"][1:]
        if first["type"] != "json_invalid":
            problem += f", got {reprlib.repr(first['input'])}"
        raise RunError(f"{where}: {place + ': ' if place else ''}{problem}", hint=hint) from error
