"""How commands end: one line, an exit code; Ctrl-C and SIGTERM, also in the background."""

import errno
import logging
import signal
import subprocess
import sys

import pytest
import torch
import typer

from trimsft.cli import terminal
from trimsft.cli.terminal import ending, progress
from trimsft.errors import Interrupted, TrimSFTError, UsageError

IMPORTING = """
import builtins, os, signal, sys
real = builtins.__import__
def at(name, *rest):
    if name == "typer":  # none of the heavy imports before it
        os.kill(os.getpid(), int(sys.argv[1]))
    return real(name, *rest)
builtins.__import__ = at
from trimsft.cli import main
main()
"""
WAITING = """
import time, typer
from trimsft.cli.terminal import ending
from trimsft.errors import end_at_once, handle_signals
def wait():
    with ending():
        print("ready", flush=True)
        time.sleep(60)
handle_signals(end_at_once)
typer.run(wait)
"""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("must be at least 1", field="sample", value=0, hint="leave it out"), 2,
         "--sample: must be at least 1, got 0; leave it out"),
        (TrimSFTError("a name\n of \x1b[2J\x00"), 1, "a name of \\x1b[2J\\x00"),
        (UsageError("is long", field="data", value=["x" * 10**6] * 10**5), 2, ", ...]"),
        (Interrupted(15), 143, "terminated; what is finished is kept; rerun the command to resume"),
        (OSError(errno.ENOSPC, "No space left on device", "out.json"), 1, "No space left on device: 'out.json'"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), 1, "CUDA out of memory."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(error, code, line, capsys) -> None:
    with pytest.raises(typer.Exit) as ended, ending("--{}".format):
        raise error
    output = capsys.readouterr()
    assert (ended.value.exit_code, output.out) == (code, "")
    assert output.err.startswith("trimsft: ") and output.err.count("\n") == 1 and line in output.err


def test_a_bug_keeps_its_traceback_and_warnings_are_printed(capsys) -> None:
    def warn_and_raise() -> None:
        logging.getLogger("trimsft").warning("3 rows are cut")
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"), ending():
        warn_and_raise()
    assert capsys.readouterr().err == "trimsft: 3 rows are cut\n"


SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_signals_end_a_command_that_has_not_begun(number: int, code: int, word: str) -> None:
    """Nothing is raised in the middle of an import."""
    done = subprocess.run([sys.executable, "-c", IMPORTING, str(int(number))], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"trimsft: {word} before anything was begun\n"


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_signals_end_a_command_in_the_background(number: int, code: int, word: str) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a shell does for `command &`
    try:
        child = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        _, said = child.communicate(timeout=60)
    assert (child.returncode, said.decode()) == (
        code,
        f"trimsft: {word}; what is finished is kept; rerun the command to resume\n",
    )


def test_lines_of_progress_come_at_once_then_seldom(monkeypatch, capsys) -> None:
    now = 0.0
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now)
    with progress() as show:
        for second in range(200):
            now = float(second)
            show("one", second, 199)
        show("two", 0, 9)
    said = [line.split(": ")[2].split()[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["0", "30", "60", "90", "120", "150", "180", "199", "0"]
