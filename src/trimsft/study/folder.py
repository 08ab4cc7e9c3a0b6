"""The folder of a study, and the work on one cell in its run directory: train, evaluate, measure tokens.

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

    job = Job(StudyFolder(Path("runs/study-lab")), scale)
    job.run(cell)            # {"train": 24.1, "evaluate": 11.8, "tokens": 1.9}: seconds; raises where a step fails

Each step is the function that its command calls, so it continues where it was interrupted. Only a training on several
GPUs has processes of its own: it is `trimsft train`, launched by accelerate or torchrun.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trimsft import lab
from trimsft.errors import RunError, TrimSFTError, one_line
from trimsft.lab import FineTuning
from trimsft.objectives import OBJECTIVES, fingerprint_objective
from trimsft.runs import RunDirectory, locked, write_whole
from trimsft.runs.files import find_recipe
from trimsft.runs.parsing import checked, parse_yaml, read_json
from trimsft.runs.secrets import hide_secrets
from trimsft.study.cell import Cell
from trimsft.study.scales import LAB_BASE, ModelAt, Scale

if TYPE_CHECKING:
    from trimsft.evaluate.settings import EvalSettings
    from trimsft.train.config import Settings

ATTENTION = "attn_implementation"
ENDING = 120.0  # seconds that a process has to end after SIGTERM: a training saves its checkpoint
HARMLESS = ("benchmarks", "keep_weights", "seeds", "smoke", "compared")  # fields of a scale that may change


@dataclass(frozen=True)
class StudyFolder:
    """Paths of a study, what was requested, and what is done."""

    out: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out).expanduser())

    def settle(self, scale: Scale, cells: Sequence[Cell]) -> None:
        """Write down scale and cells; refuse a scale that differs, but for more models and other benchmarks."""
        record, harmless = asdict(scale), list(HARMLESS)
        if before := RunDirectory(self.out).read_config():
            models = asdict(checked(Scale, before, where=str(self.out)))["models"]
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
        return checked(Scale, record, where=str(folder.config_path))

    def requested(self) -> list[Cell]:
        """Return every cell that was ever requested, earlier requests first."""
        path = self.out / "cells.json"
        return [Cell.from_dict(one) for one in read_json(path, list[dict[str, Any]])] if path.exists() else []

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


class Result(NamedTuple):
    """Result of a cell, or of its first steps."""

    failure: str = ""  # why it failed
    seconds: Mapping[str, float] = {}  # of each step that was missing


@dataclass(frozen=True)
class Job:
    """Folder and scale that the cells of a study share."""

    folder: StudyFolder
    scale: Scale

    @property
    def one_process_a_step(self) -> bool:
        """Return whether a process ends with its step: it gives back all GPU memory. At the lab starts take longer."""
        return self.scale.device == "cuda" and not self.scale.is_lab

    def missing(self, cell: Cell) -> list[str]:
        """Return the steps that are still to do, in order."""
        return self.folder.missing(cell, self.scale)

    def attempt(self, cell: Cell) -> Result:
        """Do what is missing, in a process of its own: what is printed goes to the cell's log, errors are returned."""
        try:
            redirect_output(self.folder.log(cell))
            return Result(seconds=self.run(cell))
        except Exception as error:  # whatever a library raises ends this cell, and no other
            with suppress(OSError):
                traceback.print_exc()
            return Result(one_line(error))
        finally:
            parent = multiprocessing.parent_process()
            if parent is not None and not parent.is_alive():  # nobody waits for the result
                os._exit(1)

    def run(self, cell: Cell) -> dict[str, float]:
        """Do what is missing; return seconds by step."""
        steps, seconds = {"train": self.train, "evaluate": self.evaluate, "tokens": self.measure}, {}
        # the process of a study that was killed saves what it has before it ends, too
        with locked(self.folder.claim(cell), patience=ENDING):
            for step in self.missing(cell)[: 1 if self.one_process_a_step else None]:
                began = time.monotonic()
                steps[step](cell)
                seconds[step] = time.monotonic() - began
            if not (self.scale.keep_weights or cell.is_base or self.missing(cell)):
                run = RunDirectory(self.folder.run(cell))
                for checkpoint in run.train_dir.glob("checkpoint-*"):
                    shutil.rmtree(checkpoint, ignore_errors=True)
                for weights in run.model_dir.glob("*.safetensors"):
                    weights.unlink()
            self.folder.failure(cell).unlink(missing_ok=True)
        return seconds

    def train(self, cell: Cell) -> None:
        """Train in this process, or in one for each GPU."""
        make_lab_rows(self.folder, self.scale, cell.seed)
        if self.scale.gpus_of(cell) > 1:
            self._launch(cell)
        else:
            from trimsft.train.run import train

            train(training_settings(self.folder, self.scale, cell))

    def _launch(self, cell: Cell) -> None:
        import yaml

        fields = read_recipe(self.scale.at(cell.model)) | training_fields(self.folder, self.scale, cell)
        fields.pop("config", None)
        config = self.folder.run(cell) / "launched.yaml"
        write_whole(config, yaml.safe_dump(fields).encode())
        command = launch_command(self.scale.gpus_of(cell), self.scale.device, ["train", "--config", str(config)])
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
            try:
                while (code := child.poll()) is None:
                    time.sleep(0.1)  # in a task of Ray nothing interrupts wait()
            except BaseException:  # such as a request to end: the launcher ends its ranks, which save
                child.terminate()
                child.wait()
                raise
        if code:
            raise TrimSFTError(f"the training ended with exit code {code}")

    def evaluate(self, cell: Cell) -> None:
        """Sample and grade answers to every benchmark that has no scores."""
        from trimsft.evaluate.run import evaluate

        evaluate(self.eval_settings(cell, self._model(cell)))

    def eval_settings(self, cell: Cell, model: str) -> EvalSettings:
        """Return how a cell is evaluated; `model` is its folder, or its name on the hub."""
        from trimsft.evaluate.settings import EvalSettings

        scale = self.scale
        further: dict[str, Any] = {"temperatures": scale.temperatures, "temperature_samples": scale.temperature_samples}
        return EvalSettings(
            model=model,
            out=self.folder.run(cell),
            benchmarks=scale.benchmarks,
            limit=scale.limit,
            engine=scale.engine,
            samples=scale.samples,
            seed=cell.seed,
            dtype=scale.dtype,
            **scale.sampling,
            **(further if scale.temperatures else {}),
        )

    def measure(self, cell: Cell) -> None:
        """Write the token table, of the same rows in every cell."""
        from trimsft.tokens.write import write_token_table

        rows, rendering = token_rows(self.folder, self.scale, cell)
        device = "cpu" if self.scale.device == "cpu" else "auto"
        write_token_table(self._model(cell), rows, self.folder.tokens(cell), device=device, **rendering)

    def _model(self, cell: Cell) -> str:
        if cell.is_base:
            return model_path(self.scale.at(cell.model))
        return str(self.folder.run(cell))


