"""The weights of the paper's objectives: values by hand, limits, laws, and bad parameters of all."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimsft import DFT, FSFT, SFT, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard, linear_cross_entropy, make_objective
from trimsft.errors import UsageError
from trimsft.objectives import PAPER_OBJECTIVES

from .head.oracle import device_of, make_head


def tokens_with(*, gap=None, nll=None) -> TokenStats:
    """Tokens of which only the gap or the nll matters."""
    values = torch.tensor(nll if gap is None else gap, dtype=torch.float32)
    rest = torch.ones_like(values)
    return TokenStats(
        nll=values if gap is None else rest,
        gap=rest if gap is None else values,
        gold_logit=rest,
        competitor=torch.zeros_like(values, dtype=torch.int64),
    )


HALF_QUARTER = [math.log(2), math.log(4), 0.0]  # p = 0.5, 0.25, 1
NEAR_MARGIN = [1.5, 2.3, 0.7, 3.1, -0.9]  # distance to the margin 1.5 in bandwidths of 0.8: 0, 1, -1, 2, -3
BELL = [1.0, 0.60653066, 0.60653066, 0.13533528, 0.0111089965]  # exp(0), exp(-1/2) twice, exp(-2), exp(-9/2)


@pytest.mark.parametrize(
    ("objective", "tokens", "expected"),
    [
        (SFT(), {"nll": HALF_QUARTER}, [1.0, 1.0, 1.0]),
        (DFT(), {"nll": HALF_QUARTER}, [0.5, 0.25, 1.0]),
        (FSFT(), {"nll": HALF_QUARTER}, [0.25, 0.5625, 0.0]),  # (1/2)^2, (3/4)^2, 0^2
        (FSFT(gamma=1), {"nll": HALF_QUARTER}, [0.5, 0.75, 0.0]),
        (FSFT(gamma=0.5), {"nll": HALF_QUARTER}, [0.70710678, 0.86602540, 0.0]),  # sqrt(1/2), sqrt(3)/2
        (FSFT(gamma=1), {"nll": [1e-9]}, [1e-9]),  # p is 1 in float32; 1 - p is 1e-9 all the same
        (TrimSFT(), {"gap": NEAR_MARGIN}, BELL),
        (TrimSFTEasy(), {"gap": NEAR_MARGIN}, [1.0, 1.0, BELL[2], 1.0, BELL[4]]),  # above the margin: 1
        (TrimSFTHard(), {"gap": NEAR_MARGIN}, [1.0, BELL[1], 1.0, BELL[3], 1.0]),  # below the margin: 1
        # 1 and -2 bandwidths from the margin
        (TrimSFT(margin=-1, bandwidth=2), {"gap": [1.0, -5.0]}, [0.60653066, 0.13533528]),
    ],
    ids=lambda value: str(value) if dataclasses.is_dataclass(value) else "",
)
def test_values(objective, tokens, expected) -> None:
    torch.testing.assert_close(objective.weights(tokens_with(**tokens)), torch.tensor(expected), rtol=1e-6, atol=0)


def test_statistics_of_tokens() -> None:
    others = {field.name: torch.arange(3) for field in dataclasses.fields(TokenStats)}
    others["nll"] = torch.tensor([math.log(2), math.log(4), 1e-9])
    others["gradient_norm"] = torch.tensor([0.5**0.5, 0.75**0.5, 0.0])
    tokens = TokenStats(**others)
    torch.testing.assert_close(tokens.prob, torch.tensor([0.5, 0.25, 1.0]))
    torch.testing.assert_close(tokens.collision, torch.tensor([0.5, 0.25, 1.0]))
    torch.testing.assert_close(tokens.doubt, torch.tensor([0.5, 0.75, 1e-9]), rtol=1e-6, atol=0)
    assert len(tokens) == 3
    for part, rows in ((tokens[1:], [1, 2]), (tokens[torch.tensor([2, 0])], [2, 0])):
        for field in dataclasses.fields(TokenStats):
            assert torch.equal(getattr(part, field.name), getattr(tokens, field.name)[rows])
    assert tokens_with(gap=[1.0, 2.0])[:1].entropy is None


gaps = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20)
nlls = st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=20)
margins = st.floats(-20, 20)
bandwidths = st.floats(1e-2, 1e3)
bands = st.builds(
    lambda kind, m, b: kind(m, b), st.sampled_from([TrimSFT, TrimSFTEasy, TrimSFTHard]), margins, bandwidths
)


@given(st.one_of(bands, st.builds(FSFT, st.floats(0, 10)), st.just(DFT()), st.just(SFT())), gaps, nlls)
def test_weights_lie_between_0_and_1(objective, gap, nll) -> None:
    for tokens in (tokens_with(gap=gap), tokens_with(nll=nll)):
        weights = objective.weights(tokens)
        assert weights.shape == tokens.nll.shape and weights.dtype == torch.float32
        assert ((weights >= 0) & (weights <= 1)).all()


eighths = st.integers(-80, 80).map(lambda n: n / 8)  # sums and differences of these are exact


@given(eighths, st.lists(eighths, min_size=1), bandwidths)
def test_trim_is_symmetric_about_the_margin(margin, steps, bandwidth) -> None:
    objective = TrimSFT(margin, bandwidth)
    above = objective.weights(tokens_with(gap=[margin + step for step in steps]))
    below = objective.weights(tokens_with(gap=[margin - step for step in steps]))
    assert torch.equal(above, below)


@given(gaps, eighths, bandwidths)
def test_half_trims_are_the_two_halves_of_trim(gap, margin, bandwidth) -> None:
    tokens = tokens_with(gap=gap)
    trim, easy, hard = (kind(margin, bandwidth).weights(tokens) for kind in (TrimSFT, TrimSFTEasy, TrimSFTHard))
    below = tokens.gap < margin
    assert torch.equal(easy, torch.where(below, trim, 1.0))
    assert torch.equal(hard, torch.where(below, 1.0, trim))
    assert torch.equal(easy * hard, trim)


@given(nlls, gaps, st.floats(0.01, 8), margins, bandwidths)
def test_weights_rise_or_fall_throughout(nll, gap, gamma, margin, bandwidth) -> None:
    by_probability, by_gap = tokens_with(nll=sorted(nll, reverse=True)), tokens_with(gap=sorted(gap))
    assert (FSFT(gamma).weights(by_probability).diff() <= 0).all()
    assert (DFT().weights(by_probability).diff() >= 0).all()
    assert (TrimSFTEasy(margin, bandwidth).weights(by_gap).diff() >= 0).all()
    assert (TrimSFTHard(margin, bandwidth).weights(by_gap).diff() <= 0).all()


@pytest.mark.parametrize("objective", [TrimSFT(1.5, 1e6), TrimSFTEasy(1.5, 1e6), TrimSFTHard(1.5, 1e6), FSFT(gamma=0)])
def test_limits_that_are_plain_sft(objective) -> None:
    gap = torch.linspace(-30, 30, 50)
    tokens = TokenStats(torch.linspace(0, 30, 50), gap, gap, torch.zeros(50, dtype=torch.int64))
    torch.testing.assert_close(objective.weights(tokens), SFT().weights(tokens), rtol=0, atol=1e-6)


def test_names_and_the_defaults_of_the_paper() -> None:
    band = {"margin": 1.5, "bandwidth": 0.8}
    named = [SFT(), FSFT(gamma=2.0), DFT(), TrimSFT(**band), TrimSFTEasy(**band), TrimSFTHard(**band)]
    for name, expected in zip(PAPER_OBJECTIVES, named, strict=True):
        assert make_objective(name) == expected and len({expected, make_objective(name)}) == 1
        for field in dataclasses.fields(expected):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(expected, field.name, 3.0)
    assert list(PAPER_OBJECTIVES) == ["sft", "fsft", "dft", "trim", "trim-e", "trim-h"]
    assert make_objective("trim", margin=1.0) == TrimSFT(margin=1.0, bandwidth=0.8)
    assert make_objective("fsft", gamma=0.5) == FSFT(gamma=0.5)


WORDS = [math.nan, math.inf, "0.8", True]  # and what else is no number


@pytest.mark.parametrize(
    ("name", "field", "values", "message"),
    [
        *((name, "bandwidth", [0, -0.8, None, *WORDS], " > 0") for name in ("trim", "trim-e", "trim-h")),
        ("trim", "margin", WORDS, ""),
        ("fsft", "gamma", [-1, *WORDS], " >= 0"),
        ("p-alpha", "alpha", [-1], " >= 0"),
        ("p-threshold", "high", [0.1], " >= 0.2"),
        ("infosft", "mastered", [1.0], " > 0.5 and < 1"),
        ("talr", "temperature", [0], " > 0"),
        ("talr", "floor", [1], " >= 0 and < 1"),
        ("idft", "temperature", [0], " > 0"),
        ("auto-trim", "floor", [-0.1], " >= 0 and < 1"),
    ],
)
def test_bad_parameters(name, field, values, message) -> None:
    for value in values:
        with pytest.raises(UsageError, match=f"^{field}: must be a finite number{message}, got {value!r}$"):
            make_objective(name, **{field: value})


def test_unknown_names_are_refused() -> None:
    known = "known: sft, fsft, dft, trim, trim-e, trim-h, "
    for name, parameters, message in (
        ("TRIM", {}, rf"unknown name 'TRIM'; did you mean 'trim'\? {known}"),
        ("xyz", {}, f"unknown name 'xyz'; {known}"),
        ("saft", {"form": "linea"}, "^form: unknown name 'linea'; did you mean 'linear'"),
        ("trim", {"tau": 1.0}, "objective 'trim' has no parameter 'tau'; it takes margin, bandwidth"),
        ("dft", {"gamma": 1.0}, "objective 'dft' has no parameter 'gamma'; it takes no parameters"),
    ):
        with pytest.raises(ValueError, match=message):
            make_objective(name, **parameters)


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_no_gradient_flows_through_the_weights(backend) -> None:
    """Those of the objectives are constants, see head/test_exactness.py."""
    head = make_head(3).to(device_of(backend)).leaves()
    theta = torch.ones(3, device=head.hidden.device, requires_grad=True)
    out = linear_cross_entropy(
        head.hidden, head.weight, head.labels, lambda tokens: theta * tokens.prob, backend=backend
    )
    out.loss.backward()
    assert theta.grad is None and not out.weights.requires_grad
