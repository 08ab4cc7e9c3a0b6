"""Configurations and models as they are loaded everywhere: whole or not at all, and never with code from a folder.

    model = load_model("runs/trim/model", dtype="auto")

transformers fills a tensor that a folder lacks with random numbers and goes on; here that is an error.
"""

import textwrap
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError, one_line
from trimsft.text.readers import and_more


def load_config(
    name: str | Path, *, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """The configuration of a model folder or of a model of the hub; `field` is the setting that an error blames."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(str(name), revision=revision, trust_remote_code=trust_remote_code)
    except Exception as error:  # the library raises whatever the files make it
        raise _cannot_load(name, field, error) from error


def load_model(
    name: str | Path, *, dtype: Any, revision: str | None = None, trust_remote_code: bool = False, field: str = "model"
) -> Any:
    """A causal language model with exactly the tensors of its folder; a LoRA folder brings its base."""
    from transformers import AutoModelForCausalLM

    own: dict[str, Any] = {"dtype": dtype, "revision": revision, "trust_remote_code": trust_remote_code}
    try:
        model, loaded = AutoModelForCausalLM.from_pretrained(str(name), output_loading_info=True, **own)
    except Exception as error:  # the library raises whatever the files make it
        raise _cannot_load(name, field, error) from error
    require_all_tensors(loaded, name, field=field)
    return model


def require_all_tensors(loaded: Any, name: str | Path, *, field: str = "model") -> None:
    """Refuse a model some of whose tensors its files lack or have in another shape.

    Tensors that the model has no use for pass: published folders carry heads for other purposes.

    Args:
        loaded: what `from_pretrained(..., output_loading_info=True)` says beside the model.
    """
    for kind, verb in (("missing_keys", "lacks"), ("mismatched_keys", "has in another shape")):
        keys = sorted(str(key[0] if isinstance(key, tuple) else key) for key in loaded[kind])
        if keys:
            problem = f"{str(name)!r} is not whole: it {verb} the tensor {keys[0]}{and_more(len(keys), 'tensors')}"
            raise UsageError(problem, field=field, hint="fetch or make the model again")


def _cannot_load(name: str | Path, field: str, error: Exception) -> UsageError:
    # said first where a name is no folder, since the library then speaks of the hub alone
    elsewhere = "" if Path(name).is_dir() else " (no such folder here, so the hub was asked)"
    reason = textwrap.shorten(one_line(error), 400, placeholder=" ...")
    return UsageError(f"cannot load {str(name)!r}{elsewhere}: {reason}", field=field)
