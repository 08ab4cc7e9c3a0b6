"""Objectives: weights by hand, laws, bad parameters, and the gradients of the published losses."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from trimsft import DFT, FSFT, SFT, TokenStats, TrimSFT, TrimSFTEasy, TrimSFTHard, linear_cross_entropy, make_objective
from trimsft.errors import UsageError
from trimsft.objectives import (
    DEFT,
    EAFT,
    IDFT,
    OBJECTIVES,
    PAPER_OBJECTIVES,
    SAFT,
    TALR,
    AutoTrim,
    InfoSFT,
    PAlpha,
    PThreshold,
    RankTuner,
)

from .head.oracle import EPS, device_of, make_head


def tokens_with(*, p=None, nll=None, gap=None, **known) -> TokenStats:
    """Tokens of these probabilities, of this nll, or of which only the gap matters."""
    if p is not None:
        nll = -torch.tensor(p, dtype=torch.float64).log().float()
    nll = torch.ones(len(gap)) if nll is None else torch.as_tensor(nll, dtype=torch.float32)
    gap = nll if gap is None else torch.tensor(gap, dtype=torch.float32)
    known = {name: torch.tensor(values) for name, values in known.items()}
    return TokenStats(nll, gap, nll, torch.zeros(len(nll), dtype=torch.int64), **known)


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
def test_values_of_the_paper(objective, tokens, expected) -> None:
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
    for field in dataclasses.fields(TokenStats):
        assert torch.equal(getattr(tokens[1:], field.name), getattr(tokens, field.name)[1:])


gaps = st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20)
nlls = st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=20)
bands = [st.builds(kind, st.floats(-20, 20), st.floats(1e-2, 1e3)) for kind in (TrimSFT, TrimSFTEasy, TrimSFTHard)]


@given(st.one_of(*bands, st.builds(FSFT, st.floats(0, 10)), st.just(DFT())), gaps, nlls)
def test_weights_lie_between_0_and_1(objective, gap, nll) -> None:
    for tokens in (tokens_with(gap=gap), tokens_with(nll=nll)):
        weights = objective.weights(tokens)
        assert weights.shape == tokens.nll.shape and weights.dtype == torch.float32
        assert ((weights >= 0) & (weights <= 1)).all()


def test_names_and_the_defaults_of_the_paper() -> None:
    band = {"margin": 1.5, "bandwidth": 0.8}
    named = [SFT(), FSFT(gamma=2.0), DFT(), TrimSFT(**band), TrimSFTEasy(**band), TrimSFTHard(**band)]
    for name, expected in zip(PAPER_OBJECTIVES, named, strict=True):
        assert make_objective(name) == expected
    assert list(PAPER_OBJECTIVES) == ["sft", "fsft", "dft", "trim", "trim-e", "trim-h"]
    assert make_objective("trim", margin=1.0) == TrimSFT(margin=1.0, bandwidth=0.8)
    assert make_objective("fsft", gamma=0.5) == FSFT(gamma=0.5)


@pytest.mark.parametrize(
    ("name", "field", "values", "message"),
    [
        *((name, "bandwidth", [0, None, math.nan, math.inf, "0.8", True], " > 0") for name in ("trim", "trim-e")),
        ("trim", "margin", [math.nan], ""),
        ("fsft", "gamma", [-1], " >= 0"),
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
        ("saft", {"form": "linea"}, "^form: unknown name 'linea'; did you mean 'linear'"),
        ("trim", {"tau": 1.0}, "objective 'trim' has no parameter 'tau'; it takes margin, bandwidth"),
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


# ---- objectives of other papers

ELEMENTWISE = [
    PAlpha(2), PThreshold(), PThreshold(low=0.1, high=0.5, alpha=1), EAFT(), EAFT(alpha=2), InfoSFT(),
    TALR(temperature=0.7), SAFT(), SAFT(0.9), SAFT(0.5, "geometric"), SAFT(0.5, "harmonic"), DEFT(), RankTuner(),
    IDFT(), IDFT(temperature=3),
]  # fmt: skip


@pytest.mark.parametrize(
    ("objective", "tokens", "expected"),
    [
        (AutoTrim(floor=0.1), {"p": [1e-9, 0.3, 0.999]}, [0.1, 0.37, 0.9991]),
        (AutoTrim(floor=0.0), {"p": [0.2]}, [0.2]),
        (PAlpha(), {"p": [0.5, 1.0]}, [2**-10, 1.0]),
        (PAlpha(alpha=2), {"p": [0.5, 0.25]}, [0.25, 0.0625]),
        (PThreshold(), {"p": [0.1, 0.25, 1.0]}, [0.0, 1.0, 1.0]),
        (PThreshold(low=0, high=0.5, alpha=1), {"p": [0.25, 0.75]}, [0.25, 0.0]),
        # ln 20 / ln 20; half of it; more than ln 20 counts as ln 20
        (EAFT(), {"p": [0.5] * 3, "entropy": [math.log(20), math.log(20) / 2, 5.0]}, [1.0, 0.5, 1.0]),
        (EAFT(alpha=2), {"p": [0.5], "entropy": [math.log(20) / 2]}, [0.25]),
        # log-odds 0, and those of 1/10 and 9/10: with P = 0.9 the ratios are 0, -1 and 1
        (InfoSFT(mastered=0.9), {"p": [0.5, 0.1, 0.9, 0.99]}, [0.5, 0.2, 0.0, 0.0]),
        (TALR(temperature=2), {"p": [0.25, 1e-6]}, [0.5, 0.01]),  # sqrt(1/4); the floor
        (TALR(), {"p": [0.25]}, [0.25]),
        (SAFT(), {"p": [0.25, 1e-9]}, [0.25, 1e-8]),  # DFT; what it is clamped to
        (SAFT(0.8), {"p": [0.25]}, [0.4]),  # 0.2 + 0.8 / 4
        (SAFT(0.5, "geometric"), {"p": [0.25]}, [0.5]),
        (SAFT(0.5, "harmonic"), {"p": [0.25]}, [0.4]),  # 0.25 / (0.5 + 0.125)
        (SAFT(0.0, "harmonic"), {"p": [0.25, 1e-37]}, [1.0, 1.0]),  # SFT
        # of two equal tokens sum p^2 is 1/2, and the gradient (-1/2, 1/2); of four 1/4, and (-3/4, 1/4, 1/4, 1/4)
        (DEFT(), {"p": [0.5, 0.25], "gradient_norm": [0.5**0.5, 0.75**0.5]}, [0.5**0.5, 0.25**0.25]),
        # 2 bits: s = 2, x = 3, K = 1/4, and p s = 1/16; p = 1: s = x = K = 1
        (RankTuner(), {"p": [1 / 32, 1.0], "entropy": [math.log(4), 0.0], "rank": [3, 1]}, [1 / 16, 1.0]),
        # the first choice has 1/2 where p is 1/4: s = 3/2, x = 3, K = 1/4; at least 1e-6 below the power
        (
            RankTuner(),
            {"p": [0.25, 1e-9], "gap": [-math.log(2)] * 2, "entropy": [1.0] * 2, "rank": [3, 3]},
            [0.25 * 0.375**-0.25, 1e-9 * 1e-6**-0.25],
        ),
        # H = nll: DFT; nll - H = ln 2: p^2, with a temperature of 2 p^sqrt(2); from p^0.1 to p^2
        (
            IDFT(),
            {"p": [0.25, 0.25, 0.25, 0.5], "entropy": [math.log(4), math.log(2), 0.0, 9.0]},
            [0.25, 0.0625, 0.0625, 0.5**0.1],
        ),
        (IDFT(temperature=2), {"p": [0.25], "entropy": [math.log(2)]}, [0.25 ** (2**0.5)]),
    ],
    ids=lambda value: str(value) if hasattr(value, "weights") else "",
)
def test_values_of_the_family(objective, tokens, expected) -> None:
    weights = objective.weights(tokens_with(**tokens))
    # a logarithm and an exponential of float32; InfoSFT's differences cancel near weight 0
    torch.testing.assert_close(weights, torch.tensor(expected), rtol=32 * EPS, atol=8 * EPS)


def published(objective, logits, labels):
    """The loss of each token as its paper has it; what the paper detaches is detached."""
    nll = F.cross_entropy(logits, labels, reduction="none")
    p = torch.exp(-nll)
    fixed, entropy = p.detach(), torch.special.entr(logits.softmax(-1)).sum(-1).detach()
    match objective:
        case PAlpha(alpha=alpha):
            return (1 - p**alpha) / alpha
        case PThreshold(low=low, high=high, alpha=alpha):
            return (1 - p if alpha else nll) * ((fixed >= low) & (fixed <= high))
        case EAFT(alpha=alpha):
            return (entropy / math.log(20)) ** alpha * nll
        case InfoSFT(mastered=mastered):
            odds = (fixed / (1 - fixed)).log() / math.log(mastered / (1 - mastered))
            return fixed * F.relu(1 - odds) * nll
        case TALR(temperature=tau, floor=floor):
            return torch.exp(-nll.detach() / tau).clamp(min=floor) * nll
        case SAFT(alpha=a, form=form):
            forms = {"linear": 1 - a + a * fixed, "geometric": fixed**a, "harmonic": fixed / (a + (1 - a) * fixed)}
            return forms[form] * nll
        case DEFT():
            a = logits.softmax(-1).square().sum(-1).detach()
            return (1 - p**a) / (a + 1e-6)
        case RankTuner():
            rank = (logits >= logits.gather(1, labels[:, None])).sum(-1)
            bits, first = entropy / math.log(2), logits.softmax(-1).max(-1).values.detach()
            scale = torch.where(bits >= 2, 2**bits / 4 + 1, 2 - first)
            power = 1 / torch.maximum(scale, rank).add(1).log2() ** 2
            return fixed * (fixed * scale).clamp(min=1e-6) ** -power * nll
        case IDFT(temperature=b):
            return fixed ** torch.exp(-(fixed.log() + entropy) / b).clamp(0.1, 2) * nll
    raise AssertionError(objective)


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
@pytest.mark.parametrize("objective", ELEMENTWISE, ids=str)
def test_gradients_of_the_published_losses(objective, backend) -> None:
    """A vocabulary of 19: EAFT's 20 most probable tokens are all of them."""
    head = make_head(24, 16, 19)
    leaves = head.to(device_of(backend)).leaves()
    out = linear_cross_entropy(
        leaves.hidden, leaves.weight, leaves.labels, objective, backend=backend, skip_below=0, normalizer=1.0
    )
    out.loss.backward()
    exact = head.to(torch.float64).leaves()
    losses = published(objective, exact.hidden @ exact.weight.T, exact.labels)
    losses.sum().backward()
    for mine, theirs in ((leaves.hidden.grad, exact.hidden.grad), (leaves.weight.grad, exact.weight.grad)):
        # a sum of 24 float32 products, weights from logits of about 10: 10 * eps in the logarithm
        error = (mine.double().cpu() - theirs).norm() / theirs.norm()
        assert error < 100 * EPS


