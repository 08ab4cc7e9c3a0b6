"""What weights do to the tokens of a table: by hand, by laws, and the intervals around it."""

import math

import numpy as np
import pytest

from tests.tokens.by_hand import hand_table
from tests.tokens.tiny import make_table
from trimsft.objectives import TrimSFT, make_objective
from trimsft.objectives.paper import Setting
from trimsft.tokens.categories import CATEGORIES
from trimsft.tokens.statistics import (
    ENOUGH,
    PAPER_MASS,
    PAPER_SETTINGS,
    ByExample,
    category_intervals,
    confidence,
    diagnose,
    effective_ratio,
    judge_table,
    mass_intervals,
    ratio,
    region_percents,
    weight_intervals,
)
from trimsft.tokens.table import TokenTable, read_token_table

BAND = {"margin": 1.0, "bandwidth": 1.0}
FAR = math.exp(-2)  # the weight at gaps -1 and 3


# ---- weights


def test_effective_ratio_and_regions_by_hand() -> None:
    assert effective_ratio(np.array([1.0, 0.5])) == pytest.approx(1.5**2 / (2 * 1.25))
    assert effective_ratio(np.full(7, 1e-200)) == pytest.approx(1)  # its squares are 0
    assert math.isnan(effective_ratio(np.zeros(3)))
    gap = np.array([0.0, 0.5, 1.0, 1.5, 2.0])  # borders belong to the middle
    regions = {"low": 50, "middle": 37.5, "high": 12.5}
    assert region_percents(gap, np.array([4, 1, 1, 1, 1.0]), margin=1.0, bandwidth=0.5) == regions
    assert math.isnan(region_percents(gap, np.zeros(5), margin=1.0, bandwidth=0.5)["low"])


def test_diagnoses_by_hand() -> None:
    found = diagnose(hand_table([1.0, 1.0, 2.0, 3.0]), TrimSFT(1, 1), **BAND)  # weights 1, 1, e^-1/2, e^-2
    one = math.exp(-0.5)
    assert found.high_weight_percent == 75 and found.mean_weight == pytest.approx((2 + one + FAR) / 4)
    assert found.effective_ratio == pytest.approx((2 + one + FAR) ** 2 / (4 * (2 + one**2 + FAR**2)))
    table = hand_table([-1.0, 1.0, 3.0], norm=[1.0, 0.5, 0.25])
    masses = {"trim": [FAR, 0.5, 0.25 * FAR], "trim-e": [FAR, 0.5, 0.25], "trim-h": [1, 0.5, 0.25 * FAR]}
    for name, mass in masses.items():
        shares = diagnose(table, make_objective(name, **BAND), **BAND).mass_percent
        expected = [100 * one / sum(mass) for one in mass]
        assert [*shares.values()] == pytest.approx(expected, rel=1e-6)
    sure = confidence(hand_table(np.arange(-3.0, 13)), margin=1.5, bandwidth=0.5)
    assert sure.median_gap == 4.5 and sure.first_choice_percent == 100 * 13 / 16  # at 0 it is a tie
    assert sure.regions_percent == {"low": 25, "middle": 12.5, "high": 62.5}  # -3 to 0; 1 and 2; 3 to 12
    assert sure.mean_nll == pytest.approx(np.log1p(np.exp(-np.arange(-3.0, 13))).mean(), rel=1e-5)


# ---- categories


def test_categories_by_hand() -> None:
    kinds = ["numeric", "numeric", "symbol", "other"]
    table = hand_table([1.0, 3.0, 1.0, -1.0], norm=[1.0, 1.0, 2.0, 4.0], category=kinds)
    found = category_intervals(table, Setting(1, 1))

    def values(column: str) -> list[float]:
        return [found[name][column].value for name in CATEGORIES]

    total = 1 + FAR + 2 + 4 * FAR
    assert values("ratio_percent") == [50, 25, 0, 25]
    assert values("mean_weight") == pytest.approx([(1 + FAR) / 2, 1, math.nan, FAR], nan_ok=True)
    assert values("middle_percent") == pytest.approx([50, 100, math.nan, 0], nan_ok=True)
    assert values("sft_mass_percent") == pytest.approx([25, 25, 0, 50])
    shares = [100 * (1 + FAR) / total, 200 / total, 0, 400 * FAR / total]
    assert values("trim_mass_percent") == pytest.approx(shares, rel=1e-6)


