"""`python -m tools.soak`: try each kind of fault in turn until the time is over; exit code 1 if anything was lost.

Each loss is printed with the command that repeats it, and its folder is kept.
"""

import argparse
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tools.soak import faults, inputs
from tools.soak.trials import FORK, Bench, Lost, Skipped, Trial

KINDS: dict[str, tuple[int, Callable[[Trial], None]]] = {
    **{f"kill-{name}": (2, partial(faults.kill, command=name)) for name in faults.COMMANDS},
    **{f"signal-{name}": (1, partial(faults.ask_to_end, command=name)) for name in faults.COMMANDS},
    "disk-too-small": (3, faults.fill_disk),
    "damage-checkpoint": (2, faults.damage_checkpoint),
    "damage-result": (5, faults.damage_result),
    "two-at-once": (2, faults.meet),
    "wrong-rows": (9, inputs.wrong_rows),
    "wrong-settings": (8, inputs.wrong_settings),
    "wrong-model": (6, inputs.wrong_model),
}
"""How often a kind is tried in each round, and what tries it once."""
QUIET = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "120",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "CUDA_VISIBLE_DEVICES": "",
}  # fmt: skip


def main(words: Sequence[str] | None = None, make_bench: Callable[[Path], Bench] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description="The fault campaign of trimsft.")
    parser.add_argument("--minutes", type=float, default=30.0, help="no trial begins later (default 30)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6), help="default: drawn")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS), help="only these kinds")
    parser.add_argument("--trial", type=int, metavar="N", help="only this trial of each kind")
    parser.add_argument("--lanes", type=int, default=2, help="trials side by side (default 2)")
    parser.add_argument("--out", type=Path, help="folder of the campaign (default: a temporary one)")
    options = parser.parse_args(words)
    folder: Path = options.out or Path(tempfile.mkdtemp(prefix="trimsft-soak-"))
    folder.mkdir(parents=True, exist_ok=options.out is None)
    began, record = time.monotonic(), folder / "trials.jsonl"
    print(f"seed {options.seed}, {options.minutes:g} minutes; every trial: {record}", flush=True)
    bench = (make_bench or prepare)(folder)
    record.touch()
    if options.trial is None:
        arguments = [(lane, options, began, bench, record) for lane in range(options.lanes)]
        lanes = [FORK.Process(target=run_lane, args=each) for each in arguments]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    else:
        for name in options.only:
            attempt(name, options.trial, options.seed, bench, record)
    trials = [json.loads(line) for line in record.read_text().splitlines()]
    lost = sum(bool(trial["lost"]) for trial in trials)
    print(table(trials))
    print(f"{len(trials)} trials in {(time.monotonic() - began) / 60:.1f} minutes, {lost} lost; seed {options.seed}")
    if not lost and options.out is None:
        shutil.rmtree(folder, ignore_errors=True)
    return int(lost > 0)


def prepare(folder: Path) -> Bench:
    """Import everything, so that a fork need not, and make what trials compare with."""
    import trimsft

    modules = [module.name for module in pkgutil.walk_packages(trimsft.__path__, "trimsft.")]
    for name in ["trl", "peft", "datasets", "matplotlib.pyplot", *modules]:
        with contextlib.suppress(ImportError):  # some packages are optional
            if not name.endswith("__main__"):
                importlib.import_module(name)
    if threading.active_count() > 1:
        raise RuntimeError("a process with threads cannot fork safely")
    gc.collect()
    gc.freeze()  # what is shared stays shared
    atexit.register(gc.unfreeze)  # triton would call it a leak
    bench = Bench(folder)
    for command in (*faults.COMMANDS, "a run"):
        bench.reference(command)
    return bench


def run_lane(lane: int, options: argparse.Namespace, began: float, bench: Bench, record: Path) -> None:
    """Try what falls to one of the lanes, round after round, until the time is over."""
    once = [name for name in options.only for _ in range(KINDS[name][0])]
    random.Random(options.seed).shuffle(once)
    place = lane
    while time.monotonic() - began < 60 * options.minutes:
        turn, within = divmod(place, len(once))
        name = once[within]
        number = turn * once.count(name) + once[:within].count(name)
        attempt(name, number, options.seed, bench, record)
        place += options.lanes


def attempt(name: str, number: int, seed: int, bench: Bench, record: Path) -> None:
    """Try a kind once; the folder of what was lost is kept."""
    folder, began, lost, skipped = bench.folder / f"{name}-{number}", time.monotonic(), "", ""
    folder.mkdir()
    trial = Trial(number, folder, bench, random.Random(f"{seed}/{name}/{number}"))
    try:
        KINDS[name][1](trial)
    except Lost as loss:
        lost = str(loss)
    except Skipped as reason:
        skipped = str(reason)
    finally:
        trial.end()
    seconds = round(time.monotonic() - began, 1)
    result = {"kind": name, "number": number, "did": trial.did, "lost": lost, "skipped": skipped, "seconds": seconds}
    with open(record, "a") as file:
        file.write(json.dumps(result) + "\n")
    if not lost:
        shutil.rmtree(folder, ignore_errors=True)
        return
    repeat = f"python -m tools.soak --only {name} --trial {number} --seed {seed}"
    print(f"LOST {name}: {lost}\n     did: {'; '.join(trial.did)}\n     {repeat}\n     {folder}", flush=True)


def table(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return how often each kind was tried and lost, and the seconds of the longest trial, as Markdown."""
    lines = ["| kind | tried | lost | longest, s |", "|---|--:|--:|--:|"]
    for name in KINDS:
        if mine := [trial for trial in trials if trial["kind"] == name]:
            tried, lost = (sum(not one["skipped"] for one in mine), sum(bool(one["lost"]) for one in mine))
            reason = f", not tried: {mine[-1]['skipped']}" if mine[-1]["skipped"] else ""
            lines.append(f"| {name}{reason} | {tried} | {lost} | {max(one['seconds'] for one in mine):.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    os.environ.update(QUIET)
    raise SystemExit(main())
