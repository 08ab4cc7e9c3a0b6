"""The training of stacked models in one loop, each on its own rows, in its own order, under its own objective.

Optimizer and schedule are those of the recipes: AdamW (0.9, 0.95), weight decay 0.01 on matrices, the gradient of each
model clipped at norm 1, a cosine after a tenth of warm-up.

Shapes: M models, B rows of L tokens in a batch, P tokens that are no padding and K that are trained, both of the model
that has most, V vocabulary, H hidden size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.weights.stacked import EMBEDDING, Base, StackedModel
from trimsft.head import IGNORED, linear_cross_entropy
from trimsft.head.problem import weigh
from trimsft.objectives import Objective, TokenStats

SMALL_VOCABULARY = 4096
"""Up to here the logits of all models are computed at once; above, the fused head takes one model after the other."""

Pair = tuple[list[int], list[int]]  # prompt and completion
Watch = Callable[[int, StackedModel, Sequence[Any]], None]
"""(updates done, the models, their objectives)."""


@dataclass(frozen=True)
class Examples:
    """Rows as padded tensors."""

    ids_RL: Tensor
    labels_RL: Tensor
    lengths_R: Tensor

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Examples:
        lengths = [len(prompt) + len(completion) for prompt, completion in pairs]
        ids = np.zeros((len(pairs), max(lengths)), np.int64)
        labels = np.full_like(ids, IGNORED)
        for row, (prompt, completion) in enumerate(pairs):
            ids[row, : lengths[row]] = [*prompt, *completion]
            labels[row, len(prompt) : lengths[row]] = completion
        return cls(torch.from_numpy(ids), torch.from_numpy(labels), torch.tensor(lengths))

    def __len__(self) -> int:
        return len(self.ids_RL)


@dataclass(frozen=True)
class Job:
    """One model that is trained."""

    objective: Objective
    examples: Examples
    seed: int
    rate: float = 5e-4
    """The highest learning rate."""


@dataclass(frozen=True)
class Schedule:
    """What all models that are trained at once share."""

    batch: int = 24
    trace_every: int = 10


@dataclass(frozen=True)
class Trained:
    model: StackedModel
    traces: list[dict[str, list[Any]]]
    """Of each model, by name: means over the trained tokens of some updates."""


def train(
    base: Base,
    jobs: Sequence[Job],
    schedule: Schedule,
    *,
    device: str = "cpu",
    compute: torch.dtype = torch.float32,
    fused: bool | None = None,
    watch: Watch = lambda update, model, objectives: None,
) -> Trained:
    """Train one copy of the base for each job; all have as many rows.

    Args:
        fused: take the fused head for each model; by default where the vocabulary is large.
        watch: is shown the models before each update, and after the last.
    """
    model = StackedModel.of(base, len(jobs), device, compute).trainable()
    fused = base.vocabulary > SMALL_VOCABULARY if fused is None else fused
    head = fused_head if fused else stacked_head
    objectives = [job.objective for job in jobs]
    updates = len(jobs[0].examples) // schedule.batch
    optimizer = AdamW(model, [job.rate for job in jobs])
    traces = _Traces()
    for update, batch in enumerate(_batches(jobs, schedule.batch, updates, device)):
        watch(update, model, objectives)
        outcomes = head(model, model.hidden(batch.ids_MBL, batch.real_MP), batch, objectives)
        sum(one.loss for one in outcomes).backward()  # type: ignore[union-attr]
        if update % schedule.trace_every == 0 or update + 1 == updates:
            traces.add(update, outcomes)
        clip_each(model)
        optimizer.step(cosine_with_warmup(update, updates))
    watch(updates, model, objectives)
    del optimizer
    torch.cuda.empty_cache()  # decoding wants large pieces; does nothing without CUDA
    return Trained(model, traces.lists())


def cosine_with_warmup(update: int, updates: int) -> float:
    """Return the share of the highest learning rate; as transformers' `get_cosine_schedule_with_warmup`."""
    warmup = math.ceil(0.1 * updates)
    if update < warmup:
        return update / max(1, warmup)
    return 0.5 * (1 + math.cos(math.pi * (update - warmup) / max(1, updates - warmup)))


