"""What is launched ends with whoever launched it, and is otherwise a command like any other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.study.launcher import LAUNCHER
from tests.study.running.test_workers import is_running, wait_until_gone
from trimsft.study.running import launching
from trimsft.study.running.launching import launch, tied

PARENT = """
import sys
from trimsft.study.running.launching import launch

launch([sys.executable, "-c", *sys.argv[1:]])
"""
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells nobody of a dead parent")


def test_a_command_has_its_exit_code_input_and_environment(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GIVEN", "here")
    script = "import os, sys; print(os.environ['GIVEN'], sys.stdin.read(), sys.argv[1:]); sys.exit(3)"
    assert launch([sys.executable, "-c", script, "--a", "b c"], input=b"told") == 3
    assert capfd.readouterr().out == "here told ['--a', 'b c']\n"
    assert launch([sys.executable, "-c", "import os; os.abort()"], stderr=subprocess.DEVNULL) == -signal.SIGABRT


@needs_linux
def test_what_is_launched_and_its_ranks_end_with_a_killed_parent(tmp_path: Path) -> None:
    started = tmp_path / "ranks"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, LAUNCHER, str(started)], env=environment)
    while not started.exists():
        assert parent.poll() is None
        time.sleep(0.01)
    launched = [int(pid) for pid in started.read_text().split()]
    assert all(map(is_running, launched))
    parent.kill()
    parent.wait()
    for pid in launched:
        wait_until_gone(pid)


@needs_linux
def test_a_parent_that_is_gone_already_is_noticed(tmp_path: Path) -> None:
    command = tied(
        [sys.executable, "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()", str(tmp_path / "x")]
    )
    command[command.index(str(os.getpid()))] = str(2**30)
    assert subprocess.run(command).returncode == 1 and not (tmp_path / "x").exists()


def test_elsewhere_it_is_a_plain_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching.sys, "platform", "darwin")
    assert tied(["/bin/echo", "x"]) == ["/bin/echo", "x"]
