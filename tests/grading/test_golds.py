"""The golds of the seven benchmarks, where the data folder lies beside the repository."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimsft.evaluate.benchmarks import load_benchmark
from trimsft.grading import Grader, Rules

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
NAMES = ("math500", "olympiadbench", "minerva", "amc", "amc23", "aime24", "gsm8k")
EQUAL_NEIGHBOURS = {("5", "x=5")}
"""Neighbours that are spelled differently and are the same value."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data/benchmarks")


def _box(answer: str) -> str:
    return rf"Therefore $\boxed{{{answer}}}$."


@pytest.mark.parametrize("benchmark", NAMES)
def test_each_gold_is_itself_however_it_is_spelled_and_not_the_next(benchmark: str, grader: Grader) -> None:
    problems = load_benchmark(benchmark, FOLDER)
    rules = [problem.rules for problem in problems]
    golds = [problem.answer for problem in problems]
    respelled = [  # so that every gold goes through the comparison itself, not only through equality of text
        "{}" + gold.replace(r"\frac", r"\dfrac").replace("(", r"\bigl(").replace(")", r"\bigr)").replace("+", r"\, + ")
        for gold in golds
    ]
    for answers, by in ((golds, rules), (respelled, [Rules()] * len(golds))):
        items = [(_box(answer), gold, rule, False) for answer, gold, rule in zip(answers, golds, by, strict=True)]
        grades = grader.grade_many(items)
        assert [gold for gold, grade in zip(golds, grades, strict=True) if not grade.correct] == []
    following = golds[1:] + golds[:1]
    other = grader.grade_many([(_box(n), g, r, False) for g, n, r in zip(golds, following, rules, strict=True)])
    equal = {(g, n) for g, n, found in zip(golds, following, other, strict=True) if found.correct and g != n}
    assert equal <= EQUAL_NEIGHBOURS


def _golds() -> list[str]:
    return sorted({problem.answer for name in NAMES for problem in load_benchmark(name, FOLDER)})


def _right(gold: str) -> Iterator[str]:
    yield rf"\textcolor{{red}}{{{gold}}}"
    if re.fullmatch(r"-?\d+", gold):
        yield from (rf"\textbf{{(D)}}~{gold}", f"{int(gold) - 7}+7={gold}", f"{gold}=x", rf"{gold}\text{{ m/s}}^2")


def _wrong(gold: str) -> Iterator[str]:
    if digits := list(re.finditer(r"\d", gold)):
        last = digits[-1]
        yield gold[: last.start()] + str((int(last[0]) + 1) % 10) + gold[last.end() :]
    if re.fullmatch(r"-?\d+", gold):
        yield from (f"{int(gold) - 7}+8={gold}", f"{gold} 1", f"{gold}'1", rf"\textbf{{(D)}}~{int(gold) + 1}")


def test_what_is_made_of_a_gold_is_right_or_wrong_as_it_was_made(grader: Grader) -> None:
    for make, is_right in ((_right, True), (_wrong, False)):
        pairs = [(gold, answer) for gold in _golds() for answer in make(gold)]
        grades = grader.grade_many([(_box(answer), gold, Rules(), False) for gold, answer in pairs])
        assert [pair for pair, grade in zip(pairs, grades, strict=True) if grade.correct is not is_right] == []


ZEROS = r"""
\sin\pi \sin(2\pi) \sin180^\circ \cos\frac\pi2 \cos90^\circ \tan\pi \cot\frac{\pi}{2} e^{i\pi}+1 \log_2(8)-3 \ln{e}-1
\sqrt2\sqrt3-\sqrt6 \sin\pi\cdot\cos1 10^{200}\sin\pi \frac{\sin\pi}{2^{500}} \arccos(\sin\frac\pi2) \ln(\sin\frac\pi2)
\sqrt{\sin\pi} \sin(10^{30}\pi) \lfloor\log_2(8)\rfloor-3 \sin(\pi)x (\sqrt2)^2-2
"""
POLES = r"""
\tan90^\circ \tan\frac\pi2 \sec90^\circ \csc\pi \cot\pi \frac1{\sin\pi} \ln(\cos90^\circ) \frac{5}{e^{i\pi}+1}
\frac{\sin\pi}{\sin\pi} \frac{1}{\log_2(8)-3} (\cos90^\circ)^{-1} \tan270^\circ\cdot0
"""
FAR = r"""
2^{1000}\pi 2.0\times10^{-101} 1.5\times10^{200} \frac{1}{2^{400}} \frac1{100!} 10^{-300}\pi e^{500} e^{-500}
\frac{\sqrt2}{10^{250}} 100!\sqrt3 \sin(10^{-200}) \cos(10^{-200})-1 10^{10^{10}} \frac{1}{10^{10^{10}}} 2^{-2^{30}}
"""


@pytest.fixture(scope="module")
def golds_that_are_zero(grader: Grader) -> set[str]:
    return {gold for gold in _golds() if grader.grade(_box("0"), gold).correct}


@pytest.mark.parametrize("probe", [*ZEROS.split(), *POLES.split(), *FAR.split()])
def test_no_probe_is_right_for_other_golds(probe: str, golds_that_are_zero: set[str], grader: Grader) -> None:
    """Zeros but for rounding equal 0, poles equal nothing, and huge or tiny numbers none of the golds."""
    accepted = {gold for gold in _golds() if grader.grade(_box(probe), gold).correct}
    assert accepted == (golds_that_are_zero if probe in ZEROS.split() else set())
