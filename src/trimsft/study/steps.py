"""What is done for one cell, in its own run directory: train, evaluate, measure tokens; whatever is missing.

    job = Job(StudyFolder(Path("runs/study-lab")), scale, frozenset({"scores"}))
    job.run(cell)            # {"train": 24.1, "evaluate": 11.8}: seconds; raises where a step fails

On a CPU and at the lab the steps are calls. Larger models on GPUs have a process for each step, which gives back all
that it held, and several where a training has several ranks: `python -m trimsft.study.steps ORDER`, a JSON file.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trimsft import lab
from trimsft.errors import RunError, RunInUse, TrimSFTError, UsageError, one_line
from trimsft.lab import FineTuning
from trimsft.options import unknown_name
from trimsft.runs import RunDirectory, RunLock
from trimsft.runs.files import write_whole
from trimsft.runs.parsing import checked, parse_yaml
from trimsft.shipped import find_recipe
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.scales import LAB_BASE, ModelAt, Scale

if TYPE_CHECKING:
    from trimsft.evaluate.settings import EvalSettings
    from trimsft.train.settings import Settings

ATTENTION = "attn_implementation"
LIBRARIES = "trimsft.train.run"  # imports torch, transformers, TRL and datasets
ENDING = 10.0  # seconds that processes have to end once they are asked to
SAVING = 120.0  # and a training whose study has ended, to save its checkpoint


class Result(NamedTuple):
    """What came of a cell."""

    state: str  # done, failed, or elsewhere
    note: str = ""  # why it failed, or who works on it
    seconds: Mapping[str, float] = {}  # of each step that was missing


@dataclass(frozen=True)
class Job:
    """What the cells of a study have in common, for whoever runs them."""

    folder: StudyFolder
    scale: Scale
    needs: frozenset[str]

    def missing(self, cell: Cell) -> list[str]:
        """Return the steps that are still to do, in order."""
        return self.folder.missing(cell, self.scale, self.needs)

    def attempt(self, cell: Cell) -> Result:
        """Do what is missing, in a process of its own: what is printed goes to the cell's log, errors are returned."""
        try:
            redirect_output(self.folder.log(cell))
            limit_threads()
            return Result("done", seconds=self.run(cell))
        except RunInUse as error:
            return Result("elsewhere", str(error.holder or "another process"))
        except Exception as error:  # whatever a library raises ends this cell, and no other
            with suppress(OSError):
                traceback.print_exc()
            return Result("failed", one_line(error))

    def run(self, cell: Cell) -> dict[str, float]:
        """Do what is missing; return seconds by step. Raises `RunInUse` where another process works on the cell."""
        seconds = {}
        with RunLock(self.folder.claim(cell)):
            for step in self.missing(cell):
                began = time.monotonic()
                processes = self.scale.gpus_of(cell) if step == "train" else 1
                if step == "train" and self.scale.is_lab:
                    write_training_data(self.folder, self.scale, cell.seed)
                if processes == 1 and self._is_call(step):
                    import_libraries()
                    self.take(cell, step)
                else:
                    self._take_elsewhere(cell, step, processes)
                seconds[step] = time.monotonic() - began
            self._drop_weights(cell)
            self.folder.forget_failure(cell)
        return seconds

    def take(self, cell: Cell, step: str) -> None:
        """Do one step, in this process."""
        if step == "evaluate":
            from trimsft.evaluate.run import evaluate

            evaluate(self.eval_settings(cell, self._model(cell)))
        elif step == "tokens":
            from trimsft.tokens.write import write_token_table

            rows, rendering = token_rows(self.folder, self.scale, cell)
            device = "cpu" if self.scale.device == "cpu" else "auto"
            write_token_table(self._model(cell), rows, self.folder.tokens(cell), device=device, **rendering)
        else:
            from trimsft.train.run import train

            train(training_settings(self.folder, self.scale, cell))

    def eval_settings(self, cell: Cell, model: str) -> EvalSettings:
        """Return how a cell is evaluated; `model` is its folder, or its name on the hub."""
        from trimsft.evaluate.engines import Sampling
        from trimsft.evaluate.settings import EvalSettings

        scale = self.scale
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
        )

    def _model(self, cell: Cell) -> str:
        if cell.is_base:
            return model_path(self.scale.at(cell.model))
        path = self.folder.run(cell)
        if self.folder.has_dropped_weights(cell):
            hint = f"to measure more, remove {path} and run it again with --keep-weights"
            raise UsageError("its weights were deleted after its evaluation", hint=hint)
        return str(path)

    def _drop_weights(self, cell: Cell) -> None:
        """Delete weights that are not to be kept, once nothing of this study will ask for them again."""
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

    def _is_call(self, step: str) -> bool:
        """Return whether a step is a call: at the lab a process takes longer to start; vLLM needs one of its own."""
        engine = self.scale.engine
        by_vllm = engine == "vllm" or (engine == "auto" and importlib.util.find_spec("vllm") is not None)
        return (self.scale.device == "cpu" or self.scale.is_lab) and not (step == "evaluate" and by_vllm)

    def _take_elsewhere(self, cell: Cell, step: str, processes: int) -> None:
        """Do one step in processes of its own."""
        with tempfile.TemporaryDirectory() as place:
            order = Path(place) / "order.json"
            folder = {"out": str(self.folder.out), "scale": self.scale.as_dict(), "needs": sorted(self.needs)}
            order.write_text(json.dumps({**folder, "cell": cell.as_dict(), "step": step}))
            command = command_of(order, processes, self.scale.device)
            # its input, and that of its ranks, ends when this process does, however that ends
            with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
                try:
                    while (code := child.poll()) is None:
                        time.sleep(0.1)  # in a task of Ray nothing interrupts wait()
                except BaseException:  # such as a request to end: a launcher ends its ranks, a training saves
                    child.terminate()
                    child.wait()
                    raise
            reason = order.with_suffix(".failure")
            if reason.is_file():
                raise StepError(reason.read_text(encoding="utf-8"))
            if code:
                ended = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
                raise StepError(f"{step} ended ({ended})")


