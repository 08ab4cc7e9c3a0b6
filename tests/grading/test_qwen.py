"""The lenient rules: what they accept that the strict ones do not."""

import pytest

from trimsft.grading import Grader, Rules
from trimsft.grading.qwen import extract_answer


@pytest.fixture(scope="module")
def lenient() -> Grader:
    return Grader(kind="qwen")


LENIENT = [("0.5", "50"), ("10000", "10001"), ("[2,5)", "(2,5)"), ("5", "500"), ("C", "it is C, not D... C")]
RIGHT = [
    (r"\frac{1}{12}", "0.0833333333"), (r"\frac{x}{7}+\frac{2}{7}", r"\frac{x+2}{7}"),
    ("5", "x=5"), ("12", r"12\text{ m}"), ("12", "12 gallons"), ("4", "four"),
]  # fmt: skip
TOO_MUCH = [
    (r"\frac{1}{2},3", r"\frac{1}{2},4"),  # of a list, the first item
    ("1,2", "12"),  # commas within numbers go
    ("x>5", r"x\ge5"), ("5", "ab=5"),
]  # fmt: skip
WRONG = [("5", "6"), ("(1,2)", "(2,1)"), ("x+1", "x-1"), (r"\frac{1}{3}", "0.3"), ("A", "B")]
TOO_LITTLE = [
    ("1,-2", "-2,1"),  # lists keep their order
    (r"3\pi", "9.42478"),  # its pi is a letter
    ("5x-7y+1=0", "10x-14y+2=0"),  # a multiple of an equation is another one
    ("230", "80+150=230"), ("(1,1),(3,2)", "(1,1),(3,3)"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), [*LENIENT, *RIGHT, *TOO_MUCH])
def test_accepts(gold: str, answer: str, lenient: Grader, grader: Grader) -> None:
    assert lenient.grade(rf"\boxed{{{answer}}}", gold).correct
    if (gold, answer) in LENIENT:
        assert not grader.grade(rf"\boxed{{{answer}}}", gold).correct


@pytest.mark.parametrize(("gold", "answer"), [*WRONG, *TOO_LITTLE])
def test_refuses(gold: str, answer: str, lenient: Grader) -> None:
    assert not lenient.grade(rf"\boxed{{{answer}}}", gold).correct


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"\boxed{3}, so the final answer is $\frac{1}{2}$. I hope it is correct.", r"\frac{1}{2}"),
        (r"\boxed{7}. The answer is 8", "7"),
        (r"it is \boxed{\frac{1}{2", r"\frac{1}{2"),
        ("we get 3 and then 1,234", "1234"),
        ("nothing but words", None),
    ],
)
def test_where_the_harness_finds_an_answer(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


def test_the_rules_of_a_row_are_of_no_use() -> None:
    for own, correct in ((Grader(kind="qwen"), False), (Grader(), True)):
        assert own.grade(r"\boxed{4.25}", "4.2", Rules(absolute=0.1, unit="%")).correct is correct
