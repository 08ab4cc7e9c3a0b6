"""Run directories: where everything of a run is, and which process works on it.

runs/trim/
  .lock           held while a process works here; says which one
  config.yaml     the settings, as given; another run may not be mixed in
  manifest.json   versions, seed, fingerprints of data and model, command, when it finished
  train/          checkpoint-N/, telemetry.jsonl
  model/          what plain transformers and vLLM load
  eval/NAME/      the record of a benchmark: samples.jsonl, grades.jsonl, scores.json
  tokens.parquet  the token table
  report.html
"""

import contextlib
import functools
import importlib.metadata
import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from trimsft.errors import RunError, RunInUse, one_line
from trimsft.runs.files import refuse_links, write_whole
from trimsft.runs.parsing import checked, parse_yaml, read_json
from trimsft.runs.secrets import hide_secrets, without_folders

PACKAGES = ("torch", "transformers", "trl", "accelerate", "datasets", "peft", "triton")
RESTORE = "restore it, or choose another output directory"


class RunDirectory:
    """One run on disk; nothing is created before something is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.config_path = self.path / "config.yaml"
        self.manifest_path = self.path / "manifest.json"
        self.train_dir = self.path / "train"
        self.telemetry_path = self.train_dir / "telemetry.jsonl"
        self.model_dir = self.path / "model"
        self.eval_dir = self.path / "eval"
        self.tokens_path = self.path / "tokens.parquet"

    def is_run(self) -> bool:
        """Return whether a training, or something of the same form, was begun here."""
        return self.manifest_path.is_file()

    def evaluations(self) -> list[str]:
        """Return the benchmarks that have scores."""
        return sorted(path.parent.name for path in self.eval_dir.glob("*/scores.json"))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out: `with run.lock():`; in a distributed run for one process.

        The directory itself may be a link, nothing in it may.
        """
        refuse_links(*self.path.glob("*"))
        with locked(self.path / ".lock"):
            yield

    # ---- settings

    def read_config(self) -> dict[str, Any] | None:
        """Return the settings that the run was made with; None before any were written."""
        try:
            settings = parse_yaml(self.config_path.read_text(encoding="utf-8"))
            return checked(dict[str, Any], settings, where=str(self.config_path), hint=RESTORE)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.config_path}: not readable as YAML ({one_line(error)})", hint=RESTORE) from error

    def settle_config(self, settings: Mapping[str, Any], *, harmless: Collection[str] = ()) -> None:
        """Write `config.yaml` the first time; later refuse settings that differ from it.

        But for `harmless` ones, named like `a.b` where they are nested; the file shows the latest.
        """
        import yaml

        plain = json.loads(json.dumps(settings, default=_plain))
        before = self.read_config()
        changed = {} if before is None else _differences(before, plain)
        may_change = tuple(f"{name}." for name in harmless)
        refused = [text for name, text in changed.items() if not f"{name}.".startswith(may_change)]
        if refused:
            problem = f"{self.path} holds a run with other settings: {'; '.join(refused)}"
            hint = "give it the same settings to continue it, or choose another output directory"
            raise RunError(problem, hint=hint)
        if before is None or changed:
            write_whole(self.config_path, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode())

    # ---- the manifest

    def read_manifest(self) -> dict[str, Any]:
        """Return what is known about the run; empty before anything was written."""
        try:
            return read_json(self.manifest_path, dict[str, Any])
        except FileNotFoundError:
            return {}

    def write_manifest(self, **facts: Any) -> None:
        """Add facts; one that is already there is replaced."""
        content = without_folders(json.dumps(self.read_manifest() | facts, indent=1, default=str))
        write_whole(self.manifest_path, (content + "\n").encode())

    def mark_finished(self) -> None:
        """Record that the run is complete."""
        self.write_manifest(finished=datetime.now().astimezone().isoformat(timespec="seconds"))

    def is_finished(self) -> bool:
        """Return whether the run was marked complete."""
        return bool(self.read_manifest().get("finished"))


