"""Nested settings by dotted names, as they are compared and shown.

>>> dict(by_dotted_name({"sampling": {"temperature": 1.0, "stop": []}, "engine": {}}))
{'sampling.temperature': 1.0, 'sampling.stop': [], 'engine': {}}
"""

from collections.abc import Iterator, Mapping
from typing import Any


def by_dotted_name(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is no object, or an empty one; what is no object at all has the name ""."""
    if isinstance(settings, Mapping) and settings:
        for key, entry in settings.items():
            yield from by_dotted_name(entry, f"{name}.{key}" if name else str(key))
    else:
        yield name, settings