class AdamW:
    """`torch.optim.AdamW` with a learning rate for each of the stacked models; matrices decay, vectors do not."""

    def __init__(self, model: StackedModel, rates: Sequence[float]) -> None:
        self._rates_M = torch.tensor(rates, device=model.device)
        self._parameters = list(model.parameters.values())
        self._first = [torch.zeros_like(one) for one in self._parameters]
        self._second = [torch.zeros_like(one) for one in self._parameters]
        self._updates = 0

    @torch.no_grad()
    def step(self, share: float) -> None:
        """Update with this share of each model's learning rate, and forget the gradients."""
        self._updates += 1
        keep_first, keep_second, eps, decay = 0.9, 0.95, 1e-8, 0.01
        first_scale, second_scale = (1 - keep**self._updates for keep in (keep_first, keep_second))
        for one, first, second in zip(self._parameters, self._first, self._second, strict=True):
            assert one.grad is not None
            rates = (share * self._rates_M).view(-1, *[1] * (one.dim() - 1))
            if one.dim() > 2:
                one.mul_(1 - rates * decay)
            first.lerp_(one.grad, 1 - keep_first)
            second.mul_(keep_second).addcmul_(one.grad, one.grad, value=1 - keep_second)
            size = second.div(second_scale).sqrt_().add_(eps)
            one.sub_(size.reciprocal_().mul_(first).mul_(rates / first_scale))
            one.grad = None


def clip_each(model: StackedModel, most: float = 1.0) -> None:
    """`torch.nn.utils.clip_grad_norm_` for each of the stacked models."""
    gradients = [one.grad for one in model.parameters.values() if one.grad is not None]
    norms_M = torch.stack([one.flatten(1).norm(dim=1) for one in gradients]).norm(dim=0)
    scale_M = (most / (norms_M + 1e-6)).clamp(max=1)
    for one in gradients:
        one.mul_(scale_M.view(-1, *[1] * (one.dim() - 1)))


# ---- batches


@dataclass(frozen=True)
class Batch:
    ids_MBL: Tensor  # without the last token of the longest rows, which predicts nothing
    real_MP: Tensor  # places of the tokens that are no padding; padding after those of a model that has fewer
    labels_MP: Tensor  # of the token after each; IGNORED where it is not trained
    counts: list[int]  # trained tokens of each model
    places_MK: Tensor  # where they are among P, in order; any place after a model's count


def _batches(jobs: Sequence[Job], size: int, updates: int, device: str) -> Iterator[Batch]:
    orders = [torch.randperm(len(job.examples), generator=torch.Generator().manual_seed(job.seed)) for job in jobs]
    for update in range(updates):
        picks = [order[update * size : (update + 1) * size] for order in orders]
        yield make_batch([job.examples for job in jobs], picks, device)


def make_batch(sets: Sequence[Examples], picks: Sequence[Tensor], device: str) -> Batch:
    """These rows of each set."""
    lengths_MB = torch.stack([one.lengths_R[pick] for one, pick in zip(sets, picks, strict=True)])
    longest = int(lengths_MB.max())
    ids_MBL = torch.stack([_cut(one.ids_RL[pick], longest, 0) for one, pick in zip(sets, picks, strict=True)])
    labels = [_cut(one.labels_RL[pick], longest, IGNORED) for one, pick in zip(sets, picks, strict=True)]
    labels_MN = torch.stack(labels)[:, :, 1:].flatten(1)
    is_real_MN = (torch.arange(longest - 1) < lengths_MB[..., None]).flatten(1)
    real_MP = _first(is_real_MN.to(device), int(is_real_MN.sum(dim=1).max()))
    counts = (labels_MN != IGNORED).sum(dim=1).tolist()
    labels_MP = labels_MN.to(device).gather(1, real_MP)
    places_MK = _first(labels_MP != IGNORED, max(counts))
    return Batch(ids_MBL[:, :, :-1].to(device), real_MP, labels_MP, counts, places_MK)


def _first(is_wanted: Tensor, count: int) -> Tensor:
    """The places of what is wanted in each row, in order, and then others."""
    return (~is_wanted).int().sort(dim=1, stable=True).indices[:, :count]


def _cut(rows: Tensor, length: int, padding: int) -> Tensor:
    rows = rows[:, :length]
    return F.pad(rows, (0, length - rows.shape[1]), value=padding)


# ---- heads: hidden states to a loss for each model


@dataclass(frozen=True)
class Outcome:
    loss: Tensor
    tokens: TokenStats
    weights: Tensor


Head = Callable[[StackedModel, Tensor, Batch, Sequence[Any]], list[Outcome]]


def fused_head(model: StackedModel, hidden_MPH: Tensor, batch: Batch, objectives: Sequence[Any]) -> list[Outcome]:
    """`linear_cross_entropy` for one model after the other."""
    heads = model.parameters[EMBEDDING].to(hidden_MPH.dtype).unbind()
    outcomes = []
    for at, hidden_PH in enumerate(hidden_MPH.unbind()):
        output = linear_cross_entropy(hidden_PH, heads[at], batch.labels_MP[at], objectives[at], entropy=True)
        outcomes.append(Outcome(output.loss, output.tokens, output.weights))
    return outcomes


