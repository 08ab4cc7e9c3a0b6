"""The model that a training begins with: loaded as TRL loads it, and refused where its folder lacks something."""

import logging
from typing import Any

from safetensors import SafetensorError
from trl.trainer.utils import create_model_from_path

from trimsft.errors import UsageError
from trimsft.hub import asking_hub, not_loaded
from trimsft.models import load_config, omits_soft_cap, require_all_tensors, require_finite
from trimsft.train.config import TrimSFTConfig

FIELD = "model_name_or_path"
log = logging.getLogger("trimsft")


def load_base(name: str, args: TrimSFTConfig, quantization_config: Any = None) -> tuple[Any, Any]:
    """The model of a folder or of the hub by `args.model_init_kwargs`, and what is said of its tensors."""
    given = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    load_config(name, revision=given.get("revision"), trust_remote_code=given["trust_remote_code"], field=FIELD)
    if quantization_config is not None:
        if "quantization_config" in given:
            raise UsageError("is given twice", field="quantization_config", hint="remove it from model_init_kwargs")
        given["quantization_config"] = quantization_config
    if args.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        given["device_map"] = None
    try:
        with asking_hub(name):
            model, report = create_model_from_path(name, output_loading_info=True, **given)
    except SafetensorError as error:  # not among the kinds of error that settings cause
        raise not_loaded(repr(name), name, error, field=FIELD) from error
    if omits_soft_cap(model):
        _cap(model, is_chosen=given.get("attn_implementation") is not None)
    return model, report


def _cap(model: Any, is_chosen: bool) -> None:
    """See to it that a soft cap of attention is not left out, unless the attention that does so was asked for."""
    if is_chosen:
        log.warning("attention caps its scores in this model, and sdpa leaves that out: other logits than elsewhere")
    else:
        log.warning(
            "attention caps its scores in this model, which sdpa leaves out: it is eager, which is slower "
            "(as fast: --attn_implementation flash_attention_2)"
        )
        model.set_attn_implementation("eager")


def require_whole(model: Any, report: Any, name: str) -> None:
    """Refuse a model with tensors that its folder lacks, which transformers fills with random numbers."""
    require_all_tensors(report, name, field=FIELD)
    require_finite(model, name, field=FIELD)
