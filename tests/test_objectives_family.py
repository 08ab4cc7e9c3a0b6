"""The objectives of other papers: values worked out by hand, gradients of the published losses in float64, and the
statistics of updates that some of them follow."""

import math

import pytest
import torch
import torch.nn.functional as F

from trimsft import linear_cross_entropy
from trimsft.errors import UsageError
from trimsft.objectives import (
    ASFT,
    EAFT,
    TALR,
    Adapts,
    ImportanceSFT,
    InfoSFT,
    PAlpha,
    ProximalSFT,
    PThreshold,
    Rho1,
    TokenStats,
)

from .head.oracle import EPS, device_of, make_head

ELEMENTWISE = [
    PAlpha(2), PThreshold(), PThreshold(low=0.1, high=0.5, alpha=1), EAFT(), EAFT(alpha=2), InfoSFT(),
    TALR(temperature=0.7), ImportanceSFT(), ProximalSFT(), ASFT(),
]  # fmt: skip


def tokens_with(p, q=None, entropy=None) -> TokenStats:
    """Tokens of these probabilities, under the model and under a reference."""
    nll = -torch.tensor(p, dtype=torch.float64).log().float()
    more = [None if value is None else torch.tensor(value) for value in (entropy, q)]
    reference = None if more[1] is None else more[1].log()
    return TokenStats(nll, nll, nll, torch.zeros(len(p), dtype=torch.int64), more[0], reference=reference)


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
        (ImportanceSFT(), {"p": [0.5, 0.5, 0.1], "q": [0.4, 0.1, 0.9]}, [1.25, 1.8, 0.2]),
        (ProximalSFT(), {"p": [0.5, 0.5, 0.2], "q": [0.4, 0.25, 0.4]}, [1.25, 0.0, 0.5]),
        # 1/2 + 0.1 (1 - (3/4)/(1/2)), and no pull where nothing has moved
        (ASFT(), {"p": [0.5, 0.5], "q": [0.25, 0.5]}, [0.45, 0.5]),
        (Rho1(), {"p": [0.5, 0.25], "q": [0.25, 0.5]}, [0.0, 1.0]),  # excess ln 1/2 and ln 2, bound 0
    ],
    ids=lambda value: str(value) if hasattr(value, "weights") else "",
)
def test_values(objective, tokens, expected) -> None:
    weights = objective.weights(tokens_with(**tokens))
    # a logarithm and an exponential of float32; InfoSFT's differences of logarithms cancel near weight 0
    torch.testing.assert_close(weights, torch.tensor(expected), rtol=32 * EPS, atol=8 * EPS)


def published(objective, logits, labels, reference):
    """The loss of each token as its paper has it, differentiable; what the paper detaches is detached."""
    nll = F.cross_entropy(logits, labels, reduction="none")
    p, log_p, q = torch.exp(-nll), -nll, reference.exp()
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
        case ImportanceSFT(low=low, high=high):
            return (fixed / q).clamp(low, high) * nll
        case ProximalSFT(clip=clip):
            ratio = (log_p - reference).exp()
            return -torch.minimum(ratio, ratio.clamp(1 - 0.2, 1 + clip))
        case ASFT(kl=kl):
            return fixed * nll + kl * (q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log())
    raise AssertionError(objective)


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
@pytest.mark.parametrize("objective", ELEMENTWISE, ids=str)
def test_gradients_are_those_of_the_published_losses(objective, backend) -> None:
    """A vocabulary of 19: EAFT's 20 most probable tokens are all of them."""
    head = make_head(24, 16, 19)
    reference = (head.hidden @ head.weight.T * 0.8).log_softmax(-1).gather(1, head.labels[:, None])[:, 0]
    leaves = head.to(device_of(backend)).leaves()
    out = linear_cross_entropy(
        leaves.hidden, leaves.weight, leaves.labels, objective, backend=backend, skip_below=0, normalizer=1.0,
        reference=reference.to(leaves.hidden.device),
    )  # fmt: skip
    out.loss.backward()
    exact = head.to(torch.float64).leaves()
    losses = published(objective, exact.hidden @ exact.weight.T, exact.labels, reference.double())
    losses.sum().backward()
    for mine, theirs in ((leaves.hidden.grad, exact.hidden.grad), (leaves.weight.grad, exact.weight.grad)):
        # a sum of 24 float32 products, its weights from logits of about 10: 10 * eps in the logarithm
        error = (mine.double().cpu() - theirs).norm() / theirs.norm()
        assert error < 100 * EPS