def launch_command(processes: int, device: str, words: Sequence[str]) -> list[str]:
    """Return the command line of trimsft in so many processes on this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        count, port = str(processes), str(probe.getsockname()[1])
    if device == "cpu":
        launcher = ["torch.distributed.run", "--nproc_per_node", count, "--master_port", port]
    else:
        config = str(find_recipe("accelerate/fsdp2.yaml"))
        launcher = ["accelerate.commands.launch", "--config_file", config]
        launcher += ["--num_processes", count, "--main_process_port", port]
    return [sys.executable, "-m", *launcher, "-m", "trimsft", *words]


def redirect_output(log: Path) -> None:
    """Send what is printed from now on, by libraries too, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


# ---- how a cell is trained


def read_recipe(at: ModelAt) -> dict[str, Any]:
    """Return the fields of a model's recipe; none where the scale says it all."""
    if not at.recipe:
        return {}
    path = find_recipe(at.recipe)
    return checked(dict[str, Any], parse_yaml(path.read_text(encoding="utf-8")), where=str(path))


def model_path(at: ModelAt) -> str:
    """Return the folder of a model, or its name on the hub."""
    if at.path == LAB_BASE:
        return str(lab.base_model_path())
    return at.path or str(read_recipe(at)["model_name_or_path"])


