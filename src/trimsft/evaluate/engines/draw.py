"""Drawing tokens so that a row's draws depend on its own seed alone, whatever batch it falls into.

Token v is drawn with probability p_v by taking the largest of  logit_v / temperature + g_v  with g_v = -log E_v and
E_v exponential (the Gumbel-max trick). E_v comes from a hash of (seed, step, v): no state, so nothing that other rows
do can change it. Rows of a batch still share the model's rounding: where the two best candidates are closer than that,
another batch may choose the other one. In float32 that is rare, in bfloat16 less so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from trimsft.evaluate.engines.base import Sampling

_ELEMENTS = 2**25
"""Of noise at once: the hash needs a few buffers of this size."""


class Drawer:
    """Chooses the next token of each row of a batch; greedy rows may stand beside sampled ones."""

    def __init__(self, seeds: Sequence[int], samplings: Sequence[Sampling], device: torch.device) -> None:
        self._keys = torch.tensor([_key(seed) for seed in seeds], dtype=torch.int32, device=device)
        self._samplings = list(samplings)
        warm = [0.0 if s.is_greedy else 1.0 / s.temperature for s in self._samplings]
        self._inverse = torch.tensor(warm, dtype=torch.float32, device=device)[:, None]
        self._sampled = torch.tensor([not s.is_greedy for s in self._samplings], device=device)[:, None]
        self._any_sampled = any(not s.is_greedy for s in self._samplings)
        self._filtered = [
            row for row, s in enumerate(self._samplings) if not s.is_greedy and (s.top_k or s.top_p < 1)
        ]

    def scores(self, logits: Tensor, step: int) -> Tensor:
        """(rows, vocabulary) scores whose largest is the token drawn; `step` counts new tokens from 0."""
        logits = logits.float()
        if not self._any_sampled:
            return logits
        scaled = logits * self._inverse
        for row in self._filtered:
            scaled[row] = _keep_likely(scaled[row], self._samplings[row])
        rows = max(1, _ELEMENTS // logits.shape[1])
        for start in range(0, logits.shape[0], rows):
            part = slice(start, start + rows)
            scaled[part] -= exponential(self._keys[part], step, logits.shape[1]).log_()
        return torch.where(self._sampled, scaled, logits)


def exponential(keys: Tensor, step: int, size: int) -> Tensor:
    """(rows, size) exponential variables that depend on a row's key (rows, 2), the step and the column only."""
    columns = torch.arange(size, dtype=torch.int32, device=keys.device)[None, :]
    first, second = _mix(keys + _wrap(step * 0x9E3779B9)).split(1, dim=1)
    bits = _mix(columns * _wrap(0x9E3779B1) + first)
    bits = _mix(bits.bitwise_xor_(second)).bitwise_and_(0x7FFFFFFF)
    # float32 is finest near 0, where the winners are
    share = bits.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)
    return share.neg_().log1p_().neg_()


def _mix(value: Tensor) -> Tensor:
    """Scramble 32-bit integers in place: every bit going in moves about half of those coming out (murmur3)."""
    value ^= _shift(value, 16)
    value *= _wrap(0x85EBCA6B)
    value ^= _shift(value, 13)
    value *= _wrap(0xC2B2AE35)
    value ^= _shift(value, 16)
    return value


def _shift(value: Tensor, bits: int) -> Tensor:
    """Right shift that fills with zeros: int32 has a sign, the hash has none."""
    return (value >> bits).bitwise_and_((1 << (32 - bits)) - 1)


def _wrap(value: int) -> int:
    """The same 32 bits as a signed integer."""
    return ((value + 2**31) % 2**32) - 2**31


def _key(seed: int) -> tuple[int, int]:
    digest = hashlib.sha256(str(seed).encode()).digest()
    return tuple(int.from_bytes(digest[at : at + 4], "big", signed=True) for at in (0, 4))  # type: ignore[return-value]


def _keep_likely(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores with all tokens but the `top_k` likeliest, and but the fewest that hold `top_p`, put out of reach."""
    if sampling.top_k and sampling.top_k < scores.numel():
        least = scores.topk(sampling.top_k).values[-1]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, order = scores.sort(descending=True, stable=True)
        shares = ordered.softmax(dim=0)
        beyond = shares.cumsum(dim=0) - shares >= sampling.top_p
        scores = scores.masked_fill(beyond.scatter(0, order, beyond), -torch.inf)
    return scores
