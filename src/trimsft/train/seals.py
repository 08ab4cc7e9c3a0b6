"""The seal of a checkpoint, a list of its files with their hashes that is written last; and what is wrong with one.

    complete.json: {"step": 60, "files": {"model.safetensors": {"bytes": 269060552, "sha256": "9f2c..."}, ...}}

Other trainers seal nothing: of such a checkpoint the files are opened, and what was packed with checksums is compared
with them.
"""

import functools
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePath

from safetensors import safe_open
from transformers import TrainerState

from trimsft.errors import one_line
from trimsft.runs import fingerprint_file, sync, write_whole
from trimsft.runs.parsing import parse_json, read_json

SEAL = "complete.json"
STATE_FILE = "trainer_state.json"
PLAIN = "without FSDP and DeepSpeed"
LAYOUTS = {
    "global_step*": "with DeepSpeed",
    "pytorch_model_fsdp.bin": "with FSDP (FULL_STATE_DICT)",
    "pytorch_model_fsdp_0": "with FSDP (SHARDED_STATE_DICT)",
    "pytorch_model_fsdp_rank0.bin": "with FSDP (LOCAL_STATE_DICT)",
}
"""Files that only one kind of training writes, and reads."""


@dataclass(frozen=True)
class _File:
    bytes: int
    sha256: str


@dataclass(frozen=True)
class _Seal:
    files: dict[str, _File]
    step: int | None = None


def seal(staged: Path, step: int) -> None:
    """Put everything on disk, then the list of it: where the list is, the rest is."""
    entries = sorted(staged.rglob("*"))
    files = [entry for entry in entries if entry.is_file()]
    with ThreadPoolExecutor(4) as threads:  # hashing holds no lock of Python
        hashes = list(threads.map(fingerprint_file, files))
    listed = {
        file.relative_to(staged).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256}
        for file, sha256 in zip(files, hashes, strict=True)
    }
    for entry in entries:
        sync(entry)
    write_whole(staged / SEAL, (json.dumps({"step": step, "files": listed}, indent=1) + "\n").encode())
    sync(staged.parent)


def what_is_wrong(checkpoint: Path, *, thorough: bool = True) -> str | None:
    """Why training cannot continue from a checkpoint: a file that is torn or missing; None if all is well."""
    return what_is_torn(checkpoint, thorough=thorough) or _what_is_missing(checkpoint)


def what_is_torn(checkpoint: Path, *, thorough: bool = True) -> str | None:
    """The first file that is not whole, and how; None if all are.

    Args:
        thorough: read every byte; otherwise names, sizes and headers are looked at.
    """
    if not checkpoint.is_dir():
        return "it is missing"
    try:
        if not (checkpoint / SEAL).exists():
            return next(_unreadable(checkpoint, thorough), None)
        sealed = read_json(checkpoint / SEAL, _Seal).files
        problems = (_differs(checkpoint, name, file, thorough) for name, file in sealed.items())
        return next((problem for problem in problems if problem), None)
    except Exception as error:  # the libraries raise whatever the files make them
        return f"a file cannot be read ({one_line(error)})"


def _differs(checkpoint: Path, name: str, sealed: _File, thorough: bool) -> str | None:
    """What is wrong with one file of the seal."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
        return f"{SEAL} names {name!r}, which is no file of it"
    path = checkpoint / name
    if not path.is_file():
        return f"{name} is missing"
    facts = path.stat()
    if facts.st_size != sealed.bytes:
        return f"{name} has {facts.st_size} bytes, {SEAL} says {sealed.bytes}"
    if thorough and _hash(path, facts.st_size, facts.st_mtime_ns) != sealed.sha256:
        return f"{name} has another content than {SEAL} says"
    return None


@functools.lru_cache
def _hash(path: Path, size: int, modified: int) -> str:
    """The hash of a file; once for whoever looks for a checkpoint and then for who loads it."""
    return fingerprint_file(path)


def _unreadable(checkpoint: Path, thorough: bool) -> Iterator[str]:
    """Files that do not open, where no hash can tell."""
    if (checkpoint / "checkpoint-is-incomplete.txt").exists():  # transformers: saving when asked to terminate
        yield "checkpoint-is-incomplete.txt says that it was still being written"
    if (checkpoint / STATE_FILE).exists():
        TrainerState.load_from_json(str(checkpoint / STATE_FILE))
    for path in sorted(checkpoint.rglob("*.json")):
        parse_json(path.read_bytes())
    for path in sorted(checkpoint.rglob("*.safetensors")):
        try:
            with safe_open(path, "pt"):  # its header must account for every byte
                pass
        except Exception as error:
            yield f"{path.name} cannot be read ({one_line(error)})"
    for path in sorted(entry for suffix in ("pt", "pth", "bin") for entry in checkpoint.glob(f"*.{suffix}")):
        if not zipfile.is_zipfile(path):
            yield f"{path.name} is cut short"
        elif thorough and zipfile.ZipFile(path).testzip() is not None:
            yield f"{path.name} has another content than its checksums say"
    for index in checkpoint.glob("*.index.json"):
        for shard in sorted(set(read_json(index, dict)["weight_map"].values())):
            if not (checkpoint / shard).exists():
                yield f"{shard} is missing"


def layout_of(checkpoint: Path) -> str:
    """Return which kind of training can read a checkpoint."""
    return next((layout for pattern, layout in LAYOUTS.items() if any(checkpoint.glob(pattern))), PLAIN)


def _what_is_missing(checkpoint: Path) -> str | None:
    """What training cannot continue without."""
    if not (checkpoint / STATE_FILE).exists():
        return f"{STATE_FILE} is missing"
    if any(checkpoint.glob("global_step*")):  # DeepSpeed keeps weights, optimizer and scheduler in there
        return None
    needed = {
        "the weights are missing": ("*.safetensors", "*/*.safetensors", "pytorch_model*"),
        "the state of the optimizer (save_only_model?) is missing": ("optimizer*",),
        "the state of the scheduler is missing": ("scheduler.pt",),
        "the state of the random numbers is missing": ("rng_state*.pth",),
    }
    for problem, patterns in needed.items():
        if not any(entry for pattern in patterns for entry in checkpoint.glob(pattern)):
            return problem
    return None
