"""The kernels compile for a GPU, on a machine without one; what they compute is tested elsewhere.

The file runs itself as a script, because the tests run in a process where Triton interprets kernels.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is for Linux")


def test_kernels_compile_for_hopper() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, __file__, "90"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = [line.split() for line in done.stdout.splitlines()]
    assert len(compiled) == 15
    assert all(int(size) > 1000 for _, size in compiled)


POINTERS = {
    "*bf16": ("logits", "out", "hidden", "weight", "bias", "tensor"),
    "*fp32": (
        *("nll", "gap", "gold_logit", "weights", "normalizer", "factor"),
        *("nll_out", "gap_out", "gold_out", "entropy_out", "weights_out", "norm_out"),
    ),
    "*fp64": ("ledger",),
    "*i32": ("slots", "counts", "rank_out"),
    "*i64": ("labels", "competitor", "competitor_out", "row_of_slot", "rows_out"),
    "fp32": ("logit_scale", "softcap", "first_parameter", "second_parameter", "skip_below"),
}
TYPES = {name: kind for kind, names in POINTERS.items() for name in names}
"""Types of the arguments by name; every other one is an int."""


def variants() -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each kernel with the constants it is compiled for."""
    from trimsft.head import triton_kernels as kernels
    from trimsft.objectives import PAPER_OBJECTIVES

    sizes = {"LANES": 256, "WIDTH": 8, "BLOCK_H": 512, "STAGES": 4}
    for number, name in enumerate(["function", "auto-trim", *PAPER_OBJECTIVES]):
        options = dict.fromkeys(("HAS_BIAS", "HAS_SOFTCAP", "WITH_ENTROPY"), bool(number % 2))
        yield kernels.row_statistics, options | {"WITH_RANK": False, "OBJECTIVE": name} | sizes
    for softcap in (False, True):
        yield kernels.logit_gradients, {"HAS_SOFTCAP": softcap, "BLOCK": 4096}
        ranked = {"HAS_BIAS": True, "HAS_SOFTCAP": softcap, "WITH_ENTROPY": True, "WITH_RANK": True}
        # for the token table, and for an objective that needs ranks
        yield kernels.row_statistics, ranked | {"OBJECTIVE": "function" if softcap else "sft"} | sizes
    for kernel in (kernels.claim_slots, kernels.find_trained, kernels.scale_in_place):
        yield kernel, {"BLOCK": 4096}


def main(capability: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for kernel, constants in variants():
        names = kernel.arg_names
        types = {name: "constexpr" if name in constants else TYPES.get(name, "i32") for name in names}
        if constants.get("WITH_RANK") and constants["OBJECTIVE"] == "sft":
            types["logits"] = "*fp32"  # of the token table; in training they are as they are stored
        places = {(names.index(name),): value for name, value in constants.items()}
        compiled = triton.compile(
            ASTSource(kernel, types, places), target=GPUTarget("cuda", capability, 32), options={"num_warps": 8}
        )
        print(kernel.__name__, len(compiled.asm["cubin"]))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
