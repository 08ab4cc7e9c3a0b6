"""Processes that may be killed: where text of a model meets a computer algebra system, or a pattern of anybody's.

`Pool.ask` returns one word: equal | different | unparsable | timeout. `Pool.find` returns what a pattern finds, and
raises `TimeoutError` where that takes too long. Nothing else is raised for what the text does to a worker: one that
hangs, dies or runs out of memory costs that question alone.
"""

import contextlib
import importlib.util
import json
import os
import queue
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Literal

from trimsft.errors import TrimSFTError

Task = Literal["algebra", "patterns"]

_WORKER = Path(__file__).with_name("worker.py")
_START_SECONDS = 120.0
_GRACE_SECONDS = 0.4
"""After its time a child is ended by the kernel; the whole worker is killed this much later if that failed."""


class Pool:
    """`workers` processes, each started when it is first needed, or before by `start`."""

    def __init__(self, workers: int, memory_bytes: int, task: Task = "algebra") -> None:
        self._workers = [_Worker(memory_bytes, task) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)

    def start(self, most: int) -> None:
        """Start up to `most` workers without waiting for them: their imports take a second or more."""
        for worker in self._workers[:most]:
            worker.start()

    def ask(self, gold: str, answer: str, seconds: float, loose: bool = False) -> str:
        """What math-verify says about two expressions within `seconds`; waits for an idle worker."""
        return self._ask({"gold": gold, "answer": answer, "seconds": seconds, "loose": loose})["said"]

    def find(self, pattern: str, text: str, seconds: float) -> str | None:
        """What the one group of the pattern holds where it matches last; raises `TimeoutError` after `seconds`."""
        reply = self._ask({"pattern": pattern, "text": text, "seconds": seconds})
        if reply["said"] == "timeout":
            raise TimeoutError
        return reply.get("answer")

    def _ask(self, request: dict[str, Any]) -> dict[str, str]:
        worker = self._idle.get()
        try:
            return worker.ask(request)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.finish()


class _Worker:
    """One host process (see worker.py) and the pipe to its child."""

    def __init__(self, memory_bytes: int, task: Task) -> None:
        self._memory_bytes = memory_bytes
        self._task = task
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._pending = b""

    def ask(self, request: dict[str, Any]) -> dict[str, str]:
        process = self._started()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            reply = self._line(process, request["seconds"] + _GRACE_SECONDS)
        except OSError:
            reply = None
        if reply is None:
            self.stop()
            return {"said": "timeout"}
        if "said" in reply:
            return {"said": "timeout"} if reply["said"] == "memory" else reply
        return {"said": "timeout" if reply["died"] in (signal.SIGALRM, signal.SIGKILL) else "unparsable"}

    def start(self) -> subprocess.Popen[bytes]:
        """The running process, started where there is none; it may not be ready yet."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.stop()
        if self._task == "algebra" and importlib.util.find_spec("math_verify") is None:
            raise TrimSFTError("math_verify is not installed", hint="grading needs math-verify==0.9.0")
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER), str(self._memory_bytes), self._task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that host and child can be killed together
        )
        return self._process

    def _started(self) -> subprocess.Popen[bytes]:
        process = self.start()
        if not self._ready and self._line(process, _START_SECONDS) is None:
            self.stop()
            command = f"{sys.executable} {_WORKER} {self._memory_bytes} {self._task}"
            raise TrimSFTError("the grading worker did not start", hint=f"run `{command}` to see why")
        self._ready = True
        return process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        """The next line the worker writes, None after `seconds` or when it is gone."""
        assert process.stdout is not None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return None
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def finish(self) -> None:
        """Let an idle worker end by itself, which reaps its child; kill one that does not."""
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
        self.stop()

    def stop(self) -> None:
        """Kill host and child, if there are any."""
        process, self._process, self._pending, self._ready = self._process, None, b"", False
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
