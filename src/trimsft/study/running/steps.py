"""What is done for one cell, in its own run directory and by the public commands: train, evaluate, measure tokens.

Each step looks first whether its result is there: a second start repeats nothing that is finished. On a CPU and at the
lab the steps are calls; larger models on GPUs have a process for each, which gives back all that it held.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimsft.errors import one_line
from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running.launching import launch
from trimsft.study.running.locks import claimed
from trimsft.study.running.slots import SHARE
from trimsft.study.running.training import model_path, training_words, write_token_rows, write_training_data
from trimsft.study.running.workers import cause
from trimsft.study.scales import Scale, find_recipe

Tell = Callable[..., None]
"""Called with the stage and how far it is: tell("evaluating", done=120, total=1080)."""
_SAID = re.compile(r"trimsft: (?P<what>.+)|(?:\[rank\d+\]: *)?(?P<error>[\w.]*(?:Error|Exception): .+)")


class StepError(RuntimeError):
    """A step that failed, in the words of the command that did it."""


@dataclass(frozen=True)
class CellJob:
    """What the workers of a study do, whoever starts them."""

    place: Place
    scale: Scale
    needs: frozenset[str]
    cells: Mapping[str, Cell]

    def environment(self) -> dict[str, str]:
        return {"HF_HUB_OFFLINE": "1"} if self.scale.is_lab else {}

    def log(self, name: str) -> Path:
        return self.place.log(self.cells[name])

    def do(self, name: str, tell: Tell) -> dict[str, float]:
        """Everything that one cell still lacks; raises `Taken` where somebody else is at it."""
        cell = self.cells[name]
        with claimed(self.place.claim(cell)):
            seconds = self._do_missing(cell, tell)
            self._drop_weights(cell)
            self.place.failure(cell).unlink(missing_ok=True)
        return seconds

    def _do_missing(self, cell: Cell, tell: Tell) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for step in self.missing(cell):
            began = time.monotonic()
            if step == "train":
                train(self, cell, tell)
            elif is_call(step, self.scale):
                STEPS[step](self, cell, tell)
            else:
                tell(STAGES[step])
                _in_own_process(self, cell, step)
            _free_gpu(self.scale)
            seconds[step] = time.monotonic() - began
        return seconds

    def missing(self, cell: Cell) -> list[str]:
        """The steps that are still to do, in order."""
        steps = [] if self.place.is_trained(cell) else ["train"]
        if "scores" in self.needs and not self.place.is_evaluated(cell, self.place.names_of(self.scale)):
            steps.append("evaluate")
        if "tokens" in self.needs and not self.place.has_tokens(cell):
            steps.append("tokens")
        return steps

    def _drop_weights(self, cell: Cell) -> None:
        """Where they are not to be kept, and nothing of this study will ask for them again."""
        is_complete = self.place.is_evaluated(cell, self.place.names_of(self.scale)) and self.place.has_tokens(cell)
        if self.scale.keep_weights or cell.is_base or not is_complete:
            return
        run = RunDirectory(self.place.run(cell))
        for folder in run.train_dir.glob("checkpoint-*"):
            shutil.rmtree(folder, ignore_errors=True)
        if any(run.model_dir.glob("*.safetensors")):
            run.write_manifest(weights="dropped")
            for file in run.model_dir.glob("*.safetensors"):
                file.unlink()


def is_call(step: str, scale: Scale) -> bool:
    """On a CPU, and at the lab, where a process takes longer to start than its step; vLLM needs one of its own."""
    is_light = scale.device == "cpu" or scale.is_lab
    return is_light and not (step == "evaluate" and uses_vllm(scale))


def uses_vllm(scale: Scale) -> bool:
    return scale.engine == "vllm" or (scale.engine == "auto" and importlib.util.find_spec("vllm") is not None)


def _free_gpu(scale: Scale) -> None:
    """What a call has left on a GPU that others share."""
    if scale.device == "cuda" and scale.is_lab:
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()


# ---- training


def train(job: CellJob, cell: Cell, tell: Tell) -> None:
    """`trimsft train`: a call where `is_call` says so and one process is enough, else a process for each GPU."""
    tell("training")
    place, scale = job.place, job.scale
    if scale.is_lab:
        write_training_data(place, scale, cell.seed)
    words = training_words(place, scale, cell)
    gpus = scale.at(cell.model).gpus
    with _explained(place.log(cell), "trimsft train") as finish:
        if is_call("train", scale) and gpus == 1:
            from trimsft.train.command import main

            finish(main(words))
        else:
            finish(launch(launch_command(words, gpus, scale.device), stdin=subprocess.DEVNULL))


def launch_command(words: list[str], processes: int, device: str) -> list[str]:
    """The command line of a training with so many processes on this machine."""
    train = ["-m", "trimsft", "train", *words]
    if processes == 1:
        return [sys.executable, *train]
    count, port = str(processes), str(_free_port())
    if device == "cpu":
        run = ["-m", "torch.distributed.run", "--nproc_per_node", count, "--master_port", port]
        return [sys.executable, *run, *train]
    config = str(find_recipe("accelerate/fsdp2.yaml"))
    run = ["-m", "accelerate.commands.launch", "--config_file", config]
    return [sys.executable, *run, "--num_processes", count, "--main_process_port", port, *train]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _explained(log: Path, command: str) -> Iterator[Callable[[int], None]]:
    """An exit code that is not 0 becomes an error with what was said last since the beginning."""
    before = log.stat().st_size if log.is_file() else 0

    def finish(code: int) -> None:
        if code < 0:
            raise StepError(f"{command} was {cause(code)}")
        if code:
            raise StepError(last_word(log, before) or f"{command} ended with exit code {code}")

    yield finish


def last_word(log: Path, after: int = 0) -> str:
    """What a command said last behind a position of its log: by its own name, or as Python names an error."""
    try:
        lines = log.read_bytes()[after:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [(found["what"] or found["error"]).strip() for line in lines if (found := _SAID.match(line))]
    return said[-1] if said else ""


# ---- after it


def evaluate(job: CellJob, cell: Cell, tell: Tell) -> None:
    """`trimsft eval` on every benchmark of the scale."""
    tell("evaluating")
    from trimsft.evaluate.command import EvalSettings
    from trimsft.evaluate.command import evaluate as fill
    from trimsft.evaluate.engines.base import Sampling

    scale = job.scale
    asked = EvalSettings(
        model=_model(job, cell),
        out=job.place.run(cell),
        benchmarks=scale.benchmarks,
        data_dir=None if scale.benchmark_data is None else Path(scale.benchmark_data),
        limit=scale.problems,
        engine=scale.engine,
        samples=scale.samples,
        sampling=Sampling(**scale.sampling),
        seed=cell.seed,
        dtype=scale.dtype,
        gpu_memory=_gpu_memory(),
    )
    fill(asked, on_progress=lambda name, progress: tell(f"evaluating {name}", progress.done, progress.total))


def _gpu_memory() -> float | None:
    """What this cell may take of a GPU that it shares; None of one that is its own."""
    share = os.environ.get(SHARE)
    return None if share is None else 0.9 * float(share)


def measure_tokens(job: CellJob, cell: Cell, tell: Tell) -> None:
    """`trimsft tokens` on rows of the training data."""
    tell("measuring tokens")
    from trimsft.tokens import write_token_table

    rows, rendering = write_token_rows(job.place, job.scale, cell)
    write_token_table(_model(job, cell), rows, job.place.tokens(cell), device=_device(job.scale), **rendering)


def _device(scale: Scale) -> str:
    return "cpu" if scale.device == "cpu" else "auto"


def _model(job: CellJob, cell: Cell) -> str:
    if cell.is_base:
        return model_path(job.scale.at(cell.model))
    run = RunDirectory(job.place.run(cell))
    if run.read_manifest().get("weights") == "dropped":
        raise StepError(
            f"its weights were deleted after its evaluation; to measure more, remove {run.path} and run it again "
            "with --keep-weights"
        )
    return str(run.path)


STEPS: dict[str, Callable[[CellJob, Cell, Tell], None]] = {"evaluate": evaluate, "tokens": measure_tokens}
ONE_STEP = f"import sys; from {__name__} import main; sys.exit(main())"
STAGES = {"train": "training", "evaluate": "evaluating", "tokens": "measuring tokens"}


def _in_own_process(job: CellJob, cell: Cell, step: str) -> None:
    """The same step in a process that gives its GPU back."""
    order = pickle.dumps((job, cell, step))
    with _explained(job.place.log(cell), STAGES[step]) as finish:
        finish(launch([sys.executable, "-c", ONE_STEP], input=order))


def main() -> int:
    """One step, as `_in_own_process` orders it on stdin."""
    job, cell, step = pickle.load(sys.stdin.buffer)
    try:
        STEPS[step](job, cell, tell_nobody)
    except Exception as error:
        import traceback

        traceback.print_exc()
        sys.stderr.write(f"trimsft: {one_line(error)}\n")
        return 1
    return 0


def tell_nobody(*what: Any, **how_far: Any) -> None:
    pass
