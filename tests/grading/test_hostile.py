"""Whatever a model writes: no hang, no crash, nothing executed, and no other answer pays for it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimsft.grading import Grader, Rules
from trimsft.grading import grader as module
from trimsft.grading.clean import MAX_ANSWER, clean
from trimsft.grading.compare_shapes import compare
from trimsft.grading.qwen import extract_answer as extract_leniently

GOLDS = ["5", "x", "(1,2)", r"\{1,2\}", "y=2x+1", r"\begin{pmatrix}1&2\end{pmatrix}", "x<3", r"\text{even}", "1,000"]
STATIC = {
    "factorial": "1000000000!", "factorials": "((9!)!)!", "tower": "9^{9^{9^{9^{9}}}}",
    "tower of symbols": "2^{2^{2^{2^{2^{x}}}}}", "power": "10^{1000000000}", "compound": "(1.0000001)^{999999999999}",
    "decimal": "1e999999", "parentheses": "(" * 2000 + "1" + ")" * 2000, "unbalanced": "(" * 1900,
    "braces": "{" * 1000 + "1" + "}" * 1000, "digits": "7" * 1_000_000, "places": "0." + "3" * 1900,
    "signs": "-" * 1900 + "1", "sums": "+1" * 900, "items": "1," * 900 + "1", "relations": "a=" * 600 + "1",
    "bars": "|" * 1000, "fractions": r"\frac{1}{" * 300 + "2" + "}" * 300, "roots": r"\sqrt{" * 35 + "2" + "}" * 35,
    "products": "x " * 900, "control": "\x00\x01\x1b[31m1\ud800", "direction": "\u202e1\u202c",
    "accents": "1" + "\u0301" * 1500, "expanding": "\ufdfa" * 1900, "zero": r"\frac{1}{0}", "logarithm": r"\log_{0}(0)",
    "environments": r"\begin{pmatrix}" * 100, "percents": r"\%" * 900, "exponentials": r"\exp(\exp(\exp(\exp(9))))",
    "subscript": "x_{" + "1" * 1500 + "}", "binomial": r"\binom{10^9}{5\cdot 10^8}",
    "sum": r"\sum_{k=1}^{9999} \frac{1}{k^{k}}",
    "integral": r"\int_0^1 \int_0^1 \frac{\sin(x^x y^y)}{e^{x y}+\ln x} dx dy", "integrals": r"\int " * 9 + "x",
}  # fmt: skip


@pytest.mark.parametrize("name", STATIC)
def test_refused_or_decided_within_limits(name: str, grader: Grader) -> None:
    """None of them is correct, and each comes back; unbounded, many would not."""
    for gold in GOLDS:
        assert not grader.grade(rf"\boxed{{{STATIC[name]}}}", gold).correct


def test_nothing_is_executed(grader: Grader, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for code in (f"__import__('pathlib').Path('{mark}').touch()", f"open('{mark}','w')", rf"\input{{{mark}}}"):
        for gold in GOLDS:
            grader.grade(rf"\boxed{{{code}}}", gold)
    assert not mark.exists()


PIECES = r"""
\frac \sqrt { } ( ) [ ] \{ \} 1 2 10 0 . , ; : = < > \le ^ _ ! % + - * / | x y e i f \pi \infty \pm \cup \text
\begin{pmatrix} \end{pmatrix} \\ & \sin \log \ln \lfloor \rfloor \overline ' cm ^\circ \% \binom \in or
\max \min max \gcd \lcm \exp \arctan \tan \cot \sinh \lceil \rceil \sqrt[3] \sqrt[i] \log_ \cdot \times 3.5 \ne
"""
pieces = st.sampled_from(PIECES.split())


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(pieces, max_size=25).map(" ".join), st.lists(pieces, max_size=25).map(" ".join))
def test_the_cheap_comparison_never_raises(gold: str, answer: str) -> None:
    gold, answer = clean(gold), clean(answer)
    assert compare(gold, answer, Rules()) in (True, False, None)
    assert compare(gold, gold, Rules()) is True


@pytest.mark.parametrize(
    ("answer", "gold", "correct"),
    [
        (r"\max{5}", "5", True), (r"\max(2, 5)", "5", True), (r"\min\{5\}", "5", True), (r"\max \pi", r"\pi", True),
        (r"\max(3, 1+i)", "3", False), (r"3=\sqrt{2}", "3=x", False), (r"\pi=3", "x=3", False),
        (r"2\pi y=4\pi x", "y=2x", True), (r"\binom{\pi}{2}", "1", False), (r"\sqrt[i]{2}", "2", False),
    ],
)  # fmt: skip
def test_what_small_models_have_written(answer: str, gold: str, correct: bool, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).correct is correct


def test_a_bug_costs_one_answer_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(gold: str, *rest: object) -> bool:
        if gold == "7":
            raise KeyError("seven")
        return gold == "8"

    monkeypatch.setattr(module, "compare", stumble)
    own = Grader()
    with pytest.warns(UserWarning, match=r"'6' against '7' ended in KeyError: 'seven'\. It counts"):
        found = own.grade_many([(r"\boxed{6}", "7", Rules(), False), (r"\boxed{9}", "8", Rules(), False)])
    assert [grade.status for grade in found] == ["unparsable", "correct"]


@pytest.mark.parametrize(
    "answer", ["\u2776", "1\u24f5", "\u1369\\frac{1}{2}", "x^\u277a", "5_\u2776", "\\overline{\u2776}"]
)
def test_digits_that_are_no_decimals_are_no_numbers(answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", "5").status in ("wrong", "unparsable")  # a warning is an error


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_any_text_is_cleaned_once_and_for_all(text: str) -> None:
    assert clean(text[:MAX_ANSWER]) is not None
    extract_leniently(text)


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4))
def test_all_spellings_of_a_fraction_are_equal(above: int, below: int) -> None:
    doubled = rf"\dfrac{{{2 * above}}}{{{2 * below}}}"
    spellings = [rf"\frac{{{above}}}{{{below}}}", f"{above}/{below}", doubled]
    for one in spellings:
        for other in spellings:
            assert compare(clean(one), clean(other), Rules()) is True
    assert compare(clean(spellings[0]), clean(f"{above + 1}/{below}"), Rules()) is False
