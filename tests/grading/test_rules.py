"""Statuses, and what a benchmark may declare."""

import pytest

from trimsft.evaluate.benchmarks import as_problem
from trimsft.grading import Grade, Grader, Rules


def test_statuses(grader: Grader) -> None:
    assert grader.grade(r"\boxed{2}", "2") == Grade(True, "correct", "2")
    assert grader.grade(r"\boxed{3}", "2") == Grade(False, "wrong", "3")
    assert grader.grade("the answer is 2", "2") == Grade(False, "no_answer", None)
    assert grader.grade(r"\boxed{2} and then", "2", truncated=True) == Grade(True, "correct", "2")
    assert grader.grade(r"\boxed{(((}", "2").status == "unparsable"


@pytest.mark.parametrize(
    ("response", "gold", "rules", "correct"),
    [
        (r"\boxed{3} and \boxed{-1}", "-1,3", Rules(multiple=True), True),
        (r"\boxed{3} and \boxed{-1}", "-1", Rules(multiple=True), False),
        (r"\boxed{3} and \boxed{-1}", "-1", Rules(), True),  # one value asked for: the last box
        (r"\boxed{4.5004\times 10^{33}}", "4.5e33", Rules(tolerance=1e-4), True),
        (r"\boxed{4.51\times 10^{33}}", "4.5e33", Rules(tolerance=1e-4), False),
        (r"\boxed{10001}", "10000", Rules(tolerance=1e-4), False),  # integers are exact
        (r"\boxed{-y = 10^7x + z}", "y = 10^7x + z", Rules(tolerance=1e-4), False),  # hides no term
        (r"\boxed{45 \text{ minutes}}", "45", Rules(unit="minute"), True),
        (r"\boxed{45 \text{ hours}}", "45", Rules(unit="minute"), False),
        (r"\boxed{45 cm^2}", "45", Rules(unit="$cm^2$"), True),
        (r"\boxed{45 cm}", "45", Rules(unit="$cm^2$"), False),
    ],
)
def test_declared_rules(response: str, gold: str, rules: Rules, correct: bool, grader: Grader) -> None:
    assert grader.grade(response, gold, rules).correct is correct


def test_absolute_tolerance_and_unit_of_olympiadbench(grader: Grader) -> None:
    row = {"problem": "?", "answer": "4.2", "unit": "%", "error": "1e-1", "is_multiple_answer": False}
    rules = as_problem(row, "line 1", "olympiadbench-1").rules
    assert rules == Rules(absolute=0.1, unit="%")
    for answer in ("4.2", "4.25", r"4.15\%", "0.042"):
        assert grader.grade(rf"\boxed{{{answer}}}", "4.2", rules).correct, answer
    for answer in ("4.4", "0.142", r"0.042\%"):
        assert not grader.grade(rf"\boxed{{{answer}}}", "4.2", rules).correct, answer


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_bad_tolerances_are_refused(value: float) -> None:
    for field in ("tolerance", "absolute"):
        with pytest.raises(ValueError, match=field):
            Rules(**{field: value})


@pytest.mark.parametrize(
    ("response", "golds", "status"),
    [
        (r"\boxed{0.5}", ("2", r"\frac12"), "correct"), (r"\boxed{2}", ["2", "3"], "correct"),
        (r"\boxed{4}", ("2", "3"), "wrong"), ("4", ("2", "3"), "no_answer"),
        (r"\boxed{2} and \boxed{3}", ("5", "3, 2"), "correct"), (r"\boxed{2, 3}", ("2", "3"), "wrong"),
    ],
)  # fmt: skip
def test_several_golds(response: str, golds: tuple[str, ...], status: str, grader: Grader) -> None:
    assert grader.grade(response, golds).status == status


@pytest.mark.parametrize("agreeing", [("a", "b"), ("b", "a")])
def test_votes_need_both_ways(agreeing: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    one_way = Grader()
    monkeypatch.setattr(one_way, "_status", lambda *pair: "correct" if pair[:2] == agreeing else "wrong")
    assert not one_way.equivalent("a", "b")
