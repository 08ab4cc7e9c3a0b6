"""Compile every Triton kernel of the head for a GPU that need not be there; run by test_compile.py.

A script of its own, because the tests run in a process where Triton interprets kernels instead of compiling them.
"""

import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from trimsft.head import kernels

FLOATS = ("nll", "gap", "gold_logit", "weights", "normalizer", "factor")
TYPES = dict.fromkeys(FLOATS, "*fp32") | dict.fromkeys((f"{name}_out" for name in FLOATS), "*fp32")
TYPES |= dict.fromkeys(("logits", "out", "hidden", "weight", "bias", "tensor"), "*bf16")
TYPES |= {"gold_out": "*fp32", "entropy_out": "*fp32", "ledger": "*fp64", "slots": "*i32", "counts": "*i32"}
TYPES |= dict.fromkeys(("labels", "competitor", "competitor_out", "row_of_slot", "rows_out"), "*i64")
TYPES |= dict.fromkeys(
    ("logit_scale", "softcap", "first_parameter", "second_parameter", "skip_below"), "fp32"
)
"""Types of the arguments by name; every other one is an int."""

SIZES = {"LANES": 256, "WIDTH": 8, "BLOCK_H": 512, "STAGES": 4}
VARIANTS: list[tuple[Any, dict[str, Any]]] = [
    (
        kernels.row_statistics,
        {"HAS_BIAS": flag, "HAS_SOFTCAP": flag, "WITH_ENTROPY": flag, "OBJECTIVE": name} | SIZES,
    )
    for flag, name in enumerate(["function", "trim"])
]
VARIANTS += [
    (kernels.row_statistics, {"HAS_BIAS": 0, "HAS_SOFTCAP": 0, "WITH_ENTROPY": 0, "OBJECTIVE": name} | SIZES)
    for name in ("sft", "fsft", "dft", "trim-e", "trim-h")
]
VARIANTS += [(kernels.logit_gradients, {"HAS_SOFTCAP": flag, "BLOCK": 4096}) for flag in (0, 1)]
VARIANTS += [(kernels.claim_slots, {"BLOCK": 2048})]
VARIANTS += [(kernels.find_trained, {"BLOCK": 4096}), (kernels.scale_in_place, {"BLOCK": 4096})]

if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for kernel, constants in VARIANTS:
        names = kernel.arg_names
        types = {n: "constexpr" if n in constants else TYPES.get(n, "i32") for n in names}
        places = {(names.index(name),): value for name, value in constants.items()}
        compiled = triton.compile(ASTSource(kernel, types, places), target=target, options={"num_warps": 8})
        print(kernel.__name__, len(compiled.asm["cubin"]))
