"""Run every measurement of docs/performance.md that needs a GPU, the GPU tests before them; find what has got slower.

    python benchmarks/gpu.py --out runs/gpu                                # what has no result in the folder yet
    python benchmarks/gpu.py --out runs/gpu --minutes 9 --only tests steps # begin nothing that may take longer
    python benchmarks/gpu.py --out runs/gpu --check --short                # before a change lands: eight minutes
    python benchmarks/gpu.py --out runs/gpu --keep                         # put the results where --check compares

Each part is a process with a limit of its own, whose output is in NAME.log and whose results are in NAME.json of the
folder. What is done there is not done again, so that the same command goes on where a GPU was taken away.

--check compares the speed of each of our methods, as a ratio to the peer that ran beside it, with the last kept result.
What has fallen by more than 5 % runs once more, and is named, with exit code 1, if it fell in both runs:

    FELL  padding, 8 rows: TrimSFT, Liger          1.24 ->  1.11   -10.5 %, again -10.1 %
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LIGER = ("TRL SFT, Liger", "SFT, exact, Liger", "TrimSFT, Liger", "AutoTrim, Liger")
TRIMMED = ("TRL SFT, Liger", "TrimSFT, Liger", "AutoTrim, Liger")
GRAPHS = ("TRL SFT, Liger", "TrimSFT, compile, CUDA graphs", "AutoTrim, compile, CUDA graphs")
COMPILED = ("TRL SFT, compile", "TrimSFT, compile", "AutoTrim, compile")
OURS = ("trimsft", "trimsft:", "sft, exact", "autotrim")
"""How the names of our methods begin, in small letters."""
FALL = 0.05


@dataclass(frozen=True)
class Part:
    """One process; {out} in its words is the file that it writes."""

    name: str
    words: tuple[str, ...]
    seconds: int
    """Limit after which it is stopped."""
    kept: str = ""
    """File of results/ that it is compared with."""
    peer: str = ""
    """The method that speeds are divided by."""
    is_short: bool = False
    """Belongs to --short."""


def step(name: str, seconds: int, *words: str, only: Sequence[str], is_short: bool = True) -> Part:
    """Return a part of `train_step.py`, whose first method is the peer."""
    limit = str(seconds // len(only) + 30)
    words = ("benchmarks/train_step.py", *words, "--limit", limit, "--only", *only, "--out", "{out}")
    return Part(name, words, seconds, "train_step_h200.json", only[0], is_short)


SMOLLM2 = ("--model", "smollm2-135m", "--limit", "128", "--batches", "128", "--max-tokens", "320")
PARTS = (
    Part("tests", ("-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests"), 400, is_short=True),
    step("steps", 300, "--sizes", "1", "4", "16", "--steps", "12", only=LIGER),
    step("steps_padding", 150, "--variant", "padding", "--sizes", "8", "--steps", "12", only=TRIMMED),
    step("steps_packing", 150, "--variant", "packing", "--sizes", "8", "--steps", "12", only=TRIMMED),
    step("steps_lora", 150, "--variant", "lora", "--sizes", "8", "--steps", "12", only=TRIMMED),
    step("steps_lengths", 200, "--variant", "lengths", "--sizes", "8", "--steps", "20", only=TRIMMED),
    step("steps_graphs", 200, "--sizes", "1", "--steps", "16", only=GRAPHS, is_short=False),
    step("steps_compiled", 500, "--sizes", "1", "4", "16", "--steps", "12", only=COMPILED, is_short=False),
    Part(
        "generate", ("benchmarks/generate.py", *SMOLLM2, "--out", "{out}"), 200,
        "generate_h200.json", "generate, 128 x 8 rows",
    ),
    Part("head", ("benchmarks/head.py", "--out", "{out}"), 500, "head_h200.json", "TRL"),
    Part(
        "tokens", ("benchmarks/tokens.py", "--out", "{out}"), 200,
        "tokens_h200.json", "hidden states, logits of trained tokens",
    ),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS, kept: Path = ROOT / "results") -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--only", nargs="+", default=[""], help="parts whose names begin so")
    parser.add_argument("--short", action="store_true", help="GPU tests and training steps alone: eight minutes")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that may take longer")
    parser.add_argument("--check", action="store_true", help="compare with the kept results, and name what fell")
    parser.add_argument("--keep", action="store_true", help="keep the results of the folder; measures nothing")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in parts if part.name.startswith(tuple(options.only)) and part.is_short >= options.short]
    if options.keep:
        for part in chosen:
            keep(part, options.out, kept)
        return 0
    has_failed, fallen = False, []
    for part in chosen:
        outcome = measure(part, options.out, until)
        has_failed |= outcome.startswith("failed")
        print(f"{part.name}: {outcome}", flush=True)
        if options.check and part.kept:
            fallen += check(part, options.out, kept, until)
    if options.check:
        print(f"{len(fallen)} fell by more than {FALL:.0%} in two runs" + "".join(f"\n  {name}" for name in fallen))
    return int(has_failed or bool(fallen))


# ---- measuring


def measure(part: Part, folder: Path, until: float) -> str:
    """Run a part, unless there is a reason not to, and return what became of it."""
    if (folder / f"{part.name}.done").exists():
        return "done before"
    if part.seconds > until - time.monotonic():
        return f"left out for want of time ({part.seconds} s at most)"
    began = time.monotonic()
    failure = run(part, folder)
    seconds = time.monotonic() - began
    if failure is not None:
        return f"failed after {seconds:.0f} s: {failure}"
    (folder / f"{part.name}.done").write_text(f"{seconds:.1f}\n")
    return f"done in {seconds:.0f} s"


def run(part: Part, folder: Path) -> str | None:
    """Run a part from its beginning and return what went wrong, if something did."""
    out = folder.resolve() / f"{part.name}.json"
    out.unlink(missing_ok=True)
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    words = [sys.executable, *(word.format(out=out) for word in part.words)]
    with (folder / f"{part.name}.log").open("w") as log:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(part.seconds)
        except subprocess.TimeoutExpired:
            return "took longer than its limit"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"code {code}, see {part.name}.log" if code else None


# ---- comparing


def speeds(report: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield (place, method, speed) of a result of `train_step.py`, `head.py`, `generate.py` or `tokens.py`.

    A place is where methods can be compared: "padding, 8 rows". What failed has the speed 0.
    """
    for shape in report.get("shapes", ()):  # of head.py
        for row in shape["results"]:
            yield shape["name"], row["method"], 0.0 if row["failed"] else 1 / row["milliseconds"]
    for row in report.get("results", ()):
        place = f"{row['variant']}, {row.get('micro_batch')} rows" if "variant" in row else "all rows"
        yield place, row["method"], row.get("trained_tokens_per_second") or row.get("tokens_per_second") or 0.0


