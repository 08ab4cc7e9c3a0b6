r"""Grading a response against a gold: find the answer, clean both, compare, and say how it ended.

    >>> grade(r"so it is \boxed{\frac12}.", "0.5")
    Grade(correct=True, status='correct', answer='\\frac12')

Cheap and exact comparisons happen in this process, within static limits; what they cannot decide goes
to math-verify in a pool of processes that are killed past their time or memory, and so do all patterns.
"""

from __future__ import annotations

import atexit
import re
import time
import unicodedata
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Literal

from trimsft.errors import TrimSFTError, UsageError, one_line
from trimsft.grading import qwen
from trimsft.grading.boxes import extract_all, extract_answer
from trimsft.grading.compare import compare
from trimsft.grading.leaves import SIDE_BY_SIDE, same_leaf, tree_of
from trimsft.grading.normalize import MAX_ANSWER, MAX_DEPTH, clean, depth_of
from trimsft.grading.own import Scorer
from trimsft.grading.pool import Pool
from trimsft.grading.rules import GRADER_VERSION, LETTERS, Grade, Rules, Status
from trimsft.grading.shapes import shape_of
from trimsft.grading.texts import same_text, stated_choice, stated_text
from trimsft.grading.words import changes_a_value

Kind = Literal["strict", "qwen"]
Item = tuple[str, str, Rules, bool]  # response, gold, rules, truncated
Question = tuple[str, str, Rules]  # gold, answer, rules

_CACHE_SIZE = 200_000
_EARLY_WORKERS = 4  # started while a model still generates; the others when there is work for them
_WHOLE = re.compile(r"\s*-?\d+\s*")
_MOST_SLOW = 10  # responses that a pattern may time out on: each costs `seconds`, and a benchmark has thousands
_DEFAULT = Rules()
_OF_MATHEMATICS = ("multiple", "tolerance", "absolute", "unit")


