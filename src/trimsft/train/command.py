"""`trimsft train`: from a recipe to a run directory; the same command again continues.

runs/qwen2.5-math-1.5b-trim/
  config.yaml  manifest.json  .lock
  train/       checkpoint-N/, telemetry.jsonl, README.md
  model/       what plain transformers and vLLM load
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError
from transformers import set_seed
from transformers.trainer_utils import HubStrategy
from transformers.utils.logging import disable_progress_bar
from trl import get_peft_config, get_quantization_config

from trimsft.errors import DataError, RunError, UsageError, one_line
from trimsft.runs import RunDirectory, environment, fingerprint_file, fingerprint_folder, sync
from trimsft.text.readers import list_files
from trimsft.train.callbacks import TELEMETRY
from trimsft.train.card import model_card
from trimsft.train.checkpoints import clear_staging, latest_checkpoint
from trimsft.train.config import TrimSFTConfig
from trimsft.train.inputs import failed, load_data, load_tokenizer, refusing, run_path, say_on_stderr
from trimsft.train.look import dry_run, say_estimate
from trimsft.train.settings import Settings, parse
from trimsft.train.trainer import TrimSFTTrainer

logger = logging.getLogger("trimsft")

HARMLESS = frozenset(
    [
        "logging_steps",
        "logging_strategy",
        "logging_first_step",
        "report_to",
        "run_name",
        "disable_tqdm",
        "log_level",
        "save_steps",
        "save_strategy",
        "save_total_limit",
        "dataloader_num_workers",
        "dataloader_pin_memory",
        "dataset_num_proc",
        "push_to_hub",
        "hub_model_id",
        "hub_strategy",
        "hub_private_repo",
        "hub_token",
        "resume_from_checkpoint",
        "benchmarks_dir",
        "project",
        "trackio_space_id",
    ]
)
"""Settings that may change when a run is continued: none of them touches the weights."""


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0 done, 1 failed while training, 2 refused before it."""
    words = list(arguments)
    only_looks = any(flag in words for flag in ("--dry-run", "--dry_run"))
    words = [word for word in words if word not in ("--dry-run", "--dry_run")]
    say_on_stderr()
    try:
        settings = parse(words)
        return dry_run(settings) if only_looks else _train(settings)
    except (UsageError, DataError, RunError) as error:
        return failed(error, 2)
    except (FloatingPointError, torch.OutOfMemoryError) as error:
        return failed(error, 1)
    except KeyboardInterrupt:
        return failed("interrupted; the same command continues from the last checkpoint", 130)


def _train(settings: Settings) -> int:
    args = settings.args
    run = RunDirectory(run_path(settings))
    is_main = args.process_index == 0
    if _from_main(_enter(run, settings) if is_main else None):
        logger.warning("%s: already finished; the model is in %s", run.path, run.model_dir)
        return _push(run, settings)
    trainer = _make_trainer(settings, run)
    _refuse_nothing_to_train(trainer, settings)
    if is_main:
        say_estimate(settings, trainer.train_dataset)
        run.settle_config(settings.given, harmless=HARMLESS)  # only now: bad data leaves no trace
        run.write_manifest(**environment(), **_facts(settings, trainer))
    checkpoint = _from_main(_checkpoint(settings, run) if is_main else None)
    try:
        result = trainer.train(resume_from_checkpoint=checkpoint)
        _save(trainer, run, settings)
    except RunError as error:  # a full disk
        return failed(error, 1)
    if is_main:
        run.write_manifest(train={**result.metrics, "steps": trainer.state.global_step})
        run.mark_finished()
        logger.warning("the model is in %s", run.model_dir)
    trainer.accelerator.end_training()
    return _push(run, settings)


def _refuse_nothing_to_train(trainer: TrimSFTTrainer, settings: Settings) -> None:
    report = trainer.length_reports.get("train")
    if report is not None and report.trained_tokens == 0:
        raise UsageError(
            f"max_length: {settings.args.max_length} leaves no trained token in any of {report.rows:,} rows; the "
            f"longest has {report.longest:,} tokens"
        )


def _enter(run: RunDirectory, settings: Settings) -> bool | Exception:
    """Take the run directory: whether the run is finished already, or why it cannot be had."""
    try:
        run.lock()  # until the process ends
        if run.config_path.exists():
            run.settle_config(settings.given, harmless=HARMLESS)
            _settle_inputs(run, settings)
        _settle_processes(run, settings.args.world_size)
        return run.is_finished()
    except (RunError, DataError) as error:
        return error


def _push(run: RunDirectory, settings: Settings) -> int:
    """The finished model to the hub, once; if that fails, the same command tries again."""
    args = settings.args
    if not args.push_to_hub or args.process_index or run.read_manifest().get("pushed"):
        return 0
    api = HfApi(token=args.hub_token)
    try:
        name = api.create_repo(_hub_name(run, args), private=args.hub_private_repo, exist_ok=True).repo_id
        api.upload_folder(repo_id=name, folder_path=run.model_dir, commit_message="Trained with trimsft")
    except (HfHubHTTPError, OSError) as error:
        return failed(f"push_to_hub: {one_line(error)}; the same command tries again", 1)
    run.write_manifest(pushed=name)
    logger.warning("pushed to %s", name)
    return 0


