"""A model's own output embedding, `lm_head`: its weight, and what the model does to its logits after it.

Read from the model and its configuration, and checked on the model itself, whose forward pass has run with `PROBE` in
place of its logits.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trimsft.errors import UnsuitedHead
from trimsft.head.problem import softcapped

PROBE = (1.0, -4.0, 40.0)  # logits whose way through the model shows what it does to them


def whole_weight(head: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of a head; a sharded one (DTensor) is gathered once."""
    weight, bias = head.weight, getattr(head, "bias", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or not weight.is_floating_point():
        problem = f"the output embedding ({type(head).__name__}) has no plain floating-point weight and cannot be fused"
        raise UnsuitedHead(f"{problem}; keep lm_head out of the quantisation")
    if isinstance(weight, DTensor):
        weight = weight.full_tensor()
        bias = bias.full_tensor() if isinstance(bias, DTensor) else bias
    return weight, bias


def has_adapter(head: nn.Module) -> bool:
    """Return whether PEFT has wrapped the head: its `weight` is then that of the base alone."""
    if "peft" not in sys.modules:
        return False
    from peft.tuners.tuners_utils import BaseTunerLayer

    return isinstance(head, BaseTunerLayer)


def is_plain(head: nn.Module) -> bool:
    """Return whether a head multiplies as `nn.Linear` does."""
    return type(head).forward is nn.Linear.forward


def check_product(head: Any, forward: Callable[[Tensor], Tensor], hidden: Tensor, *, harm: str) -> None:
    """Refuse a head that does not make hidden @ weight.T + bias of a row, as a norm-head does not.

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


def logit_transform(model: Any) -> tuple[float, float | None]:
    """Return scale and softcap that the model applies to its logits after the head, as its configuration names them."""
    config = model.config.get_text_config()

    def first(*names: str) -> Any:
        return next((value for name in names if (value := getattr(config, name, None)) is not None), None)

    scale, divisor = first("logit_scale", "output_multiplier", "lm_head_multiplier"), first("logits_scaling")
    if scale is None and divisor is not None and config.model_type != "minicpm3":  # which divides hidden states by it
        scale = divisor if config.model_type == "hyperclovax" else 1 / divisor
    softcap = first("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
    return 1.0 if scale is None else float(scale), softcap


def check_transform(seen: Tensor, scale: float, softcap: float | None, name: str, *, harm: str) -> None:
    """Refuse a model that makes something else of `PROBE` than is expected; `harm` is for the error."""
    expected = softcapped(torch.tensor(PROBE), scale, softcap)
    actual = seen.detach().float().cpu().flatten()
    if actual.shape != expected.shape or not torch.allclose(actual, expected, rtol=0.02, atol=1e-3):
        raise UnsuitedHead(
            f"{name} changes its logits in a way trimsft does not know ({PROBE} became {tuple(actual.tolist())}, "
            f"expected {tuple(expected.tolist())}); {harm}"
        )
