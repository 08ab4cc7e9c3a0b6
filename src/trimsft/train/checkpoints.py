"""Checkpoints that are whole or absent, and finding the newest one to continue from.

A checkpoint is written to `_saving/`, sealed and renamed, so that a kill at any moment costs at most the steps since
the last one. The seal, `complete.json`, is written last and lists the files with their sizes and hashes:

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
import functools
import json
import logging
import os
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

import torch
from accelerate.utils import broadcast_object_list
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.api import CheckpointException
from transformers import PreTrainedModel, TrainerState
from trl import SFTTrainer

from trimsft.errors import RunError, TrimSFTError, WriteError, and_more, one_line
from trimsft.runs import fingerprint_file, sync, write_whole
from trimsft.runs.parsing import read_json
from trimsft.runs.secrets import is_secret, without_secrets

logger = logging.getLogger("trimsft")
Made = TypeVar("Made")

STAGING = "_saving"  # where a checkpoint grows; pushing to a hub leaves out names that begin with an underscore
SEAL, STATE_FILE = "complete.json", "trainer_state.json"
PLAIN = "without FSDP and DeepSpeed"
LAYOUTS = {
    "global_step*": "with DeepSpeed",
    "pytorch_model_fsdp.bin": "with FSDP (FULL_STATE_DICT)",
    "pytorch_model_fsdp_0": "with FSDP (SHARDED_STATE_DICT)",
    "pytorch_model_fsdp_rank0.bin": "with FSDP (LOCAL_STATE_DICT)",
}
"""Files that only one kind of training writes, and reads."""
_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_METADATA = {
    "torch": {"Size"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.distributed.checkpoint.metadata": {
        "Metadata", "MetadataIndex", "StorageMeta", "BytesStorageMetadata", "ChunkStorageMetadata",
        "TensorStorageMetadata", "TensorProperties", "_MEM_FORMAT_ENCODING",
    },
    "pathlib": {"PosixPath"}, "pathlib._local": {"PosixPath"},
}  # fmt: skip
"""All that torch 2.13 names in the `.metadata` of a sharded checkpoint, beside the dtypes of its tensors."""


class AtomicCheckpoints(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer with checkpoints that are whole or absent."""

    _saving = False  # while true, the folder of the run is `_saving/`, and nothing is pushed

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """Train as `Trainer.train`; `True` continues from the newest whole checkpoint, a torn one is refused."""
        folder = Path(str(self.args.output_dir))
        if self.args.should_save:
            clear_staging(folder)
        self.accelerator.wait_for_everyone()
        if resume_from_checkpoint:
            wanted, layout = resume_from_checkpoint, PLAIN
            if self.is_fsdp_enabled:
                layout = f"with FSDP ({self.accelerator.state.fsdp_plugin.state_dict_type.name})"
            elif self.is_deepspeed_enabled:
                layout = "with DeepSpeed"
            resume_from_checkpoint = by_main(self.is_world_process_zero(), lambda: _choose(folder, wanted, layout))
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if self.state.global_step >= self.state.max_steps:
            # resumed after the last step of a `max_steps` within an epoch: transformers would train one more
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    # reading

    def _init_training_state(
        self, max_steps: int, steps_per_epoch: int, epochs: int, checkpoint: str | None, trial: Any
    ) -> Any:
        begin, state = super()._init_training_state(max_steps, steps_per_epoch, epochs, checkpoint, trial), self.state
        saved = TrainerState.load_from_json(os.path.join(checkpoint, STATE_FILE)) if checkpoint else None
        if saved is not None and saved.best_model_checkpoint:
            # by its place in this run: after the run was moved or copied, the path is none or another's
            recorded = Path(saved.best_model_checkpoint)
            own = Path(self._get_output_dir(trial)) / recorded.name
            best = own if own.is_dir() else recorded
            metric = "eval_" + (self.args.metric_for_best_model or "").removeprefix("eval_")
            logged = [log.get(metric) for log in state.log_history if log.get("step") == state.best_global_step]
            problem = by_main(self.is_world_process_zero(), lambda: find_damage(best, thorough=False))
            if self.args.metric_for_best_model and state.best_metric not in logged:
                problem = f"it was not chosen by {metric}"
            state.best_model_checkpoint = None if problem else str(best)
            if problem:
                logger.warning("the best checkpoint so far, %s, is forgotten: %s", best, problem)
                state.best_global_step = state.best_metric = None
        return begin

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not self._load_whole(resume_from_checkpoint):
            with opened_as_data(resume_from_checkpoint):
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        if problem := by_main(self.is_world_process_zero(), lambda: find_damage(best)):
            problem = f"the best checkpoint {str(best)!r} cannot be loaded: {problem}"
            raise RunError(problem, field="load_best_model_at_end", hint="turn it off to keep the last weights")
        if not self._load_whole(best):
            # DeepSpeed's files hold objects, which it unpickles itself
            with contextlib.nullcontext() if self.is_deepspeed_enabled else opened_as_data(best):
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

    # writing

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return os.path.join(folder, STAGING) if self._saving else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._saving:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save as Trainer does, without secrets in training_args.bin, and readable by whom the umask allows."""
        args = self.args  # type: ignore[has-type]
        self.args = copy.copy(args)  # nothing that continues a training reads the tokens
        for name, value in vars(args).items():
            setattr(self.args, name, None if is_secret(name) else without_secrets(value))
        try:
            super()._save(output_dir, state_dict)
        finally:
            self.args = args
        folder = Path(str(output_dir or args.output_dir))
        mode = (folder / "training_args.bin").stat().st_mode
        for path in folder.glob("*.safetensors"):
            path.chmod(mode & 0o777)  # safetensors makes them private

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        state, folder = self.state, Path(self._get_output_dir(trial))
        final = folder / f"checkpoint-{state.global_step}"
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
            _rotate(folder, self.args.save_total_limit, {final, Path(state.best_model_checkpoint or final)})
            shutil.rmtree(folder / STAGING, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(final))


# ---- several processes


def by_main(is_main: bool, work: Callable[[], Made]) -> Made:
    """Return on every process what the main one makes: two views of a network disk may differ."""
    made = [together(is_main, work if is_main else lambda: None)]
    broadcast_object_list(made)
    return made[0]  # type: ignore[return-value]


def together(is_main: bool, work: Callable[[], Made]) -> Made:
    """Do work on every process, without waiting for others in it.

    An error of the main process is raised on all of them; the others mark it as told, so that it is said once.
    """
    error = made = None
    try:
        made = work()
    except TrimSFTError as own:
        error = own
    shared = [error]
    broadcast_object_list(shared)
    if shared[0] is not None and not is_main:
        error = shared[0]
        error.is_told = True
    if error is not None:
        raise error
    return made  # type: ignore[return-value]


# ---- finding one


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint to continue from; torn ones are skipped with a warning. Reads only.

    A checkpoint of another trainer has no seal: it is taken if it is named, and loaded as strictly.
    """
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


