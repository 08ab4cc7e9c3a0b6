"""Configurations and models as they are loaded everywhere: whole or not at all, and never with code from a folder.

    model = load_model("runs/trim/model", dtype="auto")

transformers fills a tensor that a folder lacks with random numbers and goes on; here that is an error, as are weights
that are not finite.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimsft.errors import TrimSFTError, UsageError, and_more
from trimsft.hub import asking_hub, not_loaded
from trimsft.runs.parsing import read_json

AGAIN = "fetch or make the model again"
MOST = {
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**5,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "vocab_size": 10**8,
    "max_position_embeddings": 10**9,
}
"""The largest sizes that are taken for a model's: to build one of more takes all memory, or the day."""
log = logging.getLogger("trimsft")


def load_config(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """Return the configuration of a model folder or of a model of the hub, of an adapter its base's.

    Args:
        field: the setting that an error blames.
    """
    base = adapter_base(name, revision, field)
    own: dict[str, Any] = {"revision": revision if base is None else None, "trust_remote_code": trust_remote_code}
    return _read_config(base or name, field, own)


def _read_config(name: str | Path, field: str, own: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    with _loading(name, field):
        config = AutoConfig.from_pretrained(str(name), **own)
        text = config.get_text_config()
        for size, most in MOST.items():
            value = getattr(text, size, None)
            if isinstance(value, int | float) and not 0 < value <= most:
                raise UsageError(f"{str(name)!r} is damaged: {size} in its config.json is {value:g}", field=field)
    return config


def load_model(
    name: str | Path,
    *,
    dtype: Any,
    device: str = "cpu",
    revision: str | None = None,
    trust_remote_code: bool = False,
    field: str = "model",
) -> Any:
    """Return a causal language model with exactly the tensors of its folder; an adapter brings its base."""
    from transformers import AutoModelForCausalLM

    base = adapter_base(name, revision, field)
    own: dict[str, Any] = {"revision": revision if base is None else None, "trust_remote_code": trust_remote_code}
    config = _read_config(base or name, field, own)
    with _loading(base or name, field):
        _require_room(config, Path(base or name), field)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            base or str(name), config=config, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **own
        )
    require_all_tensors(loaded, base or name, field=field)
    if base is not None:
        model = _with_adapter(model, name, revision, field).get_base_model()
    if omits_soft_cap(model):
        model.set_attn_implementation("eager")
    model = model.to(device)
    require_finite(model, name, field=field)
    return model


def omits_soft_cap(model: Any) -> bool:
    """Return whether attention caps its scores softly (Gemma-2) and goes through sdpa, which leaves that out."""
    return model.config._attn_implementation == "sdpa" and has_soft_cap(model.config)


def has_soft_cap(config: Any) -> bool:
    """Return whether the attention of such a model caps its scores."""
    return getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None


def load_merged(name: str | Path, *, field: str = "model") -> Any:
    """Return a language model in float32 with an adapter's tensors added to its base's; any other as it is.

    In float32 the sum is rounded once, when it is stored in another dtype.
    """
    import torch

    base = adapter_base(name, None, field)
    model = load_model(base or name, dtype=torch.float32, field=field)
    if base is None:
        return model
    merged = _with_adapter(model, name, None, field).merge_and_unload()
    require_finite(merged, name, field=field)
    return merged


def _with_adapter(model: Any, name: str | Path, revision: str | None, field: str) -> Any:
    """Return the model with an adapter around it, heads and embeddings that were trained beside it included.

    By PEFT: transformers would not find those in the adapter's folder.
    """
    from peft import PeftConfig, PeftModelForCausalLM

    with _loading(name, field):
        config = PeftConfig.from_pretrained(str(name), revision=revision)
        if config.is_prompt_learning:
            problem = f"{str(name)!r} is an adapter of the kind {config.peft_type.value}, which cannot be merged"
            raise UsageError(problem, field=field, hint="serve it together with its base")
        config.inference_mode = True
        tuned = PeftModelForCausalLM(model, config, autocast_adapter_dtype=False)
        found = tuned.load_adapter(str(name), "default", revision=revision, autocast_adapter_dtype=False)
    missing = [key.removeprefix("base_model.model.") for key in found.missing_keys]
    loaded = {"missing_keys": missing, "mismatched_keys": [], "unexpected_keys": found.unexpected_keys}
    require_all_tensors(loaded, name, field=field)
    return tuned


def adapter_base(name: str | Path, revision: str | None = None, field: str = "model") -> str | None:
    """Return the model that an adapter belongs to; None for any other model.

    transformers would load both, and report on the adapter alone.
    """
    from transformers.utils import find_adapter_config_file

    with _loading(name, field):
        path = find_adapter_config_file(str(name), revision=revision)
        if path is None or (Path(name) / "config.json").exists():
            return None
        base = read_json(Path(path), dict[str, Any]).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise UsageError(f"{path}: base_model_name_or_path must be a name", field=field, value=base, hint=AGAIN)
    return base


def _require_room(config: Any, folder: Path, field: str) -> None:
    """Refuse a configuration of more numbers than the files have bits: to fill the rest would take all memory."""
    text = config.get_text_config()
    sizes: list[Any] = [getattr(text, size, None) for size in ("hidden_size", "vocab_size", "num_hidden_layers")]
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")] if folder.is_dir() else []
    if not weights or not all(isinstance(size, int) for size in sizes):
        return
    width, vocabulary, layers = sizes
    if width * (vocabulary + layers * width) > 8 * sum(path.stat().st_size for path in weights):
        problem = f"{str(folder)!r} is not whole: its files hold fewer numbers than its config.json says"
        raise UsageError(problem, field=field, hint=AGAIN)


def require_all_tensors(loaded: Mapping[str, Any], name: str | Path, *, field: str = "model") -> None:
    """Refuse a model some of whose tensors its files lack or have in another shape.

    Tensors that the model has no use for are mentioned: published folders carry heads for other purposes.

    Args:
        loaded: what `from_pretrained(..., output_loading_info=True)` says beside the model.
    """
    for kind, what in (("missing_keys", "it lacks the tensor"), ("mismatched_keys", "another shape has the tensor")):
        keys = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loaded[kind])
        if keys:
            problem = f"{str(name)!r} is not whole: {what} {keys[0]}{and_more(len(keys), 'tensors')}"
            raise UsageError(problem, field=field, hint=AGAIN)
    if unused := sorted(loaded["unexpected_keys"]):
        more = and_more(len(unused), "tensors")
        log.warning("%s: the model has no use for the tensor %s%s in its folder", name, unused[0], more)


