"""`train(settings)`: from a recipe to a run directory; called again it continues.

`train/` holds checkpoints and telemetry, `model/` what plain transformers loads.
"""

import gc
import logging
import shutil
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from datasets import disable_progress_bars
from torch import distributed
from transformers import TrainerCallback, set_seed
from transformers.utils.logging import disable_progress_bar
from trl import get_peft_config, get_quantization_config

from trimsft.data.files import list_files
from trimsft.errors import RunError, TrimSFTError, UsageError, WriteError
from trimsft.models import is_finite
from trimsft.objectives import fingerprint_objective
from trimsft.runs import JsonLines, RunDirectory, environment, fingerprint_file, fingerprint_folder, publish
from trimsft.runs.parsing import checked
from trimsft.tables import Table, Tabular
from trimsft.train.checkpoints import Stopping, by_main, clear_staging, explained, latest_checkpoint
from trimsft.train.config import Settings, load_data, load_tokenizer, make_settings, refusing
from trimsft.train.telemetry import first_and_last
from trimsft.train.trainer import TrimSFTTrainer, model_card

logger = logging.getLogger("trimsft")

HARMLESS = frozenset([
    "logging_steps", "logging_strategy", "logging_first_step", "report_to", "run_name", "disable_tqdm", "log_level",
    "save_steps", "save_strategy", "save_total_limit", "resume_from_checkpoint", "project",
    "dataloader_num_workers", "dataloader_pin_memory", "dataset_num_proc", "trackio_space_id", "gradient_checkpointing",
    "low_memory", "hub_token",
])  # fmt: skip
"""Settings that may change when a run is continued: they touch no weights, but for rounding."""


@dataclass(frozen=True, kw_only=True)
class TrainResult(Tabular):
    """A training that has come to its end."""

    run: RunDirectory  # where it is; the model is in `run.model_dir`
    steps: int
    metrics: dict[str, Any]  # what Trainer says at the end: train_loss, train_runtime and others
    was_finished: bool  # whether there was nothing left to train

    @property
    def tables(self) -> list[Table]:
        return [first_and_last(JsonLines(self.run.telemetry_path), f"{self.run.model_dir}, {self.steps:,} steps")]


def train_model(**fields: Any) -> TrainResult:
    """Fine-tune a model as `trimsft train` does; takes its fields as keywords.

        result = trimsft.train_model(config="qwen2.5-math-1.5b", data="train.jsonl", objective="dft", out="runs/dft")
        model = AutoModelForCausalLM.from_pretrained(result.run.model_dir)

    Ctrl-C and SIGTERM end it with a checkpoint; the same call continues.
    """
    return train(make_settings(fields))


def train(settings: Settings) -> TrainResult:
    """Train into the run directory; a run that was begun there is continued, a finished one left.

    Raises:
        UsageError, DataError, RunError: before anything is trained; a new directory is removed again.
        WriteError, FloatingPointError, torch.OutOfMemoryError: on the way.
        Interrupted: after a signal, with what there is to continue from.
    """
    run = RunDirectory(settings.run_path)
    # the last reference to the group: Python gives the GIL away to destroy it, where DDP would keep it and wait for
    # ever for a thread that wants it
    group = distributed.group.WORLD if distributed.is_available() else None
    try:
        with Stopping() as stopping, ExitStack() as held:
            if by_main(lambda: _enter(run, settings, held, stopping)):
                logger.warning("%s: already finished; the model is in %s", run.path, run.model_dir)
                metrics = _recorded(run, "train")
                result = TrainResult(run=run, steps=metrics.pop("steps", 0), metrics=metrics, was_finished=True)
            else:
                result = _train(settings, run, stopping)
        return result
    except BaseException as error:
        last: BaseException | None = error
        while group is not None and last is not None:  # its frames refer to the group
            traceback.clear_frames(last.__traceback__)
            last = last.__cause__ or last.__context__
        raise
    finally:
        # a thread of gloo's that still holds tensors of a collective aborts a process that ends (pytorch#190489), and
        # ends with its group; NCCL's would wait here for ranks that may be lost
        if group is not None and distributed.is_initialized() and distributed.get_backend() == "gloo":
            distributed.destroy_process_group()
        if group is not None:
            gc.collect()  # a trainer refers to itself, and to the group
        del group


