"""What it costs an update that AutoTrim follows the gaps: beside the weights, which the head computes in its kernel.

    python benchmarks/following.py --device cuda --out following.json

Milliseconds of what is added to an update of one micro-batch: counting its tokens, moving the state on, and looking up
the gate of each token. By the clock of the host, which launches some dozens of small kernels; the device is waited for
at the end of all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from measuring import machine

from trimsft.objectives import AutoTrim, TokenStats

REPEATS, UPDATES = 5, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    results = [measure(tokens, options.device) for tokens in (2048, 8192, 32_768)]
    options.out.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")


def measure(tokens: int, device: str, fixed: int = 3) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    gap = (4 * torch.randn(tokens, generator=generator)).to(device)
    gold = torch.randint(1000, (tokens,), generator=generator).to(device)
    stats = TokenStats(nll=gap.abs(), gap=gap, gold_logit=gap, competitor=gold, gold=gold)
    objective = AutoTrim(fixed=tuple(range(fixed)))
    seconds = []
    for _ in range(REPEATS + 1):  # the first loads kernels
        start = time.perf_counter()
        for update in range(UPDATES):
            objective = objective.advance(update / UPDATES, objective.sums(stats))
            objective.gates(stats.nll, stats.gold)
            objective.exponent_now(stats.nll)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / UPDATES)
    result = {"tokens": tokens, "fixed": fixed, "milliseconds": 1000 * statistics.median(seconds[1:])}
    print(json.dumps(result), flush=True)
    return result


if __name__ == "__main__":
    main()
