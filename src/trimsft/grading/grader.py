r"""Grade a response against a gold: find the answer, clean both, compare, and say how it ended.

    >>> grade(r"so it is \boxed{\frac12}.", "0.5")
    Grade(correct=True, status='correct', answer='\\frac12')
    >>> grade(r"\boxed{3}", ("2", "3")).correct
    True

Limits count characters, nodes and digits, so that a verdict does not depend on the machine; a search for a user's
pattern alone is bounded by processor time.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from trimsft import own_code
from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.grading import qwen
from trimsft.grading.answers import extract_answer, same_text, stated_choice, stated_text
from trimsft.grading.clean import MAX_ANSWER, clean, is_too_complex
from trimsft.grading.compare_shapes import compare, is_readable
from trimsft.grading.kinds import GRADER_VERSION, LETTERS, Grade, Rules, Status
from trimsft.grading.shapes import shape_of

Kind = Literal["strict", "qwen"]
Gold = str | tuple[str, ...] | list[str]
Item = tuple[str, Gold, Rules, bool]  # response, gold or golds, rules, truncated

_CACHE_SIZE = 200_000
_SECONDS = 1.5  # of processor time for a pattern in one response
_MOST_SLOW = 10  # responses that a pattern may time out on: a benchmark has thousands
_DEFAULT = Rules()


class Grader:
    """Grade responses, and remember what was decided."""

    def __init__(self, *, kind: Kind = "strict", scorer: Scorer | None = None) -> None:
        """Set up a grader; a user's `scorer` takes the place of all rules."""
        if kind not in ("strict", "qwen"):
            raise ValueError(f"kind={kind!r}: expected 'strict' or 'qwen'")
        self.kind = kind
        self.name, self.version = (scorer.name, scorer.version) if scorer else (kind, GRADER_VERSION)
        self.uses_rules = scorer is None
        self._scorer = scorer
        self._slow: Counter[str] = Counter()  # responses by pattern
        self._status = lru_cache(_CACHE_SIZE)(self._decide)

    def grade(self, response: str, gold: Gold, rules: Rules = _DEFAULT, *, truncated: bool = False) -> Grade:
        """Return the verdict on one response; of several golds any will do."""
        golds = tuple(gold) if isinstance(gold, tuple | list) else (gold,)
        if not golds or not all(isinstance(text, str) for text in (response, *golds)):
            raise TypeError(f"response={response!r}, gold={gold!r}: expected texts")
        if self._scorer is not None:
            grades = [self._scorer.grade(response, one, truncated) for one in golds]
            return next((grade for grade in grades if grade.correct), grades[0])
        rules = self._applicable(rules)
        try:
            answer = self._answer(response, golds, rules, truncated)
        except TimeoutError:
            return Grade(False, "timeout", None)
        if answer is None:
            return Grade(False, "truncated" if truncated else "no_answer", None)
        statuses = [self._status(one, answer, rules) for one in golds]
        status = "correct" if "correct" in statuses else statuses[0]
        return Grade(status == "correct", status, answer)

    def grade_many(self, items: Iterable[Item]) -> list[Grade]:
        """Return the verdicts on many, in order."""
        return [self.grade(response, gold, rules, truncated=truncated) for response, gold, rules, truncated in items]

    def equivalent(self, a: str, b: str, rules: Rules = _DEFAULT) -> bool:
        """Return whether two answers are one vote: each is correct when the other is the gold."""
        if self._scorer is not None:
            return same_text(a, b)
        rules = self._applicable(rules)
        return self._status(a, b, rules) == "correct" and self._status(b, a, rules) == "correct"

    def _applicable(self, rules: Rules) -> Rules:
        """Return the rules that apply: the lenient grader has no use for tolerances, units and several values."""
        return rules if self.kind == "strict" else Rules(grading=rules.grading, choices=rules.choices)

    def _answer(self, response: str, golds: tuple[str, ...], rules: Rules, truncated: bool) -> str | None:
        """Return the answer as written; raise `TimeoutError` where a pattern takes too long."""
        grading = rules.grading
        if grading.kind == "choice":
            return stated_choice(response, rules.choices)
        if grading.kind == "exact":
            return stated_text(response, truncated)
        if grading.pattern is not None:
            answer = self._find(grading.pattern, response)
            return qwen.strip(answer) if answer and self.kind == "qwen" else answer
        if self.kind == "qwen":
            return qwen.extract_answer(response)
        several = rules.multiple or any("," in gold and shape_of(clean(gold)).kind == "list" for gold in golds)
        return extract_answer(response, several)

    def _find(self, pattern: str, response: str) -> str | None:
        """Return what the group of a pattern holds where it last holds something."""
        import regex  # type: ignore[import-untyped]  # of the extra [eval]

        answer = ""
        try:
            for match in regex.finditer(pattern, response, timeout=_SECONDS):
                answer = (match[1] or "").strip() or answer
        except (TimeoutError, MemoryError):
            self._slow[pattern] += 1
            if self._slow[pattern] < _MOST_SLOW:
                raise TimeoutError from None
            took = f"took more than {_SECONDS:g} s on each of {_MOST_SLOW} responses"
            hint = "simplify it: a repetition within a repetition, (a+)+, may take for ever"
            raise UsageError(took, field="pattern", value=pattern, hint=hint) from None
        return answer[: MAX_ANSWER + 1] or None

    def _decide(self, gold: str, answer: str, rules: Rules) -> Status:
        try:
            return self._compare(gold, answer, rules)
        except Exception as error:  # whatever a model has written, the other answers are graded
            ended = f"{answer[:200]!r} against {gold[:200]!r} ended in {type(error).__name__}: {one_line(error)}"
            warnings.warn(f"grading: {ended}. It counts as unparsable; please report it", stacklevel=2)
            return "unparsable"

    def _compare(self, gold: str, answer: str, rules: Rules) -> Status:
        """Return the verdict by the rules of docs/grading.md."""
        grading = rules.grading
        if grading.kind == "choice" and answer not in tuple(LETTERS):
            return "unparsable"
        if grading.kind in ("exact", "choice"):
            return "correct" if same_text(gold, answer) else "wrong"
        if self.kind == "strict" and gold.strip() == answer.strip():
            return "correct"
        if is_too_complex(answer) or is_too_complex(gold):
            return "unparsable"
        cleaned = clean(answer)
        if self.kind == "qwen":
            is_equal = qwen.math_equal(answer, qwen.strip(qwen.strip(gold)))
        else:
            is_equal = bool(cleaned) and compare(clean(gold), cleaned, rules)
        return "correct" if is_equal else "wrong" if is_readable(cleaned) else "unparsable"