def _choose(folder: Path, wanted: str | bool, layout: str) -> str:
    """Return the checkpoint to continue from: the one that is named, or the newest."""
    chosen = latest_checkpoint(folder) if wanted is True else Path(str(wanted))
    if chosen is None:
        problem, hint = f"{str(folder)!r} holds no whole checkpoint", "start without it"
    elif wanted is not True and (chosen / SEAL).exists() and (damage := find_damage(chosen)):
        problem, hint = f"{wanted!r} is torn ({damage})", "choose another"
    elif not (chosen / STATE_FILE).exists():
        problem, hint = f"{wanted!r} is torn ({STATE_FILE} is missing)", "choose another"
    else:
        saved = next((name for pattern, name in LAYOUTS.items() if any(chosen.glob(pattern))), PLAIN)
        is_resumable = any(chosen.glob("optimizer*")) and (chosen / "scheduler.pt").is_file()
        if saved == layout and (is_resumable or saved == "with DeepSpeed"):  # which has files of its own for both
            return str(chosen)
        if saved == layout:  # transformers would go on without a word, from moments of 0
            problem = f"{str(chosen)!r} lacks the state of the optimizer or scheduler (save_only_model?)"
            hint = "train anew"
        else:
            problem = f"{str(chosen)!r} has the files of a training {saved}, and this one runs {layout}"
            hint = "start it as before to continue it, or train anew"
    raise RunError(problem, field="resume_from_checkpoint", hint=hint)


