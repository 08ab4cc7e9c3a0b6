"""Processes that end with the one that launched them, even where that is killed and can ask nobody.

code = launch([sys.executable, "-m", "trimsft", "train", ...])

On Linux a `keeper` stands between: torchrun and accelerate end their ranks when it asks them to, which a signal to the
group of a worker would not reach: each rank leads a session of its own. Elsewhere it is a plain call.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from trimsft.study.running import keeper


def launch(command: Sequence[str], **how: Any) -> int:
    """The exit code of a command, as `subprocess.run` gives it; its first word is a path."""
    return subprocess.run(tied(command), **how).returncode


def tied(command: Sequence[str]) -> list[str]:
    """The command line that ends with this process."""
    if sys.platform != "linux":
        return list(command)
    # a process of its own: what runs between fork and exec here must not take a lock, and there are threads
    return [sys.executable, "-I", "-S", str(keeper.__file__), str(os.getpid()), *command]
