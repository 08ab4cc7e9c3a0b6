"""Whether cuDNN computes the attention of a batch.

torch prefers it on Hopper chips (2.11 to 2.13), where it is faster than flash attention, but not for nothing: it makes
a plan for every shape it has not met, which takes as long as a step of a small model, and most batches of texts of any
length are of a new shape. With a mask, some of its gradients are NaN. Where torch does not prefer it, none of this has
an effect. Measured on an H200: docs/performance.md.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

PLAN_SECONDS = 0.14
"""What the first batch of a shape costs."""

GAIN = 1.2e-14
"""Seconds that a later one saves, forward and backward: for each hidden unit of a layer and pair of tokens of a row."""


FORWARD = 1 / 3  # what of it the forward pass saves


class CudnnChoice:
    """Batch by batch; to one that is trained belongs the backward pass, in which layers may be computed again.

    Args:
        units: hidden units of all layers; if they are unknown, infinity, and every shape gets a plan.
        is_compiled: whether layers are compiled; they keep the kernel that they were traced with.
        is_longer: whether attention sees more than the tokens of a row: a prompt that is learned.
    """

    def __init__(self, units: float, *, is_compiled: bool = False, is_longer: bool = False) -> None:
        self._units, self._is_compiled, self._is_longer = units, is_compiled, is_longer
        self._is_allowed = True
        self._lost: dict[tuple[int, int], float] = defaultdict(float)
        """Seconds that would have been saved by a plan, for each shape without one."""

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """Within, what the user allows is chosen from; then it is as before."""
        self._is_allowed = torch.backends.cuda.cudnn_sdp_enabled()
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(self._is_allowed)

    def choose(self, rows: int, length: int, *, masked: bool, trains: bool = True) -> None:
        """For a batch of this shape, with or without a mask, with or without a backward pass."""
        use = self._is_safe(length, trains) if masked else self._has_plan(rows, length, trains)
        torch.backends.cuda.enable_cudnn_sdp(self._is_allowed and use)

    def _is_safe(self, length: int, trains: bool) -> bool:
        may_break = trains and (length % 128 == 64 or self._is_compiled or self._is_longer)
        return not (may_break and breaks_with_mask())

    def _has_plan(self, rows: int, length: int, trains: bool) -> bool:
        """Or should have one: a shape gets it when it has lost as much without. So at most twice the time is lost that
        would have been if the shapes to come were known.

        Where torch is to be deterministic it is there at once, because a run that is resumed has lost less.
        """
        if self._is_compiled or torch.are_deterministic_algorithms_enabled():
            return True
        self._lost[rows, length] += (1 if trains else FORWARD) * GAIN * self._units * rows * length**2
        return self._lost[rows, length] > PLAN_SECONDS


@functools.cache
def breaks_with_mask() -> bool:
    """Whether attention with a mask makes NaN of numbers that are finite, in the gradients of lengths of 64 beyond a
    multiple of 128 where all scores of a row are far below 0: https://github.com/pytorch/pytorch/issues/196678."""
    length, size = 64, 64
    generator = torch.Generator("cuda").manual_seed(0)
    query, key, value = torch.randn(3, 1, 1, length, size, generator=generator, device="cuda").bfloat16()
    query[..., 0], key[..., 0] = 1.0, -120 * math.sqrt(size)
    mask = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(True)  # whatever the batch before has left
    try:
        with torch.enable_grad():
            query.requires_grad_()
            found = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[None, None])
            (gradient,) = torch.autograd.grad(found.float().sum(), query)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    return not bool(gradient.isfinite().all())
