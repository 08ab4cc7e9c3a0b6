"""What the build of a model asks of its decoding: what slots cannot do, and which rows may share a batch.

refuse_for_slots(model, width=512)                   # raises UnsuitedModel with the reason
find_company(model, short_prompt, long_prompt)       # "any", "one length" or "alone"

Right is what the model's own `generate` says for one prompt at a time. Batches of `generate` are not always that: left
padding disturbs some models (MiniMax, RecurrentGemma, Doge), and some rotary embeddings look at the longest row.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from trimsft.evaluate.engines import slot_attention
from trimsft.evaluate.engines.base import EngineError, UnsuitedModel
from trimsft.models import omits_soft_cap

Company = Literal["any", "one length", "alone"]
"""Rows that a model takes together: of any lengths, padded; with prompts of one length; or one at a time."""

LARGEST_ERROR = 0.01
LARGEST_ERROR_16_BIT = 0.5
"""Error of logits, as a share of their standard deviation; a wrong mask or position is off by several."""

_KEYS_AND_VALUES = {"full_attention", "sliding_attention", "chunked_attention", "attention", "dense", "sparse"}
_TRIED_TOKENS = 3
_TRIED_PADDING = 32


def refuse_for_slots(model: Any, width: int) -> None:
    """Refuse models whose texts of up to `width` tokens depend on more than the keys and values of each row."""
    config = model.config.get_text_config()
    others = sorted(set(getattr(config, "layer_types", None) or ()) - _KEYS_AND_VALUES)
    if others or getattr(model, "_is_stateful", False):
        kinds = f" of kind {' and '.join(others)}" if others else ""
        raise UnsuitedModel(f"{type(model).__name__}: layers{kinds} keep more than keys and values")
    for kind, limit in _shared_lengths(config):
        if width > limit:
            raise UnsuitedModel(f"{kind} positions beyond {limit:,} depend on the longest text of a batch")


def shares_lengths(model: Any, width: int) -> bool:
    """Whether the longest row of a batch changes the others, in texts of up to `width` tokens."""
    return any(width > limit for _, limit in _shared_lengths(model.config.get_text_config()))


def refuse_hidden_windows(config: Any, width: int) -> None:
    """A window that layers do not ask for would be forgotten as soon as a text outgrows it."""
    kinds = getattr(config, "layer_types", None)
    for name, kind in (("sliding_window", "sliding_attention"), ("attention_chunk_size", "chunked_attention")):
        window = getattr(config, name, None)
        if not isinstance(window, int) or (kinds is not None and kind not in kinds):
            continue
        if window < width and window not in slot_attention.seen_windows:
            raise UnsuitedModel(f"{name} of {window:,} is in its masks only")


def largest_error(dtype: torch.dtype) -> float:
    return LARGEST_ERROR if torch.finfo(dtype).bits >= 32 else LARGEST_ERROR_16_BIT


def logit_error(found: Tensor, wanted: Tensor) -> float:
    """Largest difference of one row's logits, by the spread of those wanted."""
    return float((found.float() - wanted.float()).abs().max() / wanted.float().std().clamp(min=1e-6))


def require_finite(logits: Tensor, prompt: Sequence[int], dtype: torch.dtype) -> None:
    if not logits.isfinite().all():
        raise EngineError(
            f"its logits for a prompt of {len(prompt):,} tokens are not finite in {str(dtype).removeprefix('torch.')}",
            field="model",
            hint="try another dtype, and check the weights",
        )


def count_positions(config: Any) -> int | None:
    """How long a text may be; dynamic rotary scaling begins where the positions of training end."""
    limit: int | None = getattr(config, "max_position_embeddings", None)
    factors = [kind.get("factor") or 1 for kind in _rope_kinds(config) if kind.get("rope_type") == "dynamic"]
    return int(limit * min(factors)) if limit and factors else limit


def count_cached_layers(config: Any) -> int:
    """Layers with keys and values of their own; in Gemma-3n and Gemma-4 the last ones borrow those of others."""
    return int(config.num_hidden_layers) - int(getattr(config, "num_kv_shared_layers", None) or 0)


