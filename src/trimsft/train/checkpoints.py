"""Checkpoints that are whole or absent, and finding the newest one to continue from.

A checkpoint is written to `_saving/`, sealed and renamed, so that a kill at any moment costs at most the steps since
the last one:

    train/
      checkpoint-40/   ... model.safetensors optimizer.pt rng_state.pth trainer_state.json complete.json
      checkpoint-60/
      _saving/         checkpoint-80, being written; gone after the next start

The folder must be one that all machines of the run share.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch
from accelerate.utils import broadcast_object_list
from transformers import TrainerState

from trimsft.errors import RunError, WriteError
from trimsft.runs import sync
from trimsft.runs.secrets import is_secret, without_secrets
from trimsft.train.loading import can_load, load_weights, opened_as_data
from trimsft.train.seals import PLAIN, SEAL, STATE_FILE, layout_of, seal, what_is_torn, what_is_wrong

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object  # a mixin: it stands before a Trainer among the bases

logger = logging.getLogger("trimsft")
Found = TypeVar("Found")

STAGING = "_saving"  # where a checkpoint grows; pushing to a hub leaves out names that begin with an underscore


class AtomicCheckpoints(Trainer):  # type: ignore[misc]
    """Makes a Trainer's checkpoints whole or absent: `class MyTrainer(AtomicCheckpoints, SFTTrainer)`."""

    _saving = False  # while true, the folder of the run is `_saving/`, and nothing is pushed

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`; `True` continues from the newest whole checkpoint, a torn one is refused."""
        folder = Path(str(self.args.output_dir))
        if self.args.should_save:
            clear_staging(folder)
        self.accelerator.wait_for_everyone()
        if resume_from_checkpoint:
            wanted, layout = resume_from_checkpoint, self._layout
            found = self._told_by_main(lambda: _choose(folder, wanted, layout))
            if isinstance(found, RunError):
                raise found
            resume_from_checkpoint = found
        return super().train(resume_from_checkpoint, *args, **kwargs)

    @property
    def _layout(self) -> str:
        """The files that this training reads and writes, in the words of `layout_of`."""
        if self.is_fsdp_enabled:
            return f"with FSDP ({self.accelerator.state.fsdp_plugin.state_dict_type.name})"
        return "with DeepSpeed" if self.is_deepspeed_enabled else PLAIN

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # resumed after the last step of a `max_steps` within an epoch: transformers would train one more
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _told_by_main(self, find: Callable[[], Found]) -> Found:
        """What one process finds for all: two views of a network disk may differ."""
        found = [find() if self.is_world_process_zero() else None]
        broadcast_object_list(found)
        return found[0]  # type: ignore[return-value]

    def _init_training_state(
        self, max_steps: int, steps_per_epoch: int, epochs: int, checkpoint: str | None, trial: Any
    ) -> Any:
        begin = super()._init_training_state(max_steps, steps_per_epoch, epochs, checkpoint, trial)
        recorded = (
            checkpoint and TrainerState.load_from_json(os.path.join(checkpoint, STATE_FILE)).best_model_checkpoint
        )
        if recorded:
            # by its place in this run: after the run was moved or copied, the path is none or another's
            own = Path(self._get_output_dir(trial)) / Path(recorded).name
            best = own if own.is_dir() else Path(recorded)
            problem = self._told_by_main(lambda: _not_the_best(best, self.state, self.args))
            self.state.best_model_checkpoint = None if problem else str(best)
            if problem:
                logger.warning("the best checkpoint so far, %s, is forgotten: %s", best, problem)
                self.state.best_global_step = self.state.best_metric = None
        return begin

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._load_whole(resume_from_checkpoint):
            with opened_as_data(resume_from_checkpoint):
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        if problem := self._told_by_main(lambda: what_is_torn(best)):
            problem = f"the best checkpoint {str(best)!r} cannot be loaded: {problem}"
            raise RunError(problem, field="load_best_model_at_end", hint="turn it off to keep the last weights")
        if not self._load_whole(best):
            with opened_as_data(best):
                super()._load_best_model()

    def _load_whole(self, checkpoint: str | Path) -> bool:
        """Load the weights of a checkpoint strictly; False where they are sharded, which has strict ways of its own."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled or not can_load(model):
            return False
        load_weights(model, Path(checkpoint))
        return True

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.args.device.type == "cpu":
            # transformers loads onto the device of a rank, and torch restores nothing to a CPU that has a number
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
        if not self._saving:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """As Trainer does, but without secrets in training_args.bin, and readable by whom the umask allows."""
        args = self.args  # type: ignore[has-type]
        self.args = _without_secrets(args)
        try:
            super()._save(output_dir, state_dict)
        finally:
            self.args = args
        for path in Path(str(output_dir or args.output_dir)).glob("*.safetensors"):
            path.chmod(0o666 & ~_umask())  # safetensors makes them private

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial))
        final = folder / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            clear_staging(folder)
        self.accelerator.wait_for_everyone()
        with explained(folder / STAGING, final.name):
            self._saving = True
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._saving = False
            # Trainer saw the staging folder only: name the best checkpoint by the place where it will stand
            state = self.state
            best = os.path.join(self._get_output_dir(trial), f"checkpoint-{state.best_global_step}")
            if state.best_global_step and (state.best_global_step == state.global_step or os.path.isdir(best)):
                state.best_model_checkpoint = best
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                staged = folder / STAGING / final.name
                # written again: its best checkpoint had the name of the staging folder
                state.save_to_json(str(staged / STATE_FILE))
                seal(staged, state.global_step)
                _publish(staged, final)
        if self.args.should_save:
            keep = {final, Path(self.state.best_model_checkpoint or final)}
            _rotate(folder, self.args.save_total_limit, keep)
            shutil.rmtree(folder / STAGING, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint to continue from; torn ones are skipped with a warning. Reads only.

    A checkpoint written elsewhere has no seal; it counts if its files are whole and nothing is missing.
    """
    for checkpoint in reversed(_checkpoints(folder)):
        problem = what_is_wrong(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("checkpoint %s is skipped: %s", checkpoint, problem)
    return None


def _choose(folder: Path, wanted: str | Literal[True], layout: str) -> str | RunError:
    """The checkpoint to continue from: the one that is named, or the newest; an error if it cannot be."""
    chosen = latest_checkpoint(folder) if wanted is True else Path(wanted)
    if chosen is None:
        problem, hint = f"{str(folder)!r} holds no whole checkpoint", "start without it"
    elif wanted is not True and (torn := what_is_torn(chosen)):
        problem, hint = f"{wanted!r} is torn ({torn})", "choose another"
    elif not (chosen / STATE_FILE).exists():
        problem, hint = f"{wanted!r} is torn ({STATE_FILE} is missing)", "choose another"
    elif (saved := layout_of(chosen)) != layout:
        problem = f"{str(chosen)!r} has the files of a training {saved}, and this one runs {layout}"
        hint = "start it as before to continue it, or train anew"
    else:
        return str(chosen)
    return RunError(problem, field="resume_from_checkpoint", hint=hint)


def _not_the_best(best: Path, state: Any, args: Any) -> str | None:
    """Why a checkpoint does not count as the best so far."""
    metric = "eval_" + (args.metric_for_best_model or "").removeprefix("eval_")
    logged = [log.get(metric) for log in state.log_history if log.get("step") == state.best_global_step]
    if args.metric_for_best_model and state.best_metric not in logged:
        return f"it was not chosen by {metric}"
    return what_is_torn(best, thorough=False)


def clear_staging(folder: Path) -> None:
    """Tidy up after a killed run: what was complete but for its name gets it, the rest goes.

    For the process that holds the run, before it looks for a checkpoint; a reader must not touch a run in use.
    """
    staging = folder / STAGING
    for staged in _checkpoints(staging):
        if (staged / SEAL).exists() and what_is_torn(staged) is None:
            _publish(staged, folder / staged.name)
    shutil.rmtree(staging, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    """By step, the oldest first."""
    named = [one for one in folder.glob("checkpoint-*") if one.name[11:].isdecimal() and one.is_dir()]
    return sorted(named, key=lambda one: int(one.name[11:]))


# writing ------------------------------------------------------------------------------------------------------------


def _without_secrets(args: Any) -> Any:
    """A copy of the settings in which no token stands in clear; nothing that continues a training reads them."""
    args = copy.copy(args)
    for name, value in vars(args).items():
        setattr(args, name, None if is_secret(name) else without_secrets(value))
    return args


def _umask() -> int:
    mask = os.umask(0o077)  # there is no way to read it without setting it
    os.umask(mask)
    return mask


def _publish(staged: Path, final: Path) -> None:
    """Give a sealed checkpoint its name; one that has it already leaves only for this one."""
    aside = staged.with_name(f"replaced-{final.name}")
    if final.exists():
        os.rename(final, aside)
    try:
        os.rename(staged, final)
    except OSError:
        if aside.exists():
            os.rename(aside, final)
        raise
    sync(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _rotate(folder: Path, limit: int | None, keep: set[Path]) -> None:
    """Remove what exceeds `limit`: those that are torn or lack something first, then the oldest, never those in `keep`.

    Not by transformers, which takes the highest step or the latest date for the newest: after a torn checkpoint
    was skipped, that can be the torn one.
    """
    if not limit or limit <= 0:
        return
    checkpoints = _checkpoints(folder)
    kept = {one for one in checkpoints if any(other.exists() and one.samefile(other) for other in keep)}
    others = [one for one in checkpoints if one not in kept]
    removable = sorted(others, key=lambda one: what_is_wrong(one, thorough=False) is None)
    excess = len(checkpoints) - max(limit, len(kept))
    for checkpoint in removable[: max(excess, 0)]:
        leaving = folder / STAGING / f"removed-{checkpoint.name}"
        leaving.parent.mkdir(exist_ok=True)
        os.rename(checkpoint, leaving)  # a kill while removing must not leave half under the name of a checkpoint
        shutil.rmtree(leaving, ignore_errors=True)


@contextlib.contextmanager
def explained(half: Path, name: str) -> Iterator[None]:
    """Leave no half checkpoint or model after a failure, and say so if the disk is full."""
    folder = half.parent
    try:
        yield
    except BaseException as error:
        full = isinstance(error, Exception) and _is_full(error, folder)
        shutil.rmtree(half, ignore_errors=True)
        if full:
            free = shutil.disk_usage(folder).free / 2**30
            raise WriteError(
                f"no space for {name} in {str(folder)!r} ({free:.2f} GiB free without it)",
                field="output_dir",
                hint="earlier checkpoints are intact: free space, or lower save_total_limit, and run the same command "
                "again",
            ) from error
        raise


def _is_full(error: BaseException | None, folder: Path) -> bool:
    """By the error, or by trying: torch and safetensors report a failed write without its cause."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        # safetensors, written in Rust, tells the number of an error nowhere but in its text
        if re.search(rf"os error ({errno.ENOSPC}|{errno.EDQUOT})\b", str(error)):
            return True
        error = error.__cause__ or error.__context__
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(2**20))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as failed:
        return failed.errno in (errno.ENOSPC, errno.EDQUOT)
    return False
