"""Reliability of the first choice."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokens.by_hand import hand_table, reordered
from trimsft.tokens.statistics import Bin, calibration, first_choice


def test_the_first_choice_has_the_largest_probability() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 6)) * 2
    logp = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    gap = logits[:, 0] - logits[:, 1:].max(axis=1)  # the gold token is the first
    sure, right = first_choice(hand_table(gap, nll=-logp[:, 0]))
    assert sure == pytest.approx(np.exp(logp).max(axis=1), rel=1e-5)
    assert (right == (logits.argmax(axis=1) == 0)).all()
    assert first_choice(hand_table([0.0], nll=[math.log(2)]))[1].tolist() == [0.5]  # a tie


def test_by_hand() -> None:
    # confidences 0.9 (right), 0.9 (wrong: its gold token has 0.1), 0.6 (right), 0.6 (right)
    nine = math.log(9)
    nll = [-math.log(0.9), -math.log(0.1), -math.log(0.6), -math.log(0.6)]
    table = hand_table([nine, -nine, 0.4, 0.4], nll=nll)
    found = calibration(table, bins=10)
    assert found.tokens == 4 and found.confidence == pytest.approx(0.75) and found.accuracy == 0.75
    assert [one.tokens for one in found.bins] == [2, 2]
    assert found.bins[0] == Bin(2, pytest.approx(0.6), 1.0) and found.bins[1] == Bin(2, pytest.approx(0.9), 0.5)
    assert found.ece == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)
    assert math.isnan(found.low) and math.isnan(found.high)  # one example
    assert calibration(table, bins=1).ece == pytest.approx(0, abs=1e-6)  # the two errors cancel
    assert calibration(table, bins=2, by="mass").ece == pytest.approx(0.4)


def test_bins_of_equal_mass() -> None:
    p = np.linspace(0.51, 0.99, 100)
    table = hand_table(np.log(p / (1 - p)), nll=-np.log(p))
    found = calibration(table, bins=4, by="mass")
    assert [one.tokens for one in found.bins] == [25] * 4
    assert [one.accuracy for one in found.bins] == [1.0] * 4
    assert found.ece == pytest.approx(1 - p.mean(), abs=1e-6)


def test_the_interval_resamples_examples_not_tokens() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.5, 1, 400)
    right = rng.random(400) < p
    gap = np.where(right, 1, -1) * np.log(p / (1 - p) + 1e-9)
    nll = -np.log(np.where(right, p, 1 - p))
    alone = calibration(hand_table(gap, nll=nll, example=range(400)))
    # each example ten times over: as many examples, so the same interval
    tenfold = hand_table(np.tile(gap, 10), nll=np.tile(nll, 10), example=np.tile(np.arange(400), 10))
    assert alone.low < alone.ece < alone.high
    again = calibration(tenfold)
    assert (again.low, again.ece, again.high) == pytest.approx((alone.low, alone.ece, alone.high))
    assert calibration(hand_table(gap, nll=nll, example=range(400)), seed=1).low != alone.low


@settings(max_examples=50)
@given(st.lists(st.floats(-9, 12, width=32), min_size=2, max_size=30), st.randoms(), st.sampled_from(["width", "mass"]))
def test_laws(gaps, random, by) -> None:
    table = hand_table(gaps, example=[n % 4 for n in range(len(gaps))])
    found = calibration(table, by=by, resamples=20)
    assert 0 <= found.ece <= 1 and sum(one.tokens for one in found.bins) == len(gaps)
    assert abs(found.accuracy - found.confidence) <= found.ece + 1e-9  # bins can only add to it
    order = list(range(len(gaps)))
    random.shuffle(order)
    assert calibration(reordered(table, order), by=by, resamples=20).ece == pytest.approx(found.ece)


def test_the_interval_of_a_calibrated_model_holds_its_ece() -> None:
    random = np.random.default_rng(0)
    sure = random.uniform(0.5, 1.0, size=20_000)
    right = random.uniform(size=len(sure)) < sure
    other = np.log(sure / (1 - sure))
    gap = np.where(right, other, -other)
    nll = np.where(right, -np.log(sure), -np.log1p(-sure))
    found = calibration(hand_table(gap, nll=nll, example=np.repeat(np.arange(200), 100)))
    assert found.ece < 0.02 and found.low < found.ece < found.high
