"""Claims about tokens, on tables whose numbers follow from how they were made."""

import numpy as np
import pytest

from tests.tokens.by_hand import hand_table
from trimsft.study.token_claims import token_claims

EXAMPLES, LENGTH = 30, 20


def table_of(gap, **options):
    """Thirty examples of these gaps, each a little apart."""
    rng = np.random.default_rng(0)
    gaps = np.concatenate([np.resize(gap, LENGTH) + rng.normal(0, 0.01, LENGTH) for _ in range(EXAMPLES)])
    return hand_table(gaps, example=np.repeat(np.arange(EXAMPLES), LENGTH), **options)


def told(tables):
    return {claim.name: claim for claim in token_claims(tables)}


def test_even_gaps_bear_out_what_the_paper_says_of_weights_and_mass():
    """Gaps from -1 to 15, equal gradients: the band's width counts, not its place."""
    found = told({"base": table_of(np.linspace(-1, 15, LENGTH))})
    assert found["wider-counts-more"].verdict == "holds"
    assert found["tau-moves-more"].verdict == "holds"
    assert found["hard-half-is-low"].verdict == "does not hold", "at m = 1 two are below 0, and two within 0 to 2"
    assert found["less-high"].verdict == "holds"
    assert told({"base": table_of(np.linspace(-9, 1, LENGTH))})["hard-half-is-low"].verdict == "holds"


def test_gaps_on_one_side_make_the_margin_matter_more():
    """All gaps near 1 and far away: R_eff of (1, tau) is that of the near ones, whatever tau; m moves it."""
    found = told({"base": table_of(np.array([1.0, 1.0, 1.0, 1.0, 6.3, 40.0, 40.0, 40.0, 40.0, 40.0]))})
    assert found["tau-moves-more"].verdict == "does not hold"
    assert "(1, 1) 0.4" in found["wider-counts-more"].sentence


@pytest.mark.parametrize(("density", "verdict"), [(1.0, "holds"), (3.0, "does not hold")])
def test_the_share_of_high_weights_over_m_is_held_against_its_range_over_tau(density, verdict):
    """As many gaps near 1, 3 and 6; then the more the higher: R_eff follows tau all the same."""
    gaps = np.concatenate([np.linspace(-9, 2, 110), np.linspace(2, 15, int(130 * density))])
    table = hand_table(np.tile(gaps, EXAMPLES), example=np.repeat(np.arange(EXAMPLES), len(gaps)))
    found = told({"base": table})
    assert found["tau-moves-more"].verdict == "holds"
    assert found["margin-moves-little"].verdict == verdict
    assert "is below 0.1 of its range over tau" in found["margin-moves-little"].sentence


def test_a_handful_of_examples_is_not_judged():
    gaps = np.linspace(-1, 15, 9 * LENGTH)
    few = token_claims({"base": hand_table(gaps, example=np.repeat(np.arange(9), LENGTH))})
    assert {claim.verdict for claim in few} == {"cannot be told"}
    assert all("9 examples, fewer than 10, tell too little." in claim.sentence for claim in few)
    one = token_claims({"base": hand_table(gaps, example=np.zeros(len(gaps), dtype=int))})
    assert not any("nan" in claim.sentence or "[" in claim.sentence for claim in one)


@pytest.mark.parametrize(
    ("numeric", "symbol", "other", "verdict"),
    [(1, 1, 9, "holds"), (9, 9, 1, "does not hold"), (1, 9, 1, "does not hold")],
)
def test_gradient_goes_to_what_lies_in_the_band_and_both_must_gain(numeric, symbol, other, verdict):
    """Gaps of each kind; the band is around 1."""
    kinds = ["numeric", "symbol", "other", "other"] * (LENGTH // 4)
    gaps = {"numeric": numeric, "symbol": symbol, "other": other}
    table = table_of(np.array([gaps[kind] for kind in kinds], dtype=float), category=kinds * EXAMPLES)
    assert told({"base": table})["towards-mathematics"].verdict == verdict


def test_gaps_are_compared_token_by_token():
    base = np.linspace(-2, 8, LENGTH)
    tables = {name: table_of(base + by) for name, by in (("base", 0), ("sft", 1), ("fsft", -1), ("trim", 3))}
    found = told(tables)
    for name in ("sft-shifts-right", "fsft-keeps-small", "trim-fewer-small"):
        assert found[name].verdict == "holds"
    assert "mean gap, SFT minus Base: +1.00 [+1.00, +1.00]; one training (seed 0)" in found["sft-shifts-right"].sentence
    turned = told({"base": tables["base"], "sft": table_of(base - 1)})
    assert turned["sft-shifts-right"].verdict == "does not hold"


def test_without_a_base_only_what_can_be_compared_is_judged():
    tables = {"sft": table_of(np.linspace(0, 5, LENGTH)), "fsft": table_of(np.linspace(0, 5, LENGTH))}
    assert list(told(tables)) == ["fsft-keeps-small"]
    assert told(tables)["fsft-keeps-small"].verdict == "cannot be told"
