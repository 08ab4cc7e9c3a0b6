"""Paired comparison: p-values against scipy, flips, Holm, and when a mark is earned."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trimsft.errors import RunError
from trimsft.evaluate.compare import (
    Comparison,
    compare_at_equal_accuracy,
    compare_runs,
    correct_for_many,
    holm,
    sign_flip,
)
from trimsft.evaluate.scores import write_scores
from trimsft.intervals import Interval
from trimsft.report import CompareSettings, compare

from .graded import random_counts, same, samples_of, score, score_of


def one_comparison(a, b, metric="average", *, resamples=50) -> Comparison:
    (comparison,) = compare_runs([a], {"trim": [b]}, [metric], name="sft", resamples=resamples)
    return comparison


@given(st.lists(st.integers(-8, 8), min_size=2, max_size=10))
def test_sign_flip_agrees_with_scipy(counts):
    differences = np.array(counts) / 8
    patterns = 2 ** len(counts)
    expected = stats.permutation_test(
        (differences, np.zeros(len(counts))),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=patterns,
    ).pvalue
    # scipy doubles the smaller tail, which is the same for a symmetric distribution but for a sum of 0
    assert sign_flip(differences) == pytest.approx(min(1.0, expected), rel=1e-12)


def test_drawing_agrees_with_the_exact_test_and_never_says_0():
    equal = [1.0] * 60 + [-1.0] * 35 + [0.0] * 200
    exact = stats.binomtest(60, 95).pvalue
    assert sign_flip(equal) == pytest.approx(exact, abs=5 * np.sqrt(exact / 20_000))
    assert sign_flip(np.linspace(1, 2, 40), draws=999) == 1 / 1000


def test_a_comparison_by_hand():
    before, after = score_of("toy", [0, 8, 4, 1, 3]), score_of("toy", [6, 2, 5, 1, 5])
    found = one_comparison(before, after, resamples=500)
    assert (found.baseline, found.candidate, found.benchmark, found.problems) == ("sft", "trim", "toy", 5)
    assert (found.before, found.after) == (16 / 40, 19 / 40)
    assert found.difference.value == pytest.approx(3 / 40)
    assert (found.better, found.worse) == (("toy/p000", "toy/p004"), ("toy/p001",))
    # changes 6, -6, 1, 2 add up to 3; of the 16 sign patterns, four come closer to 0: 6 and -6 with 2 and -1
    assert found.p_value == found.p_holm == 12 / 16
    assert not found.significant


def test_diversity_and_calibration_at_equal_accuracy():
    """Of p both have two right of four, of q one has more; the candidate is surer where it is wrong."""
    drawn = {"base": ("1 1 2 3", "1 2 3 4"), "trim": ("1 1 2 2", "1 1 1 1")}
    base, trim = (
        score("toy", [*samples_of("p", p), *samples_of("q", q)], same, resamples=50) for p, q in drawn.values()
    )
    diversity, brier = compare_at_equal_accuracy([base], {"trim": [trim]}, name="base")
    assert (diversity.problems, diversity.candidate, diversity.before, diversity.after) == (1, "trim", 0.75, 0.5)
    assert brier.before == brier.after == 0.25  # sure at one half, and right; sure at one half, a tie
    assert base.interval("diversity").value == (0.75 + 1) / 2
    assert compare_at_equal_accuracy([base.only(["q"])], {"trim": [trim.only(["q"])]}) == []


def test_runs_meet_on_common_problems_and_published_figures(tmp_path):
    for name, correct in (("sft", [1, 2, 3]), ("trim", [4, 5])):
        write_scores(tmp_path / name / "eval/toy", score_of("toy", correct))
    runs = (tmp_path / "sft", tmp_path / "trim")
    compared = compare(CompareSettings(runs=runs, published=("toy=75",)))
    assert compared.left_out == ["On toy only the 2 problems that all runs have: sft has 3."]
    assert [one.problems for one in compared.comparisons] == [2] * len(compared.comparisons)
    assert compared.comparisons[0].before == 3 / 16
    (alone,) = compare(CompareSettings(runs=runs[1:], published=("toy=75",))).tables[1:]
    assert [cell.text for cell in alone.rows[0][1:3]] == ["toy", "75.0"] and alone.rows[0][4].text.startswith("-18.8")
    write_scores(tmp_path / "other/eval/toy", score("toy", samples_of("q", "1 1 1 1"), same, resamples=50))
    with pytest.raises(RunError, match="share no problem of toy; evaluate all of them on the same ones"):
        compare(CompareSettings(runs=(*runs, tmp_path / "other")))


def test_a_mark_needs_a_small_p_value_and_an_interval_without_0():
    run = score_of("toy", [4, 4, 4])
    earned = dataclasses.replace(
        one_comparison(run, run), difference=Interval(0.1, 0.01, 0.2), p_value=0.02, p_holm=0.02
    )
    assert earned.significant
    assert not dataclasses.replace(earned, p_holm=0.05).significant
    assert not dataclasses.replace(earned, difference=Interval(0.1, 0.0, 0.2)).significant
    assert [one.significant for one in correct_for_many([earned] * 3)] == [False] * 3  # 3 x 0.02 > 0.05


def test_every_candidate_on_every_benchmark_and_their_mean():
    base = [score_of("b", random_counts(60, seed=1)), score_of("a", random_counts(30, seed=2))]
    better = [score_of("a", random_counts(30, seed=2, shift=2.0)), score_of("b", random_counts(60, seed=1, shift=2.0))]
    found = compare_runs(base, {"same": base, "better": better}, name="base", resamples=300)
    assert [(one.candidate, one.benchmark) for one in found] == [
        (run, benchmark) for run in ("same", "better") for benchmark in ("a", "b", "average")
    ]
    assert [one.significant for one in found] == [False, False, False, True, True, True]
    assert [one.p_holm for one in found] == holm([one.p_value for one in found])
    mean = found[5]
    assert mean.problems == 90
    assert mean.difference.value == pytest.approx((found[3].difference.value + found[4].difference.value) / 2)


def test_problems_of_a_small_benchmark_weigh_more_in_the_mean():
    a = [score_of("big", [4] * 8), score_of("small", [4] * 4)]
    b = [score_of("big", [5] * 6 + [3] * 2), score_of("small", [3] * 4)]
    found = compare_runs(a, {"b": b}, resamples=50)[-1]
    assert found.difference.value == pytest.approx((4 / 64 - 4 / 32) / 2)
    # in units of 1/128: eight changes of 1 that add up to 4, four of 2 that add up to -8
    assert found.p_value == sign_flip([1] * 6 + [-1] * 2 + [-2] * 4) != sign_flip([1] * 6 + [-1] * 6)
