"""Intervals over examples: their values are those of the plain statistics, and they cover what they should."""

import math
from pathlib import Path

import numpy as np
import pytest

from tests.tokens.by_hand import hand_table
from tests.tokens.tiny import make_table
from trimsft.objectives import TrimSFT, make_objective
from trimsft.objectives.paper import Setting
from trimsft.tokens.statistics import (
    PAPER_MASS,
    PAPER_SETTINGS,
    ByExample,
    by_category,
    category_intervals,
    diagnose,
    mass_intervals,
    ratio,
    weight_intervals,
)
from trimsft.tokens.table import TokenTable, read_token_table

TEXTS = [["1", "2", " =", " so", " x", "+"][: 2 + number % 5] * 3 for number in range(12)]


@pytest.fixture
def table(tmp_path: Path) -> TokenTable:
    return read_token_table(make_table(tmp_path / "tokens.parquet", TEXTS))


def test_values_are_those_of_the_plain_statistics(table: TokenTable) -> None:
    assert PAPER_SETTINGS == ((1, 1), (3, 1), (6, 1), (1, 3), (1, 6), (6, 3), (6, 6))
    assert PAPER_MASS == ((1, 1), (3, 1), (5, 1))
    for setting, found in weight_intervals(table).items():
        plain = diagnose(table, TrimSFT(*setting), margin=setting.margin, bandwidth=setting.bandwidth)
        assert found["mean_weight"].value == pytest.approx(plain.mean_weight, rel=1e-12)
        assert found["high_weight_percent"].value == pytest.approx(plain.high_weight_percent, rel=1e-12)
        assert found["r_eff"].value == pytest.approx(plain.effective_ratio, rel=1e-12)
    for (setting, name), regions in mass_intervals(table).items():
        objective = make_objective(name, **setting._asdict())
        mass = diagnose(table, objective, margin=setting.margin, bandwidth=setting.bandwidth).mass_percent
        for region, interval in regions.items():
            assert interval.value == pytest.approx(getattr(mass, region), rel=1e-12, abs=1e-12)
    categories = category_intervals(table, Setting(1, 1))
    for group in by_category(table, margin=1, bandwidth=1):
        for field, interval in categories[group.name].items():
            assert interval.value == pytest.approx(getattr(group, field), rel=1e-12, nan_ok=True)


def test_weights_too_small_for_float32_to_square_are_squared() -> None:
    """At a gap of 15.2 the weight at (1, 1) is among the smallest numbers of float32."""
    gap = 15.2 + np.random.default_rng(0).normal(0, 0.02, size=300)
    table, setting = hand_table(gap, example=np.repeat(np.arange(30), 10)), Setting(1, 1)
    plain = diagnose(table, TrimSFT(*setting), margin=1, bandwidth=1)
    assert 0 < plain.mean_weight < 1e-43
    assert weight_intervals(table, [setting])[setting]["r_eff"].value == pytest.approx(plain.effective_ratio, rel=1e-12)


def test_ends_lie_around_the_value_and_a_single_example_has_none(table: TokenTable, tmp_path: Path) -> None:
    for found in weight_intervals(table).values():
        assert all(interval.low <= interval.value <= interval.high for interval in found.values())
        assert found["r_eff"].low < found["r_eff"].high
    one = read_token_table(make_table(tmp_path / "one.parquet", TEXTS[:1]))
    assert all(math.isnan(interval.low) for interval in weight_intervals(one)[Setting(1, 1)].values())


def test_a_ratio_over_examples_is_covered() -> None:
    """Means of tokens whose examples differ: about 95 of 100 intervals have the true mean in them."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(200):
        lengths = rng.integers(5, 30, size=60)
        example = np.repeat(np.arange(60), lengths)
        values = np.repeat(rng.normal(1.0, 1.0, size=60), lengths) + rng.normal(0, 1, size=len(example))
        table = TokenTable({"example": example}, {}, {})
        columns = [("tokens", np.ones(len(example))), ("value", values)]
        found = ByExample(table, columns).interval(ratio("value", "tokens"))
        covered += found.low <= 1.0 <= found.high
    assert 180 <= covered <= 198
