"""Run directories: where everything of a run is, and what it was made with.

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

import importlib.metadata
import json
import platform
import sys
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, one_line
from trimsft.runs.files import refuse_links, write_whole
from trimsft.runs.lock import RunLock, command_line, now
from trimsft.runs.parsing import parse_yaml, read_json
from trimsft.runs.secrets import without_folders

PACKAGES = ("torch", "transformers", "trl", "accelerate", "datasets", "peft", "triton")
MOST_NAMED = 6  # settings that differ; of a run of another kind all do
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
        self.report_path = self.path / "report.html"

    def is_run(self) -> bool:
        """Return whether a training, or something of the same form, was begun here."""
        return self.manifest_path.is_file()

    def evaluations(self) -> list[str]:
        """Return the benchmarks that have scores."""
        return sorted(path.parent.name for path in self.eval_dir.glob("*/scores.json"))

    def lock(self, *, patience: float = 0.0) -> RunLock:
        """Keep other processes out: `with run.lock():`, or call it once and hold it until the process ends.

        Of a distributed run only one process may take it. The directory itself may be a link, nothing in it may.
        """
        refuse_links(*self.path.glob("*"))
        return RunLock(self.path / ".lock", patience=patience)

    # ---- settings

    def read_config(self) -> dict[str, Any] | None:
        """Return the settings that the run was made with; None before any were written."""
        try:
            settings = parse_yaml(self.config_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{self.config_path}: not readable as YAML ({one_line(error)})", hint=RESTORE) from error
        if not isinstance(settings, dict):
            raise RunError(f"{self.config_path}: holds no settings", hint=RESTORE)
        return settings

    def settle_config(self, settings: Mapping[str, Any], *, harmless: Collection[str] = ()) -> None:
        """Write `config.yaml` the first time; later refuse settings that differ from it.

        `harmless` names settings that may change between two starts of one run (`a.b` for a nested one); the
        file then shows the latest.
        """
        import yaml

        content = yaml.safe_dump(_plain(settings), sort_keys=False, allow_unicode=True)
        before = self.read_config()
        changed = {} if before is None else _differences(before, yaml.safe_load(content))
        may_change = tuple(f"{name}." for name in harmless)
        refused = [text for name, text in changed.items() if not f"{name}.".startswith(may_change)]
        if refused:
            more = f"; and {len(refused) - MOST_NAMED} more" if len(refused) > MOST_NAMED else ""
            raise RunError(
                f"{self.path} holds a run with other settings: {'; '.join(refused[:MOST_NAMED])}{more}. "
                "Give it the same settings to continue it, or choose another output directory"
            )
        if before is None or changed:
            write_whole(self.config_path, content.encode())

    # ---- the manifest

    def read_manifest(self) -> dict[str, Any]:
        """Return what is known about the run; empty before anything was written."""
        try:
            return read_json(self.manifest_path, dict[str, Any])
        except FileNotFoundError:
            return {}

    def write_manifest(self, **facts: Any) -> None:
        """Add facts; one that is already there is replaced."""
        merged = self.read_manifest() | facts
        content = without_folders(json.dumps(merged, indent=1, default=str))
        write_whole(self.manifest_path, (content + "\n").encode())

    def mark_finished(self) -> None:
        """Record that the run is complete."""
        self.write_manifest(finished=now())

    def is_finished(self) -> bool:
        """Return whether the run was marked complete."""
        return bool(self.read_manifest().get("finished"))


def environment() -> dict[str, Any]:
    """Return what a result may depend on: versions, system, GPUs (if torch is loaded), command line."""
    trimsft = sys.modules[__name__.partition(".")[0]]  # importing it here would turn the direction of imports
    facts: dict[str, Any] = {
        "versions": {"trimsft": trimsft.__version__, "python": platform.python_version()},
        "platform": platform.platform(),
        "command": command_line(),
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
    """Return the value in the types that YAML knows."""
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
    """For each setting that differs, by name: what it was and what it is now."""
    old, new = dict(by_dotted_name(was)), dict(by_dotted_name(now))
    changed = {}
    for name in old | new:
        texts = [repr(side[name]) if name in side else "not set" for side in (old, new)]
        # NaN is like itself here
        if texts[0] != texts[1] and not (name in old and name in new and old[name] == new[name]):
            changed[name] = f"{name or 'settings'}: was {texts[0]}, now {texts[1]}"
    return changed


def find_weights(model: str | Path) -> str:
    """Return what `from_pretrained` loads: a run directory's model, a model folder, or a name of the hub."""
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
