"""What is done for one cell, in its own run directory: train, evaluate, measure tokens; whatever is missing.

job = CellJob(StudyFolder(Path("runs/study-lab")), scale, frozenset({"scores"}), {cell.name: cell})
job.do(Task("lab/sft/seed0"), tell)            # {"train": 24.1, "evaluate": 11.8}: seconds; raises where a step fails

On a CPU and at the lab the steps are calls. Larger models on GPUs have a process for each step, which gives back all
that it held, and several where a training has several ranks: `python -m trimsft.study.running ORDER`. The order is a
pickle; a process that fails writes why beside it, as {"class": "OutOfMemoryError", "message": "CUDA out of memory"}.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimsft.errors import RunError, RunInUse, TrimSFTError, UsageError, one_line
from trimsft.options import unknown_name
from trimsft.runs import RunDirectory, RunLock
from trimsft.runs.parsing import read_json
from trimsft.shipped import find_recipe
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.launch import launch
from trimsft.study.running.training import model_path, training_settings, write_token_rows, write_training_data
from trimsft.study.running.workers import SHARE, Taken, Task, ended_by
from trimsft.study.scales import Scale

if TYPE_CHECKING:
    from trimsft.evaluate.settings import EvalSettings

Tell = Callable[..., None]  # called with the stage and how far it is: tell("evaluating", done=120, total=1080)
LIBRARIES = "trimsft.train.run"  # imports torch, transformers, TRL and datasets
STAGES = {"train": "training", "evaluate": "evaluating", "tokens": "measuring tokens"}


class StepError(TrimSFTError, RuntimeError):
    """A step that failed in a process of its own; `was_killed` by a signal, and so perhaps not by what it did."""

    was_killed = False


@dataclass(frozen=True)
class CellJob:
    """What the workers of a study do, whoever starts them."""

    folder: StudyFolder
    scale: Scale
    needs: frozenset[str]
    cells: Mapping[str, Cell]

    def environment(self) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1"} if self.scale.is_lab else {}

    def log(self, name: str) -> Path:
        return self.folder.log(self.cells[name])

    def missing(self, cell: Cell) -> list[str]:
        """The steps that are still to do, in order."""
        return self.folder.missing(cell, self.scale, self.needs)

    def do(self, task: Task, tell: Tell) -> dict[str, float]:
        """Seconds for each step that was missing; raises `Taken` where somebody else is at the cell."""
        cell = self.cells[task.name]
        try:
            lock = RunLock(self.folder.claim(cell))
        except RunInUse as error:
            raise Taken(str(error.holder or "another process")) from None
        with lock:
            steps = [step for step in self.missing(cell) if step == "train" or not task.only_training]
            seconds = {step: self._timed(cell, step, tell) for step in steps}
            self._drop_weights(cell)
            self.folder.forget_failure(cell)
        return seconds

    def _timed(self, cell: Cell, step: str, tell: Tell) -> float:
        began = time.monotonic()
        tell(STAGES[step])
        if step == "train":
            write_training_data(self.folder, self.scale, cell.seed)
        processes = self.scale.gpus_of(cell) if step == "train" else 1
        if is_call(step, self.scale) and processes == 1:
            _import_libraries()
            self.take(cell, step, tell)
        else:
            self._in_own_process(cell, step, processes)
        _free_gpu(self.scale)
        return time.monotonic() - began

    def take(self, cell: Cell, step: str, tell: Tell) -> None:
        """One step, in this process."""
        if step == "evaluate":
            self._evaluate(cell, tell)
        elif step == "tokens":
            self._measure_tokens(cell)
        else:
            from trimsft.train.run import train

            train(training_settings(self.folder, self.scale, cell))

    def _evaluate(self, cell: Cell, tell: Tell) -> None:
        from trimsft.evaluate.run import evaluate

        settings = self.eval_settings(cell, self._model(cell))
        evaluate(settings, on_progress=lambda name, far: tell(f"evaluating {name}", far.done, far.total))

    def eval_settings(self, cell: Cell, model: str) -> EvalSettings:
        """How a cell is evaluated; `model` is its folder, or its name on the hub."""
        from trimsft.evaluate.engines import Sampling
        from trimsft.evaluate.settings import EvalSettings

        scale, share = self.scale, os.environ.get(SHARE)
        return EvalSettings(
            model=model,
            out=self.folder.run(cell),
            benchmarks=scale.benchmarks,
            data_dir=None if scale.benchmark_data is None else Path(scale.benchmark_data),
            limit=scale.problems,
            engine=scale.engine,
            samples=scale.samples,
            sampling=Sampling(**scale.sampling),
            seed=cell.seed,
            dtype=scale.dtype,
            gpu_memory=None if share is None else 0.9 * float(share),
        )

    def _measure_tokens(self, cell: Cell) -> None:
        from trimsft.tokens.write import write_token_table

        rows, rendering = write_token_rows(self.folder, self.scale, cell)
        device = "cpu" if self.scale.device == "cpu" else "auto"
        write_token_table(self._model(cell), rows, self.folder.tokens(cell), device=device, **rendering)

    def _model(self, cell: Cell) -> str:
        if cell.is_base:
            return model_path(self.scale.at(cell.model))
        path = self.folder.run(cell)
        if self.folder.has_dropped_weights(cell):
            raise UsageError(
                "its weights were deleted after its evaluation",
                hint=f"to measure more, remove {path} and run it again with --keep-weights",
            )
        return str(path)

    def _drop_weights(self, cell: Cell) -> None:
        """Where they are not to be kept, and nothing of this study will ask for them again."""
        folder = self.folder
        is_complete = folder.is_evaluated(cell, folder.names_of(self.scale)) and folder.has_tokens(cell)
        if self.scale.keep_weights or cell.is_base or not is_complete:
            return
        run = RunDirectory(folder.run(cell))
        for checkpoint in run.train_dir.glob("checkpoint-*"):
            shutil.rmtree(checkpoint, ignore_errors=True)
        if any(run.model_dir.glob("*.safetensors")):
            run.write_manifest(weights="dropped")
            for file in run.model_dir.glob("*.safetensors"):
                file.unlink()

    def _in_own_process(self, cell: Cell, step: str, processes: int) -> None:
        with tempfile.TemporaryDirectory() as place:
            order = Path(place) / "order"
            order.write_bytes(pickle.dumps((self, cell, step)))
            code = launch(command_of(order, processes, self.scale.device), stdin=subprocess.DEVNULL)
            if code:
                raise _failure(order, STAGES[step], code)


def all_needs(scale: Scale, needs: Collection[str]) -> frozenset[str]:
    """Before weights are deleted, tokens are measured, too: it takes seconds, and there is no other time for it."""
    if unknown := sorted(set(needs) - {"scores", "tokens"}):
        raise unknown_name("needs", unknown[0], ("scores", "tokens"))
    drops = not scale.keep_weights and "scores" in needs
    return frozenset(needs) | ({"tokens"} if drops else set())


def is_call(step: str, scale: Scale) -> bool:
    """On a CPU, and at the lab, where a process takes longer to start than its step; vLLM needs one of its own."""
    return (scale.device == "cpu" or scale.is_lab) and not (step == "evaluate" and uses_vllm(scale))


def uses_vllm(scale: Scale) -> bool:
    return scale.engine == "vllm" or (scale.engine == "auto" and importlib.util.find_spec("vllm") is not None)


def _import_libraries() -> None:
    """Import what all steps need, and look for no garbage among it: that takes a quarter of the time of imports."""
    if LIBRARIES not in sys.modules:
        gc.disable()
        try:
            importlib.import_module(LIBRARIES)
        finally:
            gc.freeze()
            gc.enable()


def _free_gpu(scale: Scale) -> None:
    """Give back what a call has left on a GPU that others share."""
    if scale.device == "cuda" and scale.is_lab:
        import torch

        gc.collect()
        torch.cuda.empty_cache()


def tell_nobody(*what: Any, **how_far: Any) -> None:
    pass


# ---- processes of their own


def command_of(order: Path, processes: int, device: str) -> list[str]:
    """The command line that carries out an order with so many processes on this machine."""
    job = ["-m", __package__, str(order)]
    if processes == 1:
        return [sys.executable, *job]
    count, port = str(processes), str(_free_port())
    if device == "cpu":
        ranks = ["-m", "torch.distributed.run", "--nproc_per_node", count, "--master_port", port]
        return [sys.executable, *ranks, *job]
    config = ["--config_file", str(find_recipe("accelerate/fsdp2.yaml"))]
    ranks = ["--num_processes", count, "--main_process_port", port]
    return [sys.executable, "-m", "accelerate.commands.launch", *config, *ranks, *job]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def carry_out(order: Path) -> int:
    """In the process of a step: do it, and write down why it failed."""
    job, cell, step = pickle.loads(order.read_bytes())
    try:
        job.take(cell, step, tell_nobody)
    except Exception as error:  # whatever a library raises
        with contextlib.suppress(OSError):  # a full disk
            traceback.print_exc()
        reason = json.dumps({"class": type(error).__name__, "message": one_line(error)})
        with contextlib.suppress(FileExistsError), order.with_suffix(".failure").open("x") as file:  # the first rank's
            file.write(reason)
        return 1
    return 0


def _failure(order: Path, stage: str, code: int) -> StepError:
    """Why a step failed that ended with this exit code."""
    try:
        return StepError(read_json(order.with_suffix(".failure"), dict[str, str])["message"])
    except (FileNotFoundError, RunError, KeyError):  # it did not come so far
        error = StepError(f"{stage} ended ({ended_by(code)})")
        error.was_killed = code < 0
        return error