def _train(settings: Settings, run: RunDirectory, stopping: Stopping) -> TrainResult:
    trainer = make_trainer(settings, run)
    trainer.add_callback(stopping)
    if settings.args.process_index == 0:
        inputs = _inputs(settings)
        if inputs["model"]["fingerprint"] is None:  # of the hub: the commit, known after loading
            inputs["model"]["fingerprint"] = getattr(trainer.model.config, "_commit_hash", None)
        inputs["data"]["lengths"] = {name: str(report) for name, report in trainer.length_reports.items()}
        facts = {"seed": settings.args.seed, **inputs, "processes": settings.args.world_size}
        trainer.add_callback(_Binding(run, settings, {**environment(), **facts}))
    checkpoint = by_main(lambda: _checkpoint(settings, run))
    if checkpoint:
        stopping.resume_hint = f"rerun the command to resume from {checkpoint}"
    with refusing(is_over=lambda: stopping.has_begun):
        metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    steps, planned = trainer.state.global_step, trainer.state.max_steps
    if steps < planned:
        raise TrimSFTError(f"{run.path}: the training ended after step {steps} of {planned}; {stopping.resume_hint}")
    with stopping.finishing("the model is saved"):
        _save(trainer, run, settings)
        stopping.resume_hint = f"the training is done, the model is in {run.model_dir}"
        by_main(lambda: run.write_manifest(train={**metrics, "steps": steps}))
        by_main(run.mark_finished)
        if settings.args.process_index == 0:
            logger.warning("the model is in %s", run.model_dir)
        trainer.accelerator.end_training()
    return TrainResult(run=run, steps=steps, metrics=metrics, was_finished=False)


class _Binding(TrainerCallback):  # type: ignore[misc]
    """Writes config.yaml and manifest.json after the first step: a failure binds no directory."""

    def __init__(self, run: RunDirectory, settings: Settings, facts: dict[str, Any]) -> None:
        self._run, self._settings, self._facts = run, settings, facts

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._facts:
            self._run.settle_config(self._settings.overrides, harmless=HARMLESS)
            self._run.write_manifest(**self._facts)
            self._facts = {}


# ---- before the training


def _enter(run: RunDirectory, settings: Settings, held: ExitStack, stopping: Stopping) -> bool:
    """Take the run directory for as long as it is worked in; return whether it is finished."""
    if settings.args.push_to_hub:
        hint = f"remove it, and upload the finished model: hf upload NAME {run.model_dir}"
        raise UsageError("has no effect", field="push_to_hub", hint=hint)
    is_new = not run.path.exists()
    held.enter_context(run.lock())
    # where nothing was trained nothing is left, not even the lock, which is still held
    held.callback(lambda: shutil.rmtree(run.path) if is_new and not run.config_path.exists() else None)
    if any(run.train_dir.glob("checkpoint-*")):
        stopping.resume_hint = f"rerun the command to resume from the newest whole checkpoint in {run.train_dir}"
    if not run.config_path.exists():
        return False
    run.settle_config(settings.overrides, harmless=HARMLESS)
    _settle_inputs(run, settings)
    if not run.is_finished() or not any(run.model_dir.glob("*.safetensors")):
        return False
    stopping.resume_hint = f"the training is done, the model is in {run.model_dir}"
    return True


def _settle_inputs(run: RunDirectory, settings: Settings) -> None:
    """Refuse another model, data, objective or number of processes than the run began with."""
    manifest, processes = run.read_manifest(), settings.args.world_size
    changed = [
        f"holds a run whose {kind} was another: {now['name']} has changed since"
        for kind, now in _inputs(settings).items()
        if now["fingerprint"] and now["fingerprint"] != (_recorded(run, kind).get("fingerprint") or now["fingerprint"])
    ]
    if manifest.get("processes", processes) != processes:  # on which batches depend
        changed.append(f"holds a run of {manifest['processes']} processes, not {processes}")
    if changed:
        hint = "restore it to continue, or choose another output directory"
        raise RunError(f"{run.path} {changed[0]}", hint=hint)