def test_asft_has_the_whole_kl_where_there_are_two_tokens() -> None:
    logits, base = (torch.tensor(values, dtype=torch.float64) for values in ([[1.0, -0.5]], [[0.3, 0.2]]))
    logits.requires_grad_()
    label = torch.tensor([0])
    nll = F.cross_entropy(logits, label, reduction="none")
    kl = F.kl_div(logits.log_softmax(-1), base.softmax(-1), reduction="none").sum(-1)
    whole = torch.autograd.grad((nll.exp().reciprocal().detach() * nll + 0.1 * kl).sum(), logits, retain_graph=True)[0]
    tokens = TokenStats(nll.detach(), nll, nll, label, reference=base.log_softmax(-1)[:, 0])
    mine = torch.autograd.grad((ASFT(kl=0.1).weights(tokens) * nll).sum(), logits)[0]
    torch.testing.assert_close(mine, whole)


@pytest.mark.parametrize("objective", [*ELEMENTWISE, TALR(), Rho1()], ids=str)
def test_weights_are_finite_wherever_a_model_may_get_to(objective) -> None:
    nll = torch.tensor([0.0, 1e-38, 1e-9, 1e-3, 1.0, 20.0, 1e4])
    reference = -nll[:, None].expand(-1, 7).flatten()
    nll = nll.repeat(7)
    tokens = TokenStats(nll, nll, nll, nll.long(), entropy=nll.clamp(max=12) - 1e-7, reference=reference)
    weights = objective.weights(tokens)
    assert weights.isfinite().all() and weights.dtype == torch.float32
    assert (weights * weights).isfinite().all()  # telemetry adds up squares


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (PAlpha, {"alpha": -1}, "^alpha: must be a finite number >= 0, got -1"),
        (PThreshold, {"low": 0.5, "high": 0.2}, "^high: must be a finite number >= 0.5, got 0.2"),
        (InfoSFT, {"mastered": 1.0}, "^mastered: must be a finite number > 0.5 and < 1, got 1.0"),
        (TALR, {"temperature": 0}, "^temperature: must be a finite number > 0, got 0"),
        (TALR, {"floor": 1}, "^floor: must be a finite number >= 0 and < 1, got 1"),
        (Rho1, {"share": 1.0}, "^share: must be a finite number > 0 and < 1, got 1.0"),
        (ProximalSFT, {"clip": math.nan}, "^clip: must be a finite number > 0, got nan"),
    ],
)
def test_bad_parameters(kind, parameters, message) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**parameters)


# what they need -------------------------------------------------------------------------------------------------


def test_the_head_gives_entropy_to_who_needs_it_and_asks_for_a_reference() -> None:
    head = make_head(5)
    out = linear_cross_entropy(head.hidden, head.weight, head.labels, EAFT())
    assert out.tokens.entropy is not None
    with pytest.raises(UsageError, match=r"^objective: ASFT needs the reference of each token, and there is none; "):
        linear_cross_entropy(head.hidden, head.weight, head.labels, ASFT())
    with pytest.raises(UsageError, match="EAFT needs the entropy"):
        EAFT().weights(tokens_with([0.5]))


