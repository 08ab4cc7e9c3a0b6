r"""JSON and YAML of files and servers, refused in one line, whatever is in them.

    >>> parse_json(b'{"samples": 8}')
    {'samples': 8}
    >>> checked(dict[str, bool], {"greedy": 3.5}, where="settings.json")
    Traceback (most recent call last):
    trimsft.errors.RunError: settings.json: greedy: input should be a valid boolean, got 3.5; restore it or remove it

Both parsers raise `ValueError` alone; `read_json` and `checked` say where it stood, as a `RunError`.
"""

import json
import reprlib
from pathlib import Path
from typing import Any, TypeVar

from trimsft.errors import RunError, one_line

Kind = TypeVar("Kind")
RESTORE = "restore it or remove it"
_adapters: dict[Any, Any] = {}  # of pydantic, by type: each takes milliseconds to make


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also of no UTF-8
        raise ValueError(one_line(error)) from error


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text; refuse a key that is there twice."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set[tuple[str, str]]()
            for key in (key for key, _ in node.value if isinstance(key.value, str)):
                if (key.tag, key.value) in seen:
                    raise ValueError(f"line {key.start_mark.line + 1}: {key.value!r} is there twice")
                seen.add((key.tag, key.value))
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except Exception as error:  # also what a tag makes of its value
        raise ValueError(one_line(error)) from error


def read_json(path: Path, kind: type[Kind], *, hint: str = RESTORE) -> Kind:
    """Return the content of a JSON file as a type or a dataclass; `FileNotFoundError` passes."""
    return checked(kind, path.read_bytes(), where=str(path), hint=hint, is_json=True)


def checked(kind: type[Kind], value: Any, *, where: str, hint: str = RESTORE, is_json: bool = False) -> Kind:
    """Return a parsed value, or a text of JSON, as a type; an error names `where` it stood."""
    from pydantic import TypeAdapter, ValidationError

    if (adapter := _adapters.get(kind)) is None:
        adapter = _adapters[kind] = TypeAdapter(kind)
    try:
        result: Kind = adapter.validate_json(value, strict=True) if is_json else adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = first["msg"][:1].lower() + first["msg"][1:]
        if first["type"] != "json_invalid":
            problem += f", got {reprlib.repr(first['input'])}"
        raise RunError(f"{where}: {place + ': ' if place else ''}{problem}", hint=hint) from error
    return result
