"""A trial: the commands that it starts and disturbs, and what has to hold afterwards.

A command is a fork of the campaign, which has imported everything: a tenth of a second instead of ten. It leads a
session of its own, by which its workers are known. Everything random in a trial comes from the seed of the campaign,
its kind and its number, so that it can be repeated.
"""

import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORK = multiprocessing.get_context("fork")
MARK = "TRIMSFT_SOAK_TRIAL"
"""A variable that names the trial in the environment of every program that it started, whatever became their parent."""
TIMEOUT = 300.0
"""Seconds after which a command that nobody disturbs has hung."""
GONE = 30.0
"""Seconds in which a command ends that was told to, and in which what it has started ends after it."""
TRAINING = (
    "--per_device_train_batch_size 4 --max_steps 8 --save_steps 2 --save_total_limit 2 --learning_rate 1e-3 "
    "--logging_steps 1 --use_cpu true --disable_tqdm true --report_to none"
)
TIMES = frozenset([
    "time", "tokens_per_second", "train_runtime", "train_samples_per_second", "train_steps_per_second", "seconds",
    "command", "finished", "versions", "platform", "details", "out", "report", "total_flos",
])  # fmt: skip
"""Fields in which two equal runs differ: times, rates, places, machines."""


class Lost(Exception):
    """A promise that a trial saw broken, in one line."""


class Skipped(Exception):
    """Why this machine cannot do a kind of trial."""


# ---- commands


@dataclass(frozen=True)
class Ended:
    """How a command ended: `code` is negative for a signal, None for one that hung and was killed."""

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.err.splitlines()) if line.strip()), "")