def find_weights(model: str | Path) -> str:
    """Return what `from_pretrained` loads: the model of a run, a folder, or a name of the hub."""
    folder = Path(model).expanduser()
    run = RunDirectory(folder)
    if run.is_run():
        if not run.model_dir.is_dir():
            hint = "finish its training first"
            raise RunError("is a run without a model yet", field="model", value=str(folder), hint=hint)
        return str(run.model_dir)
    if str(model).startswith(("/", "./", "../", "~")) and not folder.is_dir():
        raise RunError(f"no such folder: {str(model)!r}", field="model")
    return str(folder) if folder.is_dir() else str(model)


def environment() -> dict[str, Any]:
    """Return what a result may depend on: versions, system, GPUs, command line."""
    trimsft = sys.modules[__name__.partition(".")[0]]  # it imports this module
    own = {"trimsft": trimsft.__version__, "python": platform.python_version()}
    versions: dict[str, str | None] = own | dict.fromkeys(PACKAGES)
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    facts = {"versions": versions, "platform": platform.platform(), "command": command_line()}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return facts


def command_line() -> str:
    """Return the command line of this process, without secrets and folders."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return without_folders(shlex.join(hide_secrets([name, *sys.argv[1:]])))


# ---- settings by name


def _plain(value: Any) -> Any:
    """Return a value that JSON and YAML know, for one that they do not."""
    if isinstance(value, Enum | Mapping):
        return value.value if isinstance(value, Enum) else dict(value)
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def by_dotted_name(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that is no object, or an empty one, under its dotted name.

    >>> dict(by_dotted_name({"sampling": {"temperature": 1.0, "stop": []}, "engine": {}}))
    {'sampling.temperature': 1.0, 'sampling.stop': [], 'engine': {}}
    """
    if isinstance(settings, Mapping) and settings:
        for key, entry in settings.items():
            yield from by_dotted_name(entry, f"{name}.{key}" if name else str(key))
    else:
        yield name, settings


def _differences(was: Any, now: Any) -> dict[str, str]:
    """Return a sentence for each setting that differs, by its name."""
    old, new = dict(by_dotted_name(was)), dict(by_dotted_name(now))
    changed = {}
    for name in old | new:
        before, after = (repr(side[name]) if name in side else "not set" for side in (old, new))
        # by their texts, NaN is like itself; by their values, 1 is like 1.0
        if before != after and not (name in old and name in new and old[name] == new[name]):
            changed[name] = f"{name or 'settings'}: was {before}, now {after}"
    return changed


# ---- who works on a run


_lock_of = functools.partial(FileLock, thread_local=False, is_singleton=True, fallback_to_soft=False)
"""The one lock of this process for a path; a forked child does not hold it."""


@contextlib.contextmanager
def locked(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Keep other processes out, also of other machines, or raise `RunInUse` after `patience` seconds."""
    refuse_links(path)
    path = path.resolve()
    lock = _lock_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=patience)
    except Timeout:
        hint = "wait until it ends, or choose another output directory"
        raise RunInUse(f"{path.parent}: in use by {_read_holder(path)}", hint=hint) from None
    except OSError as error:
        problem = f"{path.parent}: cannot be used as a run directory ({error.strerror})"
        raise RunError(problem, hint="choose another output directory") from error
    if lock.lock_counter == 1:
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            note = f"process {os.getpid()} on {socket.gethostname()} since {now} ({command_line()})\n"
            path.write_text(note, encoding="utf-8")
    try:
        yield
    finally:
        if lock.is_locked:  # else this is a forked child
            if lock.lock_counter == 1:
                with contextlib.suppress(OSError):
                    os.truncate(path, 0)
            lock.release()


def holder_of(path: Path) -> str | None:
    """Return which process holds a lock now; None where none does."""
    path = path.resolve()
    if not path.is_file() or not path.stat().st_size:  # a holder empties it when it is done
        return None
    lock = _lock_of(path)
    if not lock.is_locked:
        with contextlib.suppress(Timeout), lock.acquire(timeout=0):
            return None
    return _read_holder(path)


def _read_holder(path: Path) -> str:
    """Return what the process that holds a lock has written about itself."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
    return "another process"
