import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.errors import UsageError
from trimsft.lab.arithmetic import TIERS, Step, draw_problems, follow, side_of

WORDS = {"Add": "+", "Subtract": "-", "Multiply by": "*", "Divide by": "/"}
CHAIN = re.compile(r"(?:Start with|Take|Begin with) (\d+)\.")
seeds = st.integers(0, 10**6)


def by_reading(text: str) -> str:
    """The answer of a bare chain, from its words alone."""
    value = int(CHAIN.match(text)[1])
    for words, operand in re.findall(r"(Add|Subtract|Multiply by|Divide by) (\d+)\.", text):
        value = eval(f"{value} {WORDS[words]} {operand}")
    assert value == int(value)
    return str(int(value))


@pytest.mark.parametrize("side", ["training", "benchmark"])
@given(seed=seeds, tier=st.sampled_from(list(TIERS)))
def test_problems_say_what_they_compute_and_keep_to_their_tier(side, seed, tier):
    level, problems = TIERS[tier], list(islice(draw_problems(tier, seed, side), 20))
    chains = [p for p in problems if CHAIN.match(p.problem)]
    assert chains and all(by_reading(p.problem) == p.answer for p in chains)
    for problem in problems:
        assert level.fewest_steps <= len(problem.steps) <= level.most_steps
        assert all(1 <= value <= level.largest for value in (problem.start, *problem.results))
        assert all(1 <= step.operand <= level.largest_term for step in problem.steps if step.operator in "+-")
        numbers = [int(number) for number in re.findall(r"\d+", problem.problem)]
        assert numbers == [problem.start, *(step.operand for step in problem.steps)]


def test_operations_by_hand():
    steps = (Step("+", 5), Step("*", 3), Step("-", 4), Step("/", 8))
    assert follow(7, steps) == (12, 36, 32, 4)
    with pytest.raises(UsageError, match=r"step: 7 / 2 leaves 1"):
        Step("/", 2).apply(7)


def test_a_seed_repeats_and_another_differs():
    first, again, other = (
        [p.problem for p in islice(draw_problems("lab-hard", seed, "training"), 30)] for seed in (1, 1, 2)
    )
    assert first == again
    assert not set(first) & set(other)


def test_streams_never_leave_their_side():
    computations = {}
    for side in ("training", "benchmark"):
        for tier in TIERS:
            for problem in islice(draw_problems(tier, 0, side), 1500):
                assert side_of(problem.start, problem.steps) == side
                computations.setdefault(side, set()).add((problem.start, problem.steps))
    assert not computations["training"] & computations["benchmark"]


def test_words_and_benchmarks_are_mixed_as_declared():
    for tier in TIERS.values():
        problems = list(islice(draw_problems(tier.name, 3, "training"), 3000))
        chains = sum(bool(CHAIN.match(p.problem)) for p in problems)
        assert 1 - chains / 3000 == pytest.approx(tier.story_share, abs=0.04)  # 4 standard errors
    steps = [Step("+", n) for n in range(1, 400)]
    benchmark = sum(side_of(start, (step,)) == "benchmark" for start in range(10) for step in steps)
    assert benchmark / 3990 == pytest.approx(1 / 8, abs=0.02)


@pytest.mark.parametrize(
    ("tier", "side", "message"),
    [
        ("lab-simple", "training", "tier: unknown name 'lab-simple'; .*known: lab-easy"),
        ("lab-easy", "test", "side: unknown name 'test'"),
    ],
)
def test_unknown_names_are_refused(tier, side, message):
    with pytest.raises(UsageError, match=message):
        next(draw_problems(tier, 0, side))
