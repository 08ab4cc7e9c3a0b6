"""Everything the head says about a token, against float64 on materialised logits."""

from dataclasses import replace

import pytest
import torch

from trimsft import SFT
from trimsft.head import chunked
from trimsft.head.token_statistics import token_statistics

from .oracle import EPS, Head, device_of, exact, make_head

BACKENDS = ["torch", pytest.param("triton", marks=pytest.mark.filterwarnings("ignore::RuntimeWarning"))]
FLOATS = ("nll", "gap", "gold_logit", "entropy", "gradient_norm")


def measured(head: Head, backend: str, **options):
    """What `token_statistics` says, on the CPU."""
    here = head.to(device_of(backend))
    got = token_statistics(here.hidden, here.weight, here.labels, bias=here.bias, backend=backend, **options)
    return {name: getattr(got, name).cpu() for name in (*FLOATS, "competitor", "rank")}


def assert_exact(got, head: Head, **options) -> None:
    """Within what rounding the logits to float32 may do to each number."""
    right = exact(head, SFT(), **options).tokens
    size = float(right.gold_logit.abs().max() + right.gap.abs().max())
    for name in FLOATS:
        value = getattr(right, name)
        # a logit is off by a few roundings of its size, which moves the others by as much times their slope
        slope = value.abs().clamp(max=1.0) if name in ("nll", "entropy", "gradient_norm") else 1.0
        allowed = 64 * EPS * (value.abs() + size * slope) + EPS  # 1 + x rounds where one token has it all
        assert ((got[name].double() - value).abs() <= allowed).all(), name
    assert got["competitor"].tolist() == right.competitor.tolist() and got["rank"].tolist() == right.rank.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("vocabulary", "made", "options"),
    [
        (2, {}, {}),
        (37, {"bias": True}, {"logit_scale": 2.0, "softcap": 6.0}),
        (2048, {}, {"logit_scale": 0.3}),
        (2049, {"bias": True}, {"logit_scale": 2.0, "softcap": 6.0}),
        (5003, {"bias": True}, {}),
        # logits of 20 and more, where a bfloat16 step is 0.125: the gap is that of the rounded inputs, to float32
        (1000, {"bias": True, "dtype": torch.bfloat16, "logit_size": 12.0}, {}),
        (1000, {"bias": True, "dtype": torch.float16, "logit_size": 12.0}, {}),
    ],
)
def test_statistics_are_those_of_float64(backend, vocabulary, made, options) -> None:
    head = make_head(6, 32, vocabulary, **made)
    # labels and hidden states may be views
    hidden, labels = (torch.stack((x, 0 * x), 1)[:, 0] for x in (head.hidden, head.labels))
    views = replace(head, hidden=hidden, weight=head.weight.T.contiguous().T, labels=labels)
    assert_exact(measured(views if vocabulary == 37 else head, backend, **options), head, **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gap", [40.0, 15.0, 1e-3, -15.0, -40.0])
def test_deep_tails_keep_their_digits(backend, gap) -> None:
    """Where p is 1 - 1e-14 or 1e-17, nll, entropy and norm still have six digits."""
    logits = torch.linspace(-3, 0, 301)[None].repeat(4, 1)
    labels = torch.tensor([0, 7, 299, 150])
    logits[torch.arange(4), labels] = gap
    head = Head(logits, torch.eye(301), labels)
    others = (logits.double() - gap).scatter(1, labels[:, None], -torch.inf)  # beside the gold token
    total, weighted = others.exp().sum(1), (others.exp() * others.clamp(min=-1e4)).sum(1)
    nll, doubt = total.log1p(), total / (1 + total)
    right = {"nll": nll, "entropy": nll - weighted / (1 + total)}
    right["gradient_norm"] = ((others.exp() / (1 + total)[:, None]).square().sum(1) + doubt.square()).sqrt()
    got = measured(head, backend)
    for name, value in right.items():
        torch.testing.assert_close(got[name].double(), value, rtol=1e-5, atol=0)
    assert got["rank"].tolist() == [1 if gap > 0 else 301] * 4
    assert got["gap"].tolist() == pytest.approx([gap] * 4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ties(backend) -> None:
    """The first of equal competitors counts; a gold token that ties with it has gap 0 and rank 1."""
    logits = torch.zeros(3, 4100)
    logits[0, [7, 4099]] = 5.0
    logits[1, [3, 9, 4000]] = 5.0
    logits[2, [2048, 2047]] = 5.0
    got = measured(Head(logits, torch.eye(4100), torch.tensor([0, 3, 2048])), backend)
    assert got["competitor"].tolist() == [7, 9, 2047]
    assert got["gap"].tolist() == [-5.0, 0.0, 0.0]
    assert got["rank"].tolist() == [3, 1, 1]


def test_chunks_change_nothing(monkeypatch) -> None:
    head = make_head(100, 16, 3000)
    whole = measured(head, "torch")
    monkeypatch.setattr(chunked, "CHUNK_BYTES", {"cpu": 1, "cuda": 1})
    parts = measured(head, "torch")
    for name, values in whole.items():
        torch.testing.assert_close(parts[name], values, rtol=1e-5, atol=1e-5)