def grade(
    response: str, gold: Gold, rules: Rules = _DEFAULT, *, truncated: bool = False, grader: Grader | None = None
) -> Grade:
    """Return the verdict on one response, by `grader` or a shared one."""
    return (grader or _SHARED).grade(response, gold, rules, truncated=truncated)


_SHARED = Grader()


# ---- scorers of users


@dataclass(frozen=True)
class Scorer:
    """A user's function in place of all rules; `version` follows from the code of its file.

    def score(response: str, gold: str) -> bool: ...
    def score(response: str, gold: str) -> tuple[bool, str | None]: ...    # and the answer, by which samples vote

    It runs in this process, without limits: it is the user's own code, and never that of a file.
    """

    name: str
    version: str
    function: Callable[[str, str], Any]

    def grade(self, response: str, gold: str, truncated: bool) -> Grade:
        """Return the function's verdict; what it raises ends the grading in one line."""
        try:
            said = self.function(response, gold)
        except Exception as error:
            where = f"on the response {response[:80]!r} to the gold {gold[:80]!r}"
            raise TrimSFTError(f"{self.name} failed {where} ({type(error).__name__}: {one_line(error)})") from error
        correct, answer = said if isinstance(said, tuple) and len(said) == 2 else (said, response.strip())
        is_verdict = isinstance(correct, Hashable) and correct in (0, 1)  # numpy's True is, too
        if not is_verdict or not isinstance(answer, str | None) or (correct and answer is None):
            returns = "True or False, or a pair of that and the answer (a text, or None where that is False)"
            raise TrimSFTError(f"{self.name} must return {returns}, got {said!r:.200}")
        if answer is None:
            return Grade(False, "truncated" if truncated else "no_answer", None)
        return Grade(bool(correct), "correct" if correct else "wrong", answer)


def load_scorer(name: str) -> Scorer:
    """Load the function of that name; this runs its module."""
    own_code.require_reference(name, field="grader", example="my_module:score")
    function = own_code.load_attribute(name, field="grader")
    try:
        inspect.signature(function).bind("response", "gold")
    except (TypeError, ValueError):
        hint = "name a function of a response and its gold"
        raise UsageError(f"{name!r} grades no responses", field="grader", hint=hint) from None
    codes = own_code.fingerprints(name, function)
    version = hashlib.sha256("".join(codes).encode()).hexdigest()[:12] if codes else "unknown"
    return Scorer(name, version, function)
