"""The paragraph says what the numbers say, in either direction."""

from pathlib import Path

import pytest

from tests.study.quickstart.made_up import make_results
from trimsft.study.quickstart.words import describe, next_commands


def test_a_gain_is_told_with_its_numbers() -> None:
    text = describe(make_results(base=(5, 1.0), sft=(4, 0.5), trim=(7, 0.5)))
    assert "TrimSFT is above SFT: 87.5 against 50.0 (average@8), +37.5 points, 95 % interval" in text
    assert "The base model solves 100.0 % greedy and 62.5 % at temperature 1: able, but scattered." in text
    assert "not told apart from SFT there, so what it wins here is won in sampling" in text
    assert "highest" not in text


def test_a_loss_is_told_just_so() -> None:
    text = describe(make_results(base=(5, 0.625), sft=(7, 1.0), trim=(4, 1.0)))
    assert "TrimSFT is below SFT here: 50.0 against 87.5" in text
    assert "the paper's claim does not show" in text
    assert "above SFT" not in text and "wins" not in text
    assert "scattered" not in text


def test_no_difference_is_no_gain() -> None:
    text = describe(make_results(sft=(6, 1.0), trim=(6, 1.0)))
    assert "TrimSFT is not told apart from SFT here: 75.0 against 75.0" in text
    assert "base" not in text and "above" not in text


def test_other_methods_stand_where_their_scores_put_them() -> None:
    text = describe(
        make_results(sft=(5, 1.0), fsft=(1, 0.9), dft=(7, 1.0), trim=(6, 1.0), trim_e=(5, 1.0), trim_h=(3, 1.0))
    )
    assert "Above SFT: DFT (87.5); below SFT: TrimSFT-H (37.5) and FSFT (12.5); not told apart from it: " in text
    assert "TrimSFT-E (62.5)." in text
    assert "The highest here is DFT, not TrimSFT." in text


@pytest.mark.parametrize(("greedy", "said"), [(1.0, "is above SFT there, too"), (0.2, "is below SFT there")])
def test_greedy_may_agree_or_not(greedy: float, said: str) -> None:
    assert said in describe(make_results(sft=(4, 0.6), trim=(7, greedy)))


def test_runs_that_failed_are_not_missed() -> None:
    assert describe(make_results(base=(5, 1.0))) == (
        "The base model solves 100.0 % greedy and 62.5 % at temperature 1: able, but scattered."
    )
    text = describe(make_results(trim=(6, 1.0)))
    assert "SFT:" not in text and "Greedy, the trained model solves 100.0 %." in text


def test_next_are_five_commands() -> None:
    lines = next_commands(Path("runs/quickstart"), ("sft", "trim")).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("  trimsft ")] == [
        "tokens",
        "report",
        "train",
        "eval",
        "compare",
    ]
    assert "trimsft compare runs/quickstart/sft runs/quickstart/trim" in lines[5]
