"""Where a response states its answer."""

import pytest

from trimsft.grading.answers import extract_answer

MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"so \boxed{5}.", "5"), (r"\fbox{5}", "5"), (r"\boxed 7$ is it", "7"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"), (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1} and later \boxed{2}", "2"), (r"\boxed{2}, that is \boxed{3", "2"),
        (r"\boxed{2} goes into \boxed{}", "2"), (r"\boxed{x=\boxed{5}}", r"x=\boxed{5}"), (r"}} \boxed{5} {{", "5"),
        (r"\boxed{a\\b}", r"a\\b"), (r"\boxedtwo{5}", None), (r"\boxed{}", None), (r"\boxed{ $ $ }", None),
        (r"so \\boxed{5}", "5"), ("the answer is 5", None), ("", None),
    ],
)  # fmt: skip
def test_last_balanced_box(response: str, answer: str | None) -> None:
    assert extract_answer(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"$\boxed{2}, \boxed{3}$ and $\boxed{5}$", "2, 3, 5"), (r"x = \boxed{2} or x = \boxed{3}", "2, 3"),
        (r"First \boxed{2}. Then \boxed{3}", "3"), (r"\boxed{2} gives \boxed{3}", "3"),
        (r"\boxed{2}" + "\n\n" + r"\boxed{3}", "3"), (r"\boxed{2}, " + "x" * 100 + r", \boxed{3}", "3"),
    ],
)  # fmt: skip
def test_boxes_that_follow_each_other_are_one_answer(response: str, answer: str | None) -> None:
    assert extract_answer(response, several=True) == answer


HOSTILE = [
    "\\boxed{", "\\boxed{1}", "\\boxed{x}", "\\boxed{{}", "\\boxed{\\a", "\\boxed ", "\\", "{", "\\boxed{1} and ",
    "\\boxed" + " " * 1000,
]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
def test_a_megabyte_of_marks_is_read_at_once(part: str) -> None:
    extract_answer(part * (MEGABYTE // len(part)), several=True)
    extract_answer(part + "x" * MEGABYTE + "}" * MEGABYTE, several=True)


def test_the_box_is_found_before_and_after_a_megabyte_of_text() -> None:
    noise = "word { " * (MEGABYTE // 7)
    assert extract_answer(noise + r"\boxed{5}") == "5"
    assert extract_answer(r"\boxed{5}" + noise) == "5"
