"""`trimsft watch`: how trainings are going, from their telemetry.jsonl alone, drawn in letters.

runs/trim  running, 68 %, step 34
  loss                ▇▆▅▄▃▃▂▂▂▁▁▁      0.0123
"""

import itertools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trimsft.data.visible import single_line
from trimsft.options import option
from trimsft.runs import JsonLines, RunDirectory

BLOCKS = "▁▂▃▄▅▆▇█"
FIGURES = ("loss", "nll", "eval_nll", "gap_p50", "mean_weight", "effective_ratio", "skipped", "tokens_per_second")
MOST_RUNS = 12  # of a folder of many, those that wrote last
DEEPEST = 5  # folders between a study and the telemetry of its runs
QUIET = 60.0  # seconds without a line, after which a training is not called running


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """The run to watch, and how long."""

    run: Path = option(help="A run directory, or a folder of several; it may not be there yet.", argument="RUN")
    once: bool = option(False, flags=("--once",), help="Print what there is now, and end.")


def look(folder: Path, width: int) -> tuple[str, bool]:
    """Return the trainings of a folder as text of this width, and whether all of them have ended."""
    found = (folder.glob("*/" * depth + "telemetry.jsonl") for depth in range(DEEPEST + 1))
    paths = sorted(itertools.chain(*found), key=os.path.getmtime)
    if not paths:
        return f"waiting for the first line of a training in {single_line(str(folder))}", False
    trainings = [_training(path, width) for path in paths[-MOST_RUNS:]]
    return "\n".join(text for text, _ in trainings), all(has_ended for _, has_ended in trainings)


def _training(telemetry: Path, width: int) -> tuple[str, bool]:
    """Return one training as text, and whether it has ended."""
    lines = list(JsonLines(telemetry))
    run = RunDirectory(telemetry.parent.parent if telemetry.parent.name == "train" else telemetry.parent)
    state, has_ended, quiet, lock = "running", False, time.time() - telemetry.stat().st_mtime, run.path / ".lock"
    if lines and "train_runtime" in lines[-1]:
        state, has_ended = f"finished after {timedelta(seconds=round(lines[-1]['train_runtime'] or 0))}", True
    elif quiet > QUIET and lock.is_file() and not lock.stat().st_size:
        # whoever leaves empties it; to ask for the lock itself would keep out for a moment who resumes
        state, has_ended = "stopped; rerun its command to resume", True
    elif quiet > QUIET:
        state = f"no line for {timedelta(seconds=round(quiet))}"
    else:
        state += _progress(lines[-1] if lines else {}, run.read_config() or {})
    shown = [f"{single_line(str(run.path))}  {state}, step {lines[-1].get('step', 0) if lines else 0}"]
    for name in FIGURES:
        if values := [line[name] for line in lines if isinstance(line.get(name), int | float)]:
            shown.append(f"  {name:<18}{_curve(values, max(8, width - 32))}  {values[-1]:>10.4g}")
    return "\n".join(shown), has_ended


def _progress(last: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return how far a training is, where config.yaml says how long it is."""
    for name, unit in {"max_steps": "step", "num_train_epochs": "epoch"}.items():
        whole, done = config.get(name), last.get(unit)
        if isinstance(whole, int | float) and whole > 0 and isinstance(done, int | float):
            return f", {100 * done / whole:.0f} %"
    return ""


def _curve(values: Sequence[float], width: int) -> str:
    """Return values as blocks of eight heights, at most so many; each stands for the mean of its share.

    >>> _curve([0, 1, 2, 3, 4, 5, 6, 7], 8), _curve([1, 1, 3, 3], 2), _curve([2, 2], 8)
    ('▁▂▃▄▅▆▇█', '▁█', '▁▁')
    """
    count = min(width, len(values))
    edges = itertools.pairwise(len(values) * place // count for place in range(count + 1))
    means = [sum(values[low:high]) / (high - low) for low, high in edges]
    low, span = min(means), max(means) - min(means)
    return "".join(BLOCKS[round((mean - low) / (span or 1) * (len(BLOCKS) - 1))] for mean in means)
