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

from trimsft.errors import RunError, UsageError, WriteError
from trimsft.options import unknown_name
from trimsft.runs.parsing import parse_json

SAMPLE = 64 * 2**10
SAMPLES = 256


# ---- files that are whole or absent


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that its name never stands for half of it."""
    with written_beside(path) as beside:
        beside.write_bytes(content)
    return path


@contextlib.contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yield a name to write to; on the way out the file becomes `path`, unless something failed."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.open("xb").close()  # with the permissions that the umask leaves, unlike tempfile
        yield beside
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    except OSError as error:
        if error.filename not in (None, str(beside), beside, str(path.parent)):  # what the caller was reading
            raise
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def publish(beside: Path, folder: Path) -> None:
    """Give a folder that was filled `beside` its name, its files on disk and readable."""
    for path in beside.iterdir():
        path.chmod(beside.stat().st_mode & 0o666)  # safetensors: the owner alone
        sync(path)
    beside.rename(folder)
    sync(folder.parent)


def _cannot_write(path: Path, error: OSError) -> WriteError:
    return WriteError(f"{path}: cannot be written ({error.strerror or error}); nothing before is lost")


def refuse_links(*paths: Path) -> None:
    """Refuse a place that is a link or holds one: from elsewhere it may lead to any file."""
    for path in paths:
        if path.is_symlink():
            hint = "replace it by what it leads to, or choose another output directory"
            raise RunError(f"{path}: is a link, which is not written through", hint=hint)
        with contextlib.suppress(FileNotFoundError):  # another process may tidy up meanwhile
            refuse_links(*path.glob("*"))


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


# ---- files that only grow


class JsonLines:
    """A file of one JSON object a line that only grows; a line cut short was never written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line in one write; it outlives the process from then on."""
        line = (json.dumps(record) + "\n").encode()
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            self.close()  # the next to open it cuts off what is there of the line
            raise _cannot_write(self.path, error) from error

    def _open(self) -> int:
        """Open the file for appending, without a last line that was cut short."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        os.ftruncate(descriptor, sum(len(line) for line, _ in self._lines()))
        return descriptor

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the whole lines in order, one at a time."""
        return (record for _, record in self._lines())

    def keep_until(self, is_after: Callable[[dict[str, Any]], bool]) -> int:
        """Cut the file before the first record that `is_after` holds for; return how many went."""
        self.close()
        lines = list(self._lines())
        keep = next((index for index, (_, record) in enumerate(lines) if is_after(record)), len(lines))
        if keep < len(lines):
            write_whole(self.path, b"".join(line for line, _ in lines[:keep]))
        return len(lines) - keep

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        if not self.path.exists():
            return
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    record = dict[str, Any](**parse_json(line))
                except (TypeError, ValueError) as error:
                    problem = f"{self.path}, line {number}: not a JSON object ({error})"
                    raise RunError(problem, hint="restore or remove it") from error
                yield line, record


# ---- what is read


def fingerprint_file(path: Path) -> str:
    """Return the SHA-256 of the whole file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint_folder(path: Path) -> str:
    """Return the SHA-256 of a folder: names, sizes and contents of all but hidden files.

    Of a file at most 256 samples of 64 KiB are read, spread evenly from its first byte to its last:
    enough to tell a model from its fine-tuned copy, no proof of equality.
    """
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            size = file.stat().st_size
            digest.update(f"{name.as_posix()}\0{size}\0".encode())
            with open(file, "rb") as opened:
                samples = min(SAMPLES, -(-size // SAMPLE))
                for number in range(samples):
                    opened.seek(max(0, size - SAMPLE) * number // max(1, samples - 1))
                    digest.update(opened.read(SAMPLE))
    return digest.hexdigest()


# ---- files that come with the package: recipes, examples, and the versions it is tested with

PLACES = ("recipes", "examples", "constraints.txt")
"""What comes with the package, by its place in the repository; pyproject.toml puts the same into the wheel."""
PACKAGE = Path(__file__).parents[1]


def list_shipped() -> dict[str, Path]:
    """Return every file by its name, of a wheel or of a checkout; recipes first."""
    root = PACKAGE if (PACKAGE / PLACES[0]).is_dir() else PACKAGE.parents[1]
    paths = [path for place in PLACES for path in (root / place, *(root / place).rglob("*"))]
    paths.sort(key=lambda path: (path.suffix != ".yaml", len(path.parts), path.as_posix()))
    return {p.relative_to(root).as_posix(): p for p in paths if p.is_file() and p.parent.name != "__pycache__"}


def find_recipe(name: str, *, field: str = "recipe") -> Path:
    """Return a file here, or a recipe that is shipped; an error is about `field`."""
    if Path(name).exists():
        return Path(name).resolve()
    recipes = {_short(one): path for one, path in list_shipped().items() if path.suffix == ".yaml"}
    if _short(name) not in recipes:
        hint = unknown_name(field, name, [one for one in recipes if "/" not in one]).hint
        raise UsageError("no such file, and no recipe of that name", field=field, value=name, hint=hint)
    return recipes[_short(name)]


def copy_shipped(folder: Path) -> list[Path]:
    """Copy every file to where the repository has it; refuse to replace one."""
    copies = {folder.expanduser() / name: path.read_bytes() for name, path in list_shipped().items()}
    if there := [str(path) for path in copies if path.exists()]:
        raise UsageError(f"{there[0]!r} is there already", field="out", hint="name another folder")
    for path, content in copies.items():
        write_whole(path, content)
    return list(copies)


def _short(name: str) -> str:
    return name.removeprefix("recipes/").removesuffix(".yaml")
