"""Commands as processes of their own, to be killed or interrupted half-way."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def start(module: str, *words: str, columns: int = 120) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "COLUMNS": str(columns)}
    return subprocess.Popen(
        [sys.executable, "-m", module, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        start_new_session=True,  # a group of its own, as in a terminal
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=240)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_for(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 240
    while not ready():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
