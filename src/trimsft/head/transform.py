"""What a model does to its logits after the head: read from its configuration, and checked on the model itself,
whose forward pass has run with `PROBE` in place of its logits."""

from typing import Any

import torch
from torch import Tensor

from trimsft.errors import UnsuitedHead
from trimsft.head.problem import softcapped

PROBE = (1.0, -4.0, 40.0)  # logits whose way through the model shows what it does to them


def logit_transform(model: Any) -> tuple[float, float | None]:
    """(scale, softcap) that the model applies to its logits after the head, as its configuration names them."""
    config = model.config.get_text_config()
    scale = None
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        scale = getattr(config, name, None) if scale is None else scale
    divisor = getattr(config, "logits_scaling", None)
    if scale is None and divisor is not None and config.model_type != "minicpm3":  # which divides hidden states by it
        scale = divisor if config.model_type == "hyperclovax" else 1 / divisor
    softcap = None
    for name in ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"):
        softcap = getattr(config, name, None) if softcap is None else softcap
    return 1.0 if scale is None else float(scale), softcap


def check_transform(seen: Tensor, scale: float, softcap: float | None, name: str, *, harm: str) -> None:
    """Did the model make of `PROBE` what is expected? `harm`: what would come of it otherwise, for the error."""
    expected = softcapped(torch.tensor(PROBE), scale, softcap)
    actual = seen.detach().float().cpu().flatten()
    if actual.shape != expected.shape or not torch.allclose(actual, expected, rtol=0.02, atol=1e-3):
        raise UnsuitedHead(
            f"{name} changes its logits in a way trimsft does not know ({PROBE} became {tuple(actual.tolist())}, "
            f"expected {tuple(expected.tolist())}); {harm}"
        )
