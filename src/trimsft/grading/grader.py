r"""Grading a response against a gold: find the answer, clean both, compare, and say how it ended.

    >>> grade(r"so it is \boxed{\frac12}.", "0.5")
    Grade(correct=True, status='correct', answer='\\frac12')
    >>> grade(r"\boxed{3}", ("2", "3")).correct
    True

All is decided in this process, within limits that count characters, nodes and digits, so that a verdict does not
depend on the machine. Patterns of anybody's alone are run in a process of their own (`patterns.py`).
"""

from __future__ import annotations

import atexit
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal

from trimsft.errors import UsageError, one_line
from trimsft.grading import qwen
from trimsft.grading.boxes import extract_all, extract_answer
from trimsft.grading.compare import compare
from trimsft.grading.normalize import MAX_ANSWER, MAX_DEPTH, clean, depth_of
from trimsft.grading.own import Scorer
from trimsft.grading.patterns import PatternSearch
from trimsft.grading.rules import GRADER_VERSION, LETTERS, Grade, Rules, Status
from trimsft.grading.shapes import shape_of
from trimsft.grading.texts import same_text, stated_choice, stated_text

Kind = Literal["strict", "qwen"]
Gold = str | tuple[str, ...] | list[str]
Item = tuple[str, Gold, Rules, bool]  # response, gold or golds, rules, truncated

_CACHE_SIZE = 200_000
_MOST_SLOW = 10  # responses that a pattern may time out on: each costs `seconds`, and a benchmark has thousands
_DEFAULT = Rules()
_OF_MATHEMATICS = ("multiple", "tolerance", "absolute", "unit")


