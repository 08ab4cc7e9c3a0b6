"""Attention without cuDNN's kernel: with a mask, some of its gradients are NaN (pytorch#196678), and a new shape costs
a plan that takes as long as a step of a small model. Where torch does not prefer it, this has no effect."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Within, attention is computed by another kernel; then what was allowed is allowed again."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
