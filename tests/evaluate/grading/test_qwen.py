"""The lenient rules: what they accept that the strict ones do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trimsft.evaluate.grading import Grader


@pytest.fixture(scope="module")
def lenient() -> Iterator[Grader]:
    with Grader(kind="qwen") as shared:
        yield shared


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("0.5", "50"),
        ("10000", "10001"),
        ("[2,5)", "(2,5)"),
        ("5", "500"),
        ("12", r"12\text{ m}"),
        ("C", "it is C, not D... C"),
    ],
)
def test_accepts_what_the_strict_rules_refuse(
    gold: str, answer: str, lenient: Grader, grader: Grader
) -> None:
    assert lenient.grade(rf"\boxed{{{answer}}}", gold).correct
    if gold != "12":
        assert not grader.grade(rf"\boxed{{{answer}}}", gold).correct


@pytest.mark.parametrize(
    ("gold", "answer"), [("5", "6"), ("(1,2)", "(2,1)"), ("x+1", "x-1"), (r"\frac{1}{3}", "0.3"), ("A", "B")]
)
def test_refuses_what_is_wrong(gold: str, answer: str, lenient: Grader) -> None:
    assert not lenient.grade(rf"\boxed{{{answer}}}", gold).correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{1}{12}", "0.0833333333"),
        (r"\frac{x}{7}+\frac{2}{7}", r"\frac{x+2}{7}"),
        ("-34x-45y=0", "34x+45y=0"),
        ("5", "x=5"),
    ],
)
def test_accepts_what_is_right(gold: str, answer: str, lenient: Grader) -> None:
    assert lenient.grade(rf"\boxed{{{answer}}}", gold).correct


def test_answers_without_a_box(lenient: Grader) -> None:
    assert lenient.grade("So the answer is 5.", "5").correct
    assert lenient.grade("we get 3 and then 1,234", "1234").correct
    assert lenient.grade("nothing", "5").status == "no_answer"
