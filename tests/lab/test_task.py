"""The lab: problems say what they compute, sides never meet, rows say what was done to them."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import UsageError
from trimsft.lab.task import (
    ALL_TIERS,
    FAR,
    NEAR,
    FineTuning,
    LabProblem,
    Step,
    benchmark,
    draw_problems,
    side_of,
    training_rows,
    write_solution,
)
from trimsft.lab.wording import FILLER, TARGET, UNFAMILIAR

PROBLEM = LabProblem("p", "lab-easy", "Start with 7. ...", 7, (Step("+", 5), Step("*", 3), Step("-", 4), Step("/", 8)))
CHAIN = re.compile(r"(?:Start with|Take|Begin with) (\d+)\.")
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) (?:=|is|->) (\d+)")
WORDS = {"Add": "+", "Subtract": "-", "Multiply by": "*", "Divide by": "/"}
seeds = st.integers(0, 10**6)


def answer_of_chain(text: str) -> str:
    """Return the answer of a bare chain, from its words alone."""
    value = int(CHAIN.match(text)[1])  # type: ignore[index]
    for words, operand in re.findall(r"(Add|Subtract|Multiply by|Divide by) (\d+)\.", text):
        value = eval(f"{value} {WORDS[words]} {operand}")
    assert value == int(value)
    return str(int(value))


@pytest.mark.parametrize("side", ["training", "benchmark"])
@given(seed=seeds, tier=st.sampled_from(list(ALL_TIERS)))
def test_problems_say_what_they_compute_and_keep_to_their_tier(side, seed, tier) -> None:
    level, problems = ALL_TIERS[tier], list(islice(draw_problems(tier, seed, side), 20))
    chains = [p for p in problems if CHAIN.match(p.problem)]
    assert all(answer_of_chain(p.problem) == p.answer for p in chains)
    for problem in problems:
        assert side_of(problem.start, problem.steps) == side
        assert level.fewest_steps <= len(problem.steps) <= level.most_steps
        assert all(1 <= value <= level.largest for value in (problem.start, *problem.results))
        numbers = [int(number) for number in re.findall(r"\d+", problem.problem)]
        assert numbers == [problem.start, *(step.operand for step in problem.steps)]


def test_benchmarks_are_distinct_grow_at_the_end_and_are_never_trained_on() -> None:
    trained = {row["problem"] for row in training_rows(FineTuning(rows=3000))}
    for tier in ALL_TIERS:
        problems = benchmark(tier, 300)
        assert len({p.problem for p in problems}) == len({p.id for p in problems}) == 300
        assert not trained & {p.problem for p in problems}
        assert problems[:50] == benchmark(tier, 50)
    with pytest.raises(UsageError, match=r"tier: unknown name 'lab-simple'.*known: lab-easy"):
        benchmark("lab-simple")


def test_formats_by_hand() -> None:
    steps = "Step 1: 7 + 5 = 12.\nStep 2: 12 * 3 = 36.\nStep 3: 36 - 4 = 32.\nStep 4: 32 / 8 = 4."
    assert write_solution(PROBLEM, "steps").text == f"{steps}\nThe answer is \\boxed{{4}}."
    arrows = "[7 + 5 -> 12] [12 * 3 -> 36] [36 - 4 -> 32] [32 / 8 -> 4] => \\boxed{4}"
    assert write_solution(PROBLEM, "arrows").text == arrows


@given(seed=seeds, offsets=st.sampled_from([NEAR, FAR]))
def test_slips_are_wrong_carried_on_and_never_in_the_way_of_a_division(seed: int, offsets: dict[int, int]) -> None:
    rng = random.Random(seed)
    for problem in islice(draw_problems("lab-hard", seed, "training"), 5):
        solution = write_solution(problem, TARGET, rng, slip_rate=0.5, offsets=offsets, filler_rate=0.3)
        value, wrong = problem.start, []
        for found in EQUATION.finditer(solution.text):
            left, operator, right, result = found.groups()
            assert int(left) == value  # what the step before said, right or wrong
            value = int(result)
            if eval(f"{left} {operator} {right}") != value:
                assert value - eval(f"{left} {operator} {right}") in offsets
                wrong.append(found.span(4))
        assert solution.slips == tuple(wrong) and solution.answer == str(value)
        assert all(solution.text[a:b] in FILLER for a, b in solution.fillers)


def test_rows_say_what_was_done_to_them_and_settings_change_one_thing() -> None:
    clean = FineTuning(rows=600, slip_rate=0, filler_rate=0)
    spoilt = replace(clean, slip_rate=0.1, filler_rate=0.2, unfamiliar_share=0.3)
    rows = list(training_rows(spoilt))
    assert [row["problem"] for row in rows] == [row["problem"] for row in training_rows(clean)]
    assert json.dumps(rows) == json.dumps(list(training_rows(spoilt)))
    assert not {row["problem"] for row in rows} & {row["problem"] for row in training_rows(replace(clean, seed=1))}
    assert Counter(row["style"] for row in rows)[UNFAMILIAR] == pytest.approx(180, abs=45)
    steps = sum(len(EQUATION.findall(row["solution"])) for row in rows)
    # a slip that would make a later division impossible is not made, so a few are missing
    assert 0.08 < sum(row["slips"] for row in rows) / steps < 0.12
    assert sum(row["fillers"] for row in rows) / steps == pytest.approx(0.2, abs=0.03)
    for row in rows:
        assert row["solution"].startswith("[") == (row["style"] == UNFAMILIAR)
        assert all(row["solution"][a:b].isdigit() for a, b in row["slip_spans"])
        assert row["slips"] or f"\\boxed{{{row['answer']}}}" in row["solution"]