class Grader:
    """Grades responses; a context manager, because patterns are searched for in a process."""

    def __init__(self, *, kind: Kind = "strict", seconds: float = 1.5, scorer: Scorer | None = None) -> None:
        """Set up a grader; `seconds` of processor time bound the search for a pattern in one response.

        A `scorer` of one's own takes the place of all rules.
        """
        if not 0 < seconds <= 600:
            raise ValueError(f"seconds={seconds!r}: expected a number in (0, 600]")
        if kind not in ("strict", "qwen"):
            raise ValueError(f"kind={kind!r}: expected 'strict' or 'qwen'")
        self.kind = kind
        self.name, self.version = (scorer.name, scorer.version) if scorer else (kind, GRADER_VERSION)
        """What grades are recorded with: those by another name or version do not compare."""
        self.uses_rules = scorer is None
        self.seconds = seconds
        self._scorer = scorer
        self._patterns = PatternSearch()
        self._slow_patterns: dict[str, int] = {}
        self._cache: dict[tuple[str, str, Rules], Status] = {}
        self.ignored_rules: set[str] = set()
        """Fields of `Rules` that problems declared and this kind of grader has no use for."""

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process of the patterns; a later grade starts it again."""
        self._patterns.close()

    def grade(self, response: str, gold: Gold, rules: Rules = _DEFAULT, *, truncated: bool = False) -> Grade:
        """Return the verdict on one response; of several golds any will do."""
        golds = tuple(gold) if isinstance(gold, tuple | list) else (gold,)
        for name, texts in (("response", (response,)), ("gold", golds)):
            if not texts or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"{name}={gold if name == 'gold' else response!r}: expected text")
        if self._scorer is not None:
            grades = [self._scorer.grade(response, one, truncated) for one in golds]
            return next((grade for grade in grades if grade.correct), grades[0])
        rules = self._used(rules)
        try:
            answer = self._answer(response, golds, rules, truncated)
        except TimeoutError:
            return Grade(False, "timeout", None)
        if answer is None:
            return Grade(False, "truncated" if truncated else "no_answer", None)
        statuses = [self._status(one, answer, rules) for one in golds]
        is_correct = "correct" in statuses
        return Grade(is_correct, "correct" if is_correct else statuses[0], answer)

    def grade_many(self, items: Iterable[Item]) -> list[Grade]:
        """Return the verdicts on many, in order."""
        return [self.grade(response, gold, rules, truncated=truncated) for response, gold, rules, truncated in items]

    def equivalent(self, a: str, b: str, rules: Rules = _DEFAULT) -> bool:
        """Whether two answers count as one vote: each must be correct when the other is the gold."""
        if self._scorer is not None:
            return same_text(a, b)
        rules = self._used(rules)
        return self._status(a, b, rules) == "correct" and self._status(b, a, rules) == "correct"

    def _used(self, rules: Rules) -> Rules:
        """The rules that apply: the lenient grader has its own mathematics, and notes what it leaves out."""
        if self.kind == "strict" or rules == _DEFAULT:
            return rules
        self.ignored_rules |= {name for name in _OF_MATHEMATICS if getattr(rules, name) != getattr(_DEFAULT, name)}
        return Rules(grading=rules.grading, choices=rules.choices)

    def _answer(self, response: str, golds: Sequence[str], rules: Rules, truncated: bool) -> str | None:
        """The answer as the model wrote it; raises `TimeoutError` where a pattern takes too long to find it."""
        grading = rules.grading
        if grading.kind == "choice":
            return stated_choice(response, rules.choices)
        if grading.kind == "exact":
            return stated_text(response, truncated)
        if grading.pattern is not None:
            answer = self._find(grading.pattern, response)
            is_lenient = self.kind == "qwen" and grading.is_mathematics
            return qwen.strip(answer) if answer and is_lenient else answer
        if self.kind == "qwen":
            return qwen.extract_answer(response)
        several = rules.multiple or any("," in gold and shape_of(clean(gold)).kind == "list" for gold in golds)
        return extract_all(response) if several else extract_answer(response)

    def _find(self, pattern: str, response: str) -> str | None:
        try:
            return self._patterns.find(pattern, response, self.seconds)
        except TimeoutError:
            slow = self._slow_patterns[pattern] = self._slow_patterns.get(pattern, 0) + 1
            if slow < _MOST_SLOW:
                raise
            took = f"took more than {self.seconds:g} s on each of {slow} responses"
            hint = "simplify it: a repetition within a repetition, (a+)+, may take for ever"
            raise UsageError(took, field="pattern", value=pattern, hint=hint) from None

    def _status(self, gold: str, answer: str, rules: Rules) -> Status:
        question = (gold, answer, rules)
        status = self._cache.get(question)
        if status is None:
            judged = _lenient if self.kind == "qwen" else _strict
            if not rules.grading.is_mathematics:
                judged = _as_text
            try:
                status = judged(gold, answer, rules)
            except Exception as error:  # whatever a model has written, the other answers are graded
                warnings.warn(
                    f"grading: {answer[:200]!r} against {gold[:200]!r} ended in "
                    f"{type(error).__name__}: {one_line(error)}. It counts as unparsable; please report it",
                    stacklevel=2,
                )
                status = "unparsable"
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[question] = status
        return status


def _strict(gold: str, answer: str, rules: Rules) -> Status:
    """Return the verdict by the rules of docs/grading.md."""
    if gold.strip() == answer.strip():
        return "correct"
    if _too_complex(answer) or _too_complex(gold):
        return "unparsable"
    gold, answer = clean(gold), clean(answer)
    return _named(compare(gold, answer, rules) if answer else None)


def _lenient(gold: str, answer: str, rules: Rules) -> Status:
    """Return the verdict by the lenient rules; `answer` is stripped, `rules` are the default."""
    if _too_complex(answer) or _too_complex(gold):
        return "unparsable"
    return _named(qwen.math_equal(answer, qwen.strip(qwen.strip(gold))))


def _as_text(gold: str, answer: str, rules: Rules) -> Status:
    """Return the verdict on a letter, or on a text."""
    if rules.grading.kind == "choice" and (len(answer) != 1 or answer not in LETTERS):
        return "unparsable"
    return _named(same_text(gold, answer, rules.grading.ignore_case))


def _named(verdict: bool | None) -> Status:
    if verdict is None:
        return "unparsable"
    return "correct" if verdict else "wrong"


def _too_complex(text: str) -> bool:
    """Whether an answer is longer or deeper nested than any that is read."""
    # a character may stand for many
    is_long = len(text) > MAX_ANSWER or len(unicodedata.normalize("NFKC", text)) > MAX_ANSWER
    return is_long or depth_of(text) > MAX_DEPTH


def grade(
    response: str, gold: Gold, rules: Rules = _DEFAULT, *, truncated: bool = False, grader: Grader | None = None
) -> Grade:
    """Return the verdict on one response, by `grader` or by one that the process shares."""
    return (grader or _shared_grader()).grade(response, gold, rules, truncated=truncated)


@cache
def _shared_grader() -> Grader:
    shared = Grader()
    atexit.register(shared.close)
    return shared
