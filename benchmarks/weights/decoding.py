"""Samples of stacked models at several temperatures, 0 being greedy decoding.

All rows of a problem share its prompt: keys and values of a prompt are computed once and stored once, and what a row
has written itself comes after them, in the same column for all rows. A row that has ended leaves the batch at the next
multiple of `BLOCK` tokens, when the store also grows. Attention is spelled out, because its softmax is over both parts.
Logits are chosen from part by part: those of 12,000 rows over a vocabulary of 262,144 would fill 12 GB.

Shapes: M models, K problems, n rows of each problem, R rows of a model that still write, T tokens
of the longest prompt, S columns written so far, h key heads with g heads each, D size of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.weights.stacked import StackedModel

BLOCK = 32
LOGITS = 2**30
"""So many logits are computed at once: 10 GB with their noise."""


def generate(
    model: StackedModel,
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    new: int,
    eos: int,
    rows_at_once: int,
    seed: int = 0,
) -> Iterator[NDArray[np.int32]]:
    """Of each model the token ids [K, n, new] that it wrote, eos in the place of all after the end.

    Args:
        temperatures: one for each row of a problem.
        rows_at_once: this many rows share a forward pass, of several models or of a part of one's problems.
        seed: of the samples; those of models that share a pass are drawn one after the other.
    """
    n = len(temperatures)
    models_at_once = max(1, rows_at_once // (len(prompts) * n))
    problems_at_once = min(len(prompts), max(1, rows_at_once // n))
    by_length = sorted(range(len(prompts)), key=lambda at: len(prompts[at]))
    for first in range(0, model.count, models_at_once):
        part = model.part(first, first + models_at_once)
        written = np.full((part.count, len(prompts), n, new), eos, np.int32)
        for start in range(0, len(prompts), problems_at_once):
            chosen = by_length[start : start + problems_at_once]
            batch = _Batch(part, [prompts[at] for at in chosen], temperatures, new, eos, seed + start)
            written[:, chosen] = batch.run().cpu().numpy()
        yield from written


class _Batch:
    """The rows of some problems, from their prompts to their ends."""

    @torch.no_grad()
    def __init__(
        self,
        model: StackedModel,
        prompts: Sequence[Sequence[int]],
        temperatures: Sequence[float],
        new: int,
        eos: int,
        seed: int,
    ) -> None:
        n = len(temperatures)
        self.model, self.n, self.eos, self.device = model, n, eos, model.device
        self.temperatures = torch.tensor(temperatures, device=self.device)
        self.problems, rows = len(prompts), len(prompts) * n
        self.generator = torch.Generator(device=self.device).manual_seed(seed)
        self.written = torch.full((model.count, rows, new), eos, dtype=torch.int32, device=self.device)
        self.slots_MR = torch.arange(rows, device=self.device).repeat(model.count, 1)  # which row each one is
        self.ended_MR = torch.zeros_like(self.slots_MR, dtype=torch.bool)
        self.lengths_K = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        longest = int(self.lengths_K.max())
        ids_KT = torch.tensor([[*prompt, *[eos] * (longest - len(prompt))] for prompt in prompts], device=self.device)
        self.is_padding_KT = torch.arange(longest, device=self.device) >= self.lengths_K[:, None]
        self.prompt: list[tuple[Tensor, Tensor]] = []  # of each layer, [M, K, h, T, D]
        hidden = model.hidden(ids_KT.expand(model.count, -1, -1), keep=self.prompt).unflatten(1, ids_KT.shape)
        last_MKH = hidden[:, torch.arange(self.problems, device=self.device), self.lengths_K - 1]
        self.last_MRH = last_MKH.repeat_interleave(n, dim=1)
        size = self._size(rows, 0)
        self.own = [[hidden.new_empty(size) for _ in range(2)] for _ in self.prompt]  # of each layer, [M, R, h, S, D]

    @torch.no_grad()
    def run(self) -> Tensor:
        """What every row wrote, [M, K, n, new]."""
        new = self.written.shape[2]
        for column in range(new):
            tokens_MR = self._choose().masked_fill_(self.ended_MR, self.eos)
            self.written[:, :, column].scatter_(1, self.slots_MR, tokens_MR.int())
            self.ended_MR |= tokens_MR == self.eos
            if column + 1 == new:
                break
            if column % BLOCK == 0:
                tokens_MR = self._make_room(tokens_MR, column)
                if tokens_MR.shape[1] == 0:
                    break
            self.last_MRH = self._step(tokens_MR, column)
        return self.written.unflatten(1, (self.problems, self.n))

    def _choose(self) -> Tensor:
        """Return the largest of logits plus Gumbel noise times the temperature: a sample of softmax(logits / T)."""
        chosen = []
        at_once = max(1, LOGITS // (self.model.count * self.model.vocabulary))
        parts = zip(self.last_MRH.split(at_once, dim=1), self.slots_MR.split(at_once, dim=1), strict=True)
        for last_MRH, slots_MR in parts:
            logits_MRV = self.model.logits(last_MRH)
            noise_MRV = torch.empty_like(logits_MRV).exponential_(generator=self.generator).log_()
            noise_MRV.mul_(self.temperatures[slots_MR % self.n][..., None])
            chosen.append(logits_MRV.sub_(noise_MRV).argmax(dim=-1))
            del logits_MRV, noise_MRV  # before the next ones are made
        return torch.cat(chosen, dim=1)

    def _size(self, rows: int, columns: int) -> tuple[int, ...]:
        """Of the keys, or the values, that rows have written in one layer."""
        shape = self.model.architecture
        return (self.model.count, rows, shape.key_heads, columns, shape.head_size)

    def _make_room(self, tokens_MR: Tensor, column: int) -> Tensor:
        """Drop rows that have ended, as many in every model, and make room for the next columns; what is left."""
        left = int((~self.ended_MR).sum(dim=1).max())
        kept = self.ended_MR.int().sort(dim=1, stable=True).indices[:, :left]
        self.slots_MR, self.ended_MR = self.slots_MR.gather(1, kept), self.ended_MR.gather(1, kept)
        models = torch.arange(self.model.count, device=self.device)[:, None]
        for stored in self.own:
            for at, old in enumerate(stored):
                stored[at] = old.new_empty(self._size(left, column + BLOCK))
                stored[at][:, :, :, : old.shape[3]] = old[models, kept]
        return tokens_MR.gather(1, kept)

    def _step(self, tokens_MR: Tensor, column: int) -> Tensor:
        """The last hidden states after these tokens, [M, R, H]."""
        shape = self.model.architecture

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            own_k, own_v = self.own[layer]
            own_k[:, :, :, column], own_v[:, :, :, column] = k, v
            window = shape.layers[layer].window
            seen = slice(0 if window is None else max(0, column + 1 - window), column + 1)
            own_k, own_v = own_k[:, :, :, seen], own_v[:, :, :, seen]
            prompt_k, prompt_v = self.prompt[layer]
            # the heads that share a key head are queries of the same keys
            q = (q * shape.attention_scale).unflatten(2, (shape.key_heads, -1))
            before = self._by_problem(q) @ prompt_k.transpose(-1, -2)
            before = before.masked_fill_(self._is_unseen(column, window)[:, None, None], -torch.inf)
            scores = torch.cat([self._by_row(before), q @ own_k.transpose(-1, -2)], dim=-1)
            shares = scores.float().softmax(dim=-1).to(v.dtype)
            length = prompt_k.shape[3]
            mixed = self._by_row(self._by_problem(shares[..., :length]) @ prompt_v) + shares[..., length:] @ own_v
            return mixed.flatten(2, 3)

        places_MR = self.lengths_K[self.slots_MR // self.n] + column
        return self.model.forward(tokens_MR, places_MR, attend)

    def _is_unseen(self, column: int, window: int | None) -> Tensor:
        """Which tokens of a prompt are padding, or too far back for what is written in this column: [K, T]."""
        longest = self.is_padding_KT.shape[1]
        if window is None or longest + column < window:
            return self.is_padding_KT
        behind_KT = self.lengths_K[:, None] + column - torch.arange(longest, device=self.device)
        return self.is_padding_KT | (behind_KT >= window)

    def _by_problem(self, x_MRhgX: Tensor) -> Tensor:
        """[M, K, h, n g, X]: the rows of each problem together, nothing in the place of those that have ended."""
        models, _, key_heads, group, width = x_MRhgX.shape
        every = x_MRhgX.new_zeros(models, self.problems * self.n, key_heads, group, width)
        every[torch.arange(models, device=self.device)[:, None], self.slots_MR] = x_MRhgX
        every = every.unflatten(1, (self.problems, self.n)).transpose(2, 3)
        return every.reshape(models, self.problems, key_heads, self.n * group, width)

    def _by_row(self, x_MKhnX: Tensor) -> Tensor:
        """[M, R, h, g, X]: back again."""
        every = x_MKhnX.unflatten(3, (self.n, -1)).transpose(2, 3).flatten(1, 2)
        return every[torch.arange(len(every), device=self.device)[:, None], self.slots_MR]
