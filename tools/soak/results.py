"""What a command has made, without what may differ between two equal runs: times, rates, places, machines."""

import hashlib
import json
from pathlib import Path
from typing import Any

VOLATILE = frozenset([
    "time", "tokens_per_second", "train_runtime", "train_samples_per_second", "train_steps_per_second", "seconds",
    "command", "finished", "versions", "platform", "details", "out", "report", "total_flos",
])  # fmt: skip
RECORDS = {"samples.jsonl": ("problem", "sample"), "grades.jsonl": ("problem", "sample")}
"""Lines whose order depends on who was faster, and what sorts them."""
PLAIN = frozenset([".csv", ".tex"])


def result_of(folder: Path, part: str = "") -> dict[str, Any]:
    """Every part of the result beneath a folder, by name; `part` takes only names that begin so."""
    parts = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name.startswith(part) and "checkpoint-" not in name:
            content = _content(path)
            if content is not None:
                parts[name] = content
    return parts


def _content(path: Path) -> Any:
    if path.suffix == ".safetensors" or path.suffix in PLAIN or path.name == "problems.jsonl":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        return hashlib.sha256(repr(parquet.read_table(path).to_pydict()).encode()).hexdigest()
    if path.name in RECORDS:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return sorted(lines, key=lambda line: [str(line[name]) for name in RECORDS[path.name]])
    if path.name == "telemetry.jsonl":
        return [_lasting(json.loads(line)) for line in path.read_text().splitlines()]
    if path.name in ("scores.json", "sweep.json", "quickstart.json", "main.json", "claims.json", "settings.json"):
        return _lasting(json.loads(path.read_text()))
    if path.name == "manifest.json":
        return {"is finished": bool(json.loads(path.read_text()).get("finished"))}
    return None


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(entry) for name, entry in value.items() if name not in VOLATILE}
    return [_lasting(entry) for entry in value] if isinstance(value, list) else value
