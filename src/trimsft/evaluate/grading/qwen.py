r"""The lenient rules behind published figures, for comparison only: `kind="qwen"`.

Written from what the public evaluation of Qwen2.5-Math does, which many papers report with: numbers are
compared at 1e-4 relative, also after division or multiplication by 100, so 50 is 0.5 and 10001 is
10000; the brackets of a pair do not matter, so (2,5) is [2,5); units, percent signs and "x=" go away;
without a box the text after "answer is", or the last number, is the answer. Two steps are not
repeated: text is never handed to an evaluator of Python code, and symbolic equality is decided by
this package's evaluator, then by math-verify and sympy in a worker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeAlias

from trimsft.evaluate.grading import boxes
from trimsft.evaluate.grading.compare import compare
from trimsft.evaluate.grading.leaves import same_leaf
from trimsft.evaluate.grading.normalize import MAX_ANSWER, MAX_DEPTH, clean, depth_of
from trimsft.evaluate.grading.rules import Rules
from trimsft.evaluate.grading.units import UNIT_OF

Algebra: TypeAlias = Callable[[str, str], bool | None]
RELATIVE = 1e-4

_TAIL = 20_000
_NUMBER = re.compile(r"-?\d*\.?\d+")
_ANSWER_IS = re.compile(r"answer is:?")
_TRAILING_TEXT = re.compile(r"\\(?:text|mbox)\{[^{}]*\}$")
_TEXT = re.compile(r"\\(?:text|mbox|mathbf|mathrm)\{([^{}]*)\}")
_UNITS = re.compile(
    r"(?<![A-Za-z\\])(?:" + "|".join(re.escape(u) for u in UNIT_OF if len(u) > 1) + r")(?![A-Za-z])"
)
_NAMED = re.compile(r"^(?:[xyz]|..?)(?:=|\\in(?![A-Za-z])|\\to(?![A-Za-z]))")
_ZEROS = re.compile(r"(\d)\.0*(?=\D|$)")
_CHOICE = re.compile(r"\b([A-E])\b")
_PAIR = re.compile(r"[(\[].+[)\]]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)


def extract_answer(response: str) -> str | None:
    """The last box, else what follows "answer is", else the last number."""
    answer = boxes.extract_answer(response)
    if answer is None:
        tail = response[-_TAIL:]
        stated = _ANSWER_IS.split(tail)
        numbers = _NUMBER.findall(tail.replace(",", ""))
        if len(stated) > 1 and stated[-1].strip():
            answer = stated[-1].strip()[:MAX_ANSWER]
        else:
            answer = numbers[-1] if numbers else None
    return strip(answer) if answer is not None else None


def strip(text: str) -> str:
    """Without units, names, percent signs and spacing."""
    if len(text) > MAX_ANSWER or depth_of(text) > MAX_DEPTH:
        return text.strip()
    text = clean(text.strip().rstrip("./"))
    text = _TRAILING_TEXT.sub("", text).strip() or text
    text = _UNITS.sub("", text).strip() or text
    text = text.replace("^{\\circ}", "").replace("^\\circ", "").replace("\\%", "").replace("%", "")
    text = _TEXT.sub(r"\1", text).replace("\\{", "{").replace("\\}", "}").replace(" ", "")
    text = _NAMED.sub("", text)
    return _ZEROS.sub(r"\1", text)


def math_equal(answer: str, gold: str, algebra: Algebra) -> bool | None:
    """Whether two stripped answers count as equal; None where the algebra gave up."""
    if answer.lower() == gold.lower():
        return True
    if gold in "ABCDE" and len(gold) == 1 and (letters := _CHOICE.findall(answer.upper())):
        return bool(letters[-1] == gold)
    numbers = _number(answer), _number(gold)
    if numbers[0] is not None and numbers[1] is not None:
        return any(math.isclose(numbers[0], numbers[1] * by, rel_tol=RELATIVE) for by in (0.01, 1.0, 100.0))
    if _bare(answer).lower() == _bare(gold).lower():
        return True
    if _same_parts(answer, gold, algebra):
        return True
    return _same_algebra(answer, gold, algebra)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _bare(text: str) -> str:
    return re.sub(r"[{}()\[\]]", "", text)


def _same_parts(answer: str, gold: str, algebra: Algebra) -> bool:
    """Pairs, tuples and intervals by element, whatever their brackets; matrices by cell."""
    if _PAIR.fullmatch(answer) and _PAIR.fullmatch(gold):
        pieces = answer[1:-1].split(","), gold[1:-1].split(",")
    elif (first := _MATRIX.fullmatch(answer)) and (second := _MATRIX.fullmatch(gold)):
        pieces = re.split(r"\\\\|&", first[1]), re.split(r"\\\\|&", second[1])
    else:
        return False
    if len(pieces[0]) != len(pieces[1]) or pieces[0] == [answer[1:-1]]:
        return False
    return all(math_equal(a.strip(), b.strip(), algebra) for a, b in zip(*pieces, strict=True))


def _same_algebra(answer: str, gold: str, algebra: Algebra) -> bool | None:
    if answer.count("=") == 1 == gold.count("="):
        sides = [text.split("=") for text in (answer, gold)]
        first, second = (f"{left}-({right})" for left, right in sides)
        if _symbolic(first, second, algebra) or _symbolic(f"-({first})", second, algebra):
            return True
    elif answer.count("=") == 1 and answer.index("=") <= 2 and "=" not in gold:
        return math_equal(answer.split("=")[1], gold, algebra)
    elif gold.count("=") == 1 and gold.index("=") <= 2 and "=" not in answer:
        return math_equal(answer, gold.split("=")[1], algebra)
    return _symbolic(answer, gold, algebra)


def _symbolic(answer: str, gold: str, algebra: Algebra) -> bool | None:
    verdict = compare(gold, answer, Rules(tolerance=RELATIVE), same_leaf)
    return algebra(answer, gold) if verdict is None else verdict