def require_finite(model: Any, name: str | Path, *, field: str = "model") -> None:
    """Refuse weights that are not finite. One pass over the memory: 15 billion bytes a second and core."""
    bad = [key for key, tensor in model.named_parameters() if not is_finite(tensor.detach())]
    if bad:
        problem = f"{str(name)!r} has numbers that are not finite in {bad[0]}{and_more(len(bad), 'tensors')}"
        raise UsageError(problem, field=field, hint=AGAIN)


def is_finite(tensor: Any) -> bool:
    """Return whether all numbers of a tensor are finite."""
    if not tensor.numel() or not tensor.is_floating_point() or tensor.element_size() < 2 or tensor.is_meta:
        return True  # of quantized numbers the least and the largest are not known
    return all(math.isfinite(extreme) for extreme in tensor.aminmax())  # NaN is both of them


@contextmanager
def _loading(name: str | Path, field: str) -> Iterator[None]:
    """Raise in one line what a library raises, and print none of its tables about tensors."""
    reports = [logging.getLogger(f"transformers.{module}") for module in ("modeling_utils", "integrations.peft")]
    for report in reports:
        report.disabled = True
    try:
        with asking_hub(name):
            yield
    except TrimSFTError:
        raise
    except Exception as error:  # the library raises whatever the files make it
        raise not_loaded(repr(str(name)), name, error, field=field) from error
    finally:
        for report in reports:
            report.disabled = False
