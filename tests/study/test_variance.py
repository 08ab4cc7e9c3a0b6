"""Variance explained by margin and bandwidth: grids worked out by hand, laws, noise, and the paper's own tables."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimsft.study import paper
from trimsft.study.variance import sensitivity, shares

numbers = st.floats(-100, 100).map(lambda value: round(value, 3))


def grid(function, margins=(0, 1, 2), bandwidths=(0.5, 1.0), seeds=1):
    return {(m, tau): [function(m, tau)] * seeds for m in margins for tau in bandwidths}


def parts(scores):
    return tuple(shares(scores).values())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, tau: 7 * m, (1, 0, 0, 0, 0)),
        (lambda m, tau: 7 * tau - 3, (0, 1, 0, 0, 0)),
        # m: 3 levels -1, 0, 1 (twice each): 4; tau: -0.25, 0.25 times 8 (three each): 24
        (lambda m, tau: m + 8 * tau, (4 / 28, 24 / 28, 0, 0, 0)),
        # no effect of either alone: a sign that depends on both
        (lambda m, tau: (m - 1) * (tau - 0.75), (0, 0, 1, 0, 0)),
    ],
)
def test_hand_made_grids_have_the_shares_they_were_made_with(function, expected):
    for seeds in (1, 3):
        assert parts(grid(function, seeds=seeds)) == pytest.approx(expected, abs=1e-12)


def test_missing_cells_make_shared_variance():
    """An L of three cells, worked out: m - tau is 0, 1, -1 for (0,0), (1,0), (0,1) and the score is m.

    Total 2/3. RSS(m) = 0, RSS(tau) = 1/2 (the two cells of tau = 0 differ by 1), RSS(m + tau) = 0.
    """
    assert parts({(0, 0): [0.0], (1, 0): [1.0], (0, 1): [0.0]}) == pytest.approx((0.75, 0, 0, 0, 0.25))


@given(
    st.lists(numbers, min_size=6, max_size=6, unique=True),
    st.floats(0.1, 50),
    st.floats(-50, 50),
    st.sampled_from([1, -1]),
)
def test_shares_are_invariant_and_swap_with_factors(values, scale, offset, sign):
    scores = {(n % 3, n // 3): [value] for n, value in enumerate(values)}
    moved = {setting: [sign * scale * value + offset] for setting, (value,) in scores.items()}
    assert parts(moved) == pytest.approx(parts(scores), abs=1e-6)
    turned = parts({(tau, m): value for (m, tau), value in scores.items()})
    assert turned[:2] == pytest.approx(parts(scores)[1::-1], abs=1e-9)


def test_scores_that_are_all_alike_have_no_variance_to_explain():
    alike = [[np.full(4, 0.1 + 0.2)]]
    found = sensitivity(dict.fromkeys([(0, 1), (0, 2), (1, 1), (1, 2)], alike), resamples=20)
    assert math.isnan(found.difference.value)
    assert found.verdict == "cannot be told"
    assert found.sentence() == "All 4 settings score the same: there is no variance to explain."


def sampled(effect, rng, seeds=1, problems=30, spread=0.0):
    """average@8 of 3 x 3 settings on two benchmarks; `effect` in log-odds."""
    difficulty = [rng.normal(0, 1.5, problems) for _ in range(2)]

    def run(shift):
        return [rng.binomial(8, 1 / (1 + np.exp(-odds - shift))) / 8 for odds in difficulty]

    return {
        (m, tau): [run(effect(m, tau) + rng.normal(0, spread)) for _ in range(seeds)]
        for m in range(3)
        for tau in range(3)
    }


@pytest.mark.parametrize(
    ("effect", "verdict", "words"),
    [
        (lambda m, tau: 0.8 * tau, "holds", "tau matters more than m"),
        (lambda m, tau: 0.8 * m, "does not hold", "m matters more than tau"),
        (lambda m, tau: 0.5 * m + 0.5 * tau, "cannot be told", "cannot be told"),
    ],
)
def test_the_sentence_says_what_the_numbers_say(effect, verdict, words):
    found = sensitivity(sampled(effect, np.random.default_rng(3), seeds=3, spread=0.05), resamples=300)
    assert found.verdict == verdict
    assert words in found.sentence()
    assert f"tau explains {100 * found.shares['bandwidth'].value:.0f} % [" in found.sentence()
    assert all(interval.low <= interval.value <= interval.high for interval in found.shares.values())


def test_the_papers_ablation_has_its_known_shares():
    rows = [*paper.scores("bandwidth_ablation"), *paper.scores("margin_ablation")]
    by_setting = {tuple(row.setting): row for row in rows if row.setting is not None}
    found = shares({setting: [row.average] for setting, row in by_setting.items()})
    assert len(by_setting) == 28
    assert (found["bandwidth"], found["margin"]) == pytest.approx((0.7305, 0.1583), abs=5e-4)
    for benchmark in rows[0].scores:
        found = shares({setting: [row.scores[benchmark]] for setting, row in by_setting.items()})
        assert found["bandwidth"] > 3 * found["margin"]


def test_agrees_with_sums_of_squares_by_scipy_least_squares():
    """Type II from plain least squares on dummies, with cells missing."""
    rng = np.random.default_rng(0)
    scores = {(m, tau): list(rng.normal(size=2)) for m in range(4) for tau in range(3) if (m, tau) != (2, 1)}
    rows = [(m, tau, value) for (m, tau), values in scores.items() for value in values]
    m, tau, y = (np.array(column, dtype=float) for column in zip(*rows, strict=True))

    def rss(*factors):
        columns = [np.ones(len(y)), *(1.0 * (factor == level) for factor in factors for level in set(factor))]
        design = np.stack(columns, axis=1)
        return float(np.square(y - design @ np.linalg.lstsq(design, y, rcond=None)[0]).sum())

    total = float(np.square(y - y.mean()).sum())
    both, cells = rss(m, tau), rss(10 * m + tau)
    expected = [rss(tau) - both, rss(m) - both, both - cells, cells]
    assert parts(scores)[:4] == pytest.approx([part / total for part in expected])
