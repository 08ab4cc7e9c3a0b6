"""What trials work with: small inputs, the commands that are disturbed, and what they make when nobody disturbs them.

Everything is made once, when a trial first asks for it.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.soak.children import ROOT, Children
from tools.soak.results import result_of

TRAINING = (
    "--per_device_train_batch_size 4 --max_steps 8 --save_steps 2 --save_total_limit 2 --learning_rate 1e-3 "
    "--logging_steps 1 --use_cpu true --disable_tqdm true --report_to none"
)


@dataclass(frozen=True)
class Reference:
    """A command that nobody disturbed."""

    folder: Path
    seconds: float
    changes: int  # how often something changed in its folder, as seen by `watch`
    result: dict[str, Any]


class Made:
    """Things that are made once, whoever asks for them; what could not be made raises again."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._things: dict[str, Any] = {}
        self._locks: dict[str, threading.Lock] = {}
        self.waited = threading.local()

    def once(self, name: str, make: Callable[[Path], Any]) -> Any:
        began, before = time.monotonic(), self.seconds_waited()  # before: making one thing may ask for another
        try:
            return self._once(name, make)
        finally:
            self.waited.seconds = before + time.monotonic() - began

    def seconds_waited(self) -> float:
        """How long this thread has made things, or waited for others to make them."""
        return getattr(self.waited, "seconds", 0.0)

    def _once(self, name: str, make: Callable[[Path], Any]) -> Any:
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name not in self._things:
                folder = self._folder / name
                folder.mkdir(parents=True)
                try:
                    self._things[name] = make(folder)
                except RuntimeError as error:
                    self._things[name] = error
            if isinstance(self._things[name], RuntimeError):
                raise self._things[name]
            return self._things[name]


class Bench:
    """The folder of a campaign: a copy of the source, inputs, references, trials."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder.resolve()
        self.inputs = self.folder / "inputs"
        shutil.copytree(root / "src", self.folder / "copy" / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(root / "recipes", self.folder / "copy" / "recipes")
        self.children = Children(self.folder / "copy" / "src")
        self.made = Made(self.folder / "made")
        self._make_inputs()

    def _make_inputs(self) -> None:
        from trimsft import lab

        self.data = lab.write_training(self.inputs / "train.jsonl", lab.FineTuning(rows=48))
        self.benchmark = lab.write_benchmark(self.inputs / "sums.jsonl", "lab-easy", 6)
        self.base = self.folder / "copy" / "src" / "trimsft" / "lab" / "base"

    def words(self, command: str, out: str = "out") -> list[str]:
        """A command that takes seconds; `out` is where it writes."""
        if command == "train":
            place = ["--model_name_or_path", str(self.base), "--dataset_name", str(self.data), "--output_dir", out]
            return ["train", *place, *TRAINING.split()]
        if command == "eval":
            asked = ["-b", str(self.benchmark), "--samples", "2", "--max-tokens", "64", "--out", out]
            return ["eval", str(self.base), *asked]
        if command == "tokens":
            return ["tokens", str(self.base), "--data", str(self.data), "--limit", "24", "--out", out]
        if command == "study":
            asked = ["--smoke", "--grid", "margin=1,2", "--no-baseline", "--problems", "2"]
            return ["sweep", *asked, "--out", out]
        if command == "quickstart":
            return ["quickstart", "--fast", "--out", out]
        raise KeyError(command)

    def reference(self, command: str) -> Reference:
        """The undisturbed result of a command."""
        return self.made_once(f"reference-{command}", lambda folder: self._refer(command, folder))

    def made_once(self, name: str, make: Callable[[Path], Any]) -> Any:
        """What trials share: made in a folder of its own by the first that asks, while others wait."""
        return self.made.once(name, make)

    def _refer(self, command: str, folder: Path) -> Reference:
        child = self.children.fork(self.words(command), folder)
        changes = sum(1 for _ in watch(folder / "out", lambda: child.is_running(0.002)))
        ended = child.wait(600)
        self.children.end(folder)
        if ended.code:
            raise RuntimeError(f"undisturbed, {command} ends with {ended.code}: {ended.err[-2000:]}")
        return Reference(folder / "out", ended.seconds, changes, result_of(folder / "out"))


def watch(folder: Path, goes_on: Callable[[], bool]) -> Iterator[int]:
    """Count the moments at which something has changed beneath a folder, for as long as something goes on."""
    before, count = _state(folder), 0
    while goes_on():
        now = _state(folder)
        if now != before:
            before, count = now, count + 1
            yield count


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    state = {}
    for path in _walk(folder):
        try:
            facts = path.lstat()
        except OSError:
            continue
        state[str(path)] = (facts.st_size, facts.st_mtime_ns)
    return state


def _walk(folder: Path) -> Iterator[Path]:
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        yield entry
        if entry.is_dir() and not entry.is_symlink():
            yield from _walk(entry)


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True
