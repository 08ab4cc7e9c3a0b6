r"""Grade by the lenient rules behind published figures, for comparison only: `kind="qwen"`.

Written from what the public evaluation of Qwen2.5-Math does, which many papers report with, and run side by side with
it: docs/grading.md has the rules and the counts. Two steps are not repeated: text is never handed to an evaluator of
Python code, and symbolic equality is decided by this package's evaluator in place of sympy.

    >>> extract_answer("The final answer is $x=5$. I hope it is correct.")
    '5'
"""

import math
import re
from itertools import chain

from trimsft.grading.clean import MAX_ANSWER, clean, is_too_complex
from trimsft.grading.compare_values import same_value, tree_of
from trimsft.grading.kinds import Rules
from trimsft.grading.shapes import split_outside
from trimsft.grading.units import HARNESS_UNITS, NUMBERS, closes_at
from trimsft.grading.values import names_in

RELATIVE = 1e-4
_TAIL = 20_000
_NUMBER = re.compile(r"-?\d*\.?\d+")
_UNIT = re.compile(r"(?<!\w)(?:" + "|".join(sorted(HARNESS_UNITS, key=len, reverse=True)) + r")s?(?!\w)")
_SHORT_NAME = re.compile(r"\A[^=]{0,2}=(?=[^=]*\Z)")
_NAMED = re.compile(r"[xyz](?:=|\\in(?![A-Za-z])|\\to(?![A-Za-z]))")
_LETTER = re.compile(r"\\text\s*\{\s*([A-Za-z])\s*\}")
_PI = re.compile(r"\\pi(?![A-Za-z])")
_CHOICE = re.compile(r"\b([A-E])\b")
_PAIR = re.compile(r"[(\[].+[)\]]", re.DOTALL)
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_RELATIONS = {"=", "<", ">", "\\le", "\\ge"}
_RESPELLED = (
    ("\\!", ""), ("\\end{array}", "\\end{pmatrix}"), ("bmatrix", "pmatrix"), ("tfrac", "frac"), ("dfrac", "frac"),
    ("\\neq", "\\ne"), ("\\leq", "\\le"), ("\\geq", "\\ge"), ("\\left", ""), ("\\right", ""), ("\\{", "{"),
    ("\\}", "}"),
)  # fmt: skip


def extract_answer(response: str) -> str | None:
    """Return Minerva's closing sentence, the last box, what follows "answer is", or the last number."""
    tail = response[-_TAIL:]
    _, box, rest = tail.rpartition("boxed")
    words = next((words for words in ("he answer is", "final answer is") if words in tail), None)
    if hoped := re.search(r"final answer is \$(.*?)\$\. I hope", tail, re.DOTALL):
        stated = hoped[1]
    elif box and rest.startswith("{"):  # where the brace is never closed, all there is
        end = closes_at(rest, "{}")
        stated = rest[1:end] if end >= 0 else rest[1:]
    elif box:
        stated = rest.partition("$")[0]
    elif words:
        stated = tail.rpartition(words)[2][:MAX_ANSWER]
    else:
        stated = (_NUMBER.findall(tail.replace(",", "")) or [""])[-1]
    answer = re.sub(r"\n\s*", "", stated).strip().removeprefix(":").removesuffix(".").removesuffix("/")
    return strip(strip(answer)) or None  # twice, as there, so that "x" and its sign go too


