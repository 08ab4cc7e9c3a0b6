"""What a patched model returns when it is given labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from trimsft.errors import UsageError
from trimsft.head import LossOutput
from trimsft.objectives import TokenStats


class NoLogits(Tensor):
    """Stands where an evaluation looks for logits; whoever makes use of it learns that there are none."""

    def __new__(cls) -> NoLogits:
        # of integers: FSDP casts floating-point numbers on the way out
        return Tensor._make_wrapper_subclass(cls, (0,), dtype=torch.int64)

    def __repr__(self) -> str:  # type: ignore[override]
        return "NoLogits()"

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        raise UsageError(
            "a patched model makes none when it is given labels",
            field="logits",
            hint="call it without labels; for compute_metrics use TrimSFTTrainer",
        )


@dataclass
class TrimOutput(ModelOutput):  # type: ignore[misc]
    """What a patched model returns when it is given labels; there are no logits."""

    # always filled in; the defaults are ModelOutput's wish
    loss: Tensor = None  # type: ignore[assignment]
    """token_loss, and what the model's configuration adds to it (router losses)."""
    token_loss: Tensor = None  # type: ignore[assignment]
    """sum_t sg(w_t) * nll_t / (num_items_in_batch, or the number of trained tokens)."""
    aux_loss: Tensor | None = None
    tokens: TokenStats = None  # type: ignore[assignment]
    """Statistics of the trained tokens, in order; likewise the next two."""
    weights: Tensor = None  # type: ignore[assignment]
    labels: Tensor = None  # type: ignore[assignment]
    kept: int = None  # type: ignore[assignment]
    """How many of them took part in the head's backward pass."""
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    logits: None = None
    """Always: trainers that log a token accuracy of their own look whether there are any."""
    no_logits: NoLogits | None = None
    """Without gradients: Trainer takes what is in an output for the logits that compute_metrics gets."""


def trim_output(model: Any, outputs: Any, token_loss: Tensor, result: LossOutput) -> TrimOutput:
    """What a patched model makes of the outputs of its own forward pass and the head's result."""
    aux_loss = getattr(outputs, "aux_loss", None)
    loss = token_loss
    if aux_loss is not None:
        coefficient = getattr(model.config.get_text_config(), "router_aux_loss_coef", 0.0)
        loss = token_loss + coefficient * aux_loss.to(token_loss.device)
    return TrimOutput(
        loss=loss,
        token_loss=token_loss,
        aux_loss=aux_loss,
        tokens=result.tokens,
        weights=result.weights,
        labels=result.labels,
        kept=result.kept,
        hidden_states=getattr(outputs, "hidden_states", None),
        attentions=getattr(outputs, "attentions", None),
        no_logits=None if torch.is_grad_enabled() else NoLogits(),
    )
