"""What attention costs with and without a mask, by the kernels that torch has; writes JSON. For CUDA only.

    python benchmarks/attention.py --out results/attention_h200.json

Forward and backward of one layer, called as transformers does: grouped keys where there is no mask, repeated ones where
there is. Then what the first call of a length costs, how far gradients are from those in float64, and whether
gradients with a mask are finite where all scores are far below 0 (https://github.com/pytorch/pytorch/issues/196678).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import machine
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

HEADS, KEY_HEADS, SIZE, LENGTH = 12, 2, 128, 2048  # of Qwen2.5-1.5B
KERNELS = {
    "torch's choice": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results = [*times(), *first_calls(), *errors(), *far_below()]
    facts = machine() | {"cudnn": torch.backends.cudnn.version()}
    options.out.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")


def times() -> list[dict[str, Any]]:
    found = []
    for rows in (1, 4, 16):
        inputs = make_inputs(rows, LENGTH)
        mask = torch.ones(rows, 1, LENGTH, LENGTH, dtype=torch.bool, device="cuda").tril()
        mask[:, :, LENGTH // 2 :, : LENGTH // 2] = False  # two packed texts
        for name, kernel in KERNELS.items():
            for kind, given in (("causal", None), ("masked", mask)):
                result: dict[str, Any] = {"what": kind, "kernel": name, "rows": rows}
                try:
                    with only(kernel):
                        result["milliseconds"] = timed(partial(step, inputs, given))
                except RuntimeError as error:  # no kernel for this
                    result["failed"] = str(error).splitlines()[0]
                found.append(result)
                print(json.dumps(result), flush=True)
    return found


def first_calls(count: int = 20) -> list[dict[str, Any]]:
    """Lengths that were never computed before."""
    found = []
    for name in ("flash", "cudnn"):
        with only(KERNELS[name]):
            step(make_inputs(4, 999), None)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for length in range(1000, 1000 + count):
                step(make_inputs(4, length), None)
            torch.cuda.synchronize()
        found.append(
            {"what": "first call", "kernel": name, "milliseconds": 1e3 * (time.perf_counter() - start) / count}
        )
        print(json.dumps(found[-1]), flush=True)
    return found


def errors() -> list[dict[str, Any]]:
    """Relative distances of the output and the gradients of query, key and value."""
    found = []
    for length in (2048, 1999, 704, 65):
        inputs = make_inputs(2, length)
        above = torch.randn_like(inputs[0])
        wanted = step([one.detach().double().requires_grad_() for one in inputs], None, above)
        for name in ("flash", "cudnn"):
            with only(KERNELS[name]):
                got = step(inputs, None, above)
            distances = [float((a.double() - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True)]
            found.append({"what": "error", "kernel": name, "length": length, "errors": distances})
            print(json.dumps(found[-1]), flush=True)
    return found


def far_below() -> list[dict[str, Any]]:
    found = []
    for length in (640, 704):
        query, key, value = (torch.randn(1, 1, length, 64, device="cuda").bfloat16() for _ in range(3))
        query[..., 0], key[..., 0] = 1.0, -120 * math.sqrt(64)
        inputs = [one.requires_grad_() for one in (query, key, value)]
        mask = torch.ones(1, 1, length, length, dtype=torch.bool, device="cuda").tril()
        for kind, given in (("causal", None), ("masked", mask)):
            broken = [int((~one.isfinite()).sum()) for one in step(inputs, given)[1:]]
            found.append(
                {"what": "not finite", "kernel": "torch's choice", "length": length, "mask": kind, "of": broken}
            )
            print(json.dumps(found[-1]), flush=True)
    return found


def make_inputs(rows: int, length: int) -> list[Tensor]:
    """Query, key and value in the layout that transformers has them in."""
    shapes = [(rows, length, heads, SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    return [one.transpose(1, 2).requires_grad_() for one in made]


def step(inputs: list[Tensor], mask: Tensor | None, above: Tensor | None = None) -> list[Tensor]:
    """The output and its gradients; `above` is the gradient of the output, by default itself."""
    query, key, value = inputs
    groups = query.shape[1] // key.shape[1]
    if mask is None and query.dtype != torch.float64:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=groups > 1)
    else:
        key, value = (one.repeat_interleave(groups, dim=1) for one in (key, value))
        out = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
    return [out.detach(), *torch.autograd.grad(out, inputs, (out if above is None else above).detach().to(out.dtype))]


def only(kernel: SDPBackend | None) -> Any:
    return nullcontext() if kernel is None else sdpa_kernel(kernel)


def timed(work: Callable[[], Any], repeats: int = 10, turns: int = 3) -> float:
    """Milliseconds, of the fastest turn."""
    for _ in range(3):
        work()
    best = math.inf
    for _ in range(turns):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / repeats)
    return 1e3 * best


if __name__ == "__main__":
    main()