# ---- whole or not


def seal(staged: Path, step: int) -> None:
    """Put everything on disk, then the list of it: where the list is, the rest is."""
    entries = sorted(staged.rglob("*"))
    files = [entry for entry in entries if entry.is_file()]
    with ThreadPoolExecutor(4) as threads:  # hashing holds no lock of Python
        hashes = list(threads.map(fingerprint_file, files))
    sizes = [(file.stat().st_size, sha256) for file, sha256 in zip(files, hashes, strict=True)]
    listed = {file.relative_to(staged).as_posix(): facts for file, facts in zip(files, sizes, strict=True)}
    for entry in entries:
        sync(entry)
    write_whole(staged / SEAL, (json.dumps({"step": step, "files": listed}, indent=1) + "\n").encode())
    sync(staged.parent)


def find_damage(checkpoint: Path, *, thorough: bool = True) -> str | None:
    """Return the first file of a checkpoint that is not as it was sealed, and how; None if all are.

    Args:
        thorough: compare the hash of every file, not its size alone.
    """
    if not (checkpoint / SEAL).is_file():
        return f"{SEAL} is missing" if checkpoint.is_dir() else "it is missing"
    try:
        for name, (size, sha256) in read_json(checkpoint / SEAL, dict)["files"].items():
            path = checkpoint / name
            if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                return f"{SEAL} names {name!r}, which is no file of it"
            if not path.is_file():
                return f"{name} is missing"
            facts = path.stat()
            if facts.st_size != size:
                return f"{name} has {facts.st_size} bytes, {SEAL} says {size}"
            if thorough and _hash(path, facts.st_size, facts.st_mtime_ns) != sha256:
                return f"{name} has another content than {SEAL} says"
    except Exception as error:  # whatever a damaged file makes of itself
        return f"a file cannot be read ({one_line(error)})"
    return None


@functools.lru_cache
def _hash(path: Path, size: int, modified: int) -> str:
    """Return the hash of a file; computed once for the search for a checkpoint and its loading."""
    return fingerprint_file(path)


# ---- staging


def clear_staging(folder: Path) -> None:
    """Tidy up after a killed run: what was complete but for its name gets it, the rest goes.

    For the process that holds the run, before it looks for a checkpoint; a reader must not touch a run in use.
    """
    staging = folder / STAGING
    for staged in _checkpoints(staging):
        if find_damage(staged) is None:
            _publish(staged, folder / staged.name)
    shutil.rmtree(staging, ignore_errors=True)


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
    """Remove what exceeds `limit`: those that are torn first, then the oldest, never those in `keep`.

    Not by transformers, which takes the highest step or the latest date for the newest: after a torn checkpoint
    was skipped, that can be the torn one.
    """
    if not limit or limit <= 0:
        return
    checkpoints = _checkpoints(folder)
    others = [one for one in checkpoints if not any(other.exists() and one.samefile(other) for other in keep)]
    excess = len(checkpoints) - max(limit, len(checkpoints) - len(others))
    others.sort(key=lambda one: find_damage(one, thorough=False) is None)
    for checkpoint in others[: max(excess, 0)]:
        leaving = folder / STAGING / f"removed-{checkpoint.name}"
        leaving.parent.mkdir(exist_ok=True)
        os.rename(checkpoint, leaving)  # a kill while removing must not leave half under the name of a checkpoint
        shutil.rmtree(leaving, ignore_errors=True)


