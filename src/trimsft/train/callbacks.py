"""What happens beside the training: the record on disk, and the counter that survives a restart."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trimsft.runs import JsonLines

TELEMETRY = "telemetry.jsonl"
STATE = "TrimSFTTelemetry"
"""Under this name a checkpoint keeps what the telemetry must remember."""


class RecordTelemetry(TrainerCallback):  # type: ignore[misc]
    """Appends every log to `telemetry.jsonl` in the output directory; a resumed run goes on where it left off."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._file: JsonLines | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        restored = state.stateful_callbacks.get(STATE, {}) if state.global_step else {}
        self._trainer._total_train_tokens = restored.get("train_tokens", 0)
        self._trainer._total_loss_scalar = restored.get("loss_sum", 0.0)
        if not state.is_world_process_zero:
            return
        path = Path(args.output_dir) / TELEMETRY
        if not state.global_step and path.exists():
            _move_aside(path)
        self._file = JsonLines(path)
        self._file.keep_until(lambda record: record["step"] > state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self._file is not None:
            now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            plain = {name: _plain(value) for name, value in logs.items()}
            self._file.append({"step": state.global_step, "time": now, **plain})


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity (a gradient norm may be one), and no numbers of numpy and torch."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str | bool | list | dict | None) else str(value)


def _move_aside(path: Path) -> None:
    """Keep the record of an earlier training in the same directory under a number."""
    number = 1
    while path.with_suffix(f".{number}.jsonl").exists():
        number += 1
    path.rename(path.with_suffix(f".{number}.jsonl"))
