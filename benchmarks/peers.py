"""The peers of the fused language-model head, each behind one signature.

A peer turns hidden states (N, H), the head's weight (V, H) and labels (N,), already shifted and none ignored,
into the mean loss of the N tokens, differentiable in the first two. Nothing but torch is imported until a
peer's `load` is called; a peer that cannot run here says why by raising ImportError or RuntimeError, at the
load or, for a restriction on shapes, dtypes or the device, whatever its library raises at the first call.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from measuring import LossFunction, Method
from torch import Tensor


def _dft(nll: Tensor) -> Tensor:
    """Return the mean of p * nll with p = exp(-nll) held constant: DFT from per-token losses."""
    return (torch.exp(-nll.detach()) * nll).mean()


# torch's own chunked head.


def _torch_chunked(**options: Any) -> LossFunction:
    """Load torch's chunked path; without options it picks chunk size and accumulation."""
    if not (hasattr(F, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions")):
        raise RuntimeError(f"torch {torch.__version__} has no chunked linear_cross_entropy")
    chunking = torch.nn.LinearCrossEntropyOptions(**options)
    chunked: LossFunction = partial(F.linear_cross_entropy, options=chunking)
    return chunked


# Liger Kernel. The Triton path first; then the CuTe DSL ones, which need nvidia-cutlass-dsl.


def _liger(**options: Any) -> LossFunction:
    module = import_module("liger_kernel.transformers.functional")
    fused: LossFunction = partial(module.liger_fused_linear_cross_entropy, **options)
    return fused


def _liger_cutedsl() -> LossFunction:
    """Load the same chunk loop with a kernel in CuTe DSL: compute capability 9.0 or later."""
    import_module("cutlass.cute")  # without it Liger answers only at the call, and less clearly
    fused = import_module("liger_kernel.functional").fused_linear_cross_entropy

    def loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        mean: Tensor = fused(hidden, weight, labels, impl="nvidia-cutedsl")[0]
        return mean

    return loss


def _liger_sm90() -> LossFunction:
    """Load a loss for Hopper alone: bfloat16, N a multiple of 128, V of 256; holds all (N, V) logits."""
    module = import_module("liger_kernel.ops.cutedsl.ops.fused_linear_cross_entropy_sm90")
    fused: LossFunction = module.liger_fused_linear_cross_entropy_sm90
    return fused


def _liger_sm90_nll(reduce: Callable[[Tensor], Tensor]) -> LossFunction:
    """Load per-token losses without stored logits, reduced here: Hopper alone, bfloat16, any N, H and V."""
    module = import_module("liger_kernel.ops.cutedsl.ops.fused_scaled_cross_entropy_sm90")
    per_token: LossFunction = module.LigerFusedScaledCrossEntropySM90Function.apply

    def loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return reduce(per_token(hidden, weight, labels))

    return loss


# Apple's Cut Cross-Entropy: 16-bit dtypes on a CUDA device.


def _cce(**options: Any) -> LossFunction:
    fused: LossFunction = partial(import_module("cut_cross_entropy").linear_cross_entropy, **options)
    return fused


def _cce_dft() -> LossFunction:
    per_token = _cce(reduction="none")

    def loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        return _dft(per_token(hidden, weight, labels))

    return loss


# TRL's fused head. Its file alone is loaded: the package around it imports datasets and much else.

TRL_VOCABULARY_CHUNK = 32768
TRL_OUTPUTS = ("log_probs", "entropy", "is_top1")


def _trl_head() -> Any:
    """Load `trl.kernels.chunked_logprob` by path, under a private name.

    Its backward imports one name from trl.trainer.utils, a context that gathers a ZeRO-3 weight and is null
    without ZeRO-3; a stand-in module holds the null one.
    """
    name = "_trimsft_trl.kernels.chunked_logprob"
    if name in sys.modules:
        return sys.modules[name]
    package = importlib.util.find_spec("trl")
    if package is None or not package.submodule_search_locations:
        raise ImportError("trl is not installed")
    path = Path(package.submodule_search_locations[0]) / "kernels" / "chunked_logprob.py"
    if not path.is_file():
        raise ImportError("this trl has no kernels/chunked_logprob.py (1.16 has)")
    for parent in ("", ".kernels", ".trainer"):
        _stand_in("_trimsft_trl" + parent)
    _stand_in("_trimsft_trl.trainer.utils").maybe_gather_lm_head_ctx = lambda *_: nullcontext()
    return _load_file(name, path)


def _stand_in(name: str) -> Any:
    """Return an empty package that can be imported under `name`."""
    package: Any = ModuleType(name)
    package.__path__ = []
    sys.modules[name] = package
    return package


def _load_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _trl(reduce: Callable[[Tensor], Tensor]) -> LossFunction:
    """Load the head as SFTTrainer calls it, entropy and accuracy for its logs included."""
    head = _trl_head().ChunkedLogProbFunction

    def loss(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        temperature, softcap, scale = 1.0, None, 1.0
        log_probs: Tensor = head.apply(
            hidden, weight, None, labels, temperature, TRL_VOCABULARY_CHUNK, softcap, scale, TRL_OUTPUTS
        )[0]
        return reduce(-log_probs)

    return loss


# QuACK: N, H and V multiples of 8. In bfloat16 on Hopper, with V a multiple of 128, it takes its faster route
# by itself.


def _quack() -> LossFunction:
    fused: LossFunction = import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy
    return fused


PEERS: tuple[Method, ...] = (
    Method("torch linear_cross_entropy", "sft", _torch_chunked),
    Method("torch linear_cross_entropy, 1024-row chunks", "sft", partial(_torch_chunked, batch_chunk_size=1024)),
    Method("liger", "sft", _liger),
    Method("liger fp32 accumulation", "sft", partial(_liger, accum_dtype=torch.float32)),
    Method("liger fp32 accumulation, 8x chunks", "sft", partial(_liger, accum_dtype=torch.float32, chunk_mem_const=8)),
    Method("liger DFT", "dft", partial(_liger, use_token_scaling=True)),
    Method("liger DFT fp32 accumulation", "dft", partial(_liger, use_token_scaling=True, accum_dtype=torch.float32)),
    Method("liger CuTe DSL", "sft", _liger_cutedsl),
    Method("liger SM90", "sft", _liger_sm90),
    Method("liger SM90 per-token", "sft", partial(_liger_sm90_nll, torch.mean)),
    Method("liger SM90 per-token DFT", "dft", partial(_liger_sm90_nll, _dft)),
    Method("cut cross-entropy", "sft", _cce),
    Method("cut cross-entropy, no filter", "sft", partial(_cce, filter_eps=None)),
    Method("cut cross-entropy torch_compile", "sft", partial(_cce, impl="torch_compile")),
    Method("cut cross-entropy DFT", "dft", _cce_dft),
    Method("TRL", "sft", partial(_trl, torch.mean)),
    Method("TRL DFT", "dft", partial(_trl, _dft)),
    Method("quack", "sft", _quack),
)
