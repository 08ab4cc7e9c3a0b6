"""A scorer of one's own: a function of a response and its gold, named `my_module:score` on the command line.

    def score(response: str, gold: str) -> bool: ...
    def score(response: str, gold: str) -> tuple[bool, str | None]: ...    # and the answer, by which samples vote

It runs in this process, without limits of time or memory: it is the user's own code, and never that of a file.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimsft import own_code
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.grading.rules import Grade

RETURNS = "True or False, or a pair of that and the answer (a text, or None)"


@dataclass(frozen=True)
class Scorer:
    """A loaded scorer; `version` follows from the code of its file."""

    name: str
    version: str
    function: Callable[[str, str], Any]

    def grade(self, response: str, gold: str, truncated: bool) -> Grade:
        """What the function says; what it raises, or returns by mistake, ends the grading in one line."""
        try:
            said = self.function(response, gold)
        except Exception as error:
            where = f"on the response {response[:80]!r} to the gold {gold[:80]!r}"
            raise TrimSFTError(f"{self.name} failed {where} ({type(error).__name__}: {one_line(error)})") from error
        correct, answer = said if isinstance(said, tuple) and len(said) == 2 else (said, response.strip())
        is_verdict = isinstance(correct, bool | int | float) or type(correct).__name__ in ("bool", "bool_")  # numpy's
        if not is_verdict or correct not in (0, 1) or not (isinstance(answer, str) or answer is None):
            raise TrimSFTError(f"{self.name} must return {RETURNS}, got {said!r:.200}")
        if correct and answer is None:
            raise TrimSFTError(f"{self.name} must return an answer where it returns True, got {said!r}")
        if answer is None:
            return Grade(False, "truncated" if truncated else "no_answer", None)
        return Grade(bool(correct), "correct" if correct else "wrong", answer)


def load_scorer(name: str) -> Scorer:
    """The function of that name, from the current folder or an installed package; loading runs its module."""
    own_code.require_reference(name, field="grader", example="my_module:score")
    function = own_code.load_attribute(name, field="grader")
    try:
        inspect.signature(function).bind("response", "gold")
    except (TypeError, ValueError):
        hint = "name a function of a response and its gold"
        raise UsageError(f"{name!r} grades no responses", field="grader", hint=hint) from None
    codes = own_code.fingerprints(own_code.source_files(name, function))
    version = hashlib.sha256("".join(codes).encode()).hexdigest()[:12] if codes else "unknown"
    return Scorer(name, version, function)
