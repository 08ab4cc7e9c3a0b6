"""Processes of a trial: started, watched, signalled, waited for, and all of them gone at the end.

Two kinds with one face: forks of a server that has imported everything (a tenth of a second), and real processes,
`python -m trimsft ...` (ten seconds of imports). The campaign is the reaper of both (PR_SET_CHILD_SUBREAPER): what a
process leaves behind becomes a child of the campaign, and is found.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
MARK = (
    "TRIMSFT_SOAK_TRIAL"  # names the trial in the environment of each of its processes, whatever becomes their parent
)
QUIET = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "120",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0",
}  # fmt: skip


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int  # negative for a signal; HUNG for one that had to be killed
    out: str
    err: str
    seconds: float

    @property
    def last_line(self) -> str:
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1] if lines else ""


HUNG = -1000


class Child:
    """A process, the leader of a session of its own; its output goes to files."""

    def __init__(self, pid: int, log: Path, process: "subprocess.Popen[bytes] | None" = None) -> None:
        self.pid, self._log, self._process = pid, log, process
        self._descriptor = os.pidfd_open(pid)
        self.began = time.monotonic()
        self._ended: Ended | None = None

    def is_running(self, within: float = 0.0) -> bool:
        """Whether it still runs, after waiting for its end for a while."""
        if self._ended is not None:
            return False
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(max(0.0, within) * 1000)

    def send(self, number: int, *, to_group: bool = False) -> None:
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if to_group else os.kill)(self.pid, number)

    def wait(self, timeout: float) -> Ended:
        """How it ended; one that does not within `timeout` is killed and called hung."""
        if self._ended is None:
            is_hung = self.is_running(timeout)
            if is_hung:
                self.send(signal.SIGKILL, to_group=True)
            code = self._reap()
            out, err = (self._log.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
            os.close(self._descriptor)
            self._ended = Ended(HUNG if is_hung else code, out, err, time.monotonic() - self.began)
        return self._ended

    def _reap(self) -> int:
        if self._process is not None:
            return self._process.wait()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Children:
    """Starts processes, forked or real; a context that leaves none behind."""

    def __init__(self, source: Path = ROOT / "src") -> None:
        self._source = source
        self._lock = threading.Lock()
        self._server: subprocess.Popen[str] | None = None
        self._sessions: dict[Path, set[int]] = {}  # of the processes of each trial

    def __enter__(self) -> "Children":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return self

    def __exit__(self, *failure: object) -> None:
        self.end_all()
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        if self._server is not None:
            assert self._server.stdin is not None and self._server.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._server.stdin.close()
            self._server.wait(30)
            self._server.stdout.close()

    def fork(self, words: Sequence[str], folder: Path, log: str = "log", **environment: str) -> Child:
        """`trimsft WORDS` in a folder, forked with everything imported."""
        place = _open_log(folder, log)
        request = {
            "words": list(map(str, words)),
            "environment": {MARK: str(folder), **environment},
            "folder": str(folder),
            "out": str(place.with_suffix(".out")),
            "err": str(place.with_suffix(".err")),
        }
        with self._lock:
            server = self._start_server()
            assert server.stdin is not None and server.stdout is not None
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            pid = server.stdout.readline()
        if not pid.strip():
            raise RuntimeError("the fork server has ended")
        self._sessions.setdefault(folder, set()).add(int(pid))
        return Child(int(pid), place)

    def start(
        self, words: Sequence[str], folder: Path, log: str = "log", *, program: Sequence[str] = (), **environment: str
    ) -> Child:
        """`python -m trimsft WORDS` as anybody starts it; `program` stands in the place of trimsft."""
        place = _open_log(folder, log)
        command = [sys.executable, "-m", *(program or ["trimsft"]), *map(str, words)]
        with open(place.with_suffix(".out"), "wb") as out, open(place.with_suffix(".err"), "wb") as err:
            process = subprocess.Popen(
                command, cwd=folder, env=self._environment({MARK: str(folder), **environment}), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        self._sessions.setdefault(folder, set()).add(process.pid)
        return Child(process.pid, place, process)

    def running(self, folder: Path, patience: float = 0.0) -> list[int]:
        """The processes of a trial that still run after a while: by their session, or by their environment."""
        end, mark = time.monotonic() + patience, f"{MARK}={folder}".encode()
        sessions = self._sessions.get(folder, set())
        while True:
            alive = [one for one in _stats() if one.state not in "ZX"]
            left = [one.pid for one in alive if one.session in sessions or _has_mark(one.pid, mark)]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.1)

    def end(self, folder: Path) -> None:
        """Kill what is left of a trial, and bury what has become a child of the campaign."""
        for pid in self.running(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sessions = self._sessions.pop(folder, set())
        for one in _stats():
            if one.session in sessions and one.parent == os.getpid() and one.pid not in sessions:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)

    def end_all(self) -> None:
        for folder in list(self._sessions):
            self.end(folder)

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join([str(self._source), str(ROOT)]), **more}

    def _start_server(self) -> "subprocess.Popen[str]":
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tools.soak.forks"], cwd=ROOT, env=self._environment({}), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            assert self._server.stdout is not None
            if self._server.stdout.readline().strip() != "ready":
                raise RuntimeError("the fork server did not start")
        return self._server


def _open_log(folder: Path, log: str) -> Path:
    """Empty files for the output of a process, beside what it works on."""
    place = folder / "logs" / log
    place.parent.mkdir(parents=True, exist_ok=True)
    for end in (".out", ".err"):
        place.with_suffix(end).write_bytes(b"")
    return place


@dataclass(frozen=True)
class _Stat:
    pid: int
    state: str
    parent: int
    session: int


def _stats() -> Iterator[_Stat]:
    """Every process of the machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                yield _Stat(int(entry.name), words[0], int(words[1]), int(words[3]))


def _has_mark(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def command_of(pid: int) -> str:
    """The command line of a process, for a message."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "gone by now"