def count_cached_numbers(config: Any) -> int:
    """Keys and values of one token, in all layers; some models have heads of another width in some of them."""
    views = getattr(config, "per_layer_config", None)
    total = 0
    for at in range(count_cached_layers(config)):
        layer = config if views is None else views[at]
        heads = getattr(layer, "num_attention_heads", 0)  # None in state-space models
        width = getattr(layer, "head_dim", None) or layer.hidden_size // max(1, heads)
        total += 2 * width * (getattr(layer, "num_key_value_heads", None) or heads)
    return total


def find_company(model: Any, short: Sequence[int], long: Sequence[int]) -> Company:
    """Which rows may share a batch, found by trial: each must get the logits that it gets alone.

    Where both prompts have one length, the second one is made longer: later prompts may need padding.
    """
    config = model.config.get_text_config()
    limits = [count_positions(config) or sys.maxsize, *(limit for _, limit in _shared_lengths(config))]
    longer = [*long, *long][: min(len(short) + _TRIED_PADDING, min(limits) - _TRIED_TOKENS)]
    short = short[: max(1, len(longer) - 1)]
    alone = _first_logits(model, [short])
    require_finite(alone[0], short, model.dtype)
    beside_itself = _error_of_first(_first_logits(model, [short, short]), alone)
    if not beside_itself <= largest_error(model.dtype):
        return "alone"
    beside_long = _error_of_first(_first_logits(model, [short, longer]), alone)
    # padding takes other kernels, whose rounding is of the same size; what it does wrong is of the size of the spread
    rounding = max(LARGEST_ERROR, 0.2 * largest_error(model.dtype)) + 4 * beside_itself
    return "any" if beside_long <= rounding else "one length"


def forget_lengths(model: Any) -> None:
    """Bring dynamic rotary embeddings back to their original base: they keep that of the longest text so far."""
    if any(kind.get("rope_type") == "dynamic" for kind in _rope_kinds(model.config.get_text_config())):
        model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=model.device))


def pad_left(rows: Sequence[Sequence[int]], device: torch.device, padding: int = 0) -> dict[str, Tensor]:
    """Ids and mask of a batch."""
    width = max(map(len, rows))
    ids = [[*[padding] * (width - len(row)), *row] for row in rows]
    mask = [[*[0] * (width - len(row)), *[1] * len(row)] for row in rows]
    return {"input_ids": torch.tensor(ids, device=device), "attention_mask": torch.tensor(mask, device=device)}


@contextlib.contextmanager
def bare_generation(model: Any) -> Iterator[None]:
    """`generate` without the defaults of a checkpoint, and with soft caps of attention, which sdpa silently omits."""
    from transformers import GenerationConfig

    attention, is_uncapped = model.config._attn_implementation, omits_soft_cap(model)
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        if is_uncapped:
            model.set_attn_implementation("eager")
        with torch.inference_mode():
            yield
    finally:
        model.generation_config = own
        if is_uncapped:
            model.set_attn_implementation(attention)


def _first_logits(model: Any, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
    """(rows, vocabulary) logits of the first new tokens."""
    from transformers import GenerationConfig

    config = GenerationConfig(
        max_new_tokens=_TRIED_TOKENS, do_sample=False, pad_token_id=0, output_logits=True, return_dict_in_generate=True
    )
    with bare_generation(model):
        forget_lengths(model)
        logits: tuple[Tensor, ...] = model.generate(**pad_left(prompts, model.device), generation_config=config).logits
    return logits


def _error_of_first(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> float:
    """Largest error of the first row, as long as it says the same."""
    worst = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        error = logit_error(ours[0], theirs[0])
        if not error <= worst:  # so is nan
            worst = error
        if ours[0].argmax() != theirs[0].argmax():
            break
    return worst


def _rope_kinds(config: Any) -> list[dict[str, Any]]:
    rope = getattr(config, "rope_parameters", None) or {}
    return [rope, *(part for part in rope.values() if isinstance(part, dict))]


def _shared_lengths(config: Any) -> Iterator[tuple[str, int]]:
    """Rotary embeddings that look at the longest row of a batch, and the length from which that matters."""
    for kind in _rope_kinds(config):
        if kind.get("rope_type") in ("longrope", "dynamic"):
            original = kind.get("original_max_position_embeddings") if kind["rope_type"] == "longrope" else None
            yield kind["rope_type"], int(original or config.max_position_embeddings)