def _recorded(run: RunDirectory, name: str) -> dict[str, Any]:
    """Return a copy of a group of facts of the manifest."""
    facts = run.read_manifest().get(name, {})
    return dict(checked(dict[str, Any], facts, where=f"{run.manifest_path}: {name}"))


def make_trainer(settings: Settings, run: RunDirectory) -> TrimSFTTrainer:
    """Load model and data, and prepare both; refuses what cannot be trained."""
    args, model = settings.args, settings.model
    args.output_dir = str(run.train_dir)
    args.enable_jit_checkpoint = False  # `Stopping` saves at SIGTERM, and knows the training is not done
    for disable in (disable_progress_bar, disable_progress_bars):  # between our lines
        disable()
    with refusing():
        set_seed(args.seed)
    tokenizer = by_main(lambda: load_tokenizer(settings), everywhere=True)
    train, test = by_main(lambda: load_data(settings, tokenizer), everywhere=True)
    given = {name: getattr(model, name) for name in ("attn_implementation", "dtype")}
    given["revision"] = model.model_revision  # as `trl sft` puts it together
    args.model_init_kwargs = given | (args.model_init_kwargs or {})
    with refusing():
        return TrimSFTTrainer(
            model.model_name_or_path,
            args,
            train_dataset=train,
            eval_dataset=test,
            processing_class=tokenizer,
            quantization_config=get_quantization_config(model),
            peft_config=get_peft_config(model),
        )


def _checkpoint(settings: Settings, run: RunDirectory) -> str | None:
    """Return what to continue from: the checkpoint of the settings, else the newest whole one."""
    chosen = settings.args.resume_from_checkpoint
    if chosen and str(chosen).lower() != "true":
        return str(chosen)
    clear_staging(run.train_dir)  # a checkpoint that only lacked its name gets it
    newest = latest_checkpoint(run.train_dir)
    if newest is None:  # what was recorded before a first checkpoint will be recorded again
        run.telemetry_path.unlink(missing_ok=True)
        return None
    logger.warning("continuing from %s", newest)
    return str(newest)


def _inputs(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return names and fingerprints of model, data and objective."""
    name, objective = str(settings.model.model_name_or_path), settings.args.objective
    folder = Path(name)
    files = list_files(settings.data.dataset_name) if settings.data.is_local else []
    return {
        "model": {"name": name, "fingerprint": fingerprint_folder(folder) if folder.is_dir() else None},
        "data": {"name": settings.data.dataset_name, "fingerprint": [fingerprint_file(one) for one in files] or None},
        "objective": {"name": objective, "fingerprint": fingerprint_objective(objective)},
    }


# ---- after the training


def _save(trainer: TrimSFTTrainer, run: RunDirectory, settings: Settings) -> None:
    """Save the final model, whole or not at all: written beside, then renamed."""
    tensors = ((name, getattr(tensor, "_local_tensor", tensor)) for name, tensor in trainer.model.named_parameters())
    broken = [name for name, tensor in tensors if not is_finite(tensor.detach())]
    if broken := [name for name in gather_object(broken[:1] or [""]) if name]:  # on whichever process it is
        problem = f"after the last step {broken[0]} holds numbers that are not finite, so there is no model"
        raise FloatingPointError(f"{problem}; a lower learning_rate may help; the checkpoints in {run.train_dir} stay")
    beside = run.path / ".model"
    by_main(lambda: shutil.rmtree(beside, ignore_errors=True))  # of a run that was killed meanwhile
    with explained(beside, "the model"):
        trainer.save_model(str(beside), _internal_call=True)  # else it would push, too
    by_main(lambda: _publish(trainer, beside, run, settings))


def _publish(trainer: TrimSFTTrainer, beside: Path, run: RunDirectory, settings: Settings) -> None:
    if not any(beside.glob("*.safetensors")):  # of DeepSpeed, unless it gathers them
        raise WriteError(f"{run.path}: no weights came out of the training; its checkpoints are in {run.train_dir}")
    with explained(beside, "the model"):
        model_card(trainer, run.path.name, settings.data.dataset_name).save(beside / "README.md")
        shutil.rmtree(run.model_dir, ignore_errors=True)  # of a killed run
        publish(beside, run.model_dir)
