"""`--dry-run` of a study or sweep: which cells are missing and, on named GPUs, what they take; nothing is run.

plan = plan_cells(cells, scale, StudyFolder(Path("runs/study-paper")), gpus="2xA6000")
plan.cells, plan.gpu_hours, plan.notes
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trimsft.errors import UsageError
from trimsft.study.cell import Cell
from trimsft.study.folder import StudyFolder, model_path, training_settings
from trimsft.study.run import RunOptions
from trimsft.study.scales import Scale

ROW_TOKENS = 526  # mean of 2,000 rows of NuminaMath-CoT in the tokens of SmolLM2
ROWS = 20_000  # the paper's; for data that is not at hand


@dataclass(frozen=True)
class StudyPlan:
    """Work that is left."""

    cells: list[str]
    already_done: int
    gpu_hours: float | None = None  # None where no GPUs are named
    notes: list[str] = field(default_factory=list)  # memory, downloads, and what is assumed


def plan_study(settings: RunOptions) -> StudyPlan:
    """Plan the cells of a study or sweep; nothing is written."""
    _, cells, scale, folder = settings.prepare()
    return plan_cells(cells, scale, folder, settings.gpu_kind)


def plan_cells(cells: Sequence[Cell], scale: Scale, folder: StudyFolder, gpus: str | None = None) -> StudyPlan:
    """Plan every cell that is not done; refuses a training that cannot fit on the named GPUs."""
    missing = {cell: steps for cell in cells if (steps := folder.missing(cell, scale))}
    plan = StudyPlan([cell.name for cell in missing], len(cells) - len(missing))
    if gpus is None:
        return plan
    if scale.device == "cpu":
        raise UsageError("has no effect on a CPU", field="gpus", value=gpus, hint="set device=cuda")
    from trimsft import plan as arithmetic
    from trimsft.data.load import load_rows
    from trimsft.train.dry_run import as_plan

    count, device = arithmetic.read_gpus(gpus)
    engine = "transformers" if scale.engine == "transformers" else "vllm"
    length = min(scale.answer_tokens, scale.sampling.get("max_tokens", scale.answer_tokens))
    answers = scale.samples + 1 + scale.temperature_samples * len(scale.temperatures)  # one of them greedy
    generated = length * answers * sum(_count_problems(name, scale) for name in scale.benchmarks)
    notes = [
        f"assumed: training at {arithmetic.UTILISATION:.0%} of the peak, {ROW_TOKENS} tokens a row",
        f"assumed: {engine} at {arithmetic.DECODING[engine]:.0%} of the bandwidth, {length} tokens an answer",
    ]
    hours = 0.0
    for cell, steps in missing.items():
        settings = training_settings(folder, scale, cell)
        args, data = settings.args, settings.data
        training = replace(as_plan(settings, args.max_length or 2048, count), sharded=count > 1)
        if "train" in steps:
            arithmetic.require_room(training, device)
            memory = arithmetic.peak_gib(training, device)
            notes.append(f"{cell.model}: about {memory:,.0f} GiB of each GPU in training")
            rows = scale.rows or (len(load_rows(data)) if data.is_local else data.sample or ROWS)
            tokens = rows * args.num_train_epochs * min(ROW_TOKENS, args.max_length or ROW_TOKENS)
            hours += arithmetic.training_hours(training, device, tokens)
        if "evaluate" in steps:
            # while one process generates, the other GPUs of the cell wait
            generation = arithmetic.generation_hours(training.shape, device, generated, engine=engine, length=length)
            hours += generation * scale.gpus_of(cell)
        notes.append(arithmetic.describe_download(model_path(scale.at(cell.model))))
    return replace(plan, gpu_hours=hours, notes=list(dict.fromkeys(notes)))


def _count_problems(name: str, scale: Scale) -> int:
    from trimsft.evaluate.benchmarks import BENCHMARKS, load_benchmark

    known = BENCHMARKS[name].count if name in BENCHMARKS else len(load_benchmark(name))
    return known if scale.limit is None else min(known, scale.limit)
