"""Drawing tokens so that a row's draws depend on its own seed alone, whatever batch it falls into.

Token v is drawn with probability p_v by taking the largest of  logit_v / temperature + g_v  with g_v = -log E_v and
E_v exponential (the Gumbel-max trick). E_v comes from a hash of (seed, step, v): no state, so nothing that other rows
do can change it. Rows of a batch still share the model's rounding: where the two best candidates are closer than that,
another batch may choose the other one. In float32 that is rare, in bfloat16 less so.
"""

import hashlib
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from trimsft.evaluate.engines import EngineError, Sampling
from trimsft.head.problem import has_triton

_ELEMENTS = 2**25  # random numbers made at once: the hash needs a few buffers of this size


class Drawer:
    """Chooses the next token of each row of a batch; greedy rows may stand beside sampled ones."""

    def __init__(self, seeds: Sequence[int], samplings: Sequence[Sampling], device: torch.device) -> None:
        rows = len(seeds)
        self._keys = torch.zeros(rows, 2, dtype=torch.int32, device=device)
        self._inverse = torch.zeros(rows, 1, device=device)  # 1 / temperature; 0 for greedy rows
        self._top_k = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        self._top_p = torch.ones(rows, 1, device=device)
        self._any_sampled = self._any_filtered = False
        self.expect(samplings)
        self.assign(range(rows), seeds, samplings)

    def expect(self, samplings: Iterable[Sampling]) -> None:
        """Be ready for such requests; a CUDA graph replays the way that was taken when it was captured."""
        for sampling in samplings:
            self._any_sampled |= not sampling.is_greedy
            self._any_filtered |= not sampling.is_greedy and (sampling.top_k > 0 or sampling.top_p < 1)

    def assign(self, rows: Sequence[int], seeds: Sequence[int], samplings: Sequence[Sampling]) -> None:
        """Give rows to other requests, of a kind that was expected."""
        digests = [hashlib.sha256(str(seed).encode()).digest() for seed in seeds]
        keys = [[int.from_bytes(digest[at : at + 4], "big", signed=True) for at in (0, 4)] for digest in digests]
        where = torch.tensor(list(rows), dtype=torch.int64, device=self._keys.device)
        for target, values in (
            (self._keys, keys),
            (self._inverse, [[0.0 if s.is_greedy else 1 / s.temperature] for s in samplings]),
            (self._top_k, [[s.top_k] for s in samplings]),
            (self._top_p, [[s.top_p] for s in samplings]),
        ):
            target[where] = torch.tensor(values, dtype=target.dtype, device=target.device).view(-1, target.shape[1])

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order."""
        for name in ("_keys", "_inverse", "_top_k", "_top_p"):
            setattr(self, name, getattr(self, name)[rows])

    def choose(self, logits: Tensor, step: Tensor) -> Tensor:
        """Return (rows) the tokens drawn."""
        if logits.is_cuda and has_triton() and not self._any_filtered:
            from trimsft.evaluate.slots import kernels

            return kernels.choose(logits, self._keys, step, self._inverse)
        return self.scores(logits, step).argmax(dim=1)

    def scores(self, logits: Tensor, step: Tensor) -> Tensor:
        """Return (rows, vocabulary) scores whose largest is the token drawn; `step` (rows) counts from 0."""
        logits = logits.float()
        if not self._any_sampled:
            return logits
        scores = torch.empty_like(logits)
        rows = max(1, _ELEMENTS // logits.shape[1])
        for start in range(0, logits.shape[0], rows):
            part = slice(start, start + rows)
            likely, inverse = logits[part], self._inverse[part]
            if self._any_filtered:
                likely = _keep_likely(likely, inverse, self._top_k[part], self._top_p[part])
            noise = exponential(self._keys[part], step[part], logits.shape[1]).log_()
            scores[part] = torch.where(inverse == 0, likely, likely * inverse - noise)
        return scores


def exponential(keys: Tensor, step: Tensor, size: int) -> Tensor:
    """Return (rows, size) exponential variables that depend on a row's key (rows, 2), step (rows) and column only."""
    columns = torch.arange(size, dtype=torch.int32, device=keys.device)[None, :]
    first, second = _mix(keys + step.to(torch.int32)[:, None] * _wrap(0x9E3779B9)).split(1, dim=1)
    bits = _mix(columns * _wrap(0x9E3779B1) + first)
    bits = _mix(bits.bitwise_xor_(second)).bitwise_and_(0x7FFFFFFF)
    # float32 is finest near 0, where the winners are
    share = bits.to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)
    return share.neg_().log1p_().neg_()


def _mix(value: Tensor) -> Tensor:
    """Scramble 32-bit integers in place: every bit going in moves about half of those coming out (murmur3)."""
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        # a right shift that fills with zeros: int32 has a sign, the hash has none
        value ^= (value >> bits).bitwise_and_((1 << (32 - bits)) - 1)
        value *= _wrap(factor)
    return value


def _wrap(value: int) -> int:
    """Return the same 32 bits as a signed integer."""
    return ((value + 2**31) % 2**32) - 2**31


def _keep_likely(logits: Tensor, inverse: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Put all tokens but the `top_k` likeliest, and of these but the fewest that hold `top_p`, out of reach."""
    ordered, order = logits.sort(dim=1, descending=True, stable=True)
    ranks = torch.arange(logits.shape[1], device=logits.device)
    ordered = ordered.masked_fill((top_k > 0) & (ranks >= top_k), -torch.inf)
    shares = (ordered * inverse.where(inverse > 0, 1.0)).softmax(dim=1)
    beyond = (shares.cumsum(dim=1) - shares >= top_p) & (top_p < 1) | ordered.isneginf()
    return logits.masked_fill(beyond.scatter(1, order, beyond), -torch.inf)


def require_finite(logits: Tensor, prompt_tokens: int, dtype: torch.dtype) -> None:
    """Refuse logits from which nothing can be drawn."""
    if not logits.isfinite().all():
        name = str(dtype).removeprefix("torch.")
        problem = f"its logits for a prompt of {prompt_tokens:,} tokens are not finite in {name}"
        raise EngineError(problem, field="model", hint="try another dtype, and check the weights")
