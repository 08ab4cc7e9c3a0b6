"""The output embedding of a model, `lm_head`: its weight, and whether logits are nothing but the product with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trimsft.errors import UnsuitedHead


def whole_weight(head: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a head; a sharded one (DTensor) is gathered once."""
    weight, bias = head.weight, getattr(head, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        raise UnsuitedHead(
            f"the output embedding ({type(head).__name__}) has no plain floating-point weight; a quantised or "
            "replaced lm_head cannot be fused: keep lm_head out of the quantisation"
        )
    if isinstance(weight, DTensor):
        weight = weight.full_tensor()
        bias = bias.full_tensor() if isinstance(bias, DTensor) else bias
    return weight, bias


def has_adapter(head: nn.Module) -> bool:
    """Whether PEFT has wrapped the head: its `weight` is then that of the base alone."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer

    return isinstance(head, BaseTunerLayer)


def check_product(head: Any, forward: Callable[[Tensor], Tensor], hidden: Tensor, *, harm: str) -> None:
    """Does `forward` make hidden @ weight.T + bias of a row? That of a norm-head, for one, does not.

    Args:
        forward: what the head does by itself.
        harm: what would come of it otherwise, for the error.
    """
    if isinstance(head.weight, DTensor):  # a shard multiplies with nothing but shards
        return
    weight, bias = whole_weight(head)
    row = hidden.detach().flatten(0, -2)[:1]
    with torch.no_grad():
        seen = forward(row)
        expected = nn.functional.linear(row.to(weight.device), weight, bias)
    seen, expected = seen.float(), expected.float().to(seen.device)
    # two roundings of a product of that size, were they made in different ways
    tolerance = 4 * torch.finfo(weight.dtype).eps * (1 + float(expected.abs().max()))
    if seen.shape != expected.shape or not torch.allclose(seen, expected, rtol=0, atol=tolerance):
        raise UnsuitedHead(
            f"the output embedding ({type(head).__name__}) does not return hidden @ weight.T, as a norm-head does not; "
            + harm
        )


def is_plain(head: nn.Module) -> bool:
    """Whether a head multiplies as `nn.Linear` does."""
    return type(head).forward is nn.Linear.forward
