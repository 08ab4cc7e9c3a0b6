"""The folder of a study: where its parts are, and what of a cell is done.

runs/study-lab/
  config.yaml                   the scale: another one may not be mixed in
  cells.json                    the cells that were requested
  .lock                         held by the process that runs the study
  data/                         what is trained on, and the rows whose tokens are measured
  runs/lab/base/seed0/          an ordinary run directory for each cell: manifest.json, train/, model/, eval/,
  runs/lab/sft/seed0/             tokens.parquet
    .claim                      held while a process works on it
    log.txt                     what the libraries said
    failure.txt                 why it failed the last time
  tables/                       what came out
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, UsageError
from trimsft.options import check_path
from trimsft.runs import RunDirectory, write_whole
from trimsft.runs.parsing import read_json
from trimsft.runs.secrets import hide_secrets
from trimsft.study.cell import Cell
from trimsft.study.scales import Scale

HARMLESS = ("benchmarks", "keep_weights", "seeds", "focus", "smoke", "compared")
"""Fields of a scale that may change from one start to the next."""


@dataclass(frozen=True)
class StudyFolder:
    """Paths of a study, what was requested, and what is done."""

    out: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", check_path("out", self.out))

    # ---- the study

    def settle(self, scale: Scale, cells: Sequence[Cell]) -> None:
        """Write down scale and cells; refuse a scale that differs, but for more models and other benchmarks."""
        record, harmless = scale.as_dict() | {"focus": scale.focus_model}, list(HARMLESS)
        if before := RunDirectory(self.out).read_config():
            models = Scale.from_dict(before, where=str(self.out)).as_dict()["models"]
            harmless += [f"models.{name}" for name in models.keys() ^ record["models"].keys()]
            harmless += [f"models.{name}.gpus" for name in models]
            record["models"] = {**models, **record["models"]}
        RunDirectory(self.out).settle_config(record, harmless=harmless)
        records = [cell.as_dict() for cell in dict.fromkeys([*self.requested(), *cells])]
        write_whole(self.out / "cells.json", (json.dumps(records, indent=1) + "\n").encode())

    def read_scale(self) -> Scale:
        """Return the scale that the folder was made with."""
        folder = RunDirectory(self.out)
        if (record := folder.read_config()) is None:
            raise RunError(f"{self.out}: holds no study", hint=f"make one with trimsft study run NAME --out {self.out}")
        return Scale.from_dict(record, where=str(folder.config_path))

    def requested(self) -> list[Cell]:
        """Return every cell that was ever requested, earlier requests first."""
        path = self.out / "cells.json"
        try:
            return [Cell.from_dict(one) for one in read_json(path, list[dict[str, Any]])] if path.exists() else []
        except (UsageError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path}: names no cell ({error})", hint="remove it") from error

    # ---- where things are

    def run(self, cell: Cell) -> Path:
        """Return the run directory of a cell."""
        return self.out / "runs" / cell.name

    def log(self, cell: Cell) -> Path:
        return self.run(cell) / "log.txt"

    def claim(self, cell: Cell) -> Path:
        return self.run(cell) / ".claim"

    def tokens(self, cell: Cell) -> Path:
        return RunDirectory(self.run(cell)).tokens_path

    def training_data(self, seed: int) -> Path:
        """Return the file of the lab's rows of one seed."""
        return self.out / "data" / f"train-seed{seed}.jsonl"

    @property
    def token_rows(self) -> Path:
        """The rows whose tokens are measured."""
        return self.out / "data" / "token-rows.jsonl"

    def failure(self, cell: Cell) -> Path:
        """Return the file that says why it failed the last time."""
        return self.run(cell) / "failure.txt"

    def note_failure(self, cell: Cell, error: str) -> None:
        (without_secrets,) = hide_secrets([error])
        write_whole(self.failure(cell), without_secrets.encode())

    # ---- what is done

    def missing(self, cell: Cell, scale: Scale) -> list[str]:
        """Return the steps of a cell that are still to do, in order; weights that were dropped are not missed."""
        run = RunDirectory(self.run(cell))
        done = {
            "train": cell.is_base or (run.is_run() and run.is_finished()),
            "evaluate": self.is_evaluated(cell, scale.benchmark_names),
            "tokens": self.tokens(cell).is_file(),
        }
        return [step for step, is_done in done.items() if not is_done]

    def is_evaluated(self, cell: Cell, benchmarks: Sequence[str]) -> bool:
        return set(benchmarks) <= set(RunDirectory(self.run(cell)).evaluations())