def _hub_name(run: RunDirectory, args: TrimSFTConfig) -> str:
    return args.hub_model_id or run.path.resolve().name


def _settle_inputs(run: RunDirectory, settings: Settings) -> None:
    """Model and data must still be what the run began with."""
    manifest = run.read_manifest()
    for what, now in (("model", _model_fingerprint(settings)), ("data", _data_fingerprint(settings))):
        before = manifest.get(what, {}).get("fingerprint")
        if before and now and before != now:
            raise RunError(
                f"{run.path} holds a run whose {what} was another: {manifest[what]['name']} has changed since. "
                "Restore it to continue, or choose another output directory"
            )


def _settle_processes(run: RunDirectory, processes: int) -> None:
    """Which examples meet in a batch depends on their number."""
    before = run.read_manifest().get("processes", processes)
    if before != processes:
        raise RunError(
            f"{run.path} holds a run of {before} processes, not {processes}. Start it with as many to continue it, "
            "or choose another output directory"
        )


def _make_trainer(settings: Settings, run: RunDirectory) -> TrimSFTTrainer:
    args = settings.args
    args.output_dir = str(run.train_dir)
    args.hub_model_id = _hub_name(run, args)
    if "hub_strategy" not in settings.given:
        args.hub_strategy = HubStrategy.END  # checkpoints stay here; the finished model is pushed once
    args.model_init_kwargs = settings.model_init_kwargs
    if args.disable_tqdm:
        disable_progress_bar()  # those of saving and loading too
    set_seed(args.seed)
    tokenizer = load_tokenizer(settings)
    train, test = load_data(settings, tokenizer)
    with refusing():
        return TrimSFTTrainer(
            settings.model.model_name_or_path,
            args,
            train_dataset=train.dataset,
            eval_dataset=None if test is None else test.dataset,
            processing_class=tokenizer,
            quantization_config=get_quantization_config(settings.model),
            peft_config=get_peft_config(settings.model),
        )


def _checkpoint(settings: Settings, run: RunDirectory) -> str | None:
    asked = settings.args.resume_from_checkpoint
    if asked and asked not in (True, "True", "true"):
        return str(asked)
    clear_staging(run.train_dir)  # a checkpoint that only lacked its name gets it
    found = latest_checkpoint(run.train_dir)
    if found is None:  # what was recorded before a first checkpoint will be recorded again
        (run.train_dir / TELEMETRY).unlink(missing_ok=True)
        return None
    logger.warning("continuing from %s", found)
    return str(found)


def _save(trainer: TrimSFTTrainer, run: RunDirectory, settings: Settings) -> None:
    """The final model, whole or not at all: written beside, then renamed."""
    beside = run.path / ".model"
    if trainer.is_fsdp_enabled:  # with shards Trainer would write nothing
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    trainer.save_model(str(beside), _internal_call=True)  # else it would push, too
    if trainer.is_world_process_zero():
        if not any(beside.glob("*.safetensors")):
            raise RunError(f"{run.path}: no weights came out of the training; its checkpoints are in {run.train_dir}")
        card = model_card(trainer, run.path.name, settings.data.dataset_name)
        card.save(beside / "README.md")
        (beside / "training_args.bin").unlink(missing_ok=True)  # a pickle; config.yaml says the same
        for path in beside.iterdir():
            sync(path)
        shutil.rmtree(run.model_dir, ignore_errors=True)  # of a run that was killed before it could say it was done
        beside.rename(run.model_dir)
        sync(run.path)
    trainer.accelerator.wait_for_everyone()


def _facts(settings: Settings, trainer: TrimSFTTrainer) -> dict[str, Any]:
    commit = getattr(trainer.model.config, "_commit_hash", None)
    return {
        "seed": settings.args.seed,
        "model": {
            "name": str(settings.model.model_name_or_path),
            "fingerprint": _model_fingerprint(settings) or commit,
        },
        "data": {
            "name": settings.data.dataset_name,
            "fingerprint": _data_fingerprint(settings),
            "lengths": {name: str(report) for name, report in trainer.length_reports.items()},
        },
        "processes": settings.args.world_size,
    }


def _model_fingerprint(settings: Settings) -> str | None:
    """Of a local folder; of the hub's models the commit is known once they are loaded."""
    folder = Path(settings.model.model_name_or_path)
    return fingerprint_folder(folder) if folder.is_dir() else None


def _data_fingerprint(settings: Settings) -> dict[str, str] | None:
    if not settings.data.is_local:
        return None
    return {str(file): fingerprint_file(file) for file in list_files(settings.data.dataset_name)}


def _from_main(value: Any) -> Any:
    """What the main process has decided, on every process; an error is raised on all of them."""
    shared = [value]
    broadcast_object_list(shared)
    if isinstance(shared[0], Exception):
        shared[0].said = value is None  # type: ignore[attr-defined]  # by the main process
        raise shared[0]
    return shared[0]
