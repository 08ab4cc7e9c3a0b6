"""The paper's claims: what holds of scores and of tokens, what does not, what cannot be told."""

import numpy as np
import pytest

from tests.evaluate.graded import score_of
from tests.study.made_up_scores import SHIFTS, cell, exact, main_results, results
from tests.tokens.by_hand import hand_table
from trimsft.study.claims import judge_claims
from trimsft.study.results import summarise


def claims(found, resamples=200):
    return judge_claims(summarise(found, resamples=resamples))


def verdicts(found):
    return {claim.name: claim.verdict for claim in claims(found)}


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (main_results(), "holds"),
        (main_results(shifts={**SHIFTS, "trim": -1.0, "fsft": 2.0}), "does not hold"),
        ({cell(name): exact(0.5) for name in SHIFTS}, "cannot be told"),
    ],
    ids=["like the paper's", "against the paper", "too close to call"],
)
def test_the_claims_of_table_1(found, verdict):
    told = verdicts(found)
    assert told["trim-above-sft"] == told["trim-best"] == told["fsft-below-sft"] == verdict
    assert "tau-over-m" not in told and "easy-half" not in told, "what was not run is not judged"


def test_each_model_is_judged_by_itself():
    found = main_results(model="a") | main_results(model="b", shifts={**SHIFTS, "trim": -1.0, "dft": 4.0})
    judged = {(claim.name, claim.model): claim for claim in claims(found)}
    assert judged["trim-above-sft", "a"].verdict == judged["trim-best", "a"].verdict == "holds"
    assert judged["trim-above-sft", "b"].verdict == judged["trim-best", "b"].verdict == "does not hold"
    assert judged["trim-above-sft", "a"].sentence.startswith("a: TrimSFT minus SFT: +")


def test_the_ablation_is_judged_by_the_spread_over_complete_lines():
    def plane(effect, margins=(0.0, 1.0, 2.0), hole=None):
        shifts = {
            cell("trim", seed, margin=m, bandwidth=tau): effect(m, tau)
            for seed in range(2)
            for m in margins
            for tau in (1.0, 2.0, 3.0)
            if (m, tau) != hole
        }
        return verdicts(results({**shifts, **{cell("sft", seed): -2.5 for seed in range(2)}}))

    by_tau = plane(lambda m, tau: 1.5 - 0.9 * tau)
    assert by_tau["tau-over-m"] == "holds"
    assert by_tau["narrow-above-sft"] == "holds"
    assert plane(lambda m, tau: 1.5 - 0.9 * m)["tau-over-m"] == "does not hold"
    assert plane(lambda m, tau: 1.5 - 0.9 * tau, hole=(2.0, 3.0))["tau-over-m"] == "holds"
    many = tuple(float(m) for m in range(7))
    assert plane(lambda m, tau: 0.0, margins=many)["tau-over-m"] == "cannot be told", "noise over many values"
    assert "tau-over-m" not in plane(lambda m, tau: tau, margins=(1.0,))


@pytest.mark.parametrize(
    ("on_easy", "on_hard", "verdict"),
    [(1, -2, "holds"), (-2, -2, "does not hold"), (0, 2, "does not hold"), (0, 0, "cannot be told")],
)
def test_the_easy_half_keeps_up_on_easy_problems_only(on_easy, on_hard, verdict):
    """TrimSFT-E moved against TrimSFT on each benchmark, at two margins."""
    found = {}
    for margin in (1.0, 3.0):
        for name, shares in (("trim", (6, 3)), ("trim-e", (6 + on_easy, 3 + on_hard))):
            found[cell(name, margin=margin, bandwidth=1.0)] = [
                score_of(bench, [count] * 20, resamples=20)
                for bench, count in zip(("easy", "hard"), shares, strict=True)
            ]
    assert verdicts(found)["easy-half"] == verdict


def test_the_hard_half_is_held_against_sft():
    halves = {cell("trim-h", seed, margin=m, bandwidth=1.0): -1.5 for seed in range(2) for m in (1.0, 3.0)}
    sft = {cell("sft", seed): 0.5 for seed in range(2)}
    assert verdicts(results(halves | sft))["hard-half-below-sft"] == "holds"
    better = dict.fromkeys(halves, 3.0)
    assert verdicts(results(better | sft))["hard-half-below-sft"] == "does not hold"


# ---- tokens

EXAMPLES, LENGTH = 30, 20


def table_of(gap, **options):
    """Thirty examples of these gaps, each a little apart."""
    rng = np.random.default_rng(0)
    gaps = np.concatenate([np.resize(gap, LENGTH) + rng.normal(0, 0.01, LENGTH) for _ in range(EXAMPLES)])
    return hand_table(gaps, example=np.repeat(np.arange(EXAMPLES), LENGTH), **options)


def told(tables):
    return {claim.name: claim for claim in judge_claims({}, {"lab": tables})}


def test_even_gaps_bear_out_what_the_paper_says_of_weights_and_mass():
    """Gaps from -1 to 15, equal gradients: the band's width counts, not its place."""
    found = told({"base": table_of(np.linspace(-1, 15, LENGTH))})
    assert found["wider-counts-more"].verdict == "holds"
    assert found["tau-moves-more"].verdict == "holds"
    assert found["hard-half-is-low"].verdict == "does not hold", "at m = 1 two are below 0, and two within 0 to 2"
    assert found["less-high"].verdict == "holds"
    assert told({"base": table_of(np.linspace(-9, 1, LENGTH))})["hard-half-is-low"].verdict == "holds"


@pytest.mark.parametrize(("density", "verdict"), [(1.0, "holds"), (3.0, "does not hold")])
def test_the_share_of_high_weights_over_m_is_held_against_its_range_over_tau(density, verdict):
    """As many gaps near 1, 3 and 6; then the more the higher: R_eff follows tau all the same."""
    gaps = np.concatenate([np.linspace(-9, 2, 110), np.linspace(2, 15, int(130 * density))])
    table = hand_table(np.tile(gaps, EXAMPLES), example=np.repeat(np.arange(EXAMPLES), len(gaps)))
    found = told({"base": table})
    assert found["tau-moves-more"].verdict == "holds"
    assert found["margin-moves-little"].verdict == verdict
    assert "0.1 of the second minus the first: " in found["margin-moves-little"].sentence


def test_a_handful_of_examples_is_not_judged():
    gaps = np.linspace(-1, 15, 9 * LENGTH)
    few = judge_claims({}, {"lab": {"base": hand_table(gaps, example=np.repeat(np.arange(9), LENGTH))}})
    assert {claim.verdict for claim in few} == {"cannot be told"}
    assert all("9 examples, fewer than 10, tell too little." in claim.sentence for claim in few)


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
    assert "mean gap, the first minus the second: +1.00" in found["sft-shifts-right"].sentence
    turned = told({"base": tables["base"], "sft": table_of(base - 1)})
    assert turned["sft-shifts-right"].verdict == "does not hold"