@pytest.mark.parametrize("objective", [*ELEMENTWISE, TALR(), AutoTrim()], ids=str)
def test_weights_are_finite_everywhere(objective) -> None:
    nll = torch.tensor([0.0, 1e-38, 1e-9, 1e-3, 1.0, 20.0, 1e4])
    tokens = TokenStats(nll, nll, nll, nll.long(), nll.clamp(max=12) - 1e-7, None, 1 + nll.int(), 1 - (-nll).exp())
    weights = objective.weights(tokens)
    assert weights.isfinite().all() and weights.dtype == torch.float32
    assert (weights * weights).isfinite().all()  # telemetry adds up squares


@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_a_weight_depends_on_its_token_alone(gaps, random) -> None:
    """So micro-batches, ranks, packing and the order of the rows change nothing."""
    order = torch.tensor(random.sample(range(len(gaps)), len(gaps)))
    gap = torch.tensor(gaps)
    nll = F.softplus(-gap)
    tokens = TokenStats(nll, gap, gap, torch.zeros_like(order), nll / 2, order, 1 + (gap < 0).int(), (-gap).sigmoid())
    cut = random.randint(0, len(gaps))
    for name in OBJECTIVES:
        objective = make_objective(name)
        whole = objective.weights(tokens)
        pieces = [objective.weights(tokens[order[rows]]) for rows in (slice(cut, None), slice(cut))]
        assert torch.equal(torch.cat(pieces[::-1]), whole[order]), name
        assert dataclasses.asdict(objective) == dataclasses.asdict(make_objective(name))


@pytest.mark.parametrize(
    ("objective", "statistics"),
    [(EAFT(), {"entropy"}), (RankTuner(), {"entropy", "rank"}), (DEFT(), {"collision", "gradient_norm"})],
)
def test_the_head_gives_what_an_objective_needs(objective, statistics) -> None:
    head = make_head(5)
    out = linear_cross_entropy(head.hidden, head.weight, head.labels, objective)
    assert all(getattr(out.tokens, name) is not None for name in statistics)
    plain = linear_cross_entropy(head.hidden, head.weight, head.labels, TALR()).tokens
    assert all(getattr(plain, name) is None for name in statistics)
    with pytest.raises(UsageError, match=f"{type(objective).__name__} needs the (entropy|collision)"):
        objective.weights(plain)
