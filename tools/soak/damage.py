"""Files that are cut, flipped, emptied or gone: the same result or one line, never another result without a word."""

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from tools.soak.bench import Bench, wait_until
from tools.soak.campaign import Kind, Lost, Trial, require_same, require_told
from tools.soak.children import Ended
from tools.soak.results import result_of

Damage = Callable[[bytes, random.Random], bytes | None]

DAMAGES: dict[str, Damage] = {
    "cut": lambda content, rng: content[: rng.randrange(len(content) or 1)],
    "a bit flipped": lambda content, rng: _flip(content, rng.randrange((len(content) or 1) * 8)),
    "a bit flipped near the start": lambda content, rng: _flip(
        content, rng.randrange(min(512, max(1, len(content))) * 8)
    ),
    "zeroed": lambda content, rng: bytes(len(content)),
    "a block zeroed": lambda content, rng: _overwrite(content, rng, bytes(min(4096, len(content)))),
    "a block of noise": lambda content, rng: _overwrite(content, rng, rng.randbytes(min(512, len(content)))),
    "emptied": lambda content, rng: b"",
    "noise appended": lambda content, rng: content + rng.randbytes(64),
    "removed": lambda content, rng: None,
}


def _flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content or b"\0")
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _overwrite(content: bytes, rng: random.Random, block: bytes) -> bytes:
    start = rng.randrange(max(1, len(content) - len(block) + 1))
    return content[:start] + block + content[start + len(block) :]


def damage(trial: Trial, paths: list[Path]) -> tuple[Path, str]:
    """Damage one of the files; returns which, and how."""
    path = trial.rng.choice(paths)
    how = trial.rng.choice(list(DAMAGES))
    content = DAMAGES[how](path.read_bytes(), trial.rng)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    trial.note(f"{path.relative_to(trial.folder)} {how}")
    return path, how


def files_of(folder: Path, name: str = "") -> list[Path]:
    """The files beneath a folder, or those whose names begin so."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"]
    return [path for path in files if path.relative_to(folder).as_posix().startswith(name)]


def half_trained(bench: Bench) -> Path:
    """A run with two checkpoints, killed on the way."""

    def make(folder: Path) -> Path:
        child = bench.children.fork(bench.words("train"), folder)
        if not wait_until(lambda: (folder / "out/train/checkpoint-4").exists() or not child.is_running(), 120):
            raise RuntimeError("no checkpoint came")
        child.send(signal.SIGKILL)
        child.wait(10)
        if not (folder / "out/train/checkpoint-4").exists() or (folder / "out/model").exists():
            raise RuntimeError(f"not killed half-way: {sorted(folder.rglob('*'))}")
        return folder / "out"

    return bench.made_once("half-trained", make)


def damage_training(trial: Trial) -> None:
    """A run that was killed goes on from what is whole."""
    shutil.copytree(half_trained(trial.bench), trial.folder / "out")
    path, how = damage(trial, files_of(trial.folder / "out"))
    what = f"train, {path.name} {how}"
    reference, ended = trial.bench.reference("train"), trial.run(trial.bench.words("train"))
    require_told(ended, what)
    if ended.code:
        return
    require_same(result_of(trial.folder / "out", "model/"), result_of(reference.folder, "model/"), what)


def trained_and_evaluated(bench: Bench) -> Path:
    """A run directory with everything in it: model, evaluation, token table."""

    def make(folder: Path) -> Path:
        shutil.copytree(bench.reference("train").folder, folder / "out")
        for words in _all_of_a_run(bench):
            ended = bench.children.fork(words, folder).wait(120)
            if ended.code:
                raise RuntimeError(ended.err[-2000:])
        return folder / "out"

    return bench.made_once("evaluated", make)


def _all_of_a_run(bench: Bench) -> list[list[str]]:
    evaluate = ["eval", "out", "-b", str(bench.benchmark), "--samples", "2", "--max-tokens", "64"]
    return [evaluate, ["tokens", "out", "--data", str(bench.data), "--limit", "24"]]


def damage_run(trial: Trial) -> None:
    """A finished run, read by each command that reads one."""
    original = trained_and_evaluated(trial.bench)
    shutil.copytree(original, trial.folder / "out")
    evaluate, tokens = _all_of_a_run(trial.bench)
    readers = {
        "train": (trial.bench.words("train"), "model/", ("model", "manifest", "config")),
        "eval": (evaluate, "eval/", ("eval", "eval", "model", "manifest", "config")),
        "tokens": (tokens, "tokens.parquet", ("tokens", "model", "manifest", "config")),
        "compare": (["compare", str(original), "out"], None, ("eval",)),
        "report": (["report", "out", "--out", "page"], None, ("eval", "tokens", "train/tele", "manifest", "config")),
    }
    reader = list(readers)[trial.number % len(readers)]
    words, part, read = readers[reader]
    path, how = damage(trial, files_of(trial.folder / "out", trial.rng.choice(read)))
    what = f"{reader}, {path.relative_to(trial.folder / 'out')} {how}"
    ended = trial.run(words)
    require_told(ended, what)
    if ended.code == 0 and part is not None:
        _require_part(trial, part, what)
    if ended.code == 0 and reader == "compare":
        expected = trial.bench.made_once("compared", lambda folder: _compare(trial.bench, original, folder))
        if _figures(ended.out) != _figures(expected.out):
            raise Lost(f"{what}: other figures than before: {ended.out[-600:]}")


def _compare(bench: Bench, original: Path, folder: Path) -> Ended:
    """What compare says of an undamaged copy."""
    shutil.copytree(original, folder / "out")
    return bench.children.fork(["compare", str(original), "out"], folder).wait(120)


def _figures(table: str) -> list[str]:
    """The rows of a table, without its frame."""
    return [line for line in table.splitlines() if line.startswith("│")]


def _require_part(trial: Trial, part: str, what: str) -> None:
    """What a command calls done is what it was before the damage."""
    expected = result_of(trained_and_evaluated(trial.bench), part)
    try:
        got = result_of(trial.folder / "out", part)
    except Exception as error:
        raise Lost(f"{what}: exit code 0, but a file cannot be read ({error!r:.200})") from error
    require_same(got, expected, what)


def damage_study(trial: Trial) -> None:
    """A finished sweep, continued or looked at."""
    reference = trial.bench.reference("study")
    shutil.copytree(reference.folder, trial.folder / "out")
    readers = (trial.bench.words("study"), ["study", "status", "out"])
    words = readers[trial.number % len(readers)]
    path, how = damage(trial, files_of(trial.folder / "out"))
    what = f"{words[0]}, {path.relative_to(trial.folder / 'out')} {how}"
    ended = trial.run(words, timeout=300)
    require_told(ended, what)
    if ended.code == 0 and words[0] == "sweep":
        for name in ("sweep.json", "sweep.csv"):
            require_same(result_of(trial.folder / "out", name), {name: reference.result[name]}, what)


KINDS = [
    Kind("damage-checkpoint", damage_training, weight=2.5),
    Kind("damage-run", damage_run, weight=3),
    Kind("damage-study", damage_study, weight=2, how="forks, workers are processes"),
]