class StepError(TrimSFTError, RuntimeError):
    """A step that failed in a process of its own."""


def carry_out(order: Path) -> int:
    """Do the step of an order, in a process of its own, and write down why it failed."""
    asked = json.loads(order.read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_input, daemon=True).start()
    job = Job(StudyFolder(Path(asked["out"])), Scale.from_dict(asked["scale"]), frozenset(asked["needs"]))
    try:
        job.take(Cell.from_dict(asked["cell"]), asked["step"])
    except Exception as error:  # whatever a library raises
        with suppress(OSError):  # a full disk takes no traceback
            traceback.print_exc()
        with suppress(FileExistsError), order.with_suffix(".failure").open("x", encoding="utf-8") as file:
            file.write(one_line(error))  # of the first rank; the others fail because of it
        return 1
    return 0


def _end_with_input() -> None:
    """End as soon as who gave the order has ended."""
    os.read(0, 1)  # returns at the end of the input
    os.kill(os.getpid(), signal.SIGTERM)  # a training saves
    time.sleep(SAVING)
    os._exit(1)


def command_of(order: Path, processes: int, device: str) -> list[str]:
    """Return the command line that carries out an order with so many processes on this machine."""
    job = ["-m", "trimsft.study.steps", str(order)]
    if processes == 1:
        return [sys.executable, *job]
    with socket.socket() as probe:
        probe.bind(("", 0))
        count, port = str(processes), str(probe.getsockname()[1])
    if device == "cpu":
        ranks = ["-m", "torch.distributed.run", "--nproc_per_node", count, "--master_port", port]
        return [sys.executable, *ranks, *job]
    config = ["--config_file", str(find_recipe("accelerate/fsdp2.yaml"))]
    ranks = ["--num_processes", count, "--main_process_port", port]
    return [sys.executable, "-m", "accelerate.commands.launch", *config, *ranks, *job]


def all_needs(scale: Scale, needs: Collection[str]) -> frozenset[str]:
    """Add tokens where weights are deleted: there is no other time to measure them, and it takes seconds."""
    if unknown := sorted(set(needs) - {"scores", "tokens"}):
        raise unknown_name("needs", unknown[0], ("scores", "tokens"))
    drops = not scale.keep_weights and "scores" in needs
    return frozenset(needs) | ({"tokens"} if drops else set())


# ---- the process that a cell runs in


