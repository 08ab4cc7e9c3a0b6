"""`--dry-run` of a study or sweep: which cells are missing and, on named GPUs, what they take; nothing is run.

plan = plan_cells(cells, scale, StudyFolder(Path("runs/study-paper")), gpus="2xA6000")
plan.hours, plan.notes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder
from trimsft.study.run import StudySettings
from trimsft.study.scales import Scale
from trimsft.study.steps import check_code, model_path, training_settings

ROW_TOKENS = 526  # mean of 2,000 rows of NuminaMath-CoT in the tokens of SmolLM2
ROWS = 20_000  # the paper's; for data that is not at hand


@dataclass(frozen=True)
class CellPlan:
    """Work that one cell still needs."""

    name: str
    trained_tokens: float = 0
    generated_tokens: float = 0
    gpu_hours: float | None = None  # None where no GPUs are named


@dataclass(frozen=True)
class StudyPlan:
    """Work that the missing cells need."""

    cells: list[CellPlan]
    already_done: int
    notes: list[str] = field(default_factory=list)  # memory, downloads, and what is assumed

    @property
    def hours(self) -> float:
        return sum(cell.gpu_hours or 0 for cell in self.cells)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gpu_hours": self.hours}


def plan_study(settings: StudySettings) -> StudyPlan:
    """Plan the studies together, cells that they share once; nothing is written."""
    _, cells, scale, folder = settings.prepare()
    return plan_cells(cells, scale, folder, settings.gpu_kind)


def plan_cells(cells: Sequence[Cell], scale: Scale, folder: StudyFolder, gpus: str | None = None) -> StudyPlan:
    """Plan every cell that is not done; refuses a training that cannot fit on the named GPUs."""
    check_code(folder, cells)
    missing = {cell: steps for cell in cells if (steps := folder.missing(cell, scale))}
    done = len(cells) - len(missing)
    if gpus is None:
        return StudyPlan([CellPlan(cell.name) for cell in missing], done)
    if scale.device == "cpu":
        raise UsageError("has no effect on a CPU", field="gpus", value=gpus, remedy=("device", "cuda"))
    from trimsft import plan as arithmetic
    from trimsft.evaluate.benchmarks import BENCHMARKS, load_benchmark
    from trimsft.train.dry_run import as_plan

    count, device = arithmetic.read_gpus(gpus)
    engine = "transformers" if scale.engine == "transformers" else "vllm"
    length = min(scale.answer_tokens, scale.sampling.get("max_tokens", scale.answer_tokens))
    place, problems = None if scale.benchmark_data is None else Path(scale.benchmark_data), 0
    for name in scale.benchmarks:
        known = BENCHMARKS[name].count if name in BENCHMARKS else len(load_benchmark(name, place))
        problems += known if scale.problems is None else min(known, scale.problems)
    generated = float(length * scale.answers_each * problems)
    notes = [
        f"training at {arithmetic.UTILISATION:.0%} of the peak, of {ROW_TOKENS} tokens a row (assumed)",
        f"generation by {engine} at {arithmetic.DECODING[engine]:.0%} of the bandwidth, {length} tokens an answer "
        "(assumed)",
    ]
    planned = []
    for cell, steps in missing.items():
        settings = training_settings(folder, scale, cell)
        plan = replace(as_plan(settings, settings.args.max_length or 2048, count), sharded=count > 1)
        trained = _count_tokens(scale, settings, count) if "train" in steps else 0.0
        if trained:
            try:
                arithmetic.require_room(plan, device)
            except UsageError as error:
                error.problem = f"{cell.model}: {error.problem}"
                raise
            memory = arithmetic.peak_gib(plan, device)
            notes.append(f"{cell.model}: about {memory:,.0f} GiB of each GPU in training")
        notes.append(arithmetic.describe_download(model_path(scale.at(cell.model))))
        answers = generated if "evaluate" in steps else 0.0
        # while one process generates, the other GPUs of the cell wait
        generation = arithmetic.generation_hours(plan.shape, device, answers, engine=engine, length=length)
        hours = generation * scale.gpus_of(cell) + arithmetic.training_hours(plan, device, trained)
        planned.append(CellPlan(cell.name, trained, answers, hours))
    return StudyPlan(planned, done, list(dict.fromkeys(notes)))


def _count_tokens(scale: Scale, settings: Any, gpus: int) -> float:
    """Return the tokens that go through the model in training; `max_steps` goes before `num_train_epochs`."""
    from trimsft.data.load import load_rows

    args, data = settings.args, settings.data
    rows = scale.rows or (len(load_rows(data)) if data.is_local else data.sample or ROWS)
    each = args.global_batch or args.per_device_train_batch_size * args.gradient_accumulation_steps * gpus
    epochs = args.max_steps * each / rows if args.max_steps > 0 else float(args.num_train_epochs)
    return float(rows * epochs * min(ROW_TOKENS, args.max_length or ROW_TOKENS))
