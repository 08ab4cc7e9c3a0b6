"""Where the parts of a study are, and what of a cell is done.

runs/study-lab/
  config.yaml                   the scale: another one may not be mixed in; written under the lock .settling
  asked/                        which cells were asked for, and what is needed of them
  data/                         what is trained on, and the rows whose tokens are measured
  runs/lab/base/seed0/          an ordinary run directory for each cell: manifest.json, train/, model/, eval/,
  runs/lab/sft/seed0/             tokens.parquet
    .claim                      held by the process that works on it
    log.txt                     what the libraries said
    failure.json                why it failed the last time
  tables/                       what came out
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.runs import RunDirectory, RunLock
from trimsft.runs.files import write_whole
from trimsft.study.cells import Cell
from trimsft.study.scales import Scale

PATIENCE = 60.0
"""Seconds to wait for another start that writes down its scale, which takes milliseconds."""


@dataclass(frozen=True)
class Place:
    """The folder of a study."""

    out: Path

    # ---- the study

    def settle(self, scale: Scale) -> None:
        """Write down the scale, or refuse one that differs.

        Models may be added, and other benchmarks be asked for: the latest are those that tables show. How many GPUs a
        training has is for `trimsft train` to judge.
        """
        with RunLock(self.out / ".settling", patience=PATIENCE):  # two that add a model each would lose one
            self._settle(scale)

    def _settle(self, scale: Scale) -> None:
        record, before = scale.as_dict(), self._read_config()
        harmless = ["benchmarks", "keep_weights", "seeds", "focus"]
        if before is not None:
            models = dict(before.get("models", {}))
            harmless += [f"models.{name}" for name in models.keys() ^ record["models"].keys()]
            harmless += [f"models.{name}.{what}" for name in models for what in ("gpus", "parameters")]
            record["models"] = {**models, **record["models"]}
        RunDirectory(self.out).settle_config(record, harmless=harmless)

    def read_scale(self) -> Scale:
        """The scale that the folder was made with."""
        record = self._read_config()
        if record is None:
            raise RunError(f"{self.out}: holds no study; make one with trimsft study run NAME --out {self.out}")
        try:
            return Scale.from_dict(record)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{self.out}/config.yaml: describes no scale of a study ({error})") from error

    def scale_if_any(self) -> Scale | None:
        """The same; None of a folder that holds no study yet."""
        return None if self._read_config() is None else self.read_scale()

    def read_benchmarks(self) -> tuple[str, ...]:
        return self.names_of(self.read_scale())

    @staticmethod
    def names_of(scale: Scale) -> tuple[str, ...]:
        """What its benchmarks are recorded as."""
        from trimsft.evaluate.problem_files import benchmark_name

        return tuple(benchmark_name(name) for name in scale.benchmarks)

    def _read_config(self) -> dict[str, Any] | None:
        return RunDirectory(self.out).read_config()

    def remember(self, cells: Sequence[Cell], needs: Collection[str]) -> None:
        """Note which cells are asked for; `trimsft study status` lists them.

        A file for each request, named by its content: several machines may write at once, and twice is once.
        """
        request = {"needs": sorted(needs), "cells": [cell.as_dict() for cell in cells]}
        content = (json.dumps(request, indent=1, sort_keys=True) + "\n").encode()
        path = self.out / "asked" / f"{hashlib.sha256(content).hexdigest()[:16]}.json"
        if not path.exists():
            write_whole(path, content)

    def asked_for(self) -> dict[Cell, set[str]]:
        """Every cell that was ever asked for, and what is needed of it; earlier requests first."""
        found: dict[Cell, set[str]] = {}
        for path in sorted((self.out / "asked").glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
            try:
                request = json.loads(path.read_bytes())
                for record in request["cells"]:
                    found.setdefault(Cell.from_dict(record), set()).update(request["needs"])
            except (ValueError, KeyError, TypeError) as error:
                raise RunError(f"{path}: cannot be read ({error}); remove it") from error
        return found

    # ---- a cell

    def run(self, cell: Cell) -> Path:
        return self.out / "runs" / cell.name

    def log(self, cell: Cell) -> Path:
        return self.run(cell) / "log.txt"

    def claim(self, cell: Cell) -> Path:
        return self.run(cell) / ".claim"

    def tokens(self, cell: Cell) -> Path:
        return self.run(cell) / "tokens.parquet"

    def failure(self, cell: Cell) -> Path:
        return self.run(cell) / "failure.json"

    def telemetry(self, cell: Cell) -> Path:
        """Grows by a line with each logged update."""
        return RunDirectory(self.run(cell)).train_dir / "telemetry.jsonl"

    def training_data(self, seed: int) -> Path:
        """Of the lab's task."""
        return self.out / "data" / f"train-seed{seed}.jsonl"

    @property
    def token_rows(self) -> Path:
        return self.out / "data" / "token-rows.jsonl"

    # ---- what is done

    def is_trained(self, cell: Cell) -> bool:
        run = RunDirectory(self.run(cell))
        return cell.is_base or (run.manifest_path.is_file() and run.is_finished())

    def is_evaluated(self, cell: Cell, benchmarks: Sequence[str]) -> bool:
        folder = RunDirectory(self.run(cell)).eval_dir
        return all((folder / name / "scores.json").is_file() for name in benchmarks)

    def has_tokens(self, cell: Cell) -> bool:
        return self.tokens(cell).is_file()

    def is_done(self, cell: Cell, scale: Scale, needs: Collection[str]) -> bool:
        """Whether nothing that is needed of the cell is missing; weights that were dropped are not."""
        return (
            self.is_trained(cell)
            and ("scores" not in needs or self.is_evaluated(cell, self.names_of(scale)))
            and ("tokens" not in needs or self.has_tokens(cell))
        )

    # ---- failures

    def note_failure(self, cell: Cell, error: str) -> None:
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        write_whole(self.failure(cell), (json.dumps({"error": error, "when": when}) + "\n").encode())

    def read_failure(self, cell: Cell) -> str:
        """Why it failed the last time; empty where it did not."""
        try:
            record: Mapping[str, Any] = json.loads(self.failure(cell).read_bytes())
            return str(record["error"])
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError, TypeError):
            return "failed; its failure.json cannot be read"
