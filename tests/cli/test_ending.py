"""How commands end: one line, an exit code; Ctrl-C and SIGTERM, also in the background."""

import errno
import logging
import pickle
import signal
import subprocess
import sys

import pytest
import torch
import typer

from trimsft.cli.ending import ending
from trimsft.errors import DataError, RunError, RunInUse, Stopped, TrimSFTError, UsageError, WriteError

WAITING = """
import time, typer
from trimsft.cli.ending import ending
from trimsft.signals import end_at_once, heed
def wait():
    with ending({}):
        print("ready", flush=True)
        time.sleep(60)
heed(end_at_once)
typer.run(wait)
"""


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UsageError("must be at least 1", field="sample", value=0, hint="leave it out"), 2,
         "--sample: must be at least 1, got 0; leave it out"),
        (DataError("no row is left", field="data", remedy=("drop", True)), 2, "data: no row is left; set --drop"),
        (UsageError("too long", remedy=("max_length", 64)), 2, "too long; set max_length=64"),
        (RunInUse("runs/trim: in use by process 3"), 2, "runs/trim: in use by process 3"),
        (WriteError("log.jsonl: cannot be written (No space left on device)"), 1, "No space left on device"),
        (TrimSFTError("two\n  lines"), 1, "two lines"),
        (KeyboardInterrupt(), 130, "interrupted; what is done is kept; run the same command again to continue"),
        (Stopped(), 143, "terminated; what is done is kept; run the same command again to continue"),
        (OSError(errno.ENOSPC, "No space left on device", "out.json"), 1, "'out.json': No space left on device"),
        (FloatingPointError("step 3: the loss is nan"), 1, "step 3: the loss is nan"),
        (torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"), 1, "CUDA out of memory."),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, ending({"sample": "--sample", "drop": "--drop"}):
        raise error
    output = capsys.readouterr()
    assert (ended.value.exit_code, output.out) == (code, "")
    assert output.err.startswith("trimsft: ") and output.err.count("\n") == 1 and line in output.err


def _warn_and_raise(error: BaseException) -> None:
    logging.getLogger("trimsft").warning("3 rows are cut")
    raise error


@pytest.mark.parametrize("error", [KeyError("a bug"), RuntimeError("a bug"), ValueError("a bug"), typer.Exit(3)])
def test_a_bug_keeps_its_traceback_and_warnings_are_told(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(type(error)), ending({}):
        _warn_and_raise(error)
    assert capsys.readouterr().err == "trimsft: 3 rows are cut\n"


def test_an_error_crosses_a_process_border_with_its_fields() -> None:
    error = UsageError("must be at least 1", field="sample", value=0, hint="leave it out", remedy=("sample", 1))
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (UsageError, str(error), error.__dict__)
    assert isinstance(copy, ValueError) and not isinstance(copy, RunError)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_that_a_shell_has_put_in_the_background(number: int, code: int) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a shell does for `command &`
    try:
        child = subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        child.send_signal(number)
        _, told = child.communicate(timeout=60)
    assert child.returncode == code
    assert told.startswith(b"trimsft: ") and told.count(b"\n") == 1
