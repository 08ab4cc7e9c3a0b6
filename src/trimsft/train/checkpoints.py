"""Checkpoints that are whole or absent, and the newest one to continue from.

Each is written to `_saving/`, marked by `complete.json`, synced and renamed, so that a kill at any moment costs at most
the steps since the last one. The marker is written last and lists the files with their sizes.

Within `Stopping()`, a callback, Ctrl-C, SIGTERM and SIGHUP end a training with a checkpoint.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from unittest import mock

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import distributed
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainerCallback
from trl import SFTTrainer

from trimsft.errors import Handler, Interrupted, RunError, TrimSFTError, WriteError, and_more, handle_signals, one_line
from trimsft.runs import refuse_links, sync, write_whole
from trimsft.runs.parsing import read_json

logger = logging.getLogger("trimsft")
Made = TypeVar("Made")

STAGING = "_saving"  # pushing to a hub leaves out names that begin with an underscore
COMPLETE = "complete.json"
SAME_SIGNAL_SECONDS = 1.0  # `timeout` and some launchers signal process and group


class AtomicCheckpoints(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer with checkpoints that are whole or absent, and loaded whole or not at all."""

    _saving = False  # while true, the folder of the run is `_saving/`

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `Trainer.train`; `True` continues from the newest whole checkpoint."""
        folder, wanted = Path(str(self.args.output_dir)), resume_from_checkpoint
        by_main(lambda: clear_staging(folder))
        state_files = ["optimizer.pt", "scheduler.pt"]
        if self.is_deepspeed_enabled:
            state_files = ["global_step*"]
        if self.is_fsdp_enabled:
            # sharded ones torch would read as pickles that may run code
            plugin = self.accelerator.state.fsdp_plugin
            plugin.state_dict_config = plugin.optim_state_dict_config = None
            plugin.set_state_dict_type("FULL_STATE_DICT")
            state_files = ["optimizer.bin", "scheduler.pt"]
        if wanted:
            resume_from_checkpoint = by_main(lambda: _choose(folder, wanted, state_files))
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # resumed after the last step within an epoch: transformers would train one more
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _init_training_state(self, *args: Any) -> Any:
        begin = super()._init_training_state(*args)
        if best := self.state.best_global_step:
            # by its place in this run, which may have been moved
            self.state.best_model_checkpoint = os.path.join(self._get_output_dir(None), f"checkpoint-{best}")
        return begin

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._load_whole(resume_from_checkpoint):
            with opened_as_data(resume_from_checkpoint):
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        if problem := by_main(lambda: find_damage(best)):
            problem = f"the best checkpoint {str(best)!r} cannot be loaded: {problem}"
            raise RunError(problem, field="load_best_model_at_end", hint="turn it off to keep the last weights")
        if not self._load_whole(best):
            # DeepSpeed's files hold objects, which it unpickles itself
            with contextlib.nullcontext() if self.is_deepspeed_enabled else opened_as_data(best):
                super()._load_best_model()

    def _load_whole(self, checkpoint: str | Path) -> bool:
        """Load the weights strictly; False where they are sharded or of several adapters."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        adapters = len(getattr(model, "peft_config", {}))
        is_plain = isinstance(model, PreTrainedModel) and not getattr(model, "_hf_peft_config_loaded", False)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled or not (is_plain or adapters == 1):
            return False
        load_weights(model, Path(checkpoint))
        return True

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.args.device.type == "cpu":
            # torch restores nothing to a CPU that has a number, as the device of a rank
            self.args.__dict__["_setup_devices"] = torch.device("cpu")
        with opened_as_data(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with opened_as_data(checkpoint):
            super()._load_rng_state(checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, STAGING) if self._saving else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Leave checkpoints here; a model is pushed when it is finished."""

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save as Trainer does, without its settings, a pickle with tokens of the hub."""
        super()._save(output_dir, state_dict)
        Path(str(output_dir or self.args.output_dir), "training_args.bin").unlink()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        state, folder = self.state, Path(self._get_output_dir(trial))
        name = f"checkpoint-{state.global_step}"
        staged, final = folder / STAGING / name, folder / name
        by_main(lambda: clear_staging(folder))
        with explained(folder / STAGING, name):
            self._saving = True
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._saving = False
            # Trainer saw the staging folder only; this is where the best checkpoint will stand
            chosen = folder / f"checkpoint-{state.best_global_step}"
            if chosen == final or chosen.is_dir():
                state.best_model_checkpoint = str(chosen)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                state.save_to_json(str(staged / "trainer_state.json"))
                mark_complete(staged, state.global_step)
        if self.args.should_save:
            _publish(staged, final)
            self._rotate(folder, keep={final, Path(state.best_model_checkpoint or final)})
            shutil.rmtree(folder / STAGING, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _rotate(self, folder: Path, keep: set[Path]) -> None:
        """Remove what exceeds `save_total_limit`, torn ones first; never those in `keep`."""
        others = [one for one in _checkpoints(folder) if one not in keep]
        others.sort(key=lambda one: find_damage(one) is None)
        limit = self.args.save_total_limit or len(others) + len(keep)
        for checkpoint in others[: max(0, len(others) + len(keep) - limit)]:
            shutil.rmtree(checkpoint, ignore_errors=True)


def by_main(work: Callable[[], Made], *, everywhere: bool = False) -> Made:
    """Return what the main process makes, or its error; `everywhere` each keeps its own."""
    is_main, made, error = PartialState().is_main_process, None, None
    try:
        made = work() if is_main or everywhere else None
    except TrimSFTError as own:
        error = own
    shared: list[Any] = [None if everywhere else made, error]
    broadcast_object_list(shared)
    if shared[1] is not None and not is_main:
        error = shared[1]
        error.is_reported = True  # so that it is printed once
    if error is not None:
        raise error
    return made if everywhere else shared[0]  # type: ignore[return-value]


# ---- whole or torn


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint; torn ones are skipped with a warning. Reads only."""
    for checkpoint in reversed(_checkpoints(folder)):
        problem = find_damage(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("checkpoint %s is skipped: %s", checkpoint, problem)
    return None


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder by step, the oldest first."""
    named = [one for one in folder.glob("checkpoint-*") if one.name[11:].isdecimal() and one.is_dir()]
    return sorted(named, key=lambda one: int(one.name[11:]))


def _choose(folder: Path, wanted: str | bool, needed: list[str]) -> str:
    """Return the checkpoint to continue from: the newest, or the one that is named.

    Without what is `needed` transformers would begin moments or schedule anew, without a word.
    """
    chosen = latest_checkpoint(folder) if wanted is True else Path(str(wanted))
    if chosen is None:
        problem = f"{str(folder)!r} holds no whole checkpoint"
    elif (chosen / COMPLETE).exists() and (damage := find_damage(chosen)):
        problem = f"{wanted!r} is torn ({damage})"
    elif lacking := [name for name in ("trainer_state.json", *needed) if not any(chosen.glob(name))]:
        problem = f"{str(chosen)!r} lacks {lacking[0]}, of a training like this one (save_only_model, FSDP, DeepSpeed?)"
    else:
        return str(chosen)
    raise RunError(problem, field="resume_from_checkpoint", hint="choose another, or train anew")


def mark_complete(staged: Path, step: int) -> None:
    """Put everything on disk, then the list of it: where the list is, the rest is."""
    entries = sorted(staged.rglob("*"))
    sizes = {path.relative_to(staged).as_posix(): path.stat().st_size for path in entries if path.is_file()}
    for entry in entries:
        sync(entry)
    write_whole(staged / COMPLETE, (json.dumps({"step": step, "files": sizes}, indent=1) + "\n").encode())
    sync(staged.parent)


def find_damage(checkpoint: Path) -> str | None:
    """Return the first file of a checkpoint that is not as its marker says; None if all are."""
    if not (checkpoint / COMPLETE).is_file():
        return f"{COMPLETE} is missing" if checkpoint.is_dir() else "it is missing"
    try:
        for name, size in read_json(checkpoint / COMPLETE, dict)["files"].items():
            if not (checkpoint / name).is_file():
                return f"{name} is missing"
            if (now := (checkpoint / name).stat().st_size) != size:
                return f"{name} has {now} bytes, {COMPLETE} says {size}"
    except Exception as error:  # whatever a damaged file makes of itself
        return f"{COMPLETE} cannot be read ({one_line(error)})"
    return None


# ---- staging


def clear_staging(folder: Path) -> None:
    """Tidy up after a killed run: what lacked only its name gets it, the rest goes."""
    refuse_links(folder / STAGING)  # which may lead anywhere
    for staged in _checkpoints(folder / STAGING):
        if find_damage(staged) is None:
            _publish(staged, folder / staged.name)
    shutil.rmtree(folder / STAGING, ignore_errors=True)


def _publish(staged: Path, final: Path) -> None:
    """Give a complete checkpoint its name; one that has it already leaves only for this one."""
    if final.exists():
        os.rename(final, staged.with_name(f"replaced-{final.name}"))
    os.rename(staged, final)
    sync(final.parent)


@contextlib.contextmanager
def explained(half: Path, name: str) -> Iterator[None]:
    """Leave no half checkpoint or model after a failure, and name a full disk as its cause."""
    try:
        yield
    except BaseException as error:
        # torch and safetensors report a failed write without its cause
        is_full = isinstance(error, Exception) and shutil.disk_usage(half.parent).free < 2**20
        is_full |= getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in str(error)
        shutil.rmtree(half, ignore_errors=True)
        if not is_full:
            raise
        hint = "earlier checkpoints are intact: free space or lower save_total_limit, and run the same command again"
        raise WriteError(f"no space for {name} in {str(half.parent)!r}", field="output_dir", hint=hint) from error


# ---- reading, as data: every weight fits the model, and no pickle runs code


@contextlib.contextmanager
def opened_as_data(checkpoint: str | Path | None) -> Iterator[None]:
    """Have torch open files as data, so that a pickle that names code is refused."""
    # torch refuses to have both
    forced = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
    try:
        with mock.patch.dict(os.environ, forced):
            yield
    except (torch.OutOfMemoryError, TrimSFTError):
        raise
    except Exception as error:  # the libraries raise whatever the files make them
        raise RunError(f"{checkpoint} cannot be loaded ({one_line(error)})", hint="choose another") from error


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace the weights of a model by those of a checkpoint; raise where any does not fit.

    transformers saves experts in another layout than it holds them in, and its Trainer passes over names that do not
    fit: they keep what they were. `from_pretrained` knows both layouts.
    """
    loaded = None
    with opened_as_data(checkpoint):
        if isinstance(model, PreTrainedModel):
            floats = {value.dtype for value in model.state_dict().values() if value.is_floating_point()}
            loaded, problems = type(model).from_pretrained(
                str(checkpoint),
                config=model.config,
                dtype=functools.reduce(torch.promote_types, floats),  # one that holds all of them exactly
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # so that they are named
            )
        else:
            (name,) = model.peft_config
            problems = model.load_adapter(str(checkpoint), name, is_trainable=True)._asdict()
            # those of prompt tuning are loaded strictly, and then reported as unexpected
            problems["unexpected_keys"] = set(problems["unexpected_keys"]) - {"prompt_embeddings"}
    wrong = [
        f"{kind.replace('_', ' ')} {key[0] if isinstance(key, tuple) else key}"
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")
        for key in sorted(problems.get(kind, ()))
    ]
    if wrong:
        problem = f"{checkpoint}: its weights are not those of this model: {wrong[0]}{and_more(len(wrong), 'tensors')}"
        raise RunError(problem, hint="choose a checkpoint of this model, or start without one")
    if loaded is not None:
        model.load_state_dict(loaded.state_dict())


# ---- signals


class Stopping(TrainerCallback):  # type: ignore[misc]
    """Obeys signals that ask to end; a second Ctrl-C, or one before training, ends all at once."""

    def __init__(self) -> None:
        self.resume_hint = "nothing is saved yet; rerun the command to start again"
        self.has_begun = False  # whether the training loop was entered
        self._work = ""  # what is brought to its end before a signal is obeyed
        self._signal, self._signal_time = 0, 0.0
        self._agreed = 0  # the signal that all ranks have agreed on
        self._group: Any = None
        self._process = os.getpid()
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Stopping:
        self._before = handle_signals(self._handle)
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._group is not None and distributed.is_initialized():
            distributed.destroy_process_group(self._group)
        self._group = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:
            return  # a worker that loads data, which a terminal asks, too
        if not self._work:
            raise Interrupted(number, f"; {self.resume_hint}")
        if not self._signal:
            self._signal, self._signal_time = number, time.monotonic()
            at_once = "; press Ctrl-C again to stop at once" if number == signal.SIGINT else ""
            if os.environ.get("RANK", "0") == "0":
                # not by logging: the signal may have come in the middle of a write
                os.write(2, f"trimsft: stopping after {self._work}{at_once}\n".encode())
        elif number == signal.SIGINT and time.monotonic() - self._signal_time > SAME_SIGNAL_SECONDS:
            raise Interrupted(number, f"; {self.resume_hint}")

    @contextlib.contextmanager
    def finishing(self, work: str) -> Iterator[None]:
        """Bring some work to its end before a signal that comes meanwhile is obeyed."""
        self._work = work
        yield
        self._work = ""
        if self._signal:
            raise Interrupted(self._signal, f"; {self.resume_hint}")

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if distributed.is_available() and distributed.is_initialized():
            # a group of its own: a collective on the GPU would have to wait for the GPU
            self._group = distributed.new_group(backend="gloo", timeout=args.ddp_timeout_delta)
        self._work, self.has_begun = "this step, with a checkpoint", True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._agreed = self._signal
        if self._group is not None:
            # a signal may reach ranks at different steps: all stop after the same
            highest = torch.tensor(self._signal)
            distributed.all_reduce(highest, op=distributed.ReduceOp.MAX, group=self._group)
            self._agreed = int(highest)
        if self._agreed:
            control.should_save = True

    on_evaluate = on_step_end  # it may take long, and nothing is saved after it by itself

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        place = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        self.resume_hint = f"rerun the command to resume from {place}"
        if self._agreed:
            step = f"step {state.global_step} of {state.max_steps}"
            raise Interrupted(self._agreed, f" after {step}; {place} is saved; rerun the command to resume")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._work = ""


def keep_workers(loader: Any) -> Any:
    """Have processes that load data outlive SIGTERM, which Slurm sends to them, too."""
    plain: DataLoader[Any] = getattr(loader, "base_dataloader", loader)  # inside of accelerate's
    plain.worker_init_fn = functools.partial(_begin_worker, plain.worker_init_fn)
    return loader


def _begin_worker(begin: Callable[[int], None] | None, number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if begin is not None:
        begin(number)
