"""What is written to disk: whole files or none."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that its name never stands for half of it: beside, to disk, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o644)  # mkstemp makes files that nobody else may read
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
    return path
