"""What is looked at before anything is run: settings, data, models, benchmarks, weights that are gone, attention.

check_settings(scale, out)          # and data and names: asks nobody, so a dry run does it, too
check_at_hand(scale)                # models and benchmarks, which may mean asking the hub
refuse_lost_weights(job)            # cells that could not be measured again
scale = with_attention(scale, recorded)

Each would otherwise fail in every cell, some of them after hours of training.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimsft.errors import RunError, one_line
from trimsft.runs import RunDirectory
from trimsft.study.cells import Cell
from trimsft.study.places import Place
from trimsft.study.running.steps import CellJob
from trimsft.study.running.training import ATTENTION, attention_of, is_flash, model_path, training_settings
from trimsft.study.scales import Scale

logger = logging.getLogger("trimsft")


def check_settings(scale: Scale, out: Path) -> None:
    """Read the settings of each model as its training would, and look whether files and names are there."""
    from trimsft.evaluate.benchmarks import find_file

    for model in scale.models:
        _check_data(scale, training_settings(Place(out), scale, Cell(model=model, objective="sft")).data)
    for name in scale.benchmarks:
        find_file(name, scale.benchmark_data)


def _check_data(scale: Scale, data: Any) -> None:
    """The lab makes its own."""
    from trimsft.errors import DataError
    from trimsft.text.readers import list_files

    if scale.is_lab or not data.is_local:
        return
    try:
        list_files(data.dataset_name)
    except DataError as error:
        hint = "" if scale.data else f", which its recipe names; --data FILE trains on another ({scale.name!r})"
        raise ValueError(f"{error}{hint}") from error


def check_at_hand(scale: Scale) -> None:
    """Find every model and read every benchmark: what is nowhere would otherwise fail in each cell."""
    from transformers import AutoConfig

    from trimsft.evaluate.benchmarks import BenchmarkError, load_benchmark

    for name, model in scale.models.items():
        path = model_path(model)
        try:
            AutoConfig.from_pretrained(path)
        except (OSError, ValueError) as error:
            where = "" if Path(path).is_dir() else " (no such folder here, so the hub was asked)"
            raise ValueError(f"model: {name}={path!r} cannot be read{where}: {error}") from error
    for benchmark in scale.benchmarks:
        try:
            load_benchmark(benchmark, scale.benchmark_data)
        except BenchmarkError as error:
            raise ValueError(one_line(error).replace("--data-dir", "--benchmark-data")) from error


def refuse_lost_weights(job: CellJob) -> None:
    """A cell whose weights were deleted has been measured for good; more of it would mean to train it again."""
    lost = [cell for cell in job.cells.values() if job.missing(cell) and _has_dropped_weights(job.place, cell)]
    if lost:
        count = "1 cell has" if len(lost) == 1 else f"{len(lost)} cells have"
        raise RunError(
            f"{job.place.out}: {count} no weights any more, deleted after evaluation, and cannot be measured on what "
            f"is new, such as {lost[0].name}; ask for the benchmarks they have, or take another folder, with all "
            "benchmarks or --keep-weights from the start"
        )


def _has_dropped_weights(place: Place, cell: Cell) -> bool:
    if cell.is_base or not place.is_trained(cell):
        return False
    return RunDirectory(place.run(cell)).read_manifest().get("weights") == "dropped"


# ---- attention


def with_attention(scale: Scale, before: Scale | None) -> Scale:
    """Where recipes ask for flash attention and it is not installed, sdpa for every cell, so that all have the same.

    Args:
        before: what the folder holds: a study that has begun without flash attention goes on without.
    """
    asking = [name for name, at in scale.models.items() if is_flash(attention_of(scale, at))]
    if not asking or (scale.device == "cpu" and ATTENTION not in scale.defaults):
        return scale
    given = scale.defaults.get(ATTENTION)
    if given is not None and (scale.device == "cpu" or not has_flash_attention()):
        raise ValueError(
            f"set: {ATTENTION}={given} needs a GPU and the package flash-attn or kernels; "
            f"{ATTENTION}=sdpa needs neither"
        )
    if before is not None and before.defaults.get(ATTENTION) == "sdpa":
        return _with_field(scale, "sdpa")
    if has_flash_attention():
        return scale
    logger.warning(
        "%s: flash attention, which recipes ask for, is not installed (flash-attn or kernels); every cell trains "
        "with sdpa, which is slower and the same but for rounding",
        ATTENTION,
    )
    return _with_field(scale, "sdpa")


def _with_field(scale: Scale, value: str) -> Scale:
    defaults: Mapping[str, Any] = {**scale.defaults, ATTENTION: value}
    return replace(scale, defaults=defaults)


def has_flash_attention() -> bool:
    """Whether transformers would find it: the package, or the one that loads its kernel from the hub.

    Whether there is a GPU is not asked: the head of a cluster may have none.
    """
    from transformers.utils import is_kernels_available

    return importlib.util.find_spec("flash_attn") is not None or bool(is_kernels_available())