@pytest.mark.parametrize("backend", ["reference", "chunked", "triton"])
def test_a_reference_goes_with_its_label(backend) -> None:
    head = make_head(6).to(device_of(backend))
    labels = head.labels.clone()
    labels[[1, 4]] = -100
    reference = -torch.arange(6.0, device=labels.device)
    seen = []

    def objective(tokens):
        seen.append(tokens.reference.tolist())
        return tokens.prob

    out = linear_cross_entropy(
        head.hidden[None], head.weight, labels[None], objective, reference=reference[None], backend=backend
    )
    assert [value for part in seen for value in part] == out.tokens.reference.tolist() == [0, -2, -3, -5]
    nothing = linear_cross_entropy(
        head.hidden, head.weight, torch.full_like(labels, -100), ASFT(), reference=reference, backend=backend
    )
    assert nothing.loss == 0 and len(nothing.tokens.reference) == 0


@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (torch.zeros(4), ValueError, r"reference: must have shape \(5,\), got \(4,\)"),
        (torch.zeros(5, dtype=torch.int64), TypeError, "floating-point numbers, got torch.int64"),
        ([0.0] * 5, TypeError, "floating-point numbers, got list"),
    ],
)
def test_a_reference_that_is_none_is_refused(reference, error, message) -> None:
    head = make_head(5)
    with pytest.raises(error, match=message):
        linear_cross_entropy(head.hidden, head.weight, head.labels, ASFT(), reference=reference)


# what they follow -----------------------------------------------------------------------------------------------


def test_talr_takes_the_mean_loss_of_the_update_before() -> None:
    tokens = tokens_with([0.5, 0.25, 1.0, 0.5])  # nll ln 2 * (1, 2, 0, 1): the mean is ln 2
    objective = TALR()
    assert isinstance(objective, Adapts)
    torch.testing.assert_close(objective.weights(tokens), tokens.prob)  # tau is 1
    following = objective.observe(tokens[:1]).observe(tokens[1:])
    assert torch.equal(following.weights(tokens), objective.weights(tokens))  # within the update nothing changes
    following = following.advance(0.1)
    assert following.seen is None
    assert following.figures()["tau"] == pytest.approx(math.log(2), rel=4 * EPS)
    # exp(-nll / ln 2) = e^-1, e^-2, 1, e^-1
    expected = torch.tensor([-1.0, -2.0, 0.0, -1.0]).exp()
    torch.testing.assert_close(following.weights(tokens), expected)
    assert following.advance(0.2).figures() == following.figures()  # an update without tokens
    assert TALR(temperature=3).observe(tokens).advance(0.1).weights(tokens)[1] == pytest.approx(0.25 ** (1 / 3))


def test_rho1_chooses_the_share_with_the_largest_excess() -> None:
    excess = torch.randn(2000, generator=torch.Generator().manual_seed(0)) * 3
    zero = torch.zeros_like(excess)
    tokens = TokenStats(excess.clamp(min=0), zero, zero, zero.long(), reference=excess.clamp(max=0))
    ranks = [Rho1(share=0.3).observe(part) for part in (tokens[:500], tokens[500:])]
    seen = sum(rank.seen for rank in ranks)
    following = ranks[0].advance(0.5, seen)
    # the bound is between neighbouring edges, 0.05 apart: at most the tokens of one such step are on its wrong side
    step = 0.05 / 3 * 0.4  # the density of a normal distribution is at most 0.4
    assert following.weights(tokens).mean() == pytest.approx(0.3, abs=2 * step)
    one = Rho1(share=0.3).observe(tokens).advance(0.5)
    assert torch.equal(one.weights(tokens), following.weights(tokens))


@pytest.mark.parametrize("objective", [TALR(), Rho1()], ids=str)
def test_what_they_follow_is_saved_and_restored_exactly(objective) -> None:
    tokens = tokens_with([0.3, 0.8, 0.05], q=[0.5, 0.9, 0.5])
    following = objective.observe(tokens).advance(0.5)
    restored = type(objective)().load_state_dict(following.state_dict())
    assert torch.equal(restored.weights(tokens), following.weights(tokens))
    assert not torch.equal(following.weights(tokens), objective.weights(tokens))
    assert objective.state_dict() == {} and type(objective)().load_state_dict({}).figures() == objective.figures()
