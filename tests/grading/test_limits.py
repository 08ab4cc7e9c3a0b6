r"""Comparing is a pure function, bounded by counting: no clock, no process, no memory of what was compared before."""

import random
import subprocess
import sys
import time

import pytest

from trimsft.grading import Rules
from trimsft.grading.clean import clean
from trimsft.grading.compare_shapes import compare
from trimsft.grading.shapes import shape_of
from trimsft.grading.single_values import number_of, tree_of

SECONDS = 5  # of processor time, on a slow machine; none takes a tenth of one here, and unbounded ones never end
GOLDS = [
    "5",
    "x",
    "(1,2)",
    r"\{1,2\}",
    "y=2x+1",
    "x<3",
    r"\lfloor x\rfloor+1",
    "0.3333333x",
    r"\begin{pmatrix}1&2\end{pmatrix}",
]
HOSTILE = {
    "lists": ",".join(rf"\sqrt[7]{{{n}}}" for n in range(60)),
    "far lists": ",".join(f"e^{{{n}}}" for n in range(640, 580, -1)),
    "far sums": "+".join(["e^{1900}"] * 200),
    "factorials": "*".join(["2000!"] * 300),
    "factorials of symbols": "*".join(f"(n+{n})!" for n in range(200)),
    "empty sums": r"\sum_{k=1}^{1000}\sum_{j=1}^{1000}\sum_{l=1}^{0}1",
    "sines": "+".join([r"\sin x"] * 200),
    "sine of much": r"\sin(10^{4000})",
    "decimals": "+".join(["0.333333x"] * 200),
    "names": r"\alpha" * 10 + "!=5",
    "domains": r"\text{ for all" + " real" * 350 + "} y",
    "powers of a name": "A^1" * 600 + r"=\begin{pmatrix}1&2\end{pmatrix}",
    "rows": r"\begin{cases}" + r"1&x>0\\ " * 200 + r"\end{cases}",
    "over": r"1\over " * 280 + "2",
    "intervals": r"[1,2]\cup" * 190 + "[1,2]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_are_refused_soon(name: str) -> None:
    answer = clean(HOSTILE[name])
    started = time.process_time()
    for gold in GOLDS:
        assert not compare(clean(gold), answer, Rules())
    compare(clean("1+" + HOSTILE[name]), answer, Rules())
    compare(",".join(reversed(answer.split(","))), answer, Rules())
    assert time.process_time() - started < SECONDS


def test_a_verdict_does_not_depend_on_earlier_ones() -> None:
    answers = [clean(answer) for answer in [*HOSTILE.values(), r"\sqrt{4}", "2.0", r"\sin\pi", "50%", "x>2, x<5"]]
    golds = [clean(gold) for gold in [*GOLDS, "2", "0", r"\frac12", "(2,5)", HOSTILE["far lists"]]]
    pairs = [(gold, answer) for gold in golds for answer in answers]
    verdicts = {pair: compare(*pair, Rules()) for pair in pairs}
    random.Random(1).shuffle(pairs)
    for cached in (tree_of, number_of, shape_of):
        cached.cache_clear()
    assert {pair: compare(*pair, Rules()) for pair in pairs} == verdicts


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("e^{100}+1", "e^{100}", False), (r"\pi+10^{-300}", r"\pi", False), (r"10^{300}\pi+1-10^{300}\pi", "1", True),
        (r"(1+10^{-100})^{\pi}", "1", False), ("f(1+10^{-30})", "f(1)", False), (r"f(\sin\pi)", "f(0)", True),
        (r"2^{1000}\pi", r"2^{999}\cdot 2\pi", True), (r"2^{1000}\pi", r"2^{1001}\pi", False),
        ("10^{1000}+1", "10^{1000}", False), (r"\lfloor\log_2 8\rfloor", "3", True),
        (r"\lfloor\log_2 7\rfloor", "3", False),
        (r"\tan 89.9999999999^\circ", r"\tan 90^\circ", False), ("x^{2018}-y^{2018}", "-y^{2018}+x^{2018}", True),
        (r"\frac{\sin 2x}{\cos 90^\circ}", "1", False), (r"\tan 45^\circ", "1", True), (r"|e^{i\pi/3}|", "1", True),
        (r"\arccos(\cos 0)", "0", True), (r"\sin(10^{-200})", r"\tan(10^{-200})", False),
        (r"\cosh 100", r"\sinh 100", False),
    ],
)  # fmt: skip
def test_values_far_apart_in_size_are_told_apart(one: str, other: str, are_equal: bool) -> None:
    assert bool(compare(clean(one), clean(other), Rules())) is are_equal
    assert bool(compare(clean(other), clean(one), Rules())) is are_equal


PURE = r"""
import os, subprocess, sys, threading, time
from trimsft.grading import Grader, Rules

def forbidden(*_, **__):
    raise AssertionError("a process, a thread or a clock")

os.fork = os.posix_spawn = subprocess.Popen = threading.Thread.start = forbidden
time.time = time.monotonic = time.perf_counter = time.process_time = forbidden
sys.modules |= {"sympy": None, "math_verify": None}
PAIRS = [
    (r"\frac12", "0.5", "correct"), ("x^2-1", "(x-1)(x+1)", "correct"), ("5", "6", "wrong"),
    (r"\int_0^1 2x dx", "1", "unparsable"), (r"\sum_{k=1}^{\infty}\frac{1}{2^k}", "1", "unparsable"),
    (r"\sum_{k=1}^{9999} \frac{1}{k^{k}}", "2", "unparsable"), ("(((", "2", "unparsable"),
]
for kind in ("strict", "qwen"):
    grader = Grader(kind=kind)
    items = [(rf"\boxed{{{answer}}}", gold, Rules(), False) for answer, gold, _ in PAIRS]
    statuses = [grade.status for grade in grader.grade_many(items)]
    grader.equivalent(r"\lim_{x\to 0} x", "0")
    assert kind == "qwen" or statuses == [status for *_, status in PAIRS], statuses
assert not [name for name in sys.modules if name.split(".")[0] in ("latex2sympy2_extended", "antlr4", "torch")]
"""


def test_mathematics_needs_no_process_no_clock_no_sympy() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", PURE], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