def redirect_output(log: Path) -> None:
    """Send what is printed from now on, by libraries too, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise RunError(f"{log.parent}: cannot be used as a run directory ({error.strerror})") from error
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def limit_threads() -> None:
    """Use as many threads as the environment says; torch reads it when it is imported, and not again."""
    count, torch = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0], sys.modules.get("torch")
    if count.isdecimal() and int(count) and torch is not None:
        torch.set_num_threads(int(count))


def import_libraries() -> None:
    """Import what all steps need, without collecting garbage: that takes a quarter of the time of imports."""
    if LIBRARIES not in sys.modules:
        gc.disable()
        importlib.import_module(LIBRARIES)
        gc.freeze()
        gc.enable()


# ---- how a cell is trained


def model_path(at: ModelAt) -> str:
    """Return the folder of a model, or its name on the hub."""
    if at.path == LAB_BASE:
        return str(lab.base_model_path())
    path = at.path or _recipe(at).get("model_name_or_path")
    if not isinstance(path, str):
        raise UsageError("names no model_name_or_path", field="recipe", value=at.recipe)
    return path


def _recipe(at: ModelAt) -> dict[str, Any]:
    if not at.recipe:
        return {}
    path = find_recipe(at.recipe)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as YAML ({one_line(error)})", field="recipe") from error
    return checked(dict[str, Any], content, where=str(path), hint="name a file of settings of trimsft train")


def wants_flash(scale: Scale, at: ModelAt) -> bool:
    """Return whether the scale or else the recipe asks for flash attention."""
    return "flash" in str(scale.defaults.get(ATTENTION, _recipe(at).get(ATTENTION)))


def training_fields(folder: StudyFolder, scale: Scale, cell: Cell) -> dict[str, Any]:
    """Return the fields of `trimsft train` that train one cell: recipe, then scale, then cell."""
    at = scale.at(cell.model)
    fields: dict[str, Any] = {"config": str(find_recipe(at.recipe))} if at.recipe else {}
    fields |= scale.defaults
    if at.path:
        fields["model_name_or_path"] = model_path(at)
    if scale.is_lab:
        fields["dataset_name"] = str(folder.training_data(cell.seed).resolve())
    elif scale.data is not None:
        fields["dataset_name"] = scale.data
    if scale.device == "cpu":
        fields |= {"use_cpu": True, "bf16": False}
        if ATTENTION not in fields and wants_flash(scale, at):
            fields[ATTENTION] = "sdpa"
    own = {"output_dir": str(folder.run(cell)), "objective": cell.objective, "seed": cell.seed}
    return fields | own | dict(cell.fields)


def training_settings(folder: StudyFolder, scale: Scale, cell: Cell) -> Settings:
    """Return the settings of a cell's training, of a base as if it were trained."""
    from trimsft.train.settings import make_settings

    trained = Cell(model=cell.model, objective="sft") if cell.is_base else cell
    logger = logging.getLogger("trimsft")
    level = logger.level
    logger.setLevel(logging.ERROR)  # what settings warn of is said in training
    try:
        return make_settings(training_fields(folder, scale, trained))
    finally:
        logger.setLevel(level)


def write_training_data(folder: StudyFolder, scale: Scale, seed: int) -> None:
    """Make the lab's rows of one seed where they are missing; every process makes the same."""
    path = folder.training_data(seed)
    if not path.exists():
        assert scale.rows is not None
        lab.write_training(path, FineTuning(rows=scale.rows, seed=seed))


def token_rows(folder: StudyFolder, scale: Scale, cell: Cell) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the rows whose tokens are measured, the same for every cell, and how they are rendered for this one."""
    from trimsft.data.encode import checked_rows
    from trimsft.data.load import load_rows, plain_rows, read_file

    settings = training_settings(folder, scale, cell)
    if not folder.token_rows.exists():  # drawn once from the training data
        data = settings.data
        if scale.is_lab:
            write_training_data(folder, scale, 0)
            data = replace(data, dataset_name=str(folder.training_data(0).resolve()))
        rows = plain_rows(load_rows(data))
        numbers = random.Random("token-rows").sample(range(len(rows)), min(scale.table_rows, len(rows)))
        drawn = [rows[number] for number in sorted(numbers)]
        write_whole(folder.token_rows, "".join(json.dumps(row) + "\n" for row in drawn).encode())
    rendering = {"template": settings.data.template, "system_prompt": settings.data.system_prompt}
    for name in ("max_length", "truncation_mode", "completion_only_loss"):
        rendering[name] = getattr(settings.args, name)
    return checked_rows(read_file(folder.token_rows).records), rendering


if __name__ == "__main__":
    sys.exit(carry_out(Path(sys.argv[1])))
