"""AutoTrim and the objectives of other papers: values by hand, gradients of the published losses."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from trimsft import linear_cross_entropy
from trimsft.errors import UsageError
from trimsft.objectives import (
    DEFT,
    EAFT,
    IDFT,
    OBJECTIVES,
    SAFT,
    TALR,
    AutoTrim,
    InfoSFT,
    PAlpha,
    PThreshold,
    RankTuner,
    TokenStats,
    make_objective,
)  # fmt: skip

from .head.oracle import EPS, device_of, make_head

ELEMENTWISE = [
    PAlpha(2), PThreshold(), PThreshold(low=0.1, high=0.5, alpha=1), EAFT(), EAFT(alpha=2), InfoSFT(),
    TALR(temperature=0.7), SAFT(), SAFT(0.9), SAFT(0.5, "geometric"), SAFT(0.5, "harmonic"), DEFT(), RankTuner(),
    IDFT(), IDFT(temperature=3),
]  # fmt: skip


def tokens_with(p, gap=None, **known) -> TokenStats:
    """Tokens of these probabilities."""
    nll = -torch.tensor(p, dtype=torch.float64).log().float()
    known = {name: torch.tensor(values) for name, values in known.items()}
    gap = nll if gap is None else torch.tensor(gap)
    return TokenStats(nll, gap, nll, torch.zeros(len(p), dtype=torch.int64), **known)


@pytest.mark.parametrize(
    ("objective", "tokens", "expected"),
    [
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
        # the first choice has 1/2 where p is 1/4: s = 3/2, x = 3, K = 1/4; and never less than 1e-6 below the power
        (
            RankTuner(),
            {"p": [0.25, 1e-9], "gap": [-math.log(2)] * 2, "entropy": [1.0] * 2, "rank": [3, 3]},
            [0.25 * 0.375**-0.25, 1e-9 * 1e-6**-0.25],
        ),
        # H = nll: DFT; nll - H = ln 2: p^2, and with a temperature of 2 p^sqrt(2); never above p^2 nor below p^0.1
        (
            IDFT(),
            {"p": [0.25, 0.25, 0.25, 0.5], "entropy": [math.log(4), math.log(2), 0.0, 9.0]},
            [0.25, 0.0625, 0.0625, 0.5**0.1],
        ),
        (IDFT(temperature=2), {"p": [0.25], "entropy": [math.log(2)]}, [0.25 ** (2**0.5)]),
    ],
    ids=lambda value: str(value) if hasattr(value, "weights") else "",
)
def test_values(objective, tokens, expected) -> None:
    weights = objective.weights(tokens_with(**tokens))
    # a logarithm and an exponential of float32; InfoSFT's differences of logarithms cancel near weight 0
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
        # a sum of 24 float32 products, its weights from logits of about 10: 10 * eps in the logarithm
        error = (mine.double().cpu() - theirs).norm() / theirs.norm()
        assert error < 100 * EPS


@pytest.mark.parametrize("objective", [*ELEMENTWISE, TALR(), AutoTrim()], ids=str)
def test_weights_are_finite_everywhere(objective) -> None:
    nll = torch.tensor([0.0, 1e-38, 1e-9, 1e-3, 1.0, 20.0, 1e4])
    tokens = TokenStats(nll, nll, nll, nll.long(), nll.clamp(max=12) - 1e-7, None, 1 + nll.int(), 1 - (-nll).exp())
    weights = objective.weights(tokens)
    assert weights.isfinite().all() and weights.dtype == torch.float32
    assert (weights * weights).isfinite().all()  # telemetry adds up squares


@pytest.mark.parametrize(
    ("floor", "p", "expected"), [(0.1, [1e-9, 0.3, 0.999], [0.1, 0.37, 0.9991]), (0.0, [0.2], [0.2])]
)
def test_auto_trim_by_hand(floor, p, expected) -> None:
    """It is DFT without a floor, and SAFT's linear rule with alpha = 1 - floor."""
    nll = -torch.tensor(p).log()
    tokens = TokenStats(nll, nll, nll, torch.zeros(len(p), dtype=torch.int64))
    weights = AutoTrim(floor=floor).weights(tokens)
    torch.testing.assert_close(weights, torch.tensor(expected), rtol=8 * EPS, atol=0)
    torch.testing.assert_close(weights, SAFT(alpha=1 - floor).weights(tokens), rtol=8 * EPS, atol=8 * EPS)


# ---- what they need


@pytest.mark.parametrize(
    ("objective", "statistics"),
    [(EAFT(), {"entropy"}), (RankTuner(), {"entropy", "rank"}), (DEFT(), {"collision", "gradient_norm"})],
)
def test_statistics_that_objectives_need(objective, statistics) -> None:
    head = make_head(5)
    out = linear_cross_entropy(head.hidden, head.weight, head.labels, objective)
    assert all(getattr(out.tokens, name) is not None for name in statistics)
    plain = linear_cross_entropy(head.hidden, head.weight, head.labels, TALR()).tokens
    assert all(getattr(plain, name) is None for name in statistics)
    with pytest.raises(UsageError, match=f"{type(objective).__name__} needs the (entropy|collision)"):
        objective.weights(plain)


# ---- what all of them are


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
