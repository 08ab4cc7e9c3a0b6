r"""Labelled pairs of gold and answer: `cases.tsv`, one a line, labelled from mathematics.

    half     kind                    verdict  gold  answer
    unseen   spaces between numbers  wrong    6     2 3

Failures of `seen` were looked at while coding, those of `unseen` never were. Pairs of `both`
hold whichever is the gold. Those `given up` are right and refused, for a smaller grader.
`rule` marks matters of rule, such as 90 degrees and \frac{\pi}{2}, which are not counted.
"""

from pathlib import Path

import pytest

from trimsft.grading import Grader, Rules

LINES = Path(__file__).with_name("cases.tsv").read_text("utf-8").splitlines()[1:]
ROWS = [row for row in (line.split("\t") for line in LINES) if row[2] != "rule"]
MOST_REFUSED = {"seen": 10, "unseen": 5, "one": 0, "both": 0, "given up": 33}
"""Right answers that are refused: of the seen integrals, limits, series and a sum of matrices."""


def is_accepted(grader: Grader, half: str, gold: str, answer: str, every: bool) -> bool:
    """Grade a pair, of the half `both` either way and as two votes."""
    verdicts = [grader.grade(rf"So $\boxed{{{answer}}}$.", gold, Rules()).correct]
    if half == "both":
        verdicts += [grader.grade(rf"\boxed{{{gold}}}", answer).correct, grader.equivalent(gold, answer)]
    return all(verdicts) if every else any(verdicts)


def test_no_wrong_answer_is_accepted(grader: Grader) -> None:
    wrong = [row for row in ROWS if row[2] == "wrong"]
    assert [row for row in wrong if is_accepted(grader, row[0], row[3], row[4], every=False)] == []


@pytest.mark.parametrize("half", MOST_REFUSED)
def test_right_answers_are_accepted(half: str, grader: Grader) -> None:
    right = [row for row in ROWS if row[:1] + row[2:3] == [half, "right"]]
    refused = [row for row in right if not is_accepted(grader, half, row[3], row[4], every=True)]
    assert right and len(refused) <= MOST_REFUSED[half], refused