# ---- intervals


def test_values_of_intervals_are_those_of_the_plain_statistics(tmp_path) -> None:
    texts = [["1", "2", " =", " so", " x", "+"][: 2 + number % 5] * 3 for number in range(12)]
    table = read_token_table(make_table(tmp_path / "tokens.parquet", texts))
    assert PAPER_SETTINGS == ((1, 1), (3, 1), (6, 1), (1, 3), (1, 6), (6, 3), (6, 6))
    assert PAPER_MASS == ((1, 1), (3, 1), (5, 1))
    for setting, found in weight_intervals(table).items():
        plain = diagnose(table, TrimSFT(*setting), margin=setting.margin, bandwidth=setting.bandwidth)
        assert found["mean_weight"].value == pytest.approx(plain.mean_weight, rel=1e-12)
        assert found["high_weight_percent"].value == pytest.approx(plain.high_weight_percent, rel=1e-12)
        assert found["r_eff"].value == pytest.approx(plain.effective_ratio, rel=1e-12)
        assert all(interval.low <= interval.value <= interval.high for interval in found.values())
        assert found["r_eff"].low < found["r_eff"].high
    for (setting, name), regions in mass_intervals(table).items():
        objective = make_objective(name, **setting._asdict())
        mass = diagnose(table, objective, margin=setting.margin, bandwidth=setting.bandwidth).mass_percent
        for region, interval in regions.items():
            assert interval.value == pytest.approx(mass[region], rel=1e-12, abs=1e-12)


def test_weights_too_small_for_float32_to_square_are_squared() -> None:
    """At a gap of 15.2 the weight at (1, 1) is among the smallest numbers of float32."""
    gap = 15.2 + np.random.default_rng(0).normal(0, 0.02, size=300)
    table, setting = hand_table(gap, example=np.repeat(np.arange(30), 10)), Setting(1, 1)
    plain = diagnose(table, TrimSFT(*setting), **BAND)
    assert 0 < plain.mean_weight < 1e-43
    assert weight_intervals(table, [setting])[setting]["r_eff"].value == pytest.approx(plain.effective_ratio, rel=1e-12)


def test_a_ratio_over_examples_is_covered() -> None:
    """Means of tokens whose examples differ: about 95 of 100 intervals have the true mean in them."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        lengths = rng.integers(5, 30, size=60)
        example = np.repeat(np.arange(60), lengths)
        values = np.repeat(rng.normal(1.0, 1.0, size=60), lengths) + rng.normal(0, 1, size=len(example))
        columns = [("tokens", np.ones(len(example))), ("value", values)]
        found = ByExample(TokenTable({"example": example}, {}, {}), columns).interval(ratio("value", "tokens"))
        covered += found.low <= 1.0 <= found.high
    assert 180 <= covered <= 198


# ---- the verdict


@pytest.mark.parametrize(
    ("gaps", "says"),
    [
        ([1.5] * 8 + [30.0] * 2, "(margin 1.5, bandwidth 0.8) has R_eff 0.80, which is enough"),  # weights of 1 and 0
        ([1.5] + [4.5] * 9, "has R_eff 0.10: too few tokens; the same band "),
        ([1.5] + [60.0] * 99, "has R_eff 0.01; even one 6 times as wide holds too few tokens."),
        ([-5.0] * 6 + [1.5] * 4, "The model does not support this data: 60% of the tokens are out of reach"),
    ],
)
def test_verdicts(gaps, says) -> None:
    verdict = judge_table(hand_table(gaps))
    assert says in verdict.sentence and verdict.as_dict()["supported"] == ("does not" not in says)
    assert (verdict.band is None) == (60.0 in gaps or -5.0 in gaps)
    if verdict.band is not None:
        assert verdict.band_ratio >= ENOUGH
        assert verdict.band.bandwidth / verdict.band.margin == pytest.approx(0.8 / 1.5)