def stacked_head(model: StackedModel, hidden_MPH: Tensor, batch: Batch, objectives: Sequence[Any]) -> list[Outcome]:
    """The same for all models at once, on materialised logits of the trained tokens."""
    nll_MK, stats = token_stats(model, hidden_MPH, batch)
    counts_M = torch.tensor(batch.counts, device=nll_MK.device)
    is_padding_MK = torch.arange(nll_MK.shape[1], device=nll_MK.device) >= counts_M[:, None]
    weights_MK = weigh_all(objectives, stats, batch.counts).masked_fill_(is_padding_MK, 0.0)
    losses_M = (weights_MK * nll_MK).sum(dim=1) / counts_M
    return [
        Outcome(loss, _of_model(stats, at, count), weights_MK[at, :count])
        for at, (loss, count) in enumerate(zip(losses_M.unbind(), batch.counts, strict=True))
    ]


def token_stats(model: StackedModel, hidden_MPH: Tensor, batch: Batch) -> tuple[Tensor, TokenStats]:
    """The differentiable cross-entropy [M, K], and statistics of the same shape."""
    picked_MKH = hidden_MPH.gather(1, batch.places_MK[..., None].expand(-1, -1, hidden_MPH.shape[2]))
    logits_MKV = model.logits(picked_MKH.float())  # of bfloat16, a logit has steps of 0.125: no gap to weigh by
    gold_MK1 = batch.labels_MP.gather(1, batch.places_MK).clamp(min=0)[..., None]
    places_MK = batch.real_MP.gather(1, batch.places_MK)
    length = batch.ids_MBL.shape[2]
    log_p_MKV = logits_MKV.log_softmax(dim=-1)
    nll_MK = -log_p_MKV.gather(2, gold_MK1).squeeze(2)
    with torch.no_grad():
        gold_logit_MK = logits_MKV.gather(2, gold_MK1).squeeze(2)
        best_other_MK, competitor_MK = logits_MKV.scatter(2, gold_MK1, -torch.inf).max(dim=2)
        others_MKV = log_p_MKV.exp().scatter(2, gold_MK1, 0)
        stats = TokenStats(
            nll=nll_MK.detach(),
            gap=gold_logit_MK - best_other_MK,
            gold_logit=gold_logit_MK,
            competitor=competitor_MK,
            entropy=-(log_p_MKV.exp() * log_p_MKV).sum(dim=2),
            gold=gold_MK1.squeeze(2),
            rank=1 + (logits_MKV > gold_logit_MK[..., None]).sum(dim=2),
            gradient_norm=(others_MKV.square().sum(dim=2) + others_MKV.sum(dim=2).square()).sqrt(),
            position=places_MK % length,
            row=places_MK // length,
        )
    return nll_MK, stats


def weigh_all(objectives: Sequence[Any], stats: TokenStats, counts: Sequence[int]) -> Tensor:
    """Return weights [M, K]; models that share an objective are weighed in one call, unless it looks at batches."""
    weights_MK = torch.zeros_like(stats.nll)
    together: dict[int, list[int]] = defaultdict(list)
    for at, objective in enumerate(objectives):
        if getattr(objective, "weighs_batches", False):
            weights_MK[at, : counts[at]] = weigh(objective, _of_model(stats, at, counts[at]))
        else:
            together[id(objective)].append(at)
    for models in together.values():
        chosen = torch.tensor(models, device=stats.nll.device)
        flat = _each(stats[chosen], Tensor.flatten)
        weights_MK[chosen] = weigh(objectives[models[0]], flat).view(len(models), -1)
    return weights_MK


def _of_model(stats: TokenStats, at: int, count: int) -> TokenStats:
    return _each(stats, lambda one: one[at, :count])


def _each(stats: TokenStats, change: Callable[[Tensor], Tensor]) -> TokenStats:
    parts: list[Any] = [None if one is None else change(one) for one in vars(stats).values()]
    return TokenStats(*parts)


class _Traces:
    """What is kept of some updates; tensors stay on the device until the end."""

    NAMES = ("nll", "entropy", "missing", "weight")

    def __init__(self) -> None:
        self._updates: list[int] = []
        self._means: list[Tensor] = []  # [M, 4] of each update

    def add(self, update: int, outcomes: Sequence[Outcome]) -> None:
        self._updates.append(update)
        self._means.append(torch.stack([self._of(one.tokens, one.weights) for one in outcomes]))

    def _of(self, tokens: TokenStats, weights: Tensor) -> Tensor:
        assert tokens.entropy is not None
        columns = (tokens.nll, tokens.entropy, (-tokens.gap).clamp(min=0), weights)
        return torch.stack([one.mean() for one in columns])

    def lists(self) -> list[dict[str, list[Any]]]:
        """Return the trace of each model, by name."""
        each_MNU = torch.stack(self._means, dim=2).tolist()
        rounded = [[[round(mean, 5) for mean in means] for means in each] for each in each_MNU]
        return [{"update": self._updates, **dict(zip(self.NAMES, each, strict=True))} for each in rounded]
