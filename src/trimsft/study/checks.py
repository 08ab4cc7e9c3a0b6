"""What is looked at before anything is run: settings, data, models, benchmarks, weights that are gone, attention.

Each would otherwise fail in every cell, some of them after hours of training.
"""

import importlib.util
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from trimsft.errors import RunError, TrimSFTError, UsageError
from trimsft.models import load_config
from trimsft.objectives import OBJECTIVES, fingerprint_objective
from trimsft.runs import RunDirectory
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.scales import Scale
from trimsft.study.steps import ATTENTION, Job, model_path, training_settings, wants_flash
from trimsft.train.attention import has_flash_attention

logger = logging.getLogger("trimsft")


def check_settings(scale: Scale, folder: StudyFolder, cells: Iterable[Cell] = ()) -> None:
    """Read settings as training and evaluation would, also of these cells; look whether files and names are there."""
    from trimsft.data.load import list_files
    from trimsft.evaluate.benchmarks import find_file

    for cell in cells:
        training_settings(folder, scale, cell)
    job = Job(folder, scale, frozenset())
    for model, at in scale.models.items():
        sft = Cell(model=model, objective="sft")
        with _study_names():
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
    with _study_names():
        for name in scale.benchmarks:
            find_file(name, scale.benchmark_data)


def check_at_hand(scale: Scale) -> None:
    """Find every model and read every benchmark, which may mean asking the hub."""
    from trimsft.data.encode import load_tokenizer
    from trimsft.evaluate.benchmarks import load_benchmark
    from trimsft.evaluate.engines import Sampling
    from trimsft.evaluate.engines.builds import count_positions

    new = Sampling(**scale.sampling).max_tokens
    for model in scale.models.values():
        config = load_config(model_path(model), field="models")
        limit = count_positions(config.get_text_config())
        if limit is not None and new >= limit:
            problem = f"{new:,} new tokens leave no room for a prompt in the model's {limit:,} positions"
            raise UsageError(problem, field="max_tokens")
        load_tokenizer(model_path(model), field="models")
    with _study_names():
        for benchmark in scale.benchmarks:
            load_benchmark(benchmark, scale.benchmark_data)


@contextmanager
def _study_names() -> Iterator[None]:
    """Rename fields in errors: evaluation's data_dir and limit are a study's benchmark_data and problems."""
    names = {"data_dir": "benchmark_data", "limit": "problems"}
    try:
        yield
    except TrimSFTError as error:
        error.field = names.get(error.field or "", error.field)
        if error.remedy:
            error.remedy = (names.get(error.remedy[0], error.remedy[0]), error.remedy[1])
        raise


def check_cells(job: Job, cells: Sequence[Cell], *, is_here: bool = True) -> None:
    """Refuse cells that cannot be finished, or would be mixed with those of another objective.

    Args:
        is_here: whether they are evaluated on this machine, whose engine must be installed.
    """
    trained = [cell for cell in cells if not cell.is_base]
    lost = [cell for cell in trained if job.missing(cell) and job.folder.has_dropped_weights(cell)]
    if lost:
        count = "1 cell has" if len(lost) == 1 else f"{len(lost)} cells have"
        raise RunError(
            f"{job.folder.out}: {count} no weights any more, deleted after evaluation, and cannot be measured on what "
            f"is new, such as {lost[0].name}",
            hint="ask for the benchmarks they have, or take another folder, with all benchmarks or --keep-weights from "
            "the start",
        )
    for cell in (cell for cell in trained if cell.objective not in OBJECTIVES):
        recorded = RunDirectory(job.folder.run(cell)).read_manifest().get("objective")
        before = recorded.get("fingerprint") if isinstance(recorded, dict) else None
        if before and before != fingerprint_objective(cell.objective):
            raise RunError(
                f"{job.folder.run(cell)} holds a run with other code of {cell.objective}",
                hint="remove it to train it again, or choose another folder",
            )
    needs_vllm = is_here and job.scale.engine == "vllm" and any("evaluate" in job.missing(cell) for cell in cells)
    if needs_vllm and importlib.util.find_spec("vllm") is None:
        hint = "see trimsft doctor, or let auto take transformers"
        raise UsageError("is not installed", field="engine", value="vllm", hint=hint)


def with_attention(scale: Scale, folder: StudyFolder) -> Scale:
    """Take sdpa for every cell, so that all have the same, where flash attention is asked for and not installed.

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
    began_without = before is not None and before.defaults.get(ATTENTION) == "sdpa"
    if has_flash_attention() and not began_without:
        return scale
    if not began_without:
        logger.warning(
            "%s: flash attention, which recipes ask for, is not installed (flash-attn or kernels); every cell trains "
            "with sdpa, which is slower and the same but for rounding",
            ATTENTION,
        )
    return replace(scale, defaults={**scale.defaults, ATTENTION: "sdpa"})
