"""Models are loaded whole or not at all, never with code from a folder; merged and exported.

    model = load_model("runs/trim/model", dtype="auto")
    export_model("runs/lora", "model", dtype="bfloat16")

transformers fills a tensor that a folder lacks with random numbers and goes on; here that is an
error, as are weights that are not finite. An exported folder is what vLLM, SGLang and llama.cpp take.
"""

from __future__ import annotations

import functools
import logging
import math
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import TrimSFTError, UsageError, and_more, one_line
from trimsft.options import check_options, option
from trimsft.runs import find_weights, publish
from trimsft.runs.parsing import read_json

AGAIN = "fetch or make the model again"
log = logging.getLogger("trimsft")


# ---- loading


def not_loaded(what: str, name: str | Path, error: Exception, *, field: str) -> UsageError:
    """Return the error about `field` for what could not be loaded."""
    reason = textwrap.shorten(one_line(error), 400, placeholder=" ...")
    where = "" if Path(name).is_dir() else " (no such folder here, so the hub was asked)"
    return UsageError(f"cannot load {what}{where}: {reason}", field=field)


@functools.cache
def _look_for_hub() -> None:
    """Take what is stored here where no connection can be made; huggingface_hub tries each file for half a minute."""
    import httpx
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (httpx.ConnectError, httpx.ConnectTimeout, OSError):
        constants.HF_HUB_OFFLINE = True


@contextmanager
def _loading(name: str | Path, field: str, what: str = "") -> Iterator[None]:
    """Raise in one line what a library raises."""
    if not Path(name).exists():
        _look_for_hub()
    try:
        yield
    except TrimSFTError:
        raise
    except Exception as error:  # the library raises whatever the files make it
        raise not_loaded(f"{what}{str(name)!r}", name, error, field=field) from error


