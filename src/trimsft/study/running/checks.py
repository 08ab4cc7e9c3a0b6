"""What is looked at before anything is run: settings, data, models, benchmarks, weights that are gone, attention.

check_settings(scale, folder)       # and data and names: asks nobody, so a dry run does it, too
check_at_hand(scale)                # models and benchmarks, which may mean asking the hub
refuse_lost_weights(job)            # cells that could not be measured again
refuse_absent_engine(job)           # cells that could not be evaluated here
refuse_changed_objectives(job)      # cells whose objective has been edited since
scale = with_attention(scale, folder)

Each would otherwise fail in every cell, some of them after hours of training.
"""

import importlib.util
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from trimsft.errors import RunError, TrimSFTError, UsageError
from trimsft.models import load_config
from trimsft.objectives import OBJECTIVES, fingerprint_objective
from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.running.job import CellJob
from trimsft.study.running.training import ATTENTION, model_path, training_settings, wants_flash
from trimsft.study.scales import Scale
from trimsft.train.attention import has_flash_attention

logger = logging.getLogger("trimsft")


def check_settings(scale: Scale, folder: StudyFolder, cells: Iterable[Cell] = ()) -> None:
    """Read settings as training and evaluation would, also of these cells; look whether files and names are there."""
    from trimsft.data.load import list_files
    from trimsft.evaluate.benchmarks import find_file, refuse_unused_folder

    for cell in cells:
        training_settings(folder, scale, cell)
    job = CellJob(folder, scale, frozenset(), {})
    for model, at in scale.models.items():
        sft = Cell(model=model, objective="sft")
        with _called_as_here():
            job.eval_settings(sft, model_path(at))
        data = training_settings(folder, scale, sft).data
        try:
            if data.is_local and not scale.is_lab:  # the lab makes its own
                list_files(data.dataset_name)
        except TrimSFTError as error:
            if scale.data is None:
                error.remedy = ("data", "FILE")
                error.problem += f" (named by the recipe of scale {scale.name!r})"
            raise
    with _called_as_here():
        for name in scale.benchmarks:
            find_file(name, scale.benchmark_data)
        refuse_unused_folder(scale.benchmarks, scale.benchmark_data)


def check_at_hand(scale: Scale) -> None:
    """Find every model and read every benchmark: what is nowhere would otherwise fail in each cell."""
    from trimsft.data.encode import load_tokenizer
    from trimsft.evaluate.benchmarks import load_benchmark

    for model in scale.models.values():
        _require_positions(scale, load_config(model_path(model), field="models"))
        load_tokenizer(model_path(model), field="models")
    with _called_as_here():
        for benchmark in scale.benchmarks:
            load_benchmark(benchmark, scale.benchmark_data)


def _require_positions(scale: Scale, config: Any) -> None:
    """Refuse answers that are longer than a model's texts may be; evaluation, which knows the prompts, refuses more."""
    from trimsft.evaluate.engines import Sampling
    from trimsft.evaluate.engines.builds import count_positions

    new, limit = Sampling(**scale.sampling).max_tokens, count_positions(config.get_text_config())
    if limit is not None and new >= limit:
        problem = f"{new:,} new tokens leave no room for a prompt in the model's {limit:,} positions"
        raise UsageError(problem, field="max_tokens")


@contextmanager
def _called_as_here() -> Iterator[None]:
    """What evaluation calls data_dir and limit are benchmark_data and problems in a study."""
    names = {"data_dir": "benchmark_data", "limit": "problems"}
    try:
        yield
    except TrimSFTError as error:
        if error.field is not None:
            error.field = names.get(error.field, error.field)
        if error.remedy and error.remedy[0] == "data_dir":
            error.remedy = ("benchmark_data", error.remedy[1])
        raise


def refuse_lost_weights(job: CellJob) -> None:
    """A cell whose weights were deleted has been measured for good; more of it would mean to train it again."""
    trained = [cell for cell in job.cells.values() if not cell.is_base]
    lost = [cell for cell in trained if job.missing(cell) and job.folder.has_dropped_weights(cell)]
    if lost:
        count = "1 cell has" if len(lost) == 1 else f"{len(lost)} cells have"
        raise RunError(
            f"{job.folder.out}: {count} no weights any more, deleted after evaluation, and cannot be measured on what "
            f"is new, such as {lost[0].name}",
            hint="ask for the benchmarks they have, or take another folder, with all benchmarks or --keep-weights from "
            "the start",
        )


def refuse_absent_engine(job: CellJob) -> None:
    """What evaluates on this machine has to be here before hours of training; the machines of a cluster have theirs."""
    evaluates = any("evaluate" in job.missing(cell) for cell in job.cells.values())
    if evaluates and job.scale.engine == "vllm" and importlib.util.find_spec("vllm") is None:
        hint = "see trimsft doctor, or let auto take transformers"
        raise UsageError("is not installed", field="engine", value="vllm", hint=hint)


def refuse_changed_objectives(job: CellJob) -> None:
    """What was trained with other code of an objective is not mixed with what is trained now."""
    for cell in job.cells.values():
        if cell.is_base or cell.objective in OBJECTIVES:
            continue
        recorded = RunDirectory(job.folder.run(cell)).read_manifest().get("objective")
        before = recorded.get("fingerprint") if isinstance(recorded, dict) else None
        if before and before != fingerprint_objective(cell.objective):
            raise RunError(
                f"{job.folder.run(cell)} holds a run with other code of {cell.objective}",
                hint="remove it to train it again, or choose another folder",
            )


# ---- attention


def with_attention(scale: Scale, folder: StudyFolder) -> Scale:
    """Where recipes ask for flash attention and it is not installed, sdpa for every cell, so that all have the same.

    A folder that has begun without flash attention goes on without.
    """
    asking = [name for name, at in scale.models.items() if wants_flash(scale, at)]
    if not asking or (scale.device == "cpu" and ATTENTION not in scale.defaults):
        return scale
    by_name = scale.defaults.get(ATTENTION)
    if by_name is not None and (scale.device == "cpu" or not has_flash_attention()):
        raise UsageError(
            f"{ATTENTION}={by_name} needs a GPU and the package flash-attn or kernels",
            field="fields",
            hint=f"{ATTENTION}=sdpa needs neither",
        )
    before = folder.scale_if_any()
    with_sdpa = replace(scale, defaults={**scale.defaults, ATTENTION: "sdpa"})
    if before is not None and before.defaults.get(ATTENTION) == "sdpa":
        return with_sdpa
    if has_flash_attention():
        return scale
    logger.warning(
        "%s: flash attention, which recipes ask for, is not installed (flash-attn or kernels); every cell trains "
        "with sdpa, which is slower and the same but for rounding",
        ATTENTION,
    )
    return with_sdpa
