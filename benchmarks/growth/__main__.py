"""Measure how cost grows with size, a process for each size; writes JSON after each, and goes on where it was stopped.

    OMP_NUM_THREADS=1 python -m benchmarks.growth --out results/growth_cpu.json
    python -m benchmarks.growth --only tokens --most 1e7 --out /tmp/growth.json      # series by the start of their name
    python -m benchmarks.growth --device cuda --out growth_gpu.json                  # head and training alone, a minute
    python -m benchmarks.growth --draw results/growth_cpu.json --figure docs/figures/growth_cpu.svg

The largest table has 10^8 tokens: it takes 6 GB of disk while it is made and 2 GB after that, in the folder for
temporary files, and is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.growth.measuring import summary

Measure = Callable[..., dict[str, float]]


@dataclass(frozen=True)
class Series:
    """One thing that is made larger and larger."""

    title: str
    unit: str  # of its sizes
    module: str
    work: str  # a function of that module: (size, folder or device) -> costs
    sizes: tuple[int, ...]
    make: str | None = None  # a function that makes what the work needs, before and in a process of its own
    cuda_sizes: tuple[int, ...] = ()

    def measure(self, function: str, size: int, folder: Path, device: str) -> dict[str, float]:
        from importlib import import_module

        call: Measure = getattr(import_module(f"benchmarks.growth.{self.module}"), function)
        return call(size, device if self.module == "model" else folder)


_TABLES = tuple(10**power for power in range(5, 9))
_RECORDS = (10**3, 10**4, 10**5, 10**6)
_table = partial(Series, module="tokens", sizes=_TABLES, make="make")
_record = partial(Series, module="record", sizes=_RECORDS, make="make")
_head = partial(Series, unit="tokens", module="model", sizes=tuple(2**power for power in range(8, 14)))
SERIES: dict[str, Series] = {
    "head_tokens": _head("head: tokens", work="head_by_tokens", cuda_sizes=tuple(4**power for power in range(5, 9))),
    "head_lean": _head(
        "head, low_memory", work="lean_head_by_tokens", sizes=(), cuda_sizes=tuple(4**power for power in range(5, 9))
    ),
    "head_vocabulary": Series(
        "head: vocabulary",
        "vocabulary",
        "model",
        "head_by_vocabulary",
        tuple(4**power for power in range(6, 10)),
        cuda_sizes=tuple(4**power for power in range(6, 10)),
    ),
    "training_length": Series(
        "training: length",
        "tokens",
        "model",
        "training_by_length",
        tuple(2**power for power in range(8, 13)),
        cuda_sizes=tuple(2**power for power in range(9, 15)),
    ),
    "tokens_table": _table("token table: joining", "tokens", work="write", make=None),
    "tokens_summary": _table("trimsft tokens: summary", "tokens", work="summarise"),
    "tokens_page": _table("report: page", "tokens", work="page"),
    "tokens_tables": _table("report: tables, figures", "tokens", work="analysis"),
    "record_resume": _record("record: what is missing", "samples", work="resume"),
    "record_score": _record("record: scoring", "samples", work="score"),
    "record_again": _record("record: nothing to do", "samples", work="again"),
    "record_compare": _record("compare", "samples", work="compare"),
    "record_page": _record("page of an evaluation", "samples", work="page"),
    "study_cells": Series("study: tables", "cells", "study", "collect", (16, 64, 256, 1000)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write, or to go on with")
    parser.add_argument("--only", nargs="*", default=[""], help="series whose names begin so")
    parser.add_argument("--most", type=float, default=float("inf"), help="no larger sizes")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--folder", type=Path, help="where tables and records are made (default: a temporary one)")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="draw the figure of these results, measure nothing")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.draw is not None:
        from benchmarks.growth.figure import draw

        draw(json.loads(arguments.draw.read_text())).save(arguments.figure, (".svg", ".png"))
    elif arguments.child is not None:
        name, function, size = arguments.child
        print(json.dumps(SERIES[name].measure(function, int(size), arguments.folder, arguments.device)))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            measure_all(arguments, arguments.folder or Path(temporary))


def measure_all(arguments: argparse.Namespace, folder: Path) -> None:
    """Every series that is wanted, every size that is not measured yet."""
    out: Path | None = arguments.out
    report: dict[str, Any] = {"machine": _machine(arguments.device), "series": {}}
    if out is not None and out.exists():
        report = json.loads(out.read_text())
    for name, series in SERIES.items():
        if not name.startswith(tuple(arguments.only)):
            continue
        entry = report["series"].get(name) or {"title": series.title, "unit": series.unit, "points": []}
        for size in series.sizes if arguments.device == "cpu" else series.cuda_sizes:
            if size <= arguments.most and size not in [point["size"] for point in entry["points"]]:
                entry["points"].append({"size": size, **_point(name, series, size, folder, arguments.device)})
                report["series"][name] = fitted(entry)
                print(name, entry["points"][-1], flush=True)
                if out is not None:
                    out.write_text(json.dumps(report, indent=1) + "\n")


def fitted(entry: dict[str, Any]) -> dict[str, Any]:
    """The series with its points in order and the exponents of time and memory."""
    points = sorted(entry["points"], key=lambda point: point["size"])
    sizes = [point["size"] for point in points]
    keys = {"time": "seconds", "memory": "peak_mb", "attention": "attention_seconds", "other": "other_seconds"}
    fits = {name: summary(sizes, points, key) for name, key in keys.items() if key in points[0]}
    return {**entry, "points": points, **fits}


def _point(name: str, series: Series, size: int, folder: Path, device: str) -> dict[str, float]:
    if device == "cuda":
        return series.measure(series.work, size, folder, device)
    for function in filter(None, (series.make, series.work)):
        command = [sys.executable, "-m", "benchmarks.growth", "--folder", str(folder)]
        command += ["--child", name, function, str(size)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    costs: dict[str, float] = json.loads(printed.splitlines()[-1])
    return costs


def _machine(device: str) -> dict[str, str]:
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {"device": name, **versions, "threads": str(torch.get_num_threads())}


if __name__ == "__main__":
    main()
