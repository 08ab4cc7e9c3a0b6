"""The fused head against its peers and plain torch; writes JSON.

    python benchmarks/head.py --out results/head_h200.json                                       # shapes of models
    python benchmarks/head.py --out gemma.json --shapes Gemma --only trimsft quack compiled
    python benchmarks/head.py --out mine.json --size 512 256 8192 --device cpu --only trimsft    # a shape of yours

Peers that are not installed are listed with the reason. Inputs are synthetic: `synthetic_head`.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

import torch
from measuring import METHODS, Shape, chosen, compare, machine
from peers import PEERS

SHAPES = (
    Shape("Qwen2.5-1.5B", 8192, 1536, 151_936),
    Shape("Llama-3.1-8B", 8192, 4096, 128_256),
    Shape("SmolLM2-135M", 16_384, 576, 49_152),
    Shape("Gemma-3-270m", 8192, 640, 262_144),
    Shape("Qwen2.5-1.5B, long", 65_536, 1536, 151_936),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", nargs="+", default=[""], help="only shapes whose name contains one of these")
    parser.add_argument("--size", nargs=3, type=int, metavar=("TOKENS", "HIDDEN", "VOCABULARY"), help="only this shape")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="bfloat16 on CUDA, else float32")
    parser.add_argument("--only", nargs="+", default=[""], help="only methods whose name is or contains one of these")
    parser.add_argument("--seconds", type=float, default=0.1, help="time spent on each measurement")
    arguments = parser.parse_args()
    dtype = arguments.dtype or ("bfloat16" if arguments.device.startswith("cuda") else "float32")
    report = {"machine": machine(), "dtype": dtype, "shapes": []}
    torch.backends.cuda.matmul.allow_tf32 = False
    every = [*METHODS, *PEERS]
    names = {method.name for method in every}
    wanted = {
        one.name for part in arguments.only for one in chosen(every, part) if part not in names or one.name == part
    }
    methods = [method for method in every if method.name in wanted]
    for shape in [Shape("yours", *arguments.size)] if arguments.size else SHAPES:
        if not any(part.lower() in shape.name.lower() for part in arguments.shapes):
            continue
        matmul_tflop = 2e-12 * shape.tokens * shape.hidden_size * shape.vocabulary
        entry = {**asdict(shape), "matmul_tflop": matmul_tflop, "results": []}
        report["shapes"].append(entry)
        print(f"\n{shape.name}: {shape.tokens} tokens, hidden {shape.hidden_size}, vocabulary {shape.vocabulary}")
        for result in compare(
            shape, methods, device=arguments.device, dtype=getattr(torch, dtype), seconds=arguments.seconds
        ):
            entry["results"].append(asdict(result))
            if result.failed:
                print(f"  {result.method:45} {result.failed[:110]}", flush=True)
                continue
            errors = "" if result.weight_error is None else (
                f"  errors {result.hidden_error:.1e} {result.weight_error:.1e}"
            )  # fmt: skip
            extra = math.nan if result.extra_gib is None else result.extra_gib
            kept = "" if result.kept is None else f"  kept {result.kept:.3f}"
            print(
                f"  {result.method:45} {result.milliseconds:7.2f} ms ({result.fastest:.2f} to {result.slowest:.2f})"
                f" {extra:6.2f} GiB{errors}{kept}",
                flush=True,
            )
            arguments.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
