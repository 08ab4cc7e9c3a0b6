r"""Search responses for somebody's pattern, in a process that can be killed: `(a+)+` may take for ever.

    >>> search = PatternSearch()
    >>> search.find(r"#### (\d+)", "5 + 13 = 18 #### 18", seconds=1.5)
    '18'
    >>> search.close()

The process is this file, run as a script; it reads and writes a line of JSON at a time:

    ["#### (\\d+)", "5 + 13 = 18 #### 18", 1.5]  ->  "18", or null where nothing is found

Past its time the kernel ends it, as no Python code can interrupt `re`; the next question starts another.
"""

import json
import re
import resource
import signal
import subprocess
import sys
import threading

_MEMORY_BYTES = 1 << 30
_LONGEST_ANSWER = 2_001  # characters: one more than any answer that is read


class PatternSearch:
    """One process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def find(self, pattern: str, text: str, seconds: float) -> str | None:
        """Return what the one group of the pattern holds where it matches last and holds something.

        Raises `TimeoutError` past that much processor time, which does not depend on how busy the machine is, or past
        the memory.
        """
        with self._lock:
            try:
                process = self._process or self._start()
                assert process.stdin is not None and process.stdout is not None
                process.stdin.write(json.dumps([pattern, text, seconds]).encode() + b"\n")
                process.stdin.flush()
                reply = process.stdout.readline()
            except BrokenPipeError:
                reply = b""
            except BaseException:  # interrupted: the reply must not be taken for that of the next question
                self.close()
                raise
            if not reply:
                self.close()
                raise TimeoutError
            answer: str | None = json.loads(reply)
            return answer

    def _start(self) -> subprocess.Popen[bytes]:
        from trimsft.errors import TrimSFTError  # the script imports nothing of this package

        command = [sys.executable, "-Iu", __file__]
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the command, which ends this process by closing its pipe
        )
        assert process.stdout is not None
        if not process.stdout.readline():
            self.close()
            hint = f"run `{' '.join(command)}` to see why"
            raise TrimSFTError("the process that searches for patterns did not start", hint=hint)
        return process

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _serve() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    sys.stdout.write("ready\n")
    for line in sys.stdin:
        pattern, text, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = ""
        for match in re.finditer(pattern, text):
            answer = (match[1] or "").strip() or answer
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer[:_LONGEST_ANSWER] or None) + "\n")


if __name__ == "__main__":
    _serve()