class Grader:
    """Grades responses; a context manager, because it may hold processes."""

    def __init__(
        self,
        workers: int = 1,
        *,
        seconds: float = 1.5,
        memory_bytes: int = 1 << 30,
        kind: Kind = "strict",
        scorer: Scorer | None = None,
    ) -> None:
        """`seconds` bounds the algebra or the pattern of one answer; `memory_bytes` the address space of one worker.

        A `scorer` of one's own takes the place of all rules.
        """
        if workers < 1:
            raise ValueError(f"workers={workers!r}: expected at least 1")
        if not 0 < seconds <= 600:
            raise ValueError(f"seconds={seconds!r}: expected a number in (0, 600]")
        if memory_bytes < 1 << 28:
            raise ValueError(f"memory_bytes={memory_bytes!r}: expected at least {1 << 28}")
        if kind not in ("strict", "qwen"):
            raise ValueError(f"kind={kind!r}: expected 'strict' or 'qwen'")
        self.kind = kind
        self.name, self.version = (scorer.name, scorer.version) if scorer else (kind, GRADER_VERSION)
        """What grades are recorded with: those by another name or version do not compare."""
        self.uses_rules = scorer is None
        self.seconds = seconds
        self._scorer = scorer
        self._workers = workers
        self._pool = Pool(workers, memory_bytes)
        self._patterns = Pool(1, memory_bytes, "patterns")
        self._slow_patterns: dict[str, int] = {}
        self._cache: dict[Question, Status] = {}
        self._slow: set[str] = set()  # expressions that took all their time once, and are not asked about again
        self.ignored_rules: set[str] = set()
        """Fields of `Rules` that problems declared and this kind of grader has no use for."""

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def expect(self, golds: Iterable[str]) -> None:
        """Start workers early for golds that may need algebra; whole numbers hardly ever do."""
        if self._scorer is None and not all(map(_WHOLE.fullmatch, golds)):
            self._pool.start(_EARLY_WORKERS)

    def close(self) -> None:
        """End the worker processes; a later grade starts them again."""
        self._pool.close()
        self._patterns.close()

    def grade(self, response: str, gold: str, rules: Rules = _DEFAULT, *, truncated: bool = False) -> Grade:
        """The verdict on one response; see `Grade`."""
        if self._scorer is not None:
            return self._scorer.grade(response, gold, truncated)
        question = self._question(response, gold, rules, truncated)
        return _grade(question, question if isinstance(question, str) else self._status(*question))

    def grade_many(self, items: Iterable[Item]) -> list[Grade]:
        """The verdicts on many, in order, with all workers; equal questions are asked once."""
        if self._scorer is not None:
            return [self._scorer.grade(response, gold, truncated) for response, gold, _, truncated in items]
        asked = [self._question(*item) for item in items]
        statuses: dict[Question | Status, Status] = {}
        undecided: list[Question] = []
        for question in dict.fromkeys(asked):
            try:
                statuses[question] = question if isinstance(question, str) else self._status(*question, algebra=False)
            except _NeedsAlgebra:
                assert not isinstance(question, str)
                undecided.append(question)
        with ThreadPoolExecutor(self._workers) as threads:
            statuses |= zip(undecided, threads.map(lambda question: self._status(*question), undecided), strict=True)
        return [_grade(question, statuses[question]) for question in asked]

    def equivalent(self, a: str, b: str, rules: Rules = _DEFAULT) -> bool:
        """Whether two answers count as one vote: each must be correct when the other is the gold."""
        if self._scorer is not None:
            return same_text(a, b)
        rules = self._used(rules)
        return self._status(a, b, rules) == "correct" and self._status(b, a, rules) == "correct"

    def _question(self, response: str, gold: str, rules: Rules, truncated: bool) -> Question | Status:
        """The gold, the answer and the rules that apply; how it ended where a response states no answer."""
        for name, text in (("response", response), ("gold", gold)):
            if not isinstance(text, str):
                raise TypeError(f"{name}={text!r}: expected text")
        rules = self._used(rules)
        try:
            answer = self._answer(response, gold, rules, truncated)
        except TimeoutError:
            return "timeout"
        if answer is None:
            return "truncated" if truncated else "no_answer"
        return gold, answer, rules

    def _used(self, rules: Rules) -> Rules:
        """The rules that apply: the lenient grader has its own mathematics, and notes what it leaves out."""
        if self.kind == "strict" or rules == _DEFAULT:
            return rules
        self.ignored_rules |= {name for name in _OF_MATHEMATICS if getattr(rules, name) != getattr(_DEFAULT, name)}
        return Rules(grading=rules.grading, choices=rules.choices)

    def _answer(self, response: str, gold: str, rules: Rules, truncated: bool) -> str | None:
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
        several = rules.multiple or ("," in gold and shape_of(clean(gold)).kind == "list")
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

    def _status(self, gold: str, answer: str, rules: Rules, algebra: bool = True) -> Status:
        question = (gold, answer, rules)
        status = self._cache.get(question)
        if status is None:
            judgement = _Judgement(self._pool if algebra else None, self.seconds, self._slow)
            judged = judgement.qwen if self.kind == "qwen" else judgement.strict
            if not rules.grading.is_mathematics:
                judged = _as_text
            try:
                status = judged(gold, answer, rules)
            except (_NeedsAlgebra, TrimSFTError):  # a worker that cannot start is no fault of the answer
                raise
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


def _grade(question: Question | Status, status: Status) -> Grade:
    return Grade(status == "correct", status, None if isinstance(question, str) else question[1])


def _as_text(gold: str, answer: str, rules: Rules) -> Status:
    """The verdict on a letter, or on a text."""
    if rules.grading.kind == "choice" and (len(answer) != 1 or answer not in LETTERS):
        return "unparsable"
    return "correct" if same_text(gold, answer, rules.grading.ignore_case) else "wrong"


class _NeedsAlgebra(Exception):
    """The cheap comparisons do not decide."""


