"""Grading that is no boxed mathematics: texts, choices, patterns, and a scorer of the user."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimsft.errors import TrimSFTError, UsageError
from trimsft.grading import Grader, Grading, Rules, load_scorer
from trimsft.grading import grader as module
from trimsft.grading.answers import stated_choice

GSM8K = r"#### (-?[0-9.,]+)"
HOPELESS = r"(a|aa)+$"  # takes longer than anybody waits on the text below
TEXT = "a" * 60 + "b"


def graded(grader: Grader, response: str, gold: str, grading: Grading, **more: Any) -> tuple[str, str | None]:
    truncated = more.pop("truncated", False)
    grade = grader.grade(response, gold, Rules(grading=grading, **more), truncated=truncated)
    assert grade.correct == (grade.status == "correct")
    return grade.status, grade.answer


@pytest.mark.parametrize(
    ("response", "gold", "status"),
    [
        ("Paris", "Paris", "correct"),
        (r"It lies in \boxed{\text{Paris}}.", "Paris", "correct"),
        ("paris", "Paris", "wrong"),
        ("It is Paris.", "Paris", "wrong"),  # nobody guesses which part is meant
        ("  ", "Paris", "no_answer"),
    ],
)
def test_exact_texts(grader: Grader, response: str, gold: str, status: str) -> None:
    assert graded(grader, response, gold, Grading("exact"))[0] == status


def test_an_exact_text_needs_a_whole_response(grader: Grader) -> None:
    assert graded(grader, "Par", "Paris", Grading("exact"), truncated=True) == ("truncated", None)
    assert graded(grader, r"\boxed{Paris} and", "Paris", Grading("exact"), truncated=True) == ("correct", "Paris")
    rules = Rules(grading=Grading("exact"))
    assert grader.equivalent("New  York", "New York", rules) and not grader.equivalent("1/2", "0.5", rules)


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        (r"so \boxed{B}", "B"),
        (r"so $\boxed{\textbf{(B)}\ 4}$", "B"),
        (r"so \boxed{4}", "B"),  # the text of a choice
        (r"The answer is C. No: \boxed{B}", "B"),
        (r"so \boxed{17}", "17"),  # an answer, but none of the choices
        ("The answer is (B).", "B"),
        ("First I thought the answer is C, but the answer is B.", "B"),
        ("The answer is A train.", None),
        ("The answer is B or C.", None),
        ("The answer is not B.", None),
        ("Is it\nA. 3\nB. 4", None),  # the choices, copied
    ],
)
def test_the_letter_of_a_choice(response: str, letter: str | None) -> None:
    assert stated_choice(response, ("3", "4", "four apples")) == letter


def test_a_choice_is_graded_by_its_letter(grader: Grader) -> None:
    choice = Grading("choice")
    assert graded(grader, "The answer is B.", "B", choice) == ("correct", "B")
    assert graded(grader, "The answer is C.", "B", choice) == ("wrong", "C")
    assert graded(grader, r"\boxed{17}", "B", choice, choices=("3", "4")) == ("unparsable", "17")
    assert graded(grader, "Hm, the", "B", choice, truncated=True) == ("truncated", None)
    assert graded(grader, r"\boxed{4}", "B", choice, choices=("3", "4")) == ("correct", "B")


@pytest.mark.parametrize("text", ["answer is ", "(", "A", "A.\n", "*"])
def test_hostile_texts_choose_nothing_and_cost_no_time(text: str) -> None:
    assert stated_choice(text * (500_000 // len(text))) in (None, "A")


@pytest.mark.parametrize(
    ("response", "gold", "status", "answer"),
    [
        ("5 + 13 = 18\n#### 18", "18", "correct", "18"),
        ("#### 17\nno:\n#### 1,000.", "1000", "correct", "1,000."),  # the last one counts
        (r"\boxed{18}", "18", "no_answer", None),
    ],
)
def test_a_pattern(grader: Grader, response: str, gold: str, status: str, answer: str | None) -> None:
    assert graded(grader, response, gold, Grading("regex", pattern=GSM8K)) == (status, answer)


def test_what_a_pattern_finds_is_compared_as_mathematics(grader: Grader) -> None:
    by_math = Grading("regex", pattern="=(.*)")
    assert graded(grader, "x=1/2", "0.5", by_math)[0] == "correct"
    assert grader.equivalent("1/2", "0.5", Rules(grading=by_math))
    many = [("x=2", "2", Rules(grading=by_math), False), ("", "2", Rules(grading=by_math), True)]
    assert [grade.status for grade in grader.grade_many(many)] == ["correct", "truncated"]


def test_a_slow_pattern_is_ended_and_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SLOW", 3)
    monkeypatch.setattr(module, "_SECONDS", 0.2)
    grader, rules = Grader(), Rules(grading=Grading("regex", pattern=HOPELESS))
    items = [(TEXT, "a", rules, False)] * 2
    assert [(grade.status, grade.answer) for grade in grader.grade_many(items)] == [("timeout", None)] * 2
    with pytest.raises(UsageError, match=r"^pattern: took more than 0.2 s on each of 3 responses, got "):
        grader.grade(TEXT, "a", rules)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "maths"}, r"^grading: unknown name 'maths'; did you mean 'math'\?"),
        ({"kind": "regex"}, r"^pattern: is missing for grading 'regex'; such as '#### \(-\?\[0-9.,\]\+\)'$"),
        ({"kind": "regex", "pattern": "a"}, r"^pattern: must have one group \(...\), which"),
    ],
)
def test_gradings_that_mean_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Grading(**fields)


# ---- scorers of users

SCORER = """
def last_word(response, gold):
    word = response.split()[-1] if response.split() else None
    return word == gold, word
def yes(response, gold): return gold in response
def broken(response, gold): return 1 / 0
def vague(response, gold): return 0.5
def blank(response, gold): return True, None
"""


@pytest.fixture
def scorers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scorers_here.py").write_text(SCORER)
    yield tmp_path / "scorers_here.py"
    sys.modules.pop("scorers_here", None)


def test_a_function_of_the_current_folder_grades(scorers: Path) -> None:
    scorer = load_scorer("scorers_here:last_word")
    grader = Grader(scorer=scorer)
    assert (grader.name, grader.version) == ("scorers_here:last_word", scorer.version) and len(scorer.version) == 12
    assert graded(grader, "it is 5", "5", Grading()) == ("correct", "5")
    assert graded(grader, "it is 5.0", "5", Grading()) == ("wrong", "5.0")
    assert grader.grade("it is 5", ("4", "5")).correct and not grader.grade("it is 5", ("4", "6")).correct
    assert graded(grader, "", "5", Grading(), truncated=True) == ("truncated", None)
    assert grader.equivalent("a  b", "a b") and not grader.equivalent("5", "5.0")
    yes = Grader(scorer=load_scorer("scorers_here:yes"))
    assert graded(yes, " is 5. ", "5", Grading()) == ("correct", "is 5.")
    scorers.write_text(SCORER + "\n# changed\n")
    assert load_scorer("scorers_here:last_word").version != scorer.version


def test_a_scorer_answers_true_or_false(scorers: Path) -> None:
    for name, says in (("broken", "failed"), ("vague", "must return"), ("blank", "must return")):
        with pytest.raises(TrimSFTError, match=f"^scorers_here:{name} {says}"):
            Grader(scorer=load_scorer(f"scorers_here:{name}")).grade("x", "5")
