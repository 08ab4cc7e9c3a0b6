"""Facts about the build of a model that its decoding depends on, from its config.

Right is what the model's own `generate` says for one prompt at a time.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trimsft.evaluate.engines import EngineError
from trimsft.models import omits_soft_cap


def count_positions(config: Any) -> int | None:
    """Return how long a text may be; dynamic rotary scaling begins where the positions of training end."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    factors = [kind.get("factor") or 1 for kind in _rope_kinds(config) if kind.get("rope_type") == "dynamic"]
    return int(limit * min(factors)) if limit and factors else limit


def count_cached_layers(config: Any) -> int:
    """Count layers with keys and values of their own; in Gemma-3n and Gemma-4 the last ones borrow those of others."""
    return int(config.num_hidden_layers) - int(getattr(config, "num_kv_shared_layers", None) or 0)


def lengths_shared_from(config: Any) -> Iterator[tuple[str, int]]:
    """Yield rotary embeddings that look at the longest row of a batch, and the length from which that matters."""
    for kind in _rope_kinds(config):
        if kind.get("rope_type") in ("longrope", "dynamic"):
            original = kind.get("original_max_position_embeddings") if kind["rope_type"] == "longrope" else None
            yield kind["rope_type"], int(original or config.max_position_embeddings)


def _rope_kinds(config: Any) -> list[dict[str, Any]]:
    rope = getattr(config, "rope_parameters", None) or {}
    return [rope, *(part for part in rope.values() if isinstance(part, dict))]


def require_finite(logits: Tensor, prompt_tokens: int, dtype: torch.dtype) -> None:
    """Refuse logits from which nothing can be drawn."""
    if not logits.isfinite().all():
        name = str(dtype).removeprefix("torch.")
        problem = f"its logits for a prompt of {prompt_tokens:,} tokens are not finite in {name}"
        raise EngineError(problem, field="model", hint="try another dtype, and check the weights")


@contextlib.contextmanager
def bare_generation(model: Any) -> Iterator[None]:
    """Let `generate` run without the defaults of a checkpoint and what earlier texts have left behind.

    Soft caps of attention, which sdpa silently omits, need the eager kind.
    """
    from transformers import GenerationConfig

    attention, is_uncapped = model.config._attn_implementation, omits_soft_cap(model)
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        if is_uncapped:
            model.set_attn_implementation("eager")
        with torch.inference_mode():
            if any(kind == "dynamic" for kind, _ in lengths_shared_from(model.config.get_text_config())):
                # their base is that of the longest text so far; one token brings back the original
                model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device))
            yield
    finally:
        model.generation_config = own
        if is_uncapped:
            model.set_attn_implementation(attention)