class _Judgement:
    """One comparison: its budget of time, shared by all questions to the pool, and how those ended."""

    def __init__(self, pool: Pool | None, seconds: float, slow: set[str]) -> None:
        self._pool = pool
        self._left = seconds
        self._slow = slow
        self._timed_out = False

    def strict(self, gold: str, answer: str, rules: Rules) -> Status:
        """The rules of docs/grading.md."""
        if gold.strip() == answer.strip():
            return "correct"
        if _too_complex(answer) or _too_complex(gold):
            return "unparsable"
        gold, answer = clean(gold), clean(answer)
        if not answer:
            return "unparsable"
        verdict = compare(gold, answer, rules, self._leaf)
        if verdict is None:
            verdict = self._algebra(gold, answer)
        return self._ended(verdict)

    def qwen(self, gold: str, answer: str, rules: Rules) -> Status:
        """The lenient rules, for comparison only; `answer` is stripped, `rules` are the default."""
        if _too_complex(answer) or _too_complex(gold):
            return "unparsable"
        return self._ended(
            qwen.math_equal(answer, qwen.strip(qwen.strip(gold)), lambda a, b: self._algebra(b, a, loose=True))
        )

    def _ended(self, verdict: bool | None) -> Status:
        if verdict is None:
            return "timeout" if self._timed_out else "unparsable"
        return "correct" if verdict else "wrong"

    def _leaf(self, gold: str, answer: str, rules: Rules) -> bool | None:
        verdict = same_leaf(gold, answer, rules)
        return self._algebra(gold, answer) if verdict is None else verdict

    def _algebra(self, gold: str, answer: str, loose: bool = False) -> bool | None:
        if not (_fit_for_algebra(gold) and _fit_for_algebra(answer)):
            return None
        if not loose and (_misread(gold) or _misread(answer) or not _beyond_the_reader(gold, answer)):
            return None
        self._timed_out |= not self._slow.isdisjoint((gold, answer))
        if self._left <= 0.01 or self._timed_out:
            return None
        if self._pool is None:
            raise _NeedsAlgebra
        started = time.monotonic()
        said = self._pool.ask(gold, answer, self._left, loose)
        self._left -= time.monotonic() - started
        if said == "timeout":
            self._timed_out = True
            self._slow.add(answer)
        return {"equal": True, "different": False}.get(said)


# ---- what is refused before anything is computed: answers no problem has, and what makes algebra explode

_ALGEBRA_LENGTH = 600
_ALGEBRA_DEPTH = 20
_EXPLOSIVE = re.compile(
    r"\d{60}|\^\s*[{(]{0,3}\s*-?\s*\d{5}"  # a long number, a large exponent
    r"|(?:\d{5}|!)\s*[)}]{0,3}\s*!"  # a large or a repeated factorial
    r"|\^\s*[{(]{0,3}[^{}^]{0,12}\^\s*[{(]{0,3}[^{}^]{0,12}\^"  # a tower of powers
)
_DROPPED = re.compile(r"\\[pb]?mod(?![A-Za-z])|\\not|\d\s*['\"]")
"""A modulus, a negation, a quote after a digit."""
_OPERATORS = re.compile(r"\\(?:sum|prod|i{1,3}nt|oint|lim)(?![A-Za-z])")
_MATRICES = re.compile(r"(?:[+-]?\s*\\begin\{pmatrix\}[^{}]*\\end\{pmatrix\}\s*){1,4}")
_MOST_OPERATORS = 3
_DIFFERENTIAL = re.compile(r"d\s*\\?[a-z]+[\s)}]*$")


def _too_complex(text: str) -> bool:
    """Whether an answer is longer or deeper nested than any that is read."""
    # a character may stand for many
    is_long = len(text) > MAX_ANSWER or len(unicodedata.normalize("NFKC", text)) > MAX_ANSWER
    return is_long or depth_of(text) > MAX_DEPTH


def _fit_for_algebra(text: str) -> bool:
    """Whether an expression may be given to math-verify; its time and memory are bounded there all the same."""
    is_small = len(text) <= _ALGEBRA_LENGTH and depth_of(text) <= _ALGEBRA_DEPTH
    return is_small and not _EXPLOSIVE.search(text)


def _misread(text: str) -> bool:
    """Whether math-verify would drop what changes the value: words after it, a modulus, a negation."""
    return changes_a_value(text) or SIDE_BY_SIDE.search(text) is not None or _DROPPED.search(text) is not None


def _beyond_the_reader(gold: str, answer: str) -> bool:
    """Whether math-verify may know better: of integrals, limits and series, sums and products of matrices.

    Of other texts it takes what it can read and drops the rest, and so accepts what it should not.
    """
    if _MATRICES.fullmatch(gold) and _MATRICES.fullmatch(answer):
        return True
    unread = [text for text in (gold, answer) if tree_of(text) is None]
    if any("int" in text and not _DIFFERENTIAL.search(text) for text in unread):
        return False  # what follows an integral is dropped
    return 0 < sum(len(_OPERATORS.findall(text)) for text in unread) <= _MOST_OPERATORS


# ---- one grader for the process


def grade(
    response: str, gold: str, rules: Rules = _DEFAULT, *, truncated: bool = False, grader: Grader | None = None
) -> Grade:
    """The verdict on one response, with `grader` or one shared by the process that starts its worker when needed."""
    return (grader or _shared_grader()).grade(response, gold, rules, truncated=truncated)


@cache
def _shared_grader() -> Grader:
    shared = Grader()
    atexit.register(shared.close)
    return shared
