r"""Secrets in settings and on command lines, known by their names; no file may hold one.

>>> without_secrets({"hub_token": "hf_x", "eos_token": "</s>"})
{'eos_token': '</s>'}
>>> hide_secrets(["--hub-token", "hf_x", "--server=http://me:pw@host:8000", '{"token": "hf_x"}'])
['--hub-token', '***', '--server=http://***@host:8000', '***']
"""

import re
from collections.abc import Sequence
from typing import Any

from trimsft.runs.parsing import parse_json

HIDDEN = "***"
_NAME = re.compile(
    r"(^|(hub|hf|auth|access|api|bearer)[-_]?)token$|(api[-_]?key|password|passwd|secret)$", re.IGNORECASE
)
_IN_JSON = re.compile(r'"([^"]*)"\s*:')
_FOLDERS = re.compile(r"""(?<![^\s"'=,(\[])/[^\s"',]*/(?=[^\s"',/])""")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def without_folders(text: str) -> str:
    """Return the text with the last part of each absolute path alone: it names no home.

    >>> without_folders("trimsft train /home/me/a.yaml --out=/home/me/runs/trim --data rows/b.jsonl")
    'trimsft train a.yaml --out=trim --data rows/b.jsonl'
    """
    return _FOLDERS.sub("", text)


def is_secret(name: str) -> bool:
    """Return whether a setting of this name holds a secret."""
    return _NAME.search(name) is not None


def without_secrets(value: Any) -> Any:
    """Return the value without the secrets in its dictionaries, also where they are JSON."""
    if isinstance(value, dict):
        return {name: without_secrets(entry) for name, entry in value.items() if not is_secret(str(name))}
    if isinstance(value, list):
        return [without_secrets(entry) for entry in value]
    if isinstance(value, str) and _holds_secret(value):
        try:
            return without_secrets(parse_json(value))
        except ValueError:
            return HIDDEN
    return value


def hide_secrets(words: Sequence[str]) -> list[str]:
    """Return a command line with stars for its secrets."""
    shown, hide = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        known = is_secret(name.lstrip("-"))
        if hide or _holds_secret(word):
            shown.append(HIDDEN)
        else:
            shown.append(f"{name}={HIDDEN}" if known and equals else _CREDENTIALS.sub(HIDDEN, word))
        hide = known and not equals and name.startswith("-")
    return shown


def _holds_secret(text: str) -> bool:
    return text.lstrip().startswith("{") and any(is_secret(name) for name in _IN_JSON.findall(text))
