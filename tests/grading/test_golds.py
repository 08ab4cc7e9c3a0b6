"""The golds of the seven benchmarks, where the data folder is: some, and all in `make soak`."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimsft.evaluate.benchmarks import Problem, load_benchmark
from trimsft.grading import Grader

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "benchmarks"
NAMES = ("math500", "olympiadbench", "minerva", "amc", "amc23", "aime24", "gsm8k")
EQUAL_NEIGHBOURS = {("5", "x=5")}
ALL = pytest.param(10**6, marks=pytest.mark.soak)

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data/benchmarks")


def _box(answer: str) -> str:
    return rf"Therefore $\boxed{{{answer}}}$."


def _problems(most: int) -> list[Problem]:
    """Return all problems, or so many of them by a seed."""
    problems = [problem for name in NAMES for problem in load_benchmark(FOLDER / f"{name}.jsonl")]
    return random.Random(3).sample(problems, most) if most < len(problems) else problems


@pytest.mark.parametrize("most", [600, ALL])
def test_golds_are_themselves_and_not_the_next(most: int, grader: Grader) -> None:
    problems = _problems(most)
    golds = [problem.answer for problem in problems]
    respelled = [  # so that no gold is compared as text alone
        "{}" + gold.replace(r"\frac", r"\dfrac").replace("(", r"\bigl(").replace(")", r"\bigr)").replace("+", r"\, + ")
        for gold in golds
    ]
    refused = [
        (gold, spelled)
        for problem, gold, spelled in zip(problems, golds, respelled, strict=True)
        if not grader.grade(_box(gold), gold, problem.rules).correct or not grader.grade(_box(spelled), gold).correct
    ]
    assert refused == []
    neighbours = zip(problems, golds, golds[1:] + golds[:1], strict=True)
    equal = {(g, n) for problem, g, n in neighbours if g != n and grader.grade(_box(n), g, problem.rules).correct}
    assert equal <= EQUAL_NEIGHBOURS


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


@pytest.mark.parametrize("most", [300, ALL])
def test_what_is_made_of_a_gold_is_graded_as_made(most: int, grader: Grader) -> None:
    for make, is_right in ((_right, True), (_wrong, False)):
        pairs = [(gold, answer) for gold in {problem.answer for problem in _problems(most)} for answer in make(gold)]
        graded = [(pair, grader.grade(_box(pair[1]), pair[0]).correct) for pair in pairs]
        assert [pair for pair, is_correct in graded if is_correct is not is_right] == []


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


@pytest.mark.parametrize("most", [20, ALL])
def test_zeros_poles_and_far_numbers_equal_no_gold(most: int, grader: Grader) -> None:
    """Zeros equal 0 whatever rounding does, poles nothing."""
    golds = {problem.answer for problem in _problems(most)} | {"0"}
    zeros = {gold for gold in golds if grader.grade(_box("0"), gold).correct}
    for probe in [*ZEROS.split(), *POLES.split(), *FAR.split()]:
        accepted = {gold for gold in golds if grader.grade(_box(probe), gold).correct}
        assert accepted == (zeros if probe in ZEROS.split() else set()), probe
