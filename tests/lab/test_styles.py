import random
import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import UsageError
from trimsft.lab.arithmetic import TIERS, LabProblem, Step, draw_problems
from trimsft.lab.styles import FAR, FILLER, NEAR, STYLES, TARGET, UNFAMILIAR, draw_results, write_solution

PROBLEM = LabProblem("p", "lab-easy", "Start with 7. ...", 7, (Step("+", 5), Step("*", 3), Step("-", 4), Step("/", 8)))
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) (?:=|is|->) (\d+)")


def problems(seed: int, count: int = 10) -> list[LabProblem]:
    return [p for tier in TIERS for p in islice(draw_problems(tier, seed, "training"), count)]


@pytest.mark.parametrize(
    ("style", "parts"),
    [
        ("steps", ["Step 1: 7 + 5 = 12.", "Step 2: 12 * 3 = 36.", "Step 3: 36 - 4 = 32.", "Step 4: 32 / 8 = 4."]),
        ("arrows", ["[7 + 5 -> 12] [12 * 3 -> 36] [36 - 4 -> 32] [32 / 8 -> 4] => \\boxed{4}"]),
        ("words", ["Adding 5 to 7 gives 12. Multiplying 12 by 3 gives 36. Taking 4 from 36 gives 32. Dividing 32"]),
    ],
)
def test_formats_by_hand(style, parts):
    text = write_solution(PROBLEM, style).text
    assert (TARGET, UNFAMILIAR) == ("steps", "arrows") and text.startswith("\n".join(parts))
    assert style != "steps" or text.endswith("\nThe answer is \\boxed{4}.")


@given(seed=st.integers(0, 10**6), style=st.sampled_from([name for name in STYLES if name != "words"]))
def test_clean_solutions_compute_rightly_and_end_in_the_answer(seed, style):
    for problem in problems(seed, 3):
        solution = write_solution(problem, style)
        equations = EQUATION.findall(solution.text)
        assert len(equations) == len(problem.steps)
        for left, operator, right, result in equations:
            assert eval(f"{left} {operator} {right}") == int(result)
        assert re.findall(r"\d+", solution.text)[-1] == problem.answer == solution.answer
        assert ("\\boxed{" in solution.text) == (style != "plain")


@given(seed=st.integers(0, 10**6), offsets=st.sampled_from([NEAR, FAR]))
def test_slips_are_wrong_and_carried_on(seed, offsets):
    rng = random.Random(seed)
    for problem in problems(seed, 3):
        solution = write_solution(problem, TARGET, rng, slip_rate=0.5, offsets=offsets, filler_rate=0.3)
        value, wrong = problem.start, []
        for found in EQUATION.finditer(solution.text):
            left, operator, right, result = found.groups()
            assert int(left) == value  # what the step before said, right or wrong
            value = int(result)
            if eval(f"{left} {operator} {right}") != value:
                assert value - eval(f"{left} {operator} {right}") in offsets
                wrong.append(found.span(4))
        assert solution.slips == tuple(wrong)
        assert solution.answer == str(value)
        assert all(solution.text[a:b] in FILLER for a, b in solution.fillers)


def test_rates_are_met():
    rng = random.Random(0)
    problems = list(islice(draw_problems("lab-medium", 5, "training"), 3000))
    rates = {"slip_rate": 0.1, "offsets": FAR, "filler_rate": 0.2}
    solutions = [write_solution(problem, TARGET, rng, **rates) for problem in problems]
    steps = sum(len(problem.steps) for problem in problems)
    slips, fillers = (sum(len(getattr(one, name)) for one in solutions) for name in ("slips", "fillers"))
    # a slip that would make a later division impossible is not made, so a few are missing
    assert 0.085 < slips / steps < 0.11
    assert fillers / steps == pytest.approx(0.2, abs=0.02)


def test_a_slip_can_always_be_carried_on():
    problem = LabProblem("p", "lab-easy", "", 6, (Step("+", 3), Step("/", 9)))
    for seed in range(50):
        results, slipped = draw_results(problem, random.Random(seed), 1.0, NEAR)
        assert results[0] == 9 and 0 not in slipped
    with pytest.raises(UsageError, match="style: unknown name 'verse'"):
        write_solution(PROBLEM, "verse")
