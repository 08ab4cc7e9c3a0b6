"""Arithmetic steps: which are found in a text, and which of them hold."""

import pytest

from trimsft.report.page.steps import arithmetic_steps


def wrong(text: str) -> list[str]:
    return [step.text for step in arithmetic_steps(text) if not step.holds]


@pytest.mark.parametrize(
    "text",
    [
        "Step 1: 2 + 11 = 13.\nStep 2: 13 * 3 = 39.",
        "so $12 - 15 = -3$, and 6/4=1.5, and \\(2 \\times 4 = 8\\)",
        "<<5*3=15>>15 eggs; 1,200 + 34 = 1,234; 0.1 + 0.2 = 0.3",
        "each costs $4, so 3 x $4 = $12 in all",
        "10 / 3 = 3.33, or 10 / 3 = 3.34, or 10 / 3 = 3 and one is left",
        "- 2 + 2 = 4\n* 3 + 3 = 6",
        "x = 4 · 5 = 20 \\text{ cm}",
    ],
)
def test_what_holds(text) -> None:
    steps = arithmetic_steps(text)
    assert len(steps) >= 1 and wrong(text) == []


@pytest.mark.parametrize(
    ("text", "found", "right", "place"),
    [
        ("Step 1: 3 * 8 = 8.", "3 * 8 = 8", "24", 0),
        ("84 * 2 = 166.", "84 * 2 = 166", "168", 2),
        ("so 3 - 5 = 2", "3 - 5 = 2", "-2", 0),
        ("7 \\div 2 = 5 apples", "7 \\div 2 = 5", "3.5", 0),
        ("10 / 4 = 2.6?", "10 / 4 = 2.6", "2.5", 2),
        ("6 * 4 = 2, then", "6 * 4 = 2", "24", 0),  # a digit is missing: the last one written is marked
        ("1,200 + 34 = 1,334", "1,200 + 34 = 1,334", "1234", 0),
        ("<<5*3=16>>16", "5*3=16", "15", 1),
    ],
)
def test_what_does_not_hold(text, found, right, place) -> None:
    (step,) = arithmetic_steps(text)
    assert (step.text, step.holds, step.right) == (found, False, right)
    assert step.wrong_from == step.result[0] + place and text[slice(*step.result)] in found


@pytest.mark.parametrize(
    "text",
    [
        "2 + 3 * 4 = 14",
        "2 + 3 = 1 + 4",
        "1/2 * 4 = 2 and 2^3 * 4 = 32",
        "5 - 3 = 2x, 2 + 3 = 5^2, 4 + 4 = 2(4), 3 + 3 = 3!",
        "11 + 3 = 2 (mod 12), 5 + 5 = 12 base 8",
        "1 / 2 = 50%, 1 / 2 = 50 percent, 1/2 = 50\\%",
        "8 x 2 + 3 = 19, \\sqrt 9 + 1 = 4, n - 3 + 2 = 4",
        "2,5 + 2,5 = 5,0 and 1,5 + 1 = 2,5",
        "at 3:30 + 2 = 5:30, v1.2 + 3 = 4",
        "3 + 4 <= 8, 3 + 4 == 9, 2 + 2 != 5, 2 + 2 = 5 000",
        "5 / 0 = 3",
        "$10 + $5 + $20 = $35 and \\$7 - \\$4 - \\$2 = \\$1",
        "8 x 1 1/2 = 12, 12 x 1 and 1/4 = 15, 14, 400 / 80 = 180",
        "0900-0130 = 0730; $1 / 2 = 50 cents",
        "so\n-21/3 = -7",
        "$78 \\times 48 = 3,\\!744$ and $78 \\times 48 = 3{,}744$",
        "In base $7$ we have $44 \\times 55 = 3506$.",
        "2 + 3 = 5 * 4 = 10",
    ],
)
def test_what_may_mean_something_else_is_left_out(text) -> None:
    assert arithmetic_steps(text) == []


def test_hostile_texts_end() -> None:
    """A search that is not linear would take hours on these."""
    texts = ["1" * 200_000, "1+" * 100_000, "1 + 1 = " * 50_000, "1,111" * 50_000, " x " * 100_000]
    assert [arithmetic_steps(text) for text in texts] == [[]] * len(texts)
    assert wrong("9" * 15 + " * " + "9" * 15 + " = 1") != [] and arithmetic_steps("9" * 16 + " + 1 = 1") == []
