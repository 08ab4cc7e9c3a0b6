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

BACKENDS = ("reference", "chunked", "triton", "triton low_memory")
FUSED = BACKENDS[1:]


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
    ignore_index: int = -100,
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
    tokens = TokenStats(*(x.detach() for x in (nll_T, gold_T - other_T, gold_T, competitor_T, entropy_T)))
    weights_T = objective.weights(tokens) if hasattr(objective, "weights") else objective(tokens)
    return (weights_T * nll_T).sum() / (len(nll_T) if normalizer is None else normalizer), tokens, weights_T


def exact(head: Head, objective: Objective, **options: Any) -> Answer:
    """The formula in float64 and its gradients, by autograd."""
    return plain(head.to(torch.float64), objective, **options)


def plain(head: Head, objective: Objective, **options: Any) -> Answer:
    """The formula in the dtype of the head: what one loses without a fused head is measured against this."""
    head = head.leaves()
    loss, tokens, weights = formula(head, objective, **options)
    labels = head.labels[head.labels != options.get("ignore_index", -100)].long()
    return _answer(head, LossOutput(loss, tokens, weights, labels, len(tokens)))


def call(head: Head, objective: Objective, backend: str, **options: Any) -> LossOutput:
    """linear_cross_entropy with one of `BACKENDS`."""
    if backend == "triton low_memory":
        options |= {"low_memory": True}
    options["backend"] = backend.split()[0]
    return linear_cross_entropy(head.hidden, head.weight, head.labels, objective, bias=head.bias, **options)


def fused(head: Head, objective: Objective, backend: str, *, factor: float = 1.0, **options: Any) -> Answer:
    """linear_cross_entropy, and the gradients of factor * loss."""
    head = head.to(device_of(backend)).leaves()
    return _answer(head, call(head, objective, backend, **options), factor)


def device_of(backend: str) -> str:
    """Real kernels where there is a GPU, interpreted ones on the CPU elsewhere."""
    return "cuda" if torch.cuda.is_available() and backend.startswith("triton") else "cpu"


def _answer(head: Head, out: LossOutput, factor: float = 1.0) -> Answer:
    (factor * out.loss).backward()
    assert head.hidden.grad is not None and head.weight.grad is not None
    stats = out.tokens
    entropy = None if stats.entropy is None else wide(stats.entropy)
    tokens = TokenStats(wide(stats.nll), wide(stats.gap), wide(stats.gold_logit), stats.competitor.cpu(), entropy)
    bias = None if head.bias is None else wide(head.bias.grad)
    grads = wide(head.hidden.grad), wide(head.weight.grad), bias
    return Answer(wide(out.loss), tokens, wide(out.weights), out.kept, *grads)


def wide(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()


def distance(got: Tensor, expected: Tensor) -> float:
    """Relative error, norm-wise."""
    assert got.shape == expected.shape
    return float((wide(got) - wide(expected)).norm() / wide(expected).norm())


def assert_close(got: Answer, expected: Answer, *, gradients: float = 1e-5, gap: float = 1e-4) -> None:
    """Loss and gradients within `gradients`, norm-wise; statistics within `gap`; the same competitors."""
    torch.testing.assert_close(got.tokens.gap, expected.tokens.gap, rtol=0, atol=gap)
    torch.testing.assert_close(got.tokens.gold_logit, expected.tokens.gold_logit, rtol=0, atol=gap)
    torch.testing.assert_close(got.tokens.competitor, expected.tokens.competitor)
    if got.tokens.entropy is not None:
        torch.testing.assert_close(got.tokens.entropy, expected.tokens.entropy, rtol=0, atol=gap)
    errors = {
        name: distance(getattr(got, name), getattr(expected, name))
        for name in ("loss", "hidden", "weight", "bias")
        if getattr(expected, name) is not None
    }
    errors["nll"] = distance(got.tokens.nll, expected.tokens.nll)
    assert max(errors.values()) <= gradients, errors