@contextlib.contextmanager
def explained(half: Path, name: str) -> Iterator[None]:
    """Leave no half checkpoint or model after a failure, and name a full disk as its cause."""
    folder = half.parent
    try:
        yield
    except BaseException as error:
        # torch reports a failed write without its cause
        is_full = isinstance(error, Exception) and (_names_full_disk(error) or shutil.disk_usage(folder).free < 2**20)
        shutil.rmtree(half, ignore_errors=True)
        if is_full:
            free = shutil.disk_usage(folder).free / 2**30
            raise WriteError(
                f"no space for {name} in {str(folder)!r} ({free:.2f} GiB free without it)",
                field="output_dir",
                hint="earlier checkpoints are intact: free space, or lower save_total_limit, and run the same command "
                "again",
            ) from error
        raise


def _names_full_disk(error: BaseException | None) -> bool:
    full = (errno.ENOSPC, errno.EDQUOT)
    while error is not None:
        # safetensors, written in Rust, tells the number of an error nowhere but in its text
        number = re.search(r"os error (\d+)\b", str(error))
        if getattr(error, "errno", None) in full or (number and int(number[1]) in full):
            return True
        error = error.__cause__ or error.__context__
    return False


# ---- reading, as data: every weight fits the model, and no pickle runs code
#
# transformers saves some models in another layout than it holds them in (the experts of Mixtral, Qwen3-MoE or OLMoE)
# and loads a checkpoint by the names it holds, passing over what does not fit; experts then keep what they were. Here a
# checkpoint goes through `from_pretrained`, which knows both layouts, and every name must fit.


class _Metadata(pickle.Unpickler):
    """Reads the `.metadata` of a sharded checkpoint, and refuses one that names anything else."""

    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _METADATA.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it names {module}.{name}")


@contextlib.contextmanager
def opened_as_data(checkpoint: str | Path | None) -> Iterator[None]:
    """Have torch open the files of a checkpoint as data, so that a pickle in it that names code is refused.

    torch reads `.metadata`, and the entries of a sharded checkpoint that are no tensors, as pickles without a limit.
    """
    data = SimpleNamespace(load=lambda file: _Metadata(file).load())
    forced = {_WEIGHTS_ONLY: "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}  # torch refuses to have both
    try:
        with mock.patch.dict(os.environ, forced), mock.patch.object(filesystem, "pickle", data):
            yield
    except (Exception, CheckpointException) as error:  # the libraries raise whatever the files make them
        cause = next(iter(error.failures.values()))[0] if isinstance(error, CheckpointException) else error
        if isinstance(cause, torch.OutOfMemoryError | TrimSFTError | KeyboardInterrupt):
            raise cause from None
        raise RunError(f"{checkpoint} cannot be loaded ({one_line(cause)})", hint="choose another") from error


def can_load(model: Any) -> bool:
    """Return whether `load_weights` knows a model: one of transformers, or one with a single adapter of PEFT."""
    if isinstance(model, PreTrainedModel):
        return not getattr(model, "_hf_peft_config_loaded", False)  # transformers' own adapters are saved alone
    return len(getattr(model, "peft_config", {})) == 1


def load_weights(model: Any, checkpoint: Path) -> None:
    """Replace the weights of a model by those of a checkpoint; raise where any does not fit."""
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
            fit = model.load_adapter(str(checkpoint), name, is_trainable=True)
            apart = {"prompt_embeddings"}  # of prompt tuning: loaded strictly, and then reported as unexpected
            loaded = None
            problems = {"missing_keys": fit.missing_keys, "unexpected_keys": set(fit.unexpected_keys) - apart}
    for kind, verb in (
        ("missing_keys", "lacks"),
        ("unexpected_keys", "has, and the model has not,"),
        ("mismatched_keys", "has in another shape"),
    ):
        keys = sorted(str(key[0] if isinstance(key, tuple) else key) for key in problems.get(kind, ()))
        if keys:
            raise RunError(
                f"{checkpoint}: its weights are not those of this model: it {verb} "
                f"{keys[0]}{and_more(len(keys), 'tensors')}",
                hint="choose a checkpoint of this model, or start without one",
            )
    if loaded is not None:
        model.load_state_dict(loaded.state_dict())
