"""The plain formula in float64, and small heads to try it on. Shares no code with trimsft.head.

    head = make_head(24, 32, 300)
    fused(head, TrimSFT(), "chunked", skip_below=0)     close to     exact(head, TrimSFT())

Shapes: T trained tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from trimsft import LossOutput, Objective, TokenStats, linear_cross_entropy
from trimsft.head import IGNORED

EPS = torch.finfo(torch.float32).eps
BACKENDS = ("reference", "chunked", "triton", "triton low_memory")
FUSED = BACKENDS[1:]
# What torch errs in half precision, we may err times this: as many roundings, independent of torch's; were each made
# twice, the norm would be sqrt(2) = 1.41 times torch's, and the rest is the spread of a norm over hundreds of entries.
HALF_PRECISION = 1.5


@dataclass(frozen=True)
class Head:
    """The inputs of a head."""

    hidden: Tensor
    weight: Tensor
    labels: Tensor
    bias: Tensor | None = None

    def to(self, *target: Any) -> Head:
        """Other dtype of the floats, or other device of all."""
        labels = self.labels if isinstance(target[0], torch.dtype) else self.labels.to(*target)
        bias = None if self.bias is None else self.bias.to(*target)
        return Head(self.hidden.to(*target), self.weight.to(*target), labels, bias)

    def leaves(self) -> Head:
        """Copies that collect gradients; strides are kept."""
        bias = None if self.bias is None else self.bias.detach().clone().requires_grad_()
        hidden, weight = (x.detach().clone().requires_grad_() for x in (self.hidden, self.weight))
        return Head(hidden, weight, self.labels, bias)

    def rows(self, rows: slice | Tensor) -> Head:
        return replace(self, hidden=self.hidden[rows], labels=self.labels[rows])


@dataclass(frozen=True)
class Answer:
    """What a head yields, gradients included; float64, on the CPU."""

    loss: Tensor
    tokens: TokenStats
    weights: Tensor
    kept: int
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    rounding: float = 0.0
    """What float32 may do to the numbers, see `logit_rounding`."""


def make_head(
    tokens: int = 15,
    hidden_size: int = 32,
    vocabulary: int = 300,
    *,
    bias: bool = False,
    dtype: torch.dtype = torch.float32,
    logit_size: float = 2.5,
    seed: int = 0,
) -> Head:
    """Logits of standard deviation `logit_size`; two labels of three are the top prediction, the rest are random."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(tokens, hidden_size, generator=generator)
    weight = torch.randn(vocabulary, hidden_size, generator=generator) * (logit_size / hidden_size**0.5)
    offset = torch.randn(vocabulary, generator=generator) if bias else None
    labels = torch.randint(vocabulary, (tokens,), generator=generator)
    best = F.linear(hidden, weight, offset).argmax(dim=1)
    labels = torch.where(torch.arange(tokens) % 3 == 2, labels, best)
    return Head(hidden, weight, labels, offset).to(dtype)


def formula(
    head: Head,
    objective: Objective,
    *,
    ignore_index: int = IGNORED,
    normalizer: float | Tensor | None = None,
    logit_scale: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, TokenStats, Tensor]:
    """Loss, statistics and weights as one would write them down; half-precision logits are widened afterwards."""
    logits = F.linear(head.hidden, head.weight, head.bias)
    logits = logits.float() if logits.dtype.itemsize == 2 else logits
    logits_TV = logit_scale * logits[head.labels != ignore_index]
    if softcap is not None:
        logits_TV = softcap * torch.tanh(logits_TV / softcap)
    gold_T1 = head.labels[head.labels != ignore_index][:, None].long()
    gold_T = logits_TV.gather(1, gold_T1).squeeze(1)
    other_T, competitor_T = logits_TV.scatter(1, gold_T1, -torch.inf).max(dim=1)
    nll_T = logits_TV.logsumexp(dim=1) - gold_T
    probs_TV = logits_TV.softmax(dim=1)
    entropy_T = torch.special.entr(probs_TV).sum(dim=1)
    rank_T = 1 + (logits_TV > gold_T[:, None]).sum(dim=1)
    others_TV = probs_TV.scatter(1, gold_T1, 0)
    norm_T = (others_TV.square().sum(dim=1) + others_TV.sum(dim=1).square()).sqrt()
    seen = (nll_T, gold_T - other_T, gold_T, competitor_T, entropy_T, gold_T1[:, 0], rank_T, norm_T)
    tokens = TokenStats(*(x.detach() for x in seen))
    weights_T = objective.weights(tokens) if hasattr(objective, "weights") else objective(tokens)
    return (weights_T * nll_T).sum() / (len(nll_T) if normalizer is None else normalizer), tokens, weights_T


def exact(head: Head, objective: Objective, **options: Any) -> Answer:
    """The formula in float64 and its gradients, by autograd."""
    answer = plain(head.to(torch.float64), objective, **options)
    return replace(answer, rounding=logit_rounding(head, **options))


