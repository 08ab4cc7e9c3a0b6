"""Faults from outside: kills, signals, full disks, damaged files, two commands in one folder."""

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from tools.soak.trials import GONE, Lost, Skipped, Trial, require_gone, require_same, require_word, result_of

COMMANDS = ("train", "eval", "tokens", "study")
CODES = {signal.SIGINT: (130,), signal.SIGTERM: (143,), signal.SIGHUP: (129, -signal.SIGHUP)}
"""Who closes a terminal reads no line, so that SIGHUP may also end a command as the system does."""


def kill(trial: Trial, command: str) -> None:
    """Kill a command once or several times, at random moments; then it ends as an undisturbed one."""
    words = trial.bench.words(command)
    for _ in range(trial.rng.choice((1, 1, 2, 3))):
        started = trial.start(words)
        moment = trial.wait_for_moment(started, command)
        started.send(signal.SIGKILL, to_group=trial.rng.random() < 0.5)
        ended = started.wait(GONE)
        trial.did.append(f"killed {moment}" if ended.code == -signal.SIGKILL else f"over before {moment}")
        require_gone(trial, f"{command}, killed {moment}")
    trial.finish(words, command, f"{command}, killed")


def ask_to_end(trial: Trial, command: str) -> None:
    """Send SIGINT, SIGTERM or SIGHUP: one line, the right exit code, nothing left running; and it continues."""
    words, number = trial.bench.words(command), list(CODES)[trial.number % len(CODES)]
    started = trial.start(words)
    while started.is_running(0.005) and not started.handles(signal.SIGTERM):
        pass
    moment = trial.wait_for_moment(started, command)
    started.send(number, to_group=trial.rng.random() < 0.5)  # a terminal signals the group
    ended = started.wait(GONE)
    what = f"{command}, {number.name} {moment}"
    trial.did.append(what)
    if ended.code == -number:  # Python was on its way out, with everything done
        require_same(result_of(trial.out), trial.bench.reference(command).result, f"{what}: ended without a word")
    else:
        require_word(ended, what, (0, *CODES[number]))
    require_gone(trial, what)
    trial.finish(words, command, what)


# ---- full disks: a small tmpfs for each trial, which only root may mount


def _mount(*words: str) -> int:
    return subprocess.run(["mount", *words], check=False, stderr=subprocess.DEVNULL).returncode


