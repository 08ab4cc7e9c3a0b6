"""The form of a grade, and what a benchmark may declare about its answers.

>>> rules = Rules(absolute=0.1, unit="%")  # what a row of OlympiadBench declares
>>> rules.multiple, rules.tolerance, str(rules.grading)
(False, None, 'math')
>>> str(Grading("regex", pattern="#### (-?[0-9.,]+)"))
"regex '#### (-?[0-9.,]+)'"
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from trimsft.errors import UsageError, one_line
from trimsft.options import unknown_name

Status = Literal["correct", "wrong", "no_answer", "truncated", "timeout", "unparsable"]
GradingKind = Literal["math", "exact", "choice", "regex"]
GRADING_KINDS: tuple[GradingKind, ...] = get_args(GradingKind)
GRADER_VERSION = "10"  # raised whenever a grade may change; scores carry it
LETTERS = "ABCDEFGHIJ"  # of choices
DECIMAL_TOLERANCE = 1e-6
"""Relative; between a decimal and an exact value that is no integer, as in 0.3333333 and 1/3."""


@dataclass(frozen=True)
class Grade:
    """The verdict on one response."""

    correct: bool
    status: Status  # only `correct` is correct
    answer: str | None  # the answer as the model wrote it, None where there is none


@dataclass(frozen=True)
class Grading:
    """Where a response states its answer, and how that is compared with the gold."""

    kind: GradingKind = "math"
    """math: the last box, as mathematics. exact: the last box, or the whole response, as text. choice: a letter. regex:
    what the one group of a pattern holds, where it matches last, as mathematics."""
    pattern: str | None = None  # of regex alone

    def __post_init__(self) -> None:
        """Refuse what means nothing; an error names the field."""
        if self.kind not in GRADING_KINDS:
            raise unknown_name("grading", str(self.kind), GRADING_KINDS)
        if self.kind != "regex":
            if self.pattern is not None:
                raise UsageError(f"has no effect on grading {self.kind!r}", field="pattern", value=self.pattern)
            return
        if self.pattern is None:
            example = "#### (-?[0-9.,]+)"  # for the solutions of GSM8K
            raise UsageError("is missing for grading 'regex'", field="pattern", hint=f"such as {example!r}")
        import regex  # type: ignore[import-untyped]

        try:
            groups = regex.compile(self.pattern).groups
        except (regex.error, RecursionError, OverflowError) as error:
            raise UsageError(
                f"is no regular expression ({one_line(error)})", field="pattern", value=self.pattern
            ) from None
        if groups != 1:
            problem = f"must have one group (...), which holds the answer, and has {groups}"
            raise UsageError(problem, field="pattern", value=self.pattern, hint="write (?:...) for others")

    def __str__(self) -> str:
        return self.kind if self.pattern is None else f"{self.kind} {self.pattern!r}"


@dataclass(frozen=True)
class Rules:
    """Grading options of one problem; the default suits MATH, AMC, AIME and GSM8K."""

    multiple: bool = False
    """The gold is several values, in any order; boxes in a row count as one list."""
    tolerance: float | None = None
    """Relative, between numbers that are not both integers; None: see `DECIMAL_TOLERANCE`."""
    absolute: float | None = None  # tolerance: the `error` column of OlympiadBench
    unit: str | None = None
    """Unit of the gold where the gold itself has none; an answer may carry it, but no other."""
    grading: Grading = Grading()
    choices: tuple[str, ...] = ()
    """What the letters A, B, ... stand for, where that is known."""

    def __post_init__(self) -> None:
        for name in ("tolerance", "absolute"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 <= value < 1):
                raise ValueError(f"{name}={value!r}: expected a number in [0, 1), or None")
