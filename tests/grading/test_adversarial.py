r"""Answers that look like the gold and are not, beside answers that are the gold and do not look like it.

Each row is a gold and an answer; each goes through `grade` end to end, math-verify included, in both directions.
"""

from __future__ import annotations

import pytest

from trimsft.grading import Grader

EQUAL = {
    "scales": [
        ("500000", "5 hundred thousand"), ("300000000", r"3\text{ hundred million}"),
        ("10^{12}", r"1\text{ million million}"), ("5000000", r"\$5\text{ million}"), ("5000000", "(2+3) million"),
        ("5000000", r"5,000\text{ thousand}"), ("1500000", r"1\frac{1}{2}\text{ million}"), ("500000", "1/2 million"),
        ("-5000000", "-5 million"), ("200", "2 hundred people"), ("70000", r"70\text{ thousand dollars}"),
        (r"5\text{ million dollars}", r"5000\text{ thousand dollars}"),
    ],
    "units": [
        ("5", r"5\text{ red apples}"), ("5", r"5\text{ (cm)}"),
        ("5", r"5\text{ light-years}"), ("5", r"5\text{ dollars/hour}"),
        ("5", r"5\text{ times}"), ("3", r"3\text{ real roots}"), ("5", r"5\text{ more apples}"),
        ("5", r"5\text{ o'clock}"), (r"5\text{ a.m.}", r"5\text{ AM}"), (r"5\text{ apples}", r"5 \text{ Apple}"),
        ("12", r"12\text{th}"), ("5500", r"5500\mathrm{~K}"), ("5500", r"5500\text{ K}"), ("5", r"5\,\mathrm{J}"),
        ("5", r"5\text{ eV}"), ("9.8", r"9.8\text{ m/s}^2"), (r"5\text{ nm}", r"5\text{ nanometers}"),
        (r"5\text{ square units}", r"5\text{ cm}^2"), (r"5\text{ m}", "5m"), (r"2\mathrm{V}+1", "1+2V"),
        (r"5\%", r"5\text{ percentage points}"), (r"\sum_{k=1}^{3} k", r"6\text{ apples}"),
    ],
    "dollars": [
        (r"\$5.40", r"5.4\text{ dollars}"), (r"\$5.40", "$5.4"), (r"\$1,000", "1000"), ("5.4", r"\$5.4"),
        (r"5.4 \text{ cents}", "5.4"),
    ],
    "fonts": [
        ("6+9i", r"6+9\mathrm{i}"), ("3+4i", r"3+4\mathrm{\,i}"), ("6-5i", r"6-5\text{i}"), ("2e", r"2\mathrm{e}"),
        (r"3\pi", r"3\mathrm{\pi}"), (r"\frac{\pi}{4}", r"\frac{\boldsymbol{\pi}}{4}"), ("2x", r"2\mathrm{x}"),
        ("2v", r"2\mathbf{v}"), ("2V", r"2\mathrm{V}"), ("-1", r"\mathrm{i}^2"),
    ],
    "names": [
        ("5", "x_1=5"), ("5", "m+n=5"), ("5", "x/y=5"), ("5", r"\frac{NO}{BO}=5"), ("5", "|AB|=5"),
        ("5", r"\gcd(a,b)=5"), ("5", r"\text{number of ways}=5"), ("x=5", "-x=-5"), ("5", "x=2+3=5"),
        ("5", r"x=\frac{10}{2}=5"), ("0.33", r"x=\frac{1}{3}=0.33"), ("7", "3+4=7=7"), ("x=3", "x=2+1=3"),
        ("5", r"2x=10 \implies x=5"), ("x=11", "x=5+5+1=7=11"),
        (r"2\sqrt3", r"x=\sqrt{12}=2\sqrt3"), ("5", r"\sqrt{9+16}=\sqrt{25}=5"), ("5", r"x=5\text{ cm}=5\text{ cm}"),
    ],
    "decimals": [
        (r"\frac{1}{3}", "0.3333333"), (r"2\sqrt3", "3.4641016"), (r"\frac{x}{3}", "0.3333333x"),
        ("x^2+1", "x^{2.0}+1"), (r"3^{-1}x", "0.3333333x"), ("2^{21}", "2097152.0"),
    ],
    "shapes": [
        ("10,080", "10080"), (r"\emptyset", r"\{ \}"), (r"\{\emptyset\}", r"\{ \varnothing \}"), ("1", r"\text{One.}"),
        (r"\lfloor n/2\rfloor", r"\lceil (n-1)/2\rceil"), (r"\lfloor x+1\rfloor", r"\lfloor x\rfloor+1"),
    ],
}  # fmt: skip

