"""What a checkpoint holds, read as data: its weights all fit the model, and no pickle in it runs code.

transformers saves some models in another layout than it holds them in (the experts of Mixtral, Qwen3-MoE or OLMoE) and
loads a checkpoint by the names it holds, passing over what does not fit; experts then keep what they were. Here the
checkpoint goes through `from_pretrained`, which knows both layouts, and every name must fit.
"""

import functools
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.api import CheckpointException
from transformers import PreTrainedModel

from trimsft.errors import RunError, TrimSFTError, and_more, one_line

_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_METADATA = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "MetadataIndex", "StorageMeta", "BytesStorageMetadata", "ChunkStorageMetadata",
        "TensorStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING",
    },
    "pathlib": {"PosixPath"}, "pathlib._local": {"PosixPath"},
}  # fmt: skip
"""All that torch 2.13 names in the `.metadata` of a sharded checkpoint, beside the dtypes of its tensors."""


class _Metadata(pickle.Unpickler):
    """Reads the `.metadata` of a sharded checkpoint, and refuses one that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _METADATA.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


@contextmanager
def opened_as_data(checkpoint: str | Path | None) -> Iterator[None]:
    """Have torch open the files of a checkpoint as data, so that a pickle in it that names code is refused.

    torch reads `.metadata`, and the entries of a sharded checkpoint that are no tensors, as pickles without a limit.
    """
    data, before = SimpleNamespace(load=lambda file: _Metadata(file).load()), os.environ.get(_WEIGHTS_ONLY, "0")
    os.environ[_WEIGHTS_ONLY] = "1"
    try:
        with patch.object(filesystem, "pickle", data):
            yield
    except (Exception, CheckpointException) as error:  # the libraries raise whatever the files make them
        cause = next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
        if isinstance(cause, torch.OutOfMemoryError | TrimSFTError | KeyboardInterrupt):
            raise cause from None
        raise RunError(f"{checkpoint} cannot be loaded ({one_line(cause)})", hint="choose another") from error
    finally:
        os.environ[_WEIGHTS_ONLY] = before


def can_load(model: Any) -> bool:
    """Return whether `load_weights` knows a model: one of transformers, or one with a single adapter of PEFT."""
    if isinstance(model, PreTrainedModel):
        return not getattr(model, "_hf_peft_config_loaded", False)  # transformers' own adapters are saved alone
    return len(getattr(model, "peft_config", {})) == 1


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace the weights of a model by those of a checkpoint; raise where any does not fit."""
    with opened_as_data(checkpoint):
        if isinstance(model, PreTrainedModel):
            floats = {value.dtype for value in model.state_dict().values() if value.is_floating_point()}
            loaded, problems = type(model).from_pretrained(
                str(checkpoint),
                config=model.config,
                dtype=functools.reduce(torch.promote_types, floats),  # one that holds all of them exactly
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that they are named
            )
        else:
            (name,) = model.peft_config
            fit = model.load_adapter(str(checkpoint), name, is_trainable=True)
            apart = {"prompt_embeddings"}  # of prompt tuning: loaded strictly, and then reported as unexpected
            loaded = None
            problems = {"missing_keys": fit.missing_keys, "unexpected_keys": set(fit.unexpected_keys) - apart}
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
    if loaded is not None:
        model.load_state_dict(loaded.state_dict())