def training_fields(folder: StudyFolder, scale: Scale, cell: Cell) -> dict[str, Any]:
    """Return the fields of `trimsft train` that train one cell: recipe, then scale, then cell."""
    at = scale.at(cell.model)
    # as a recipe: what this machine cannot do is left out of one, and refused where it is asked for
    fields: dict[str, Any] = {"config": str(find_recipe(at.recipe))} if at.recipe else {}
    fields |= {**scale.defaults, "model_name_or_path": model_path(at)}
    if scale.is_lab:
        fields["dataset_name"] = str(folder.training_data(cell.seed).resolve())
    elif scale.data is not None:
        fields["dataset_name"] = scale.data
    if scale.device == "cpu":
        fields |= {"use_cpu": True, "bf16": False}
    if "flash" in str(read_recipe(at).get(ATTENTION)) and ATTENTION not in scale.defaults:
        from trimsft.train.config import has_flash_attention

        if scale.device == "cpu" or not has_flash_attention():
            fields[ATTENTION] = "sdpa"  # which the run's own settings record
    own = {"output_dir": str(folder.run(cell)), "objective": cell.objective, "seed": cell.seed}
    return fields | own | dict(cell.fields)


def training_settings(folder: StudyFolder, scale: Scale, cell: Cell) -> Settings:
    """Return the settings of a cell's training, of a base as if it were trained."""
    from trimsft.train.config import make_settings

    trained = Cell(model=cell.model, objective="sft") if cell.is_base else cell
    logging.disable(logging.WARNING)  # what settings warn of is said in training
    try:
        return make_settings(training_fields(folder, scale, trained))
    finally:
        logging.disable(logging.NOTSET)


def make_lab_rows(folder: StudyFolder, scale: Scale, seed: int) -> None:
    """Make the lab's rows of one seed where they are missing; every process makes the same."""
    path = folder.training_data(seed)
    if scale.rows is not None and not path.exists():
        lab.write_training(path, FineTuning(rows=scale.rows, seed=seed))


def token_rows(folder: StudyFolder, scale: Scale, cell: Cell) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows whose tokens are measured, of every cell, and how this one renders them."""
    from trimsft.data.encode import checked_rows
    from trimsft.data.files import read_records
    from trimsft.data.load import load_rows, plain_rows

    settings = training_settings(folder, scale, cell)
    if not folder.token_rows.exists():  # drawn once from the training data
        make_lab_rows(folder, scale, 0)
        first = training_settings(folder, scale, replace(cell, seed=0))
        rows = plain_rows(load_rows(first.data))
        numbers = random.Random("token-rows").sample(range(len(rows)), min(scale.table_rows, len(rows)))
        drawn = [rows[number] for number in sorted(numbers)]
        write_whole(folder.token_rows, "".join(json.dumps(row) + "\n" for row in drawn).encode())
    rendering = {"template": settings.data.template, "system_prompt": settings.data.system_prompt}
    for name in ("max_length", "truncation_mode", "completion_only_loss"):
        rendering[name] = getattr(settings.args, name)
    return checked_rows(row for _, row in read_records(folder.token_rows)), rendering


# ---- what is looked at before anything is run


def check_study(scale: Scale, folder: StudyFolder, cells: Sequence[Cell]) -> None:
    """Read settings as training and evaluation would; find data and benchmarks."""
    from trimsft.data.files import list_files
    from trimsft.evaluate.benchmarks import find_file

    for cell in dict.fromkeys(cell.setting for cell in cells):
        data = training_settings(folder, scale, cell).data
        if data.is_local and not scale.is_lab:  # the lab makes its own
            list_files(data.dataset_name)
    Job(folder, scale).eval_settings(cells[0], "model")
    for name in scale.benchmarks:
        find_file(name)


def check_code(folder: StudyFolder, cells: Sequence[Cell]) -> None:
    """Refuse cells of a user's own objective that were trained with other code under this name."""
    for cell in cells:
        if not cell.is_base and cell.objective not in OBJECTIVES:
            recorded = RunDirectory(folder.run(cell)).read_manifest().get("objective")
            before = recorded.get("fingerprint") if isinstance(recorded, dict) else None
            if before and before != fingerprint_objective(cell.objective):
                hint = "remove it to train it again, or choose another folder"
                raise RunError(f"{folder.run(cell)} holds a run with other code of {cell.objective}", hint=hint)