DIFFERENT = {
    "scales": [
        ("500", "5 hundred thousand"), ("300", r"3\text{ hundred million}"), ("10^6", r"1\text{ million million}"),
        ("5000", r"5\text{ thousand five}"), ("5000000", "5 million squared"), ("15000000", "10 + 5 million"),
        ("200", "2 hundred hundredths"), ("5000", "5 thousand thousand"), ("6000000", r"2 \cdot 3 million - 0"),
    ],
    "parts and numbers in words": [
        ("3", r"3\text{ eighths}"), ("5", r"5\text{ hundredths}"), ("5", r"5\text{ sixths}"),
        ("4", r"4\text{ sevenths}"), ("4", r"4\text{ ninths}"), ("4", r"4\text{ twelfths}"), ("4", r"4\text{ halfs}"),
        ("5", r"5\text{ twentieths}"), ("5", r"5\text{ thousandths}"), ("5", r"5\text{ trillions}"),
        ("5", r"5\text{ sets of three}"), ("5", r"5\text{ and a half}"),
    ],
    "operations in words": [
        ("5", r"5\text{ pi}"), ("2", r"2\text{ sqrt(3)}"), ("5", r"5\text{ root two}"), ("5", r"5\text{ doubled}"),
        ("5", r"5\text{.5}"), ("5", r"5\text{+1}"), ("5", r"5\text{^2}"), ("5", r"5\text{ 1/2}"), ("5", r"5\text{ !}"),
        ("5", r"5\text{ * 2}"), ("5", r"5\text{ x 10}"), ("5", r"5\text{ to the 3rd power}"), ("3", r"3\text{ to 5}"),
        ("3", r"3\text{ - 5}"), ("18", r"18\text{ remainder 3}"), ("5", r"5\text{ feet 6 inches}"),
        ("5", r"5\text{ choose 2}"), ("5", r"5\text{ inverse}"), ("5", r"5\text{ squares of}"),
        ("2", r"2\text{ rounded from 2.4}"),
        ("70", r"70\text{K}"), ("70", r"\$70\text{K}"), ("5", r"5\text{M}"), ("5", r"5\text{M.}"),
        ("5", r"5\text{k}"), ("2", r"2\text{xy}"),
        ("5", r"5 \mod 7"),
    ],
    "denials": [
        ("5", r"5\text{ is impossible}"), ("5", r"5\text{ cannot be}"), ("5", r"5\text{ below zero}"),
        ("5", r"5\text{ at most}"), ("2", r"2\text{ (approximately 2.3)}"),
        ("5", r"5\text{ at least}"), ("5", r"5\text{ not}"),
        (r"[2,5]", r"\not\in [2,5]"), ("[2,5]", r"x \not\in [2,5]"), ("5", r"x \not= 5"),
    ],
    "two units": [
        (r"5\text{ AM}", r"5\text{ PM}"), (r"5\text{ east}", r"5\text{ west}"), (r"5\text{ nm}", r"5\text{ km}"),
        (r"5\text{ apples}", r"5\text{ pears}"), (r"5\text{ apples}", "5 cm"), (r"5\%", r"5\text{ apples}"),
        (r"5.4 \text{ cents}", r"\$5.4"), (r"5.4\text{ cents}", "$5.4"), (r"\$5", r"5\text{ cents}"),
    ],
    "fonts": [
        ("3", r"3\mathrm{i}"), ("2", r"2\mathrm{e}"), ("2", r"2\mathrm{x}"), ("2", r"2\text{x}"), ("2", r"2\mathbf{v}"),
        ("2", r"2\boldsymbol{\pi}"), ("2", r"2\mathrm{d}"), ("2", r"2\mathbf{V}"),
    ],
    "names": [
        ("5", "-x=5"), ("5", "|x|=5"), ("5", r"\sqrt{x}=5"), ("5", r"\ln x=5"), ("5", r"\log_2 x=5"),
        ("5", r"\cos\theta=5"), ("5", r"\arctan x=5"), ("5", r"\text{not }=5"), ("5", r"x \text{ not}=5"),
        ("5", "-x=5=5"), ("x=3", "y=2+1=3"),
    ],
    "integers are exact": [
        ("2^{21}", "2097153.0"), ("10!", "3628801.0"), (r"\binom{30}{15}", "155117521.0"), (r"\sqrt{9}", "3.000001"),
        (r"\log_2 8", "3.0000001"), (r"\frac{3000001}{1}", "3000000.5"), ("n^2", "n^{2.0000001}"),
        ("x^2+1", "x^2+1.0000001"),
    ],
    "shapes": [
        ("10,080", "10,80"), ("1,000", "1,0"), ("(1,000)", "(1,0)"), (r"\emptyset", r"\{\emptyset\}"),
        (r"\lfloor x\rfloor", "x"), (r"\lfloor x\rfloor", r"\lceil x\rceil-1"),
    ],
    "beside what only math-verify reads": [
        (r"\sum_{k=1}^{3} k", r"6\text{ hundredths}"), (r"\sum_{k=1}^{3} k", r"6\text{ is wrong}"),
        (r"\sum_{k=1}^{3} k", r"6\text{ feet 2}"), (r"\sum_{k=1}^{3} k", r"6 \mod 10"),
        (r"\sum_{k=1}^{3} k", "6 squared"),
    ],
}  # fmt: skip


def _rows(table: dict[str, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [row for rows in table.values() for row in rows]


@pytest.mark.parametrize(("gold", "answer"), _rows(EQUAL))
def test_right_answers_are_accepted(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "correct"
    assert grader.grade(rf"\boxed{{{gold}}}", answer).status == "correct"


@pytest.mark.parametrize(("gold", "answer"), _rows(DIFFERENT))
def test_wrong_answers_are_refused(gold: str, answer: str, grader: Grader) -> None:
    for said, asked in ((answer, gold), (gold, answer)):
        assert grader.grade(rf"\boxed{{{said}}}", asked).status in ("wrong", "unparsable")
    assert not grader.equivalent(gold, answer)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "1=2=5"), ("5", "x=-5=5"), ("5", "x=3=5"), ("x=3", "x=5=3"), ("1001", "x=1000=1001"),
        ("5", r"1=2 \implies 5"), ("x=5", "-x=5=5"), ("x=5", "|x|=5=5"),
        ("5", r"x=3\text{ cm}=5\text{ cm}"), ("5", r"x=\sqrt{12}=5"),
    ],
)  # fmt: skip
def test_an_answer_that_states_two_values_is_refused(gold: str, answer: str, grader: Grader) -> None:
    assert grader.grade(rf"\boxed{{{answer}}}", gold).status == "wrong"
    assert not grader.equivalent(gold, answer)