def logit_rounding(head: Head, *, logit_scale: float = 1.0, softcap: float | None = None, **_: Any) -> float:
    """What rounding to float32 may do to a logit, and by that to whatever is made of it.

    A logit is a sum of H products. Each rounding is at most eps/2 of a partial sum, which is at most |h||w|, and they
    add up as a random walk does: sqrt(H) * eps * |h||w| is never reached. The gap errs by as much, the probabilities
    and so the gradients by as much of themselves. A softcap adds a rounding of its own size: c * (2 sigmoid - 1).
    """
    hidden, weight = wide(head.hidden).flatten(0, -2), wide(head.weight)
    product = float(hidden[(head.labels != IGNORED).flatten()].norm(dim=-1).max() * weight.norm(dim=1).max())
    offset = 0.0 if head.bias is None else float(head.bias.abs().max())
    return EPS * (logit_scale * (head.weight.shape[1] ** 0.5 * product + offset) + (softcap or 0.0))


def plain(head: Head, objective: Objective, **options: Any) -> Answer:
    """The formula in the dtype of the head: what one loses without a fused head is measured against this."""
    head = head.leaves()
    loss, tokens, weights = formula(head, objective, **options)
    labels = head.labels[head.labels != options.get("ignore_index", IGNORED)].long()
    return answer_of(head, LossOutput(loss, tokens, weights, labels, len(tokens)))


def call(head: Head, objective: Objective, backend: str, **options: Any) -> LossOutput:
    """linear_cross_entropy with one of `BACKENDS`."""
    if backend == "triton low_memory":
        options |= {"low_memory": True}
    options["backend"] = backend.split()[0]
    return linear_cross_entropy(head.hidden, head.weight, head.labels, objective, bias=head.bias, **options)


def fused(head: Head, objective: Objective, backend: str, *, factor: float = 1.0, **options: Any) -> Answer:
    """linear_cross_entropy, and the gradients of factor * loss."""
    head = head.to(device_of(backend)).leaves()
    return answer_of(head, call(head, objective, backend, **options), factor)


def device_of(backend: str) -> str:
    """Real kernels where there is a GPU, interpreted ones on the CPU elsewhere."""
    return "cuda" if torch.cuda.is_available() and backend.startswith("triton") else "cpu"


def answer_of(head: Head, out: LossOutput, factor: float = 1.0) -> Answer:
    (factor * out.loss).backward()
    assert head.hidden.grad is not None and head.weight.grad is not None
    stats = out.tokens
    tokens = TokenStats(**{name: None if x is None else wide(x) for name, x in vars(stats).items()})
    bias = None if head.bias is None else wide(head.bias.grad)
    grads = wide(head.hidden.grad), wide(head.weight.grad), bias
    return Answer(wide(out.loss), tokens, wide(out.weights), out.kept, *grads)


def wide(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


def distance(got: Tensor, expected: Tensor) -> float:
    """Relative error, norm-wise."""
    assert got.shape == expected.shape
    return float((wide(got) - wide(expected)).norm() / wide(expected).norm())


def assert_close(got: Answer, expected: Answer) -> None:
    """Statistics, loss and gradients (norm-wise) as near as rounding allows; the same competitors."""
    for name in ("gap", "gold_logit"):
        value, right = getattr(got.tokens, name), getattr(expected.tokens, name)
        torch.testing.assert_close(value, right, rtol=0, atol=expected.rounding)
    if got.tokens.entropy is not None:
        # a difference of two numbers of the size of the gap
        allowed = expected.rounding * (1 + expected.tokens.gap.abs())
        assert ((got.tokens.entropy - expected.tokens.entropy).abs() <= allowed).all()
    assert torch.equal(got.tokens.competitor, expected.tokens.competitor)
    errors = {
        name: distance(getattr(got, name), getattr(expected, name))
        for name in ("loss", "hidden", "weight", "bias")
        if getattr(expected, name) is not None
    }
    errors["nll"] = distance(got.tokens.nll, expected.tokens.nll)
    assert max(errors.values()) <= expected.rounding, (errors, expected.rounding)


def assert_no_worse_than_torch(got: Answer, torch_own: Answer, expected: Answer) -> None:
    """In half precision: gradients, entropy and the terms of the loss (in whose sum errors may cancel by luck) err no
    more than torch's, and the gap is that of float32, of which torch's bfloat16 has steps of 0.125 from 16 on."""

    def errors(answer: Answer) -> dict[str, float]:
        parts = [part for part in ("hidden", "weight", "bias") if getattr(expected, part) is not None]
        measured = {part: distance(getattr(answer, part), getattr(expected, part)) for part in parts}
        measured["terms"] = distance(answer.weights * answer.tokens.nll, expected.weights * expected.tokens.nll)
        if answer.tokens.entropy is not None:
            measured["entropy"] = distance(answer.tokens.entropy, expected.tokens.entropy)
        return measured

    ours, bounds = errors(got), errors(torch_own)
    assert all(ours[part] <= HALF_PRECISION * bounds[part] for part in ours), (ours, bounds)
    torch.testing.assert_close(got.tokens.gap, expected.tokens.gap, rtol=0, atol=expected.rounding)
