"""A model that is loaded on this machine: by vLLM where it is installed, else by transformers.

LocalModel("runs/trim/model", dtype="bfloat16").load()
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

from trimsft.evaluate.engines.base import Engine

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class LocalModel:
    """Which model, and how it is loaded; plain values, so that another process can be told."""

    model: str
    engine: str = "auto"
    revision: str | None = None
    dtype: str = "auto"
    gpu_memory: float | None = None
    tensor_parallel: int | None = None
    context_length: int | None = None

    @property
    def by_vllm(self) -> bool:
        return self.engine == "vllm" or (self.engine == "auto" and importlib.util.find_spec("vllm") is not None)

    @property
    def gpus_each(self) -> int:
        """GPUs that share one copy of it."""
        return self.tensor_parallel or 1

    def load(self) -> Engine:
        loading: dict[str, Any] = {"revision": self.revision, "dtype": self.dtype}
        if self.gpu_memory is not None:
            loading["gpu_memory"] = self.gpu_memory
        if self.by_vllm:
            from trimsft.evaluate.engines.vllm_engine import VllmEngine

            return VllmEngine(self.model, tensor_parallel=self.gpus_each, max_length=self.context_length, **loading)
        from trimsft.evaluate.engines.transformers_engine import TransformersEngine

        return TransformersEngine(self.model, **loading)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        return [device.strip() for device in named.split(",") if device.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]