def load_tokenizer(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """Return the tokenizer of a folder or a name of the hub; `field` is what an error blames."""
    from transformers import AutoTokenizer

    with _loading(name, field, "a tokenizer from "):
        tokenizer = AutoTokenizer.from_pretrained(str(name), revision=revision, trust_remote_code=trust_remote_code)
        tokenizer.decode(tokenizer("a", truncation=False)["input_ids"])  # some damage shows in use only
    return tokenizer


def load_config(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """Return the configuration of a folder or a name of the hub, of an adapter its base's."""
    from transformers import AutoConfig

    base = adapter_base(name, revision, field)
    own: dict[str, Any] = {"revision": revision if base is None else None, "trust_remote_code": trust_remote_code}
    with _loading(base or name, field):
        return AutoConfig.from_pretrained(base or str(name), **own)


def load_model(
    name: str | Path, *, dtype: Any, device: str = "cpu", revision: str | None = None, merge: bool = False
) -> Any:
    """Return a causal language model with exactly the tensors of its folder, an adapter with its base.

    Merged in float32 the sum is rounded once, when it is stored in another dtype.
    """
    from transformers import AutoModelForCausalLM

    base = adapter_base(name, revision)
    own: dict[str, Any] = {"revision": revision if base is None else None, "trust_remote_code": False}
    with _loading(base or name, "model"):
        model, loaded = AutoModelForCausalLM.from_pretrained(
            base or str(name), dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True, **own
        )
    require_all_tensors(loaded, base or name)
    if base is not None:
        tuned = _with_adapter(model, name, revision)
        model = tuned.merge_and_unload() if merge else tuned.get_base_model()
    if omits_soft_cap(model):
        model.set_attn_implementation("eager")
    model = model.to(device)
    require_finite(model, name)
    return model


def _with_adapter(model: Any, name: str | Path, revision: str | None) -> Any:
    """Return the model with an adapter around it, by PEFT."""
    from peft import PeftConfig, PeftModelForCausalLM

    with _loading(name, "model"):
        config = PeftConfig.from_pretrained(str(name), revision=revision)
        if config.is_prompt_learning:
            problem = f"{str(name)!r} is an adapter of the kind {config.peft_type.value}, which cannot be merged"
            raise UsageError(problem, field="model", hint="serve it together with its base")
        config.inference_mode = True
        tuned = PeftModelForCausalLM(model, config, autocast_adapter_dtype=False)
        found = tuned.load_adapter(str(name), "default", revision=revision, autocast_adapter_dtype=False)
    missing = [key.removeprefix("base_model.model.") for key in found.missing_keys]
    require_all_tensors({"missing_keys": missing, "mismatched_keys": []}, name)
    if found.unexpected_keys:  # of which peft says nothing
        log.warning("%s: the model has no use for the tensor %s in its folder", name, found.unexpected_keys[0])
    return tuned


def adapter_base(name: str | Path, revision: str | None = None, field: str = "model") -> str | None:
    """Return the model that an adapter belongs to; None for any other model."""
    from transformers.utils import find_adapter_config_file

    with _loading(name, field):
        path = find_adapter_config_file(str(name), revision=revision)
        if path is None or (Path(name) / "config.json").exists():
            return None
        return str(read_json(Path(path), dict[str, Any])["base_model_name_or_path"])


def omits_soft_cap(model: Any) -> bool:
    """Return whether attention has a soft cap (Gemma-2) and goes through sdpa, which omits it."""
    cap = getattr(model.config.get_text_config(), "attn_logit_softcapping", None)
    return cap is not None and model.config._attn_implementation == "sdpa"


# ---- checks


def require_all_tensors(loaded: Mapping[str, Any], name: str | Path, *, field: str = "model") -> None:
    """Refuse a model some of whose tensors its files lack or have in another shape.

    `loaded` is what `from_pretrained(..., output_loading_info=True)` says beside the model.
    """
    for kind, what in (("missing_keys", "it lacks the tensor"), ("mismatched_keys", "another shape has the tensor")):
        keys = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loaded[kind])
        if keys:
            problem = f"{str(name)!r} is not whole: {what} {keys[0]}{and_more(len(keys), 'tensors')}"
            raise UsageError(problem, field=field, hint=AGAIN)


def require_finite(model: Any, name: str | Path, *, field: str = "model") -> None:
    """Refuse weights that are not finite, in one pass over the memory."""
    bad = [key for key, tensor in model.named_parameters() if not is_finite(tensor.detach())]
    if bad:
        problem = f"{str(name)!r} has numbers that are not finite in {bad[0]}{and_more(len(bad), 'tensors')}"
        raise UsageError(problem, field=field, hint=AGAIN)


def is_finite(tensor: Any) -> bool:
    """Return whether all numbers of a tensor are finite."""
    if not tensor.numel() or not tensor.is_floating_point() or tensor.element_size() < 2 or tensor.is_meta:
        return True  # of quantized numbers the least and the largest are not known
    return all(math.isfinite(extreme) for extreme in tensor.aminmax())  # NaN is both of them


# ---- one folder for other programs


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The model to export, the folder, and the dtype."""

    model: str = option(argument="MODEL", help="A run directory, a model or adapter folder, or a name of the hub.")
    out: Path = option(help="The folder to make; it must not be there yet.")
    dtype: str = option(
        "auto",
        help="Numbers of the weights; auto keeps those of the model, of an adapter its base's.",
        choices=("auto", "bfloat16", "float16", "float32"),
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Exported:
    """The folder, and the model in it."""

    folder: Path
    dtype: str
    is_merged: bool  # whether an adapter was merged into its base


def export_model(model: str | Path, out: str | Path, *, dtype: str = "auto") -> Exported:
    """Write a model, an adapter merged into its base, as one folder of safetensors; see `ExportSettings`."""
    import torch

    settings = ExportSettings(model=str(model), out=Path(out), dtype=dtype)
    folder = settings.out
    if folder.exists():
        raise UsageError("is there already", field="out", value=str(folder), hint="name a folder that is not")
    weights = find_weights(settings.model)
    base, config = adapter_base(weights), load_config(weights)
    if getattr(config, "quantization_config", None) is not None:
        problem = f"{base or settings.model!r} has quantised weights, to which nothing can be added without loss"
        raise UsageError(problem, field="model", hint="export from the model that they were made of")
    try:
        tokenizer = load_tokenizer(weights)
    except UsageError:
        if base is None:
            raise
        tokenizer = load_tokenizer(base)  # training puts one beside an adapter, others do not
    stored = getattr(config, "dtype", None) or torch.float32
    loaded = load_model(weights, dtype=torch.float32, merge=True)
    loaded = loaded.to(stored if dtype == "auto" else getattr(torch, dtype))
    name = str(loaded.dtype).removeprefix("torch.")
    require_finite(loaded, f"{settings.model} in {name}", field="dtype")  # float16 ends at 65504
    # the generation config of an adapter's base may not know the token that training ends with
    ends = loaded.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if tokenizer.eos_token_id not in [None, *ends]:
        loaded.generation_config.eos_token_id = [tokenizer.eos_token_id, *ends]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as made:
        beside = Path(made) / "model"
        beside.mkdir()
        loaded.save_pretrained(beside)
        tokenizer.save_pretrained(beside)
        path = beside / "tokenizer_config.json"
        text = path.read_text(encoding="utf-8")
        # llama.cpp's converter runs with transformers 4
        path.write_text(text.replace('"TokenizersBackend"', '"PreTrainedTokenizerFast"'), encoding="utf-8")
        publish(beside, folder)
    return Exported(folder, name, is_merged=base is not None)
