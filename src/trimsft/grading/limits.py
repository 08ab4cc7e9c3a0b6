"""What is refused before anything is computed: answers no problem has, and what makes algebra explode."""

from __future__ import annotations

import re

from trimsft.grading.normalize import MAX_ANSWER, MAX_DEPTH, depth_of
from trimsft.grading.unit_words import changes_a_value

_ALGEBRA_LENGTH = 600
_ALGEBRA_DEPTH = 20
_LONG_NUMBER = re.compile(r"\d{60}")
_LARGE_EXPONENT = re.compile(r"\^\s*[{(]{0,3}\s*-?\s*\d{5}")
_LARGE_FACTORIAL = re.compile(r"\d{5}\s*[)}]{0,3}\s*!")
_REPEATED_FACTORIAL = re.compile(r"!\s*[)}]{0,3}\s*!")
_TOWER = re.compile(r"\^\s*[{(]{0,3}[^{}^]{0,12}\^\s*[{(]{0,3}[^{}^]{0,12}\^")

_MODULO = re.compile(r"\\[pb]?mod(?![A-Za-z])")


def too_complex(text: str) -> bool:
    """Whether an answer is longer or deeper nested than any that is read."""
    return len(text) > MAX_ANSWER or depth_of(text) > MAX_DEPTH


def fit_for_algebra(text: str) -> bool:
    """Whether an expression may be given to math-verify; its time and memory are bounded there all the same."""
    if len(text) > _ALGEBRA_LENGTH or depth_of(text) > _ALGEBRA_DEPTH:
        return False
    patterns = (_LONG_NUMBER, _LARGE_EXPONENT, _LARGE_FACTORIAL, _REPEATED_FACTORIAL, _TOWER)
    return not any(pattern.search(text) for pattern in patterns)


def misread(text: str) -> bool:
    """Whether math-verify would drop what changes the value: words after it, a modulus, a negation."""
    return changes_a_value(text) or "\\not" in text or _MODULO.search(text) is not None
