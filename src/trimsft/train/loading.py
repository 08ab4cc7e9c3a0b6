"""Weights of a checkpoint, put into a model: all of them, or an error.

transformers saves some models in another layout than it holds them in (the experts of Mixtral, Qwen3-MoE or OLMoE) and
loads a checkpoint by the names it holds, passing over what does not fit; experts then keep what they were. Here the
checkpoint goes through `from_pretrained`, which knows both layouts, and every name must fit.
"""

import functools
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from trimsft.errors import RunError, and_more, one_line


def can_load(model: Any) -> bool:
    """Whether `load_weights` knows such a model: one of transformers, or one with a single adapter of PEFT."""
    if isinstance(model, PreTrainedModel):
        return not getattr(model, "_hf_peft_config_loaded", False)  # transformers' own adapters are saved alone
    return len(getattr(model, "peft_config", {})) == 1


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace the weights of a model by those of a checkpoint."""
    try:
        problems = _load(model, checkpoint)
    except Exception as error:  # the libraries raise whatever the files make them
        raise RunError(f"{checkpoint}: its weights cannot be loaded ({one_line(error)})") from error
    for kind, verb in (
        ("missing_keys", "lacks"),
        ("unexpected_keys", "has, and the model has not,"),
        ("mismatched_keys", "has in another shape"),
    ):
        keys = sorted(str(key[0] if isinstance(key, tuple) else key) for key in problems.get(kind, ()))
        if keys:
            raise RunError(
                f"{checkpoint}: its weights are not those of this model: it {verb} "
                f"{keys[0]}{and_more(len(keys), 'tensors')}",
                hint="choose a checkpoint of this model, or start without one",
            )


def _load(model: Any, checkpoint: Path) -> dict[str, Any]:
    """What did not fit."""
    if not isinstance(model, PreTrainedModel):
        (name,) = model.peft_config
        fit = model.load_adapter(str(checkpoint), name, is_trainable=True)
        apart = {"prompt_embeddings"}  # of prompt tuning: loaded strictly, and then reported as unexpected
        return {"missing_keys": fit.missing_keys, "unexpected_keys": set(fit.unexpected_keys) - apart}
    floats = {value.dtype for value in model.state_dict().values() if value.is_floating_point()}
    loaded, problems = type(model).from_pretrained(
        str(checkpoint),
        config=model.config,
        dtype=functools.reduce(torch.promote_types, floats),  # one that holds all of them exactly
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # so that they are named
    )
    if not any(problems.get(kind) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        model.load_state_dict(loaded.state_dict())
    return problems  # type: ignore[no-any-return]
