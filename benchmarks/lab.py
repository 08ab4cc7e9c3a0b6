"""When does trimming help? The quickstart under several conditions and seeds; writes the raw scores and a table.

    python benchmarks/lab.py --out runs/lab --results results/lab_cpu.json
    python benchmarks/lab.py --out runs/lab-32m --base runs/base-32m --device cuda --workers 6 --rows 9600 \
        --problems 100 --results results/lab_h200.json

A condition changes one thing of the quickstart's settings. Every condition and seed is an ordinary quickstart folder
below --out: stopped, the same command continues. Intervals are over seeds and problems (`scoring.run_intervals`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from measuring import machine
from rich.console import Console

from trimsft.cli.study import quickstart_progress
from trimsft.evaluate.scores import over_runs
from trimsft.intervals import Interval
from trimsft.quickstart import QuickstartSettings, run_quickstart

CONDITIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "clean": {"slip_rate": 0.0, "filler_rate": 0.0},
    "slips 10 %": {"slip_rate": 0.1},
    "slips 20 %": {"slip_rate": 0.2},
    "no slips, filler 50 %": {"slip_rate": 0.0, "filler_rate": 0.5},
    "half unfamiliar": {"unfamiliar_share": 0.5},
    "all unfamiliar": {"unfamiliar_share": 1.0},
    "wide band (4, 3)": {"margin": 4.0, "bandwidth": 3.0, "methods": ("sft", "dft", "trim", "trim-e", "trim-h")},
}
METRICS = ("average", "greedy")


def main() -> int:
    options = _parser().parse_args()
    shared = QuickstartSettings(
        rows=options.rows,
        problems=options.problems,
        learning_rate=options.learning_rate,
        base=options.base or "",
        device=options.device,
        workers=options.workers,
    )
    console, failed, found = Console(stderr=True), False, {}
    for name in options.conditions:
        found[name] = {}
        for seed in options.seeds:
            folder = options.out / f"{''.join(c if c.isalnum() else '-' for c in name)}-{seed}"
            settings = replace(shared, seed=seed, out=folder, **CONDITIONS[name])
            console.print(f"{name}, seed {seed}: {folder}")
            with quickstart_progress(settings, console) as progress:
                outcome = run_quickstart(settings, on_event=progress)
            failed |= bool(outcome.failures()) or outcome.results is None
            if outcome.results is not None:
                found[name][seed] = outcome.results.scores
        _write(options.results, options, found)
    print(_table(found))
    return 1 if failed else 0


def _write(path: Path, options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    content = {
        "machine": machine(),
        "settings": {
            "seeds": options.seeds,
            "rows": options.rows,
            "problems": options.problems,
            "learning_rate": options.learning_rate,
            "base": Path(options.base).name if options.base else "the lab's own",
            "device": options.device,
        },
        "conditions": {name: _told(CONDITIONS[name], seeds) for name, seeds in found.items()},
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _told(condition: Mapping[str, Any], seeds: Mapping[int, Any]) -> dict[str, Any]:
    """Of each method: the mean over seeds with its interval, and each seed's own mean over tiers."""
    methods = list(next(iter(seeds.values()))) if seeds else []
    told: dict[str, Any] = {"changes": {key: value for key, value in condition.items() if key != "methods"}}
    for method in methods:
        runs = [scores[method] for scores in seeds.values() if method in scores]
        told[method] = {
            metric: {
                **over_runs(runs, metric).as_dict(),
                "seeds": [sum(s.interval(metric).value for s in scores) / len(scores) for scores in runs],
            }
            for metric in METRICS
        }
    return told


def _table(found: Mapping[str, Any]) -> str:
    """Markdown: conditions as rows, methods as columns, average@8 / greedy in %."""
    methods: list[str] = []
    for seeds in found.values():
        for scores in seeds.values():
            methods += [name for name in scores if name not in methods]
    lines = [f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
    for name, seeds in found.items():
        cells = []
        for method in methods:
            runs = [scores[method] for scores in seeds.values() if method in scores]
            means = [over_runs(runs, metric) for metric in METRICS] if runs else []
            cells.append(" / ".join(map(_cell, means)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Interval) -> str:
    return f"{100 * found.value:.1f} ± {50 * (found.high - found.low):.1f}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), choices=list(CONDITIONS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=QuickstartSettings().rows)
    parser.add_argument("--problems", type=int, default=QuickstartSettings().problems)
    parser.add_argument("--learning-rate", type=float, default=QuickstartSettings().learning_rate)
    parser.add_argument("--base", default=None, help="folder of another base model of the lab")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int, default=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
