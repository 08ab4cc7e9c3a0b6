"""Full disks and folders that may not be written to: one line, nothing lost, and the same command continues later.

A small tmpfs is mounted for each trial, which only root may do.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.soak.bench import watch
from tools.soak.campaign import Kind, Lost, Skipped, Trial, require_done, require_refused, require_same, require_told
from tools.soak.results import result_of

COMMANDS = ("train", "eval", "tokens", "study")
GOLDEN = 0.6180339887498949
LARGE = "512m"


@contextlib.contextmanager
def small_disk(trial: Trial, size: str) -> Iterator[Path]:
    """A file system of its own at disk/ in the folder of the trial."""
    place = trial.folder / "disk"
    place.mkdir()
    if (
        os.geteuid()
        or shutil.which("mount") is None
        or _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    ):
        raise Skipped("mounting a small disk takes root")
    try:
        yield place
    finally:
        trial.bench.children.end(trial.folder)
        subprocess.run(["umount", "--lazy", str(place)], check=False)


def _mount(*words: str) -> int:
    return subprocess.run(["mount", *words], check=False, stderr=subprocess.DEVNULL).returncode


def fill_by_size(trial: Trial) -> None:
    """A disk that is too small by more or less: sizes are spread evenly over what the command writes."""
    command = COMMANDS[trial.number % len(COMMANDS)]
    reference = trial.bench.reference(command)
    total = sum(path.stat().st_size for path in reference.folder.rglob("*") if path.is_file())
    share = trial.number // len(COMMANDS) * GOLDEN % 1 * 1.1
    size = max(4, int(total * share) // 1024)
    with small_disk(trial, f"{size}k") as disk:
        words = trial.bench.words(command, str(disk / "out"))
        what = f"{command} on a disk of {size} KiB"
        trial.note(what)
        require_told(trial.run(words), what)
        _continue(trial, command, words, disk)


def fill_at_change(trial: Trial) -> None:
    """A disk that another process fills at the moment when a file appears or grows."""
    command = COMMANDS[trial.number % len(COMMANDS)]
    reference = trial.bench.reference(command)
    wanted = trial.rng.randint(1, max(1, reference.changes))
    with small_disk(trial, LARGE) as disk:
        words = trial.bench.words(command, str(disk / "out"))
        child = trial.start(words)
        for count in watch(disk / "out", lambda: child.is_running(0.001)):
            if count == wanted:
                _fill(disk / "others")
                break
        what = f"{command} on a disk that is full at change {wanted} of its folder"
        trial.note(what)
        require_told(child.wait(120), what)
        (disk / "others").unlink(missing_ok=True)
        _continue(trial, command, words, disk)


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        for block in (2**22, 2**12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(block)):
                    pass


def _continue(trial: Trial, command: str, words: list[str], disk: Path) -> None:
    """With space, the same command goes on to the same result."""
    if _mount("-o", f"remount,size={LARGE}", str(disk)):
        raise Skipped("a mounted disk cannot be made larger here")
    require_done(trial.run(words), f"{command} once there is space")
    require_same(result_of(disk / "out"), trial.bench.reference(command).result, f"{command} after a full disk")


def refuse_read_only(trial: Trial) -> None:
    """A disk that turns read-only before or while a command works."""
    command = COMMANDS[trial.number % len(COMMANDS)]
    reference = trial.bench.reference(command)
    wanted = 0 if trial.rng.random() < 0.4 else trial.rng.randint(1, max(1, reference.changes))
    with small_disk(trial, LARGE) as disk:
        words = trial.bench.words(command, str(disk / "out"))
        if not wanted and _mount("-o", "remount,ro", str(disk)):
            raise Skipped("a mounted disk cannot be made read-only here")
        child = trial.start(words)
        is_read_only = not wanted
        for count in watch(disk / "out", lambda: child.is_running(0.001)) if wanted else ():
            if count >= wanted and not _mount("-o", "remount,ro", str(disk)):  # busy while a file is open for writing
                is_read_only = True
                break
        what = f"{command} on a disk that is read-only " + (f"from change {wanted} on" if wanted else "from the start")
        trial.note(what if is_read_only else "never read-only: always busy")
        ended = child.wait(120)
        (require_told if wanted else require_refused)(ended, what)
        _mount("-o", "remount,rw", str(disk))
        _continue(trial, command, words, disk)


def refuse_odd_places(trial: Trial) -> None:
    """An output that cannot be: beneath a file, a folder where a file belongs, a name that is too long."""
    command = COMMANDS[trial.number % len(COMMANDS)]
    (trial.folder / "file").write_text("mine")
    places = ["file", "file/out", "x" * 300, "/proc/out", "/dev/null", "/dev/null/out", "link"]
    (trial.folder / "link").symlink_to("nowhere/at/all")
    place = places[trial.number // len(COMMANDS) % len(places)]
    what = f"{command} into {place[:20]!r}"
    trial.note(what)
    ended = trial.run(trial.bench.words(command, place))
    require_told(ended, what)
    if ended.code == 0 and place != "link":
        raise Lost(f"{what}: exit code 0")
    if (trial.folder / "file").read_text() != "mine":
        raise Lost(f"{what}: the file that stood there was written over")


KINDS = [
    Kind("disk-too-small", fill_by_size, weight=2),
    Kind("disk-filled", fill_at_change, weight=2),
    Kind("disk-read-only", refuse_read_only, weight=1),
    Kind("odd-places", refuse_odd_places, weight=0.5),
]