class Command:
    """A command that runs in a folder; its output goes to files in logs/."""

    program: Sequence[str] | None = None
    """What is started in the place of a fork of trimsft."""

    def __init__(self, words: Sequence[str], folder: Path, log: str) -> None:
        self._log = folder / "logs" / log
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process = FORK.Process(target=self._become, args=(words, folder))
        self._began = time.monotonic()
        self._process.start()
        self.pid: int = self._process.pid or 0

    def _become(self, words: Sequence[str], folder: Path) -> None:
        """Turn a fork of the campaign into the command."""
        for number, end in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(self._log.with_suffix(end), os.O_WRONLY | os.O_CREAT), number)
        os.setsid()
        os.chdir(folder)
        os.environ[MARK] = str(folder)
        if self.program is not None:
            os.execv(self.program[0], [*self.program, *words])
        sys.argv = ["trimsft", *words]
        from trimsft.cli import main

        main()

    def is_running(self, within: float = 0.0) -> bool:
        """Return whether it still runs, after waiting for its end for a while."""
        end = time.monotonic() + within
        while self._process.exitcode is None and time.monotonic() < end:  # join() would wait for ever for a program
            time.sleep(0.002)
        return self._process.exitcode is None

    def send(self, number: int, *, to_group: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.is_running():
                (os.killpg if to_group else os.kill)(self.pid, number)

    def wait(self, timeout: float) -> Ended:
        """Return how it ended, after killing it where that took too long."""
        has_hung = self.is_running(timeout)
        if has_hung:
            self.send(signal.SIGKILL, to_group=True)
            self._process.join()
        out, err = (self._log.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
        return Ended(None if has_hung else self._process.exitcode, out, err, time.monotonic() - self._began)

    def handles(self, number: int) -> bool:
        """Return whether it has a handler for a signal; before that, the signal does as the system does."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(caught, 16) >> (number - 1) & 1)


# ---- what trials work with


@dataclass(frozen=True)
class Reference:
    """A command that nobody disturbed."""

    folder: Path
    seconds: float
    result: dict[str, Any]


class Bench:
    """Small inputs, the commands that are disturbed, and what they make when nobody disturbs them."""

    def __init__(self, folder: Path) -> None:
        from trimsft import lab

        self.folder = folder.resolve()
        self.data = lab.write_training(self.folder / "train.jsonl", lab.FineTuning(rows=48))
        problems = [{"problem": one.problem, "answer": one.answer} for one in lab.benchmark("lab-easy", 6)]
        self.benchmark = self.folder / "sums.jsonl"
        self.benchmark.write_text("".join(json.dumps(one) + "\n" for one in problems))
        self.base = lab.base_model_path()
        self._references: dict[str, Reference] = {}

    def words(self, command: str, out: str = "out", model: str | None = None) -> list[str]:
        """Return a command that takes seconds; `out` is where it writes."""
        model, data, to = model or str(self.base), str(self.data), ["--out", out]
        training = ["--model_name_or_path", model, "--dataset_name", data, "--output_dir", out, *TRAINING.split()]
        sampling = ["-b", str(self.benchmark), "--samples", "2", "--max-tokens", "64"]
        sweep = ["--smoke", "--grid", "margin=1,2", "--problems", "2"]
        return {
            "train": ["train", *training],
            "eval": ["eval", model, *sampling, *to],
            "tokens": ["tokens", model, "--data", data, "--limit", "24", *to],
            "study": ["sweep", *sweep, *to],
            "eval of a run": ["eval", "out", *sampling],
            "tokens of a run": ["tokens", "out", "--data", data, "--limit", "24"],
        }[command]

    def reference(self, command: str) -> Reference:
        """Return the undisturbed result of a command, or of train, eval and tokens of "a run", made once."""
        if command not in self._references:
            folder = self.folder / f"reference {command} {os.getpid()}"
            folder.mkdir()
            parts = ["train", "eval of a run", "tokens of a run"] if command == "a run" else [command]
            seconds = 0.0
            for part in parts:
                ended = Command(self.words(part), folder, part).wait(TIMEOUT)
                if ended.code:
                    raise RuntimeError(f"undisturbed, {part} ends with {ended.code}: {ended.err[-2000:]}")
                seconds += ended.seconds
            self._references[command] = Reference(folder / "out", seconds, result_of(folder / "out"))
        return self._references[command]


@dataclass
class Trial:
    """One trial: where it works, what it draws from, and what it did."""

    number: int
    folder: Path
    bench: Bench
    rng: random.Random
    did: list[str] = field(default_factory=list)
    sessions: set[int] = field(default_factory=set)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def start(self, words: Sequence[str]) -> Command:
        command = Command(words, self.folder, f"{len(self.sessions)}-{words[0]}")
        self.sessions.add(command.pid)
        return command

    def run(self, words: Sequence[str]) -> Ended:
        ended = self.start(words).wait(TIMEOUT)
        self.did.append(f"{words[0]}: exit code {ended.code}")
        return ended

    def finish(self, words: Sequence[str], command: str, what: str, out: Path | None = None) -> None:
        """Run a disturbed command once more: it ends well, with the result of an undisturbed one."""
        require_word(self.run(words), f"{what}, once more", (0,))
        require_same(result_of(out or self.out), self.bench.reference(command).result, what)

    def wait_for_moment(self, started: Command, command: str) -> str:
        """Wait for a random moment of a command, and return which."""
        seconds = self.rng.uniform(0, self.bench.reference(command).seconds)
        started.is_running(seconds)
        return f"after {seconds:.2f} s"

    def running(self, patience: float = 0.0) -> list[int]:
        """Return the processes that still run after a while, by their session or by their environment."""
        end, mark = time.monotonic() + patience, f"{MARK}={self.folder}".encode()
        while True:
            left = []
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError, ValueError):
                    state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                    is_ours = int(session) in self.sessions or mark in (entry / "environ").read_bytes().split(b"\0")
                    if is_ours and state not in "ZX":
                        left.append(int(entry.name))
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)

    def end(self) -> None:
        for pid in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# ---- results and promises


def result_of(folder: Path, part: str = "") -> dict[str, Any]:
    """Return what a command has made beneath a folder, by name, without times; `part` is how names begin."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    contents = {
        name: _content(path) for name, path in files.items() if name.startswith(part) and "checkpoint-" not in name
    }
    return {name: content for name, content in contents.items() if content is not None}


def _content(path: Path) -> Any:
    if path.suffix in (".safetensors", ".csv", ".tex") or path.name == "problems.jsonl":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        return hashlib.sha256(repr(parquet.read_table(path).to_pydict()).encode()).hexdigest()
    if path.name in ("samples.jsonl", "grades.jsonl", "telemetry.jsonl"):
        lines = [_without_times(json.loads(line)) for line in path.read_text().splitlines()]
        # the order of samples depends on which was faster
        return sorted(lines, key=lambda line: [str(line.get(name)) for name in ("problem", "sample")])
    if path.name in ("scores.json", "sweep.json", "settings.json"):
        return _without_times(json.loads(path.read_text()))
    if path.name == "manifest.json":
        return {"is finished": bool(json.loads(path.read_text()).get("finished"))}
    return None


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(entry) for name, entry in value.items() if name not in TIMES}
    return [_without_times(entry) for entry in value] if isinstance(value, list) else value


def require_word(ended: Ended, what: str, codes: Sequence[int] = (0, 1, 2)) -> None:
    """Raise `Lost` unless a command ended with one of these exit codes, and with a line of ours where that is not 0."""
    last = ended.last_line[:300]
    if ended.code is None:
        raise Lost(f"{what}: still running after {ended.seconds:.0f} s")
    if "Traceback (most recent call last)" in ended.err + ended.out:
        raise Lost(f"{what}: a traceback: {last}")
    if ended.code not in codes:
        raise Lost(f"{what}: exit code {ended.code}: {last}")
    if ended.code > 0 and not last.startswith(("trimsft: ", "Error: ")):
        raise Lost(f"{what}: exit code {ended.code} without a word of ours: {last!r}")


def require_same(result: Mapping[str, Any], expected: Mapping[str, Any], what: str) -> None:
    """Raise `Lost` unless a result is that of an undisturbed run, part by part."""
    for part in sorted({*result, *expected}):
        if part not in result or part not in expected:
            raise Lost(f"{what}: {part} is {'missing' if part in expected else 'not in an undisturbed run'}")
        if result[part] != expected[part]:
            raise Lost(f"{what}: {part} differs from an undisturbed run: {result[part]!r:.200}")


def require_gone(trial: Trial, what: str) -> None:
    """Raise `Lost` if anything of a command is left running."""
    if left := trial.running(GONE):
        names = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
        raise Lost(f"{what}: still running after {GONE:.0f} s: {'; '.join(names)[:300]}")
