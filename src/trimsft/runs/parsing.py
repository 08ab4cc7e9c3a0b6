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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trimsft.errors import RunError, one_line

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from yaml import Node

Kind = TypeVar("Kind")
RESTORE = "restore it or remove it"
LARGEST_YAML = 2**20
"""Characters of a YAML text: settings are written by hand, and the parser needs a second for as many."""
MOST_NODES = 100_000
"""Values of a YAML text, those counted again that an alias repeats."""
DEEPEST = 200
"""Lists and objects of a JSON text in one another."""


class ParseError(ValueError):
    """A text that is not what it should be; the message is one line."""


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    except ValueError as error:  # bytes that are no UTF-8 and numbers of thousands of digits, too
        raise ParseError(one_line(error)) from error
    if _is_deep(value):  # what Python 3.13 still reads, and nobody could walk through
        raise ParseError("nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    """Whether lists and objects are in one another more than `DEEPEST` times; it walks level by level."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return False
    return True


def parse_yaml(text: str) -> Any:
    """The value of a YAML text of settings; what aliases make too large or endless is refused before it is built."""
    import yaml

    if len(text) > LARGEST_YAML:
        raise ParseError(f"longer than {LARGEST_YAML:,} characters")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}) > MOST_NODES:
            raise ParseError(f"more than {MOST_NODES:,} values")
        _refuse_repeated_keys(node)
        return loader.construct_document(node)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    except Exception as error:  # dates and numbers that do not exist, and whatever a tag makes of its value
        raise ParseError(one_line(error)) from error


def _count(node: "Node", counts: dict[int, int]) -> int:
    """How many values a node stands for once aliases are followed; what holds itself is endless."""
    if id(node) in counts:
        return counts[id(node)]
    counts[id(node)] = MOST_NODES + 1  # until it is known
    below = [part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,))]
    counts[id(node)] = 1 + sum(_count(part, counts) for part in below if not isinstance(part, str))
    return counts[id(node)]


def _refuse_repeated_keys(root: "Node") -> None:
    """A key may stand once, as YAML has it; the parser would take the last of several without a word."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node.value, str):
            continue
        seen.add(id(node))
        keys = set[tuple[str, str]]()
        for entry in node.value:
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
    """The content of a JSON file as a type or a dataclass; `FileNotFoundError` passes."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        raise _refusal(str(path), error, hint) from error


def checked(kind: type[Kind], value: Any, *, where: str, hint: str = RESTORE) -> Kind:
    """A parsed value as a type or a dataclass; `where` is the place that an error names."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise _refusal(where, error, hint) from error


def _adapter(kind: type[Kind]) -> "TypeAdapter[Kind]":
    from pydantic import TypeAdapter

    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


_adapters: "dict[type, TypeAdapter[Any]]" = {}


def _refusal(where: str, error: "ValidationError", hint: str) -> RunError:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    problem = first["msg"][:1].lower() + first["msg"][1:]
    is_whole_text = first["type"] == "json_invalid"
    said = problem if is_whole_text else f"{problem}, got {reprlib.repr(first['input'])}"
    return RunError(f"{where}: {place + ': ' if place else ''}{said}", hint=hint)
