"""Checkpoints that are whole or absent, and finding the newest one to continue from.

A checkpoint is written to `_saving/`, sealed and renamed, so that a kill at any moment costs at most the steps since
the last one:

    train/
      checkpoint-40/   ... model.safetensors optimizer.pt rng_state.pth trainer_state.json complete.json
      checkpoint-60/   complete.json: {"step": 60, "files": {"model.safetensors": 269060552, ...}}
      _saving/         checkpoint-80, being written; gone after the next start

The folder must be one that all machines of the run share.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import broadcast_object_list

from trimsft.errors import RunError, WriteError, one_line
from trimsft.runs import sync, write_whole

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object  # a mixin: it stands before a Trainer among the bases

logger = logging.getLogger("trimsft")

STAGING = "_saving"  # where a checkpoint grows; pushing to a hub leaves out names that begin with an underscore
SEAL = "complete.json"
STATE = "trainer_state.json"


class AtomicCheckpoints(Trainer):  # type: ignore[misc]
    """Makes a Trainer's checkpoints whole or absent: `class MyTrainer(AtomicCheckpoints, SFTTrainer)`."""

    _saving = False  # while true, the folder of the run is `_saving/`, and nothing is pushed

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`; `True` continues from the newest whole checkpoint, a torn one is refused."""
        folder = Path(str(self.args.output_dir))
        if self.args.should_save:
            clear_staging(folder)
        self.accelerator.wait_for_everyone()
        if resume_from_checkpoint is True:
            # found by one process for all: two views of a network disk may differ
            newest = [str(latest_checkpoint(folder) or "") if self.is_world_process_zero() else ""]
            broadcast_object_list(newest)
            if not newest[0]:
                nothing = f"{str(folder)!r} holds no whole checkpoint"
                raise RunError(nothing, field="resume_from_checkpoint", hint="start without it")
            resume_from_checkpoint = newest[0]
        elif resume_from_checkpoint and (problem := _what_is_torn(Path(resume_from_checkpoint))):
            problem = f"{resume_from_checkpoint!r} is torn ({problem})"
            raise RunError(problem, field="resume_from_checkpoint", hint="choose another")
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # resumed after the last step of a `max_steps` within an epoch: transformers would train one more
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if self.args.device.type == "cpu":
            # transformers loads onto the device of a rank, and torch restores nothing to a CPU that has a number
            self.args.__dict__["_setup_devices"] = torch.device("cpu")
        super()._load_optimizer_and_scheduler(checkpoint)

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, STAGING) if self._saving else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._saving:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial))
        final = folder / f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            clear_staging(folder)
        self.accelerator.wait_for_everyone()
        with _explained(folder, final.name):
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
                state.save_to_json(str(staged / STATE))
                _seal(staged, state.global_step)
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
        problem = _what_is_torn(checkpoint) or _what_is_missing(checkpoint)
        if problem is None:
            return checkpoint
        logger.warning("checkpoint %s is skipped: %s", checkpoint, problem)
    return None


def clear_staging(folder: Path) -> None:
    """Tidy up after a killed run: what was complete but for its name gets it, the rest goes.

    For the process that holds the run, before it looks for a checkpoint; a reader must not touch a run in use.
    """
    staging = folder / STAGING
    for staged in _checkpoints(staging):
        if (staged / SEAL).exists() and _what_is_torn(staged) is None:
            _publish(staged, folder / staged.name)
    shutil.rmtree(staging, ignore_errors=True)


def _checkpoints(folder: Path) -> list[Path]:
    """By step, the oldest first."""
    named = [one for one in folder.glob("checkpoint-*") if one.name[11:].isdecimal() and one.is_dir()]
    return sorted(named, key=lambda one: int(one.name[11:]))


# writing ------------------------------------------------------------------------------------------------------------


def _seal(staged: Path, step: int) -> None:
    """Put everything on disk, then the list of it: where the list is, the rest is."""
    entries = sorted(staged.rglob("*"))
    files = {entry.relative_to(staged).as_posix(): entry.stat().st_size for entry in entries if entry.is_file()}
    for entry in entries:
        sync(entry)
    write_whole(staged / SEAL, (json.dumps({"step": step, "files": files}, indent=1) + "\n").encode())
    sync(staged.parent)


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
    """Remove what exceeds `limit`: torn ones first, then the oldest, and never those in `keep`.

    Not by transformers, which takes the highest step or the latest date for the newest: after a torn checkpoint
    was skipped, that can be the torn one.
    """
    if not limit or limit <= 0:
        return
    checkpoints = _checkpoints(folder)
    kept = {one for one in checkpoints if any(other.exists() and one.samefile(other) for other in keep)}
    removable = sorted((one for one in checkpoints if one not in kept), key=lambda path: _what_is_torn(path) is None)
    excess = len(checkpoints) - max(limit, len(kept))
    for checkpoint in removable[: max(excess, 0)]:
        leaving = folder / STAGING / f"removed-{checkpoint.name}"
        leaving.parent.mkdir(exist_ok=True)
        os.rename(checkpoint, leaving)  # a kill while removing must not leave half under the name of a checkpoint
        shutil.rmtree(leaving, ignore_errors=True)


@contextlib.contextmanager
def _explained(folder: Path, name: str) -> Iterator[None]:
    """Leave no half checkpoint after a failure, and say so if the disk is full."""
    try:
        yield
    except BaseException as error:
        full = isinstance(error, Exception) and _is_full(error, folder)
        shutil.rmtree(folder / STAGING, ignore_errors=True)
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


# reading ------------------------------------------------------------------------------------------------------------


def _what_is_torn(checkpoint: Path) -> str | None:
    """The first file that is not whole, and how; None if all are."""
    try:
        if (checkpoint / SEAL).exists():
            return _differs_from_seal(checkpoint)
        if (checkpoint / "checkpoint-is-incomplete.txt").exists():  # transformers: saving when asked to terminate
            return "checkpoint-is-incomplete.txt says that it was still being written"
        for path in sorted(checkpoint.rglob("*.json")):
            json.loads(path.read_bytes())
        for path in sorted(checkpoint.rglob("*.safetensors")):
            if path.stat().st_size != (size := _size_by_header(path)):
                return f"{path.name} has {path.stat().st_size} bytes, its header says {size}"
        for path in sorted(entry for suffix in ("pt", "pth", "bin") for entry in checkpoint.glob(f"*.{suffix}")):
            if not zipfile.is_zipfile(path):
                return f"{path.name} is cut short"
        for index in checkpoint.glob("*.index.json"):
            for shard in sorted(set(json.loads(index.read_bytes())["weight_map"].values())):
                if not (checkpoint / shard).exists():
                    return f"{shard} is missing"
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"a file cannot be read ({one_line(error)})"


def _differs_from_seal(checkpoint: Path) -> str | None:
    sealed = json.loads((checkpoint / SEAL).read_bytes())["files"]
    for name, size in sealed.items():
        path = checkpoint / name
        if not path.exists():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, {SEAL} says {size}"
    return None


def _size_by_header(path: Path) -> int:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            return 8 + length
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0)


def _what_is_missing(checkpoint: Path) -> str | None:
    """What training cannot continue without."""
    if not (checkpoint / STATE).exists():
        return f"{STATE} is missing"
    if any(checkpoint.glob("global_step*")):  # DeepSpeed keeps weights, optimizer and scheduler in there
        return None
    needed = {
        "the weights are missing": ("*.safetensors", "*/*.safetensors", "pytorch_model*"),
        "the state of the optimizer (save_only_model?) is missing": ("optimizer*",),
        "the state of the scheduler is missing": ("scheduler.pt",),
        "the state of the random numbers is missing": ("rng_state*.pth",),
    }
    for problem, patterns in needed.items():
        if not any(entry for pattern in patterns for entry in checkpoint.glob(pattern)):
            return problem
    return None