def ratios(report: Mapping[str, Any], peer: str) -> dict[str, float]:
    """Return the best speed of each of our methods at its place, as a ratio to the best of the peer there."""
    best: dict[tuple[str, str], float] = {}
    for place, method, speed in speeds(report):
        best[place, method] = max(speed, best.get((place, method), 0.0))
    return {
        f"{place}: {method}": speed / best[place, peer]
        for (place, method), speed in best.items()
        if method.lower().startswith(OURS) and best.get((place, peer))
    }


def changes(report: Path, kept: Path, peer: str) -> dict[str, tuple[float, float]]:
    """Return the ratio that was kept and the new one, of everything that both have."""
    new, old = (ratios(json.loads(file.read_text()), peer) if file.exists() else {} for file in (report, kept))
    return {name: (old[name], new[name]) for name in new if old.get(name)}


def check(part: Part, folder: Path, kept: Path, until: float) -> list[str]:
    """Print how the ratios of a part have changed; return those that have fallen in two runs."""
    found = changes(folder / f"{part.name}.json", kept / part.kept, part.peer)
    has_fallen = {name for name, (old, new) in found.items() if new < (1 - FALL) * old}
    again: dict[str, tuple[float, float]] = {}
    if has_fallen:
        second = replace(part, name=f"{part.name}_again")
        print(f"{second.name}: {measure(second, folder, until)}", flush=True)
        again = changes(folder / f"{second.name}.json", kept / part.kept, part.peer)
    fallen = []
    for name, (old, new) in found.items():
        change, word = f"{new / old - 1:+7.1%}", ""
        if name in has_fallen and name in again:
            twice = again[name][1] / old - 1
            change += f", again {twice:+.1%}"
            word = "FELL" if twice < -FALL else ""
        elif name in has_fallen:
            word = "once"  # there was no time for a second run
        print(f"{word:5} {name:55} {old:5.2f} -> {new:5.2f}  {change}", flush=True)
        if word == "FELL":
            fallen.append(name)
    return fallen


def keep(part: Part, folder: Path, kept: Path) -> None:
    """Make the result of a part the one to compare with; of training steps, which share a file, cell by cell."""
    source, target = folder / f"{part.name}.json", kept / part.kept
    if not part.kept or not source.exists():
        return
    report = json.loads(source.read_text())
    if part.kept.startswith("train_step") and target.exists():
        before = json.loads(target.read_text())["results"]
        measured = {(row["variant"], row.get("micro_batch"), row["method"]) for row in report["results"]}
        others = [row for row in before if (row["variant"], row.get("micro_batch"), row["method"]) not in measured]
        report["results"] = [*others, *report["results"]]
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{part.name}: kept in {target.name}")


if __name__ == "__main__":
    sys.exit(main())
