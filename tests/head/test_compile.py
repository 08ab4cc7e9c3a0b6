"""The kernels compile for a GPU, on a machine without one; what they compute is tested elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is for Linux")


def test_kernels_compile_for_hopper() -> None:
    script = Path(__file__).with_name("compile_kernels.py")
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, script, "90"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    compiled = [line.split() for line in done.stdout.splitlines()]
    assert len(compiled) == 14
    assert all(int(size) > 1000 for _, size in compiled)
