"""Run directories: who uses one, and what it was made with.

runs/trim/
  .lock           held while a process works here; says which one
  config.yaml     the settings, as given; another run may not be mixed in
  manifest.json   versions, seed, fingerprints of data and model, command, when it finished
  train/  model/  eval/

run = RunDirectory(Path("runs/trim"))
with run.lock():
    run.settle_config({"objective": "trim", "margin": 1.5, "save_steps": 50}, harmless={"save_steps"})
    run.write_manifest(seed=0, data=fingerprint_file(Path("train.jsonl")), **environment())
    ...
    run.mark_finished()
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from trimsft.errors import one_line
from trimsft.runs.files import JsonLines, RunError, fingerprint_file, fingerprint_folder, sync, write_whole

__all__ = [
    "JsonLines",
    "RunDirectory",
    "RunError",
    "RunLock",
    "environment",
    "fingerprint_file",
    "fingerprint_folder",
    "sync",
    "write_whole",
]

PACKAGES = ("torch", "transformers", "trl", "accelerate", "datasets", "peft", "triton")


class RunDirectory:
    """One run on disk; nothing is created before something is written."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.yaml"
        self.manifest_path = self.path / "manifest.json"
        self.train_dir = self.path / "train"
        self.model_dir = self.path / "model"
        self.eval_dir = self.path / "eval"

    def lock(self) -> RunLock:
        """Keep other processes out: `with run.lock():`, or call it once and hold it until the process ends.

        The kernel frees it however the process ends. Of a distributed run only one process may take it. Taking
        it again in the same process is harmless: it is held until each has been released.
        """
        return RunLock(self.path / ".lock")

    def settle_config(self, settings: Mapping[str, Any], *, harmless: Collection[str] = ()) -> None:
        """Write `config.yaml` the first time; later refuse settings that differ from it.

        `harmless` names settings that may change between two starts of one run (`a.b` for a nested one); the
        file then shows the latest.
        """
        import yaml

        content = yaml.safe_dump(_plain(settings), sort_keys=False, allow_unicode=True)
        if not self.config_path.exists():
            write_whole(self.config_path, content.encode())
            return
        try:
            was = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise RunError(
                f"{self.config_path}: not readable as YAML ({one_line(error)}); restore it, or choose another "
                "output directory"
            ) from error
        changed = _differences(was, yaml.safe_load(content))
        refused = [text for name, text in changed.items() if not _is_named(name, harmless)]
        if refused:
            raise RunError(
                f"{self.path} holds a run with other settings: {'; '.join(refused)}. "
                "Give it the same settings to continue it, or choose another output directory"
            )
        if changed:
            write_whole(self.config_path, content.encode())

    def read_manifest(self) -> dict[str, Any]:
        """What is known about the run; empty before anything was written."""
        try:
            facts = json.loads(self.manifest_path.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise RunError(
                f"{self.manifest_path}: not readable as JSON ({error}); restore or remove it"
            ) from error
        if not isinstance(facts, dict):
            raise RunError(
                f"{self.manifest_path}: holds a {type(facts).__name__}, not an object; restore or remove it"
            )
        return facts

    def write_manifest(self, **facts: Any) -> None:
        """Add facts; one that is already there is replaced."""
        merged = self.read_manifest() | facts
        write_whole(self.manifest_path, (json.dumps(merged, indent=1, default=str) + "\n").encode())

    def mark_finished(self) -> None:
        """From now on the run is complete."""
        self.write_manifest(finished=_now())

    def is_finished(self) -> bool:
        """Whether the run was marked complete."""
        return bool(self.read_manifest().get("finished"))


class RunLock:
    """A lock on a run directory, held from the moment it is made; the text of the file is no lock, only a note."""

    _held: dict[Path, tuple[int, int]] = {}  # noqa: RUF012 -- of the process: file -> descriptor, times taken

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        descriptor, times = self._held.get(self._path) or (_take_lock(self._path), 0)
        self._held[self._path] = (descriptor, times + 1)
        self._released = False

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._released or self._path not in self._held:
            return
        self._released = True
        descriptor, times = self._held.pop(self._path)
        if times > 1:
            self._held[self._path] = (descriptor, times - 1)
            return
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()

    @classmethod
    def _leave_to_parent(cls) -> None:
        for descriptor, _ in cls._held.values():
            os.close(descriptor)
        cls._held.clear()


if hasattr(os, "register_at_fork"):
    # a forked data worker that outlives its killed parent would go on holding the lock
    os.register_at_fork(after_in_child=RunLock._leave_to_parent)


def _take_lock(path: Path) -> int:
    if sys.platform == "win32":
        raise RunError(
            f"{path.parent}: run directories need file locks (flock), which Windows has not; use WSL"
        )
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(
            f"{path.parent}: cannot be used as a run directory ({error.strerror}); choose another output directory"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _describe_holder(os.pread(descriptor, 2**16, 0))
        os.close(descriptor)
        raise RunError(
            f"{path.parent}: in use by {holder}; wait until it ends, or choose another output directory"
        ) from None
    except OSError as error:
        os.close(descriptor)
        raise RunError(
            f"{path.parent}: its file system has no file locks (flock: {error.strerror}); choose an output directory "
            "on another one"
        ) from error
    note = {"host": socket.gethostname(), "pid": os.getpid(), "since": _now(), "command": _command()}
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(note) + "\n").encode(), 0)
    return descriptor


def _describe_holder(note: bytes) -> str:
    try:
        who = json.loads(note)
        return f"process {who['pid']} on {who['host']} since {who['since']} ({who['command']})"
    except (ValueError, TypeError, KeyError):
        return "another process"


def environment() -> dict[str, Any]:
    """What a result may depend on, for the manifest: versions, machine, GPUs (if torch is loaded), command line."""
    trimsft = sys.modules[__name__.partition(".")[0]]  # importing it here would turn the direction of imports
    facts: dict[str, Any] = {
        "versions": {"trimsft": trimsft.__version__, "python": platform.python_version()},
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "command": _command(),
    }
    for package in PACKAGES:
        try:
            facts["versions"][package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            facts["versions"][package] = None
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return facts


def _plain(value: Any) -> Any:
    """The value in the types that YAML knows."""
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(entry) for entry in value)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None if value is None else str(value)


def _differences(was: Any, now: Any) -> dict[str, str]:
    """For each setting that differs, by name: what it was and what it is now."""
    old, new = dict(_flat(was)), dict(_flat(now))
    changed = {}
    for name in old | new:
        texts = [repr(side[name]) if name in side else "not set" for side in (old, new)]
        # NaN is like itself here
        if texts[0] != texts[1] and not (name in old and name in new and old[name] == new[name]):
            changed[name] = f"{name or 'settings'}: was {texts[0]}, now {texts[1]}"
    return changed


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _flat(entry, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _is_named(setting: str, names: Collection[str]) -> bool:
    parts = setting.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def _command() -> str:
    """The command line, without secrets."""
    words, hide = [], False
    for word in sys.argv:
        name, equals, _ = word.partition("=")
        secret = re.search(r"^--.*(hub_token|api_key|password|secret)", name)
        words.append("***" if hide else f"{name}=***" if secret and equals else word)
        hide = bool(secret and not equals)
    return shlex.join(words)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
