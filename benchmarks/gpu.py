"""Every measurement of docs/performance.md that needs a GPU, one after the other, and the GPU tests before them.

    python benchmarks/gpu.py --out results                                 # what has no result in the folder yet
    python benchmarks/gpu.py --out results --minutes 9 --only tests steps  # begin nothing that may take longer
    python benchmarks/gpu.py --out results --list

Each is a process with a limit of its own, whose output is in NAME.log and whose results are in NAME.json of the folder.
Started again, those that were done are left out and the others begin anew, so that a GPU that is there for minutes is
used to the end. Hidden states of a training (`stages`) need prepared.npz and SmolLM2.gguf in the folder, which
benchmarks/README.md says how to make.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("SFT, exact, Liger", "TrimSFT, Liger", "AutoTrim, Liger")
PEER = "TRL SFT, Liger"
COMPILED = ("TRL SFT, compile", "TrimSFT, compile", "AutoTrim, compile")
GRAPHS = ("TrimSFT, compile, CUDA graphs", "AutoTrim, compile, CUDA graphs")


@dataclass(frozen=True)
class Part:
    """One process. In its words {folder} is where results are, {out} the file it writes."""

    name: str
    words: tuple[str, ...]
    seconds: int  # after which it is stopped
    needs: tuple[str, ...] = ()  # files of the folder


def step(name: str, seconds: int, *words: str, only: Sequence[str]) -> Part:
    limit = str(seconds // len(only) + 30)
    return Part(
        name, ("benchmarks/train_step.py", *words, "--limit", limit, "--only", *only, "--out", "{out}"), seconds
    )


STATES = ("prepared.npz", "SmolLM2.gguf")
STAGES = (
    "-m", "benchmarks.head_stages", "{folder}/prepared.npz", "--weights", "{folder}/SmolLM2.gguf", "--device", "cuda",
    "--out", "{out}",
)  # fmt: skip
TRIMMED = ("trim", "trim,margin=6,bandwidth=2")
SMOLLM2 = ("--model", "smollm2-135m", "--limit", "128", "--batches", "128", "--max-tokens", "320")
PARTS = (
    Part("tests", ("-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", "tests"), 400),
    Part("stages_start", (*STAGES, "--rows", "192", "--turns", "3", "--objectives", *TRIMMED), 120, STATES),
    step("steps_lengths", 200, "--variant", "lengths", "--sizes", "8", "--steps", "20", only=(PEER, *OURS[1:])),
    step("steps", 300, "--sizes", "1", "4", "16", "--steps", "12", only=(PEER, *OURS)),
    step("steps_profile", 150, "--sizes", "4", "16", "--steps", "8", "--profile", only=("AutoTrim, Liger",)),
    step("steps_graphs", 200, "--sizes", "1", "--steps", "16", only=GRAPHS),
    step("steps_compiled", 500, "--sizes", "1", "4", "16", "--steps", "12", only=COMPILED),
    step("steps_padding", 150, "--variant", "padding", "--sizes", "8", "--steps", "8", only=(PEER, *OURS[1:])),
    step("steps_packing", 150, "--variant", "packing", "--sizes", "8", "--steps", "8", only=(PEER, *OURS[1:])),
    step("steps_lora", 150, "--variant", "lora", "--sizes", "8", "--steps", "8", only=(PEER, *OURS[1:])),
    Part("attention", ("benchmarks/attention.py", "--out", "{out}"), 120),
    Part("generate", ("benchmarks/generate.py", *SMOLLM2, "--out", "{out}"), 200),
    Part("head", ("benchmarks/head.py", "--out", "{out}"), 500),
    Part("stages", (*STAGES, "--rows", "2400"), 300, STATES),
    Part("tokens", ("benchmarks/tokens.py", "--out", "{out}"), 200),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None, parts: Sequence[Part] = PARTS) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--only", nargs="+", default=[""], help="parts whose names begin so")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that may take longer")
    parser.add_argument("--list", action="store_true", help="print what is to be done, and do nothing")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    options.out.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for part in parts:
        if part.name.startswith(tuple(options.only)):
            outcomes[part.name] = consider(part, options.out, until, dry=options.list)
            print(f"{part.name}: {outcomes[part.name]}", flush=True)
    return int(any(outcome.startswith("failed") for outcome in outcomes.values()))


def consider(part: Part, folder: Path, until: float, *, dry: bool) -> str:
    """Run a part, unless there is a reason not to; returns what became of it, in words."""
    missing = [name for name in part.needs if not (folder / name).exists()]
    if (folder / f"{part.name}.done").exists():
        return "done before"
    if missing:
        return f"left out, for want of {' and '.join(missing)}"
    if part.seconds > until - time.monotonic():
        return f"left out, for want of time ({part.seconds} s at most)"
    if dry:
        return f"to do ({part.seconds} s at most)"
    began = time.monotonic()
    failure = run(part, folder)
    seconds = time.monotonic() - began
    if failure is not None:
        return f"failed after {seconds:.0f} s: {failure}"
    (folder / f"{part.name}.done").write_text(json.dumps({"seconds": round(seconds, 1)}) + "\n")
    return f"done in {seconds:.0f} s"


def run(part: Part, folder: Path) -> str | None:
    """What went wrong, if something did. What a part began before is begun anew."""
    out = folder.resolve() / f"{part.name}.json"
    out.unlink(missing_ok=True)
    words = [word.format(folder=folder.resolve(), out=out) for word in part.words]
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1"}
    with (folder / f"{part.name}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(part.seconds)
        except subprocess.TimeoutExpired:
            return "took longer than its limit"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"code {code}, see {part.name}.log" if code else None


if __name__ == "__main__":
    sys.exit(main())
