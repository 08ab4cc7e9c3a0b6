"""The folder of a study: where its parts are, and what of a cell is done.

runs/study-lab/
  config.yaml                   the scale: another one may not be mixed in
  cells.json                    the cells that were requested, and what is needed of each
  .settling                     the lock under which both are written
  data/                         what is trained on, and the rows whose tokens are measured
  runs/lab/base/seed0/          an ordinary run directory for each cell: manifest.json, train/, model/, eval/,
  runs/lab/sft/seed0/             tokens.parquet
    .claim                      held by the process that works on it
    log.txt                     what the libraries said
    failure.txt                 why it failed the last time
  tables/                       what came out
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, UsageError
from trimsft.options import check_path
from trimsft.runs import RunDirectory, locked
from trimsft.runs.files import refuse_links, write_whole
from trimsft.runs.parsing import read_json
from trimsft.runs.secrets import hide_secrets
from trimsft.study.cell import Cell
from trimsft.study.scales import Scale

PATIENCE = 60.0  # seconds to wait for another start that writes down its scale, which takes milliseconds
HARMLESS = ("benchmarks", "keep_weights", "seeds", "focus", "smoke", "compared")
"""Fields of a scale that may change from one start to the next."""


@dataclass(frozen=True)
class StudyFolder:
    """Paths of a study, what was requested, and what is done."""

    out: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", check_path("out", self.out))

    # ---- the study

    def settle(self, scale: Scale) -> None:
        """Write down the scale, or refuse one that differs; models may be added, the latest benchmarks are shown."""
        refuse_links(*self.out.glob("*"))
        with locked(self.out / ".settling", patience=PATIENCE):  # two that add a model each would lose one
            self._settle(scale)

    def _settle(self, scale: Scale) -> None:
        record, before, harmless = scale.as_dict(), self.scale_if_any(), list(HARMLESS)
        if before is not None:
            models = before.as_dict()["models"]
            harmless += [f"models.{name}" for name in models.keys() ^ record["models"].keys()]
            harmless += [f"models.{name}.gpus" for name in models]
            record["models"] = {**models, **record["models"]}
        RunDirectory(self.out).settle_config(record, harmless=harmless)

    def read_scale(self) -> Scale:
        """Return the scale that the folder was made with."""
        scale = self.scale_if_any()
        if scale is None:
            raise RunError(f"{self.out}: holds no study", hint=f"make one with trimsft study run NAME --out {self.out}")
        return scale

    def scale_if_any(self) -> Scale | None:
        folder = RunDirectory(self.out)
        record = folder.read_config()
        return None if record is None else Scale.from_dict(record, where=str(folder.config_path))

    @staticmethod
    def names_of(scale: Scale) -> tuple[str, ...]:
        """Return what the benchmarks of a scale are recorded as."""
        from trimsft.evaluate.problems import benchmark_name

        return tuple(benchmark_name(name) for name in scale.benchmarks)

    def remember(self, cells: Sequence[Cell], needs: Collection[str]) -> None:
        """Note which cells are requested, for tables and `trimsft study status`."""
        with locked(self.out / ".settling", patience=PATIENCE):
            before = self.requested()
            after = before | {cell: before.get(cell, set()) | set(needs) for cell in cells}
            records = [cell.as_dict() | {"needs": sorted(of_cell)} for cell, of_cell in after.items()]
            if after != before:
                write_whole(self.out / "cells.json", (json.dumps(records, indent=1) + "\n").encode())

    def requested(self) -> dict[Cell, set[str]]:
        """Return every cell that was ever requested, and what is needed of it; earlier requests first."""
        path, needs = self.out / "cells.json", dict[Cell, set[str]]()
        for record in read_json(path, list[dict[str, Any]]) if path.exists() else []:
            try:
                needed = set(map(str, record.pop("needs")))
                needs[Cell.from_dict(record)] = needed
            except (UsageError, KeyError, TypeError, AttributeError) as error:
                raise RunError(f"{path}: names no cell ({error})", hint="remove it") from error
        return needs

    # ---- where things are

    def run(self, cell: Cell) -> Path:
        """Return the run directory of a cell."""
        return self.out / "runs" / cell.name

    def log(self, cell: Cell) -> Path:
        return self.run(cell) / "log.txt"

    def training_data(self, seed: int) -> Path:
        """Return the file of the lab's rows of one seed."""
        return self.out / "data" / f"train-seed{seed}.jsonl"

    @property
    def token_rows(self) -> Path:
        """The rows whose tokens are measured."""
        return self.out / "data" / "token-rows.jsonl"

    def claim(self, cell: Cell) -> Path:
        return self.run(cell) / ".claim"

    def tokens(self, cell: Cell) -> Path:
        return RunDirectory(self.run(cell)).tokens_path

    # ---- what is done

    def missing(self, cell: Cell, scale: Scale, needs: Collection[str]) -> list[str]:
        """Return the steps of a cell that are still to do, in order; weights that were dropped are not missed."""
        steps = [] if self.is_trained(cell) else ["train"]
        if "scores" in needs and not self.is_evaluated(cell, self.names_of(scale)):
            steps.append("evaluate")
        if "tokens" in needs and not self.has_tokens(cell):
            steps.append("tokens")
        return steps

    def is_trained(self, cell: Cell) -> bool:
        run = RunDirectory(self.run(cell))
        return cell.is_base or (run.is_run() and run.is_finished())

    def is_evaluated(self, cell: Cell, benchmarks: Sequence[str]) -> bool:
        return set(benchmarks) <= set(RunDirectory(self.run(cell)).evaluations())

    def has_tokens(self, cell: Cell) -> bool:
        return self.tokens(cell).is_file()

    def has_dropped_weights(self, cell: Cell) -> bool:
        """Return whether the weights were deleted after the evaluation."""
        run = RunDirectory(self.run(cell))
        return run.is_run() and run.read_manifest().get("weights") == "dropped"

    def progress(self, cell: Cell, step: str, scale: Scale) -> tuple[str, int, int]:
        """Return stage, count and total (0 where it is not known) of a step under way, by the lines in its files."""
        run = RunDirectory(self.run(cell))
        if step == "train":
            total = scale.updates_of(cell)
            done = _lines(run.telemetry_path)  # the last line sums up
            return "training", min(done, total or done), total
        if step == "tokens":
            return "measuring tokens", 0, 0
        name = next((name for name in self.names_of(scale) if name not in run.evaluations()), "")
        done, total = _lines(run.eval_dir / name / "samples.jsonl"), scale.answers_each * (scale.problems or 0)
        return f"evaluating {name}", min(done, total or done), total

    def failure(self, cell: Cell) -> Path:
        """Return the file that says why it failed the last time."""
        return self.run(cell) / "failure.txt"

    def note_failure(self, cell: Cell, error: str) -> None:
        (without_secrets,) = hide_secrets([error])
        write_whole(self.failure(cell), without_secrets.encode())


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.is_file() else 0
