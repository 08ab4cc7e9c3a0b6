"""Processes of our own: what crosses their border, and how they end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import ROOT
from trimsft.data.templates import TemplateError
from trimsft.errors import DataError, RunInUse, TrimSFTError, UsageError
from trimsft.processes import Child, error_as_data, error_from


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (RunInUse("is in use", hint="wait"), RunInUse, "device cuda:1: is in use; wait"),
        (UsageError("is odd", field="top", value=None), UsageError, "top: is odd, got None"),
        (DataError("3 rows", field="data", remedy=("drop_incomplete", True)), DataError, "drop_incomplete=True"),
        (TemplateError("is odd", field="template", value="x"), UsageError, "template: is odd, got 'x'"),
        (OSError("No space"), TrimSFTError, "device cuda:1: No space"),
    ],
)
def test_errors_cross_as_data(error: Exception, kind: type[TrimSFTError], says: str) -> None:
    restored = error_from(json.loads(json.dumps(error_as_data(error))), where="device cuda:1")
    assert type(restored) is kind and says in str(restored)
    if isinstance(error, TrimSFTError):
        assert [restored.field, restored.hint, restored.remedy] == [error.field, error.hint, error.remedy]


ECHO = """
from trimsft.processes import answers, messages
say = answers()
print("a library prints this")
say(**next(messages()))
"""


def test_what_is_printed_is_no_answer_and_the_process_may_end_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader of messages still waits then, which must not make Python abort."""
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("echo")
    child.send({"rows": ["x" * 1_000_000]})
    assert child.read() == {"rows": ["x" * 1_000_000]} and child.read() is None
    assert (child.wait(), child.last_words()) == (0, "a library prints this")
    child.close()


def test_a_process_ends_with_whoever_started_it() -> None:
    child = 'Child("trimsft.evaluate.engines.several")'
    code = f"from trimsft.processes import Child; print({child}.pid, flush=True); input()"
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    starter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    starter.kill()
    starter.communicate()
    end = time.monotonic() + 60
    while _runs(pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
