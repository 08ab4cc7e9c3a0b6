"""What to do after a quickstart: the commands behind it, to be run as they are printed.

    print(next_commands(folder, {"sft": folder / "sft"}, program="trimsft", max_tokens=128, seconds={}))

They repeat two of its trainings and a small evaluation, so they end in minutes wherever the quickstart did.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimsft import lab

BASELINE, OURS = "sft", "auto-trim"
BENCHMARK, PROBLEMS = "lab-medium", 16
ROWS = 100  # whose tokens are measured
_START = 10  # seconds that a command takes to begin, on a small machine


def next_commands(
    folder: Path,
    trained: Mapping[str, Path],
    *,
    program: str,
    max_tokens: int,
    seconds: Mapping[str, Mapping[str, float]],
) -> str:
    """The commands, and how long they take here.

    Args:
        folder: of the quickstart.
        trained: its methods and their run directories; two of them are trained again and compared.
        program: how the program is called in the user's shell.
        max_tokens: how long the answers of this model may become.
        seconds: what each method took, by step, where that was measured.
    """
    pair = [name for name in (BASELINE, OURS) if name in trained]
    pair = (pair + [name for name in trained if name not in pair])[:2]
    commands = _commands(folder, [trained[name] for name in pair], max_tokens)
    lines = [f"Next: the same by hand, {_duration(pair, seconds, len(commands))}. Each line can be run as it stands."]
    lines += [f"  {program} {shlex.join(words)}" for words in commands]
    lines.append("Then with your own model and data, one problem and one solution a line:")
    lines.append(f"  {program} tokens MODEL --data DATA.jsonl --sample 200")
    lines.append("It says whether the model supports the data, and prints the command that trains it.")
    return "\n".join(lines)


def _commands(folder: Path, pair: Sequence[Path], max_tokens: int) -> list[list[str]]:
    data, look = str(folder / "data" / "train.jsonl"), str(folder / "look")
    runs = [str(folder.parent / f"my-{run.name}") for run in pair]
    train = [["train", "--config", str(run / "config.yaml"), "--out", out] for run, out in zip(pair, runs, strict=True)]
    asked = ["-b", BENCHMARK, "--limit", str(PROBLEMS), "--max-tokens", str(max_tokens)]
    return [
        ["tokens", _short(lab.base_model_path()), "--data", data, "--sample", str(ROWS), "--out", look],
        ["report", look, "--out", look],
        [*train[0], "--dry-run"],
        *train,
        *(["eval", run, *asked] for run in runs),
        *([["compare", *runs]] if len(runs) > 1 else []),
    ]


def _short(path: Path) -> str:
    """As seen from here, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def _duration(pair: Sequence[str], seconds: Mapping[str, Mapping[str, float]], commands: int) -> str:
    if not all({"train", "evaluate"} <= seconds.get(name, {}).keys() for name in pair):
        return "in minutes"  # the trainings were there already
    work = sum(seconds[name]["train"] + seconds[name]["evaluate"] / 2 for name in pair)
    minutes = math.ceil((work + _START * commands) / 60)
    return f"about {minutes} minute{'' if minutes == 1 else 's'} on this machine"