def strip(text: str) -> str:
    """Return a text without units, names, percent signs and spacing."""
    original = text = text.strip()
    if is_too_complex(text):
        return text
    text = re.sub(r"\\begin\{array\}\{[^{}]*\}", r"\\begin{pmatrix}", text.replace("\n", "").rstrip("."))
    for old, new in _RESPELLED:
        text = text.replace(old, new)
    value, words, _ = text.partition("\\text{")
    if words and text.endswith("}") and value.strip() and value.count("{") == value.count("}"):
        text = value.strip()
    text = _UNIT.sub("", text) or text
    for gone in ("^{\\circ}", "^\\circ", "\\$", "$", "\\(", "\\)"):
        text = text.replace(gone, "")
    text = _NAMED.sub("", re.sub(r"\\text\{([^{}]*)\}", r"\1", str(NUMBERS.get(text.lower(), text))))
    text = text.replace("\\emptyset", "{}").replace("(-\\infty,\\infty)", "\\mathbb{R}")
    text = re.sub(r"(?<=[ {])\.", "0.", text.replace("\\%", "").replace("%", "")).replace("infinity", "\\infty")
    text = re.sub(r"\\mbox\{[^{}]*\}", "", text.replace("and", "").replace("\\mathbf", ""))
    text = text if "i" in text else text.replace("j", "i")
    text = re.sub(r"^\.", "0.", re.sub(r"(\d)\.0*(?=\D|$)", r"\1", text))
    return re.sub(r"\\sqrt(\w+)", r"\\sqrt{\1}", _SHORT_NAME.sub("", text)).replace(" ", "") or original


def math_equal(answer: str, gold: str) -> bool:
    """Return whether two stripped answers count as equal."""
    if answer.lower() == gold.lower():
        return True
    if gold in tuple("ABCDE") and _CHOICE.findall(answer.upper())[-1:] == [gold]:
        return True
    numbers = _number(answer), _number(gold)
    if numbers[0] is not None and numbers[1] is not None:
        return any(math.isclose(numbers[0], numbers[1] * by, rel_tol=RELATIVE) for by in (0.01, 1.0, 100.0))
    if not answer:
        return False
    # but for braces, parentheses, and square brackets unless they face parentheses
    sides = answer, gold
    if {"[]": "(", "()": "["}.get(answer[0] + answer[-1], gold[:1]) != gold[:1]:
        sides = answer.strip("[]()"), gold.strip("[]()")
    bare = [re.sub(r"[{}()]", "", text).lower() for text in sides]
    if bare[0] == bare[1] or _same_parts(answer, gold) or _symbolic(answer, gold):
        return True
    values = [_SHORT_NAME.sub("", text) for text in (answer, gold)]
    return ("=" in answer) != ("=" in gold) and values != [answer, gold] and math_equal(*values)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _same_parts(answer: str, gold: str) -> bool:
    """Compare pairs, tuples and intervals by element, matrices by cell."""
    if _PAIR.match(answer) and _PAIR.match(gold):
        rows = [[text[1:-1].split(",")] for text in (answer, gold)]
        if len(rows[0][0]) == len(rows[1][0]) == 1:
            return False  # one element each: the same question again
    elif (first := _MATRIX.fullmatch(answer)) and (second := _MATRIX.fullmatch(gold)):
        rows = [[row.split("&") for row in side[1].split("\\\\") if row] for side in (first, second)]
    else:
        return False
    if [len(row) for row in rows[0]] != [len(row) for row in rows[1]]:
        return False
    pairs = zip(chain(*rows[0]), chain(*rows[1]), strict=True)
    return all(math_equal(one.strip(), other.strip()) for one, other in pairs)


def _symbolic(answer: str, gold: str) -> bool:
    """Compare what stands before the first comma; a tuple there equals nothing."""
    sides = []
    for text in (answer, gold):
        whole = text.replace(",", "")
        first = whole if _number(whole) is not None else split_outside(text, {","})[0][0]
        if "," in first:
            return False
        # their parser reads an upright letter as a plain one, and \pi as a letter, not as 3.14
        cleaned = _PI.sub(r"\\pi_{0}", _LETTER.sub(r" \1", clean(first)))
        sides.append(split_outside(cleaned, _RELATIONS)[0])
    counts = [len(side) for side in sides]
    if counts == [1, 1]:
        return _same_expression(sides[0][0], sides[1][0])
    if counts != [2, 2]:
        return False
    first, second = (f"({left})-({right})" for left, right in sides)
    return _same_expression(first, second) or _same_expression(f"-({first})", second)


def _same_expression(answer: str, gold: str) -> bool:
    trees = tree_of(answer), tree_of(gold)
    has_symbols = any(tree is None or names_in(tree).symbols for tree in trees)
    return same_value(gold, answer, Rules(tolerance=0.0 if has_symbols else RELATIVE))
