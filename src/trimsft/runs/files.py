"""Files that are whole or absent, files that only grow, and fingerprints that tell files apart.

log = JsonLines(Path("runs/trim/train/log.jsonl"))
log.append({"step": 1, "loss": 0.82})
log.keep_until(lambda record: record["step"] > restored_step)
"""

import contextlib
import errno
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trimsft.errors import RunError

SMALL_FILE = 16 * 2**20
SAMPLE = 64 * 2**10
SAMPLES = 64


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that its name never stands for half of it."""
    with written_beside(path) as beside:
        beside.write_bytes(content)
    return path


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; on the way out it goes to disk and takes the name, unless something failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    beside.touch(exist_ok=False)  # with the permissions that the umask leaves, unlike tempfile
    try:
        yield beside
        sync(beside)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that sync no folders
            raise
    finally:
        os.close(descriptor)


class JsonLines:
    """A file of one JSON object per line that only grows; a line that a kill cut short counts as never written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line in one write; it outlives the process from then on."""
        if self._descriptor is None:
            self._descriptor = self._open()
        line = (json.dumps(record) + "\n").encode()
        end = os.fstat(self._descriptor).st_size
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            os.ftruncate(self._descriptor, end)
            raise RunError(f"{self.path}: cannot be written ({error.strerror}); nothing before is lost") from error

    def read(self) -> list[dict[str, Any]]:
        """All whole lines, in order."""
        return [record for _, record in self._lines()]

    def keep_until(self, is_after: Callable[[dict[str, Any]], bool]) -> int:
        """Cut the file before the first record for which `is_after` holds; returns how many lines went."""
        self.close()
        lines = list(self._lines())
        keep = next((index for index, (_, record) in enumerate(lines) if is_after(record)), len(lines))
        if keep < len(lines):
            write_whole(self.path, b"".join(line + b"\n" for line, _ in lines[:keep]))
        return len(lines) - keep

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        whole = sum(len(line) + 1 for line, _ in self._lines())
        size = os.fstat(descriptor).st_size
        if size < whole:  # the last line lacks nothing but its end
            os.write(descriptor, b"\n")
        elif size > whole:
            os.ftruncate(descriptor, whole)
        return descriptor

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        lines = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line)
            except ValueError as error:
                if number < len(lines):
                    raise RunError(f"{self.path}, line {number}: not JSON ({error}); restore or remove it") from error
                return
            # an object cannot be cut short and still parse, a bare number can
            if not isinstance(record, dict):
                raise RunError(f"{self.path}, line {number}: holds {line[:40]!r}, not a JSON object; remove it")
            yield line, record


def fingerprint_file(path: Path) -> str:
    """SHA-256 of the whole file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def fingerprint_folder(path: Path) -> str:
    """SHA-256 over the files of a folder: names, sizes, contents; the order on disk and hidden files do not count.

    Of a file above 16 MiB, 64 samples of 64 KiB are read, spread evenly from its first byte (of safetensors the
    header) to its last: enough to tell a model from its fine-tuned copy in milliseconds, no proof of equality.
    """
    if not path.is_dir():
        raise RunError(f"{path}: not a folder, so it has no fingerprint; give the folder of a model or data set")
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{file.stat().st_size}\0{_sample_file(file)}\n".encode())
    return digest.hexdigest()


def _sample_file(path: Path) -> str:
    size = path.stat().st_size
    if size <= SMALL_FILE:
        return fingerprint_file(path)
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for sample in range(SAMPLES):
            file.seek((size - SAMPLE) * sample // (SAMPLES - 1))
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()