def fill_disk(trial: Trial) -> None:
    """Run on a disk that is too small by more or less; with space, the same command goes on to the same result."""
    command, disk = COMMANDS[trial.number % len(COMMANDS)], trial.folder / "disk"
    disk.mkdir()
    folder = trial.bench.reference(command).folder
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    size = max(4, int(total * trial.rng.uniform(0, 1.1)) // 1024)
    if os.geteuid() or _mount("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)):
        raise Skipped("mounting a small disk takes root")
    words, what = trial.bench.words(command, str(disk / "out")), f"{command} on a disk of {size} KiB"
    trial.did.append(what)
    try:
        require_word(trial.run(words), what)
        if _mount("-o", "remount,size=512m", str(disk)):
            raise Skipped("a mounted disk cannot be made larger here")
        trial.finish(words, command, what, disk / "out")
    finally:
        trial.end()
        subprocess.run(["umount", "--lazy", str(disk)], check=False)


# ---- damaged files: the same result or one line, never another result without a word


def _overwrite(content: bytes, rng: random.Random, block: bytes) -> bytes:
    start = rng.randrange(max(1, len(content) - len(block) + 1))
    return content[:start] + block[: len(content)] + content[start + len(block) :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut": lambda content, rng: content[: rng.randrange(len(content) or 1)],
    "zeroed": lambda content, rng: bytes(len(content)),
    "a byte changed": lambda content, rng: _overwrite(content, rng, rng.randbytes(1)),
    "a byte near the start changed": lambda content, rng: _overwrite(content[:512], rng, b"~") + content[512:],
    "a block zeroed": lambda content, rng: _overwrite(content, rng, bytes(4096)),
    "a block of noise": lambda content, rng: _overwrite(content, rng, rng.randbytes(512)),
    "emptied": lambda content, rng: b"",
    "noise appended": lambda content, rng: content + rng.randbytes(64),
}


def damage(trial: Trial, name: str = "") -> str:
    """Damage a file of the trial's folder whose name begins so, and return what was done."""
    files = [path for path in sorted(trial.out.rglob("*")) if path.is_file() and path.name != ".lock"]
    path = trial.rng.choice([one for one in files if one.relative_to(trial.out).as_posix().startswith(name)])
    how = trial.rng.choice([*DAMAGES, "removed"])
    if how == "removed":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[how](path.read_bytes(), trial.rng))
    trial.did.append(f"{path.relative_to(trial.out)} {how}")
    return trial.did[-1]


def require_part(trial: Trial, expected: Path, part: str, what: str) -> None:
    """Raise `Lost` unless what a command calls done is what it was before the damage."""
    try:
        result = result_of(trial.out, part)
    except Exception as error:
        raise Lost(f"{what}: exit code 0, but a file cannot be read ({error!r:.200})") from error
    require_same(result, result_of(expected, part), what)


def damage_checkpoint(trial: Trial) -> None:
    """Damage a training that was killed after a checkpoint: it goes on from what is whole."""
    words, reference = trial.bench.words("train"), trial.bench.reference("train")
    started = trial.start(words)
    while started.is_running(0.005) and not (trial.out / "train/checkpoint-4").exists():
        pass
    started.send(signal.SIGKILL)
    started.wait(GONE)
    what = f"train, {damage(trial)}"
    ended = trial.run(words)
    require_word(ended, what)
    if ended.code == 0:
        require_part(trial, reference.folder, "model/", what)


def damage_result(trial: Trial) -> None:
    """Damage a finished run or sweep, and read it by each command that reads one."""
    bench = trial.bench
    run, sweep = bench.reference("a run").folder, bench.reference("study").folder
    readers = (
        (run, bench.words("train"), "model/", ("model", "manifest", "config")),
        (run, bench.words("eval of a run"), "eval/", ("eval", "eval", "model", "manifest", "config")),
        (run, bench.words("tokens of a run"), "tokens.parquet", ("tokens", "model", "manifest", "config")),
        (run, ["compare", str(run), "out"], "", ("eval",)),
        (run, ["report", "out", "--out", "page"], "", ("eval", "tokens", "train/tele", "manifest", "config")),
        (sweep, bench.words("study"), "sweep.", ("",)),
        (sweep, ["study", "status", "out"], "", ("",)),
    )
    original, words, part, names = readers[trial.number % len(readers)]
    shutil.copytree(original, trial.out)
    undamaged = trial.run(words).out if words[0] == "compare" else ""
    what = f"{words[0]}, {damage(trial, trial.rng.choice(names))}"
    ended = trial.run(words)
    require_word(ended, what)
    if ended.code == 0 and part:
        require_part(trial, original, part, what)
    figures, expected = ([line for line in text.splitlines() if "│" in line] for text in (ended.out, undamaged))
    if ended.code == 0 and words[0] == "compare" and figures != expected:
        raise Lost(f"{what}: other figures than before: {ended.out[-600:]}")


def meet(trial: Trial) -> None:
    """Start a command twice in one folder: one waits, is refused or helps, and the result is that of one."""
    command = COMMANDS[trial.number % len(COMMANDS)]
    words, reference = trial.bench.words(command), trial.bench.reference(command)
    first = trial.start(words)
    seconds = trial.rng.choice((0.0, trial.rng.uniform(0, reference.seconds)))
    first.is_running(seconds)
    what = f"two of {command}, the second after {seconds:.2f} s"
    trial.did.append(what)
    both = [trial.start(words).wait(300), first.wait(300)]
    for ended in both:
        require_word(ended, what)
    if all(ended.code for ended in both):
        raise Lost(f"{what}: both gave up: {both[0].last_line[:200]!r}, {both[1].last_line[:200]!r}")
    require_same(result_of(trial.out), reference.result, what)
