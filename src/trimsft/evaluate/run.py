"""From a model to scores in a run directory: load, generate, grade, score.

runs/trim/eval/math500/     settings.json  problems.jsonl  samples.jsonl  grades.jsonl  scores.json

evaluated = evaluate_model("runs/trim", ["math500"], samples=8)
evaluated.scores[0].average     # Interval(value=0.61, low=0.57, high=0.65)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from trimsft.data.encode import load_tokenizer
from trimsft.data.templates import TemplateError, resolve_template_name
from trimsft.errors import RunError, UsageError
from trimsft.evaluate.benchmarks import describe_source, load_benchmark
from trimsft.evaluate.engines import Engine, LocalModel, Sampling, identify_model, load_engine
from trimsft.evaluate.engines.several import Copies, visible_gpus
from trimsft.evaluate.generate import Evaluation, Progress, fill, instruction_of, settings_of
from trimsft.evaluate.grades import grade_record, scores_as_recorded
from trimsft.evaluate.problems import Problem, benchmark_name, describe_gradings
from trimsft.evaluate.prompts import Prompts, make_prompts
from trimsft.evaluate.samples import SampleRecord
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.evaluate.settings import OF_VLLM, EvalSettings
from trimsft.grading import GRADER_VERSION, Grader, load_scorer
from trimsft.runs import RunDirectory, find_weights
from trimsft.tables import Cell, Table, Tabular


@dataclass(frozen=True)
class Evaluated(Tabular):
    """The scores of an evaluation, in the order of its benchmarks, and where it is recorded."""

    run: RunDirectory
    scores: tuple[BenchmarkScore, ...]

    def as_json(self) -> list[dict[str, Any]]:
        """Return the scores for a program: without the counts of every problem."""
        return [{name: value for name, value in s.as_dict().items() if name != "per_problem"} for s in self.scores]

    @property
    def tables(self) -> list[Table]:
        k = min(score.samples for score in self.scores)
        metrics = ["average", f"pass@{k}", f"majority@{k}"] if k else []
        metrics += ["greedy"] if all(score.greedy for score in self.scores) else []
        rows = []
        for one in self.scores:
            shares = [Cell.of(one.interval(metric)) for metric in metrics]
            rows.append((Cell(one.benchmark), Cell(str(one.problems), data=one.problems), *shares))
        return [Table("", ("benchmark", "problems", *metrics), tuple(rows))]


def evaluate_model(model: str | Path, benchmarks: str | Path | Sequence[str], **options: Any) -> Evaluated:
    """Sample, grade and score a model; what is recorded already is not generated again.

    Args:
        model: a run directory, a model folder, or a name of the hub or of a server.
        benchmarks: names or .jsonl files; one or several.
        options: fields of `EvalSettings` and of `Sampling`, such as samples=4, max_tokens=512.
    """
    names: Any = (str(benchmarks),) if isinstance(benchmarks, str | Path) else benchmarks
    names = tuple(names) if isinstance(names, Iterable) else names  # what is no list is refused with the settings
    drawing = {field.name: options.pop(field.name) for field in fields(Sampling) if field.name in options}
    sampling: dict[str, Any] = {"sampling": Sampling(**drawing)} if drawing else {}
    return evaluate(EvalSettings(model=str(model), benchmarks=names, **sampling, **options))


def evaluate(
    settings: EvalSettings,
    *,
    on_load: Callable[[Sequence[str]], None] = lambda names: None,
    on_start: Callable[[str, Prompts], None] = lambda name, prompts: None,
    on_progress: Callable[[str, Progress], None] = lambda name, progress: None,
) -> Evaluated:
    """Generate what is missing, grade and score, benchmark by benchmark.

    Interrupted at any moment, it leaves whole files and no processes; the same call continues. What is refused is
    refused before anything is written. A record that holds all samples needs neither a model nor a server.

    Args:
        on_load: called with the benchmarks that lack samples, before the model is loaded.
        on_start: called with a benchmark and its prompts, before anything is generated.
        on_progress: called with every sample.
    """
    scorer = load_scorer(settings.grader) if ":" in settings.grader else None
    version = scorer.version if scorer else GRADER_VERSION
    tasks = [_Task(path, settings) for path in settings.benchmarks]
    scores = {task.name: task.scores_as_recorded(version) for task in tasks}
    left = [task for task in tasks if scores[task.name] is None]
    unfinished = [task for task in left if not task.is_complete()]
    with ExitStack() as held:
        if unfinished:
            on_load([task.name for task in unfinished])
            engine = make_engine(settings)
            held.callback(engine.close)
            evaluations = {task.name: task.prepare(engine) for task in unfinished}
        if left:
            kind = cast(Literal["strict", "qwen"], "strict" if scorer else settings.grader)
            grader = Grader(kind=kind, scorer=scorer)
        for task in left:
            if task in unfinished:
                on_start(task.name, evaluations[task.name].prompts)
                fill(task.record, evaluations[task.name], engine, on_progress=partial(on_progress, task.name))
            scores[task.name] = grade_record(task.record, grader, task.problems)
    return Evaluated(settings.run, tuple(score for score in scores.values() if score))


class _Task:
    """One benchmark of an evaluation."""

    def __init__(self, path: str, settings: EvalSettings) -> None:
        """Read the problems, and refuse settings that the record of this benchmark does not allow."""
        self.name, self.path, self.settings = benchmark_name(path), path, settings
        grading, columns = settings.grading_of_rows(), settings.columns
        self.problems = load_benchmark(path, settings.data_dir, settings.limit, grading, columns)
        self.record = SampleRecord(settings.run.eval_dir / self.name)
        is_another = self.record.refuse_other(settings_of(self.name, self.problems, settings), self.problems)
        self._is_same = not is_another and _is_same_model(self.record.settings(), settings)

    def is_complete(self) -> bool:
        """Return whether every sample is recorded."""
        return self._is_same and not self.record.missing(self.record.wanted())

    def scores_as_recorded(self, version: str) -> BenchmarkScore | None:
        """Return the scores, where there is nothing to do."""
        if not self._is_same or not self.record.is_graded_as(self.problems):
            return None
        return scores_as_recorded(self.record, self.settings.grader, version)

    def prepare(self, engine: Engine) -> Evaluation:
        """Make the prompts, and refuse what the record or the engine does not allow, before anything is written."""
        prompts = _prompts(self.settings, engine, self.problems)
        source = describe_source(self.path, self.settings.data_dir)
        evaluation = Evaluation(self.name, self.problems, prompts, self.settings, source)
        self.record.refuse_other(evaluation.settings(engine), self.problems)
        evaluation.check(engine)
        return evaluation


def _is_same_model(recorded: Mapping[str, Any], settings: EvalSettings) -> bool:
    """Return whether a record is of the model that the settings name, as far as its files and the settings say."""
    known: dict[str, Any] = {} if settings.dtype == "auto" else {"dtype": settings.dtype}
    if settings.server is not None:
        known |= {"name": "server", "model": settings.model}
    else:
        known |= {} if settings.engine == "auto" else {"name": settings.engine}
        try:
            known |= identify_model(find_weights(settings.model), settings.revision)
        except RunError:  # beside a training whose model is gone, the record is of that model
            if settings.out is not None or not RunDirectory(settings.model).is_finished():
                return False
    return bool(known.items() <= recorded.get("engine", {}).items())


def _prompts(settings: EvalSettings, engine: Engine, problems: Sequence[Problem]) -> Prompts:
    """Make the prompts, with notes of what a reader of the scores should know."""
    tokenizer, texts = engine.tokenizer, [problem.asked for problem in problems]
    system_prompt = instruction_of(settings, problems)
    try:
        prompts = make_prompts(texts, tokenizer, template=settings.template, system_prompt=system_prompt)
    except TemplateError as error:
        if error.field != "system_prompt" or settings.system_prompt is not None:
            raise
        problem, hint = "has no place for the `instruction` of the rows", "use chat, plain or auto"
        raise UsageError(problem, field="template", value=settings.template, hint=hint) from error
    notes = [*prompts.notes, *engine.details.get("notes", ())]
    if graded_by := settings.grader if ":" in settings.grader else describe_gradings(problems):
        notes.append(f"graded by {graded_by}")
    if system_prompt is None and any(problem.grading.kind == "regex" for problem in problems):
        notes.append(
            "the prompt asks for a boxed answer, but a pattern looks for it elsewhere: --system-prompt, or "
            "`instruction` in the rows of the benchmark, asks otherwise"
        )
    with suppress(RunError, TemplateError):  # only a hint hangs on it
        config = RunDirectory(settings.model).read_config()
        if config is not None and tokenizer is not None and settings.template == "auto":
            taught = resolve_template_name(str(config.get("template", "auto")), tokenizer)
            if taught != prompts.template:
                notes.append(
                    f"this run was trained with template {taught!r}: --template {taught} asks as it was taught"
                )
    return replace(prompts, notes=tuple(notes))


def make_engine(settings: EvalSettings) -> Engine:
    """Return what the settings name: a server, or copies of a model, one on each GPU."""
    if settings.server is not None:
        from trimsft.evaluate.engines.server_engine import ServerEngine

        name = settings.tokenizer or (settings.model if Path(settings.model).is_dir() else None)
        return ServerEngine(
            settings.server,
            settings.model,
            concurrency=settings.concurrency or 64,
            timeout=settings.timeout or 600.0,
            tokenizer=load_tokenizer(name, field="tokenizer") if name else None,
        )
    import torch

    model = _local_model(settings)
    gpus, each = visible_gpus() if torch.cuda.is_available() else [], model.tensor_parallel or 1
    if each > max(1, len(gpus)):
        raise UsageError(f"there are {len(gpus)} GPUs", field="tensor_parallel", value=each)
    shares = [",".join(gpus[first : first + each]) for first in range(0, len(gpus) - each + 1, each)]
    return load_engine(model) if len(shares) < 2 else Copies(model, shares)


def _local_model(settings: EvalSettings) -> LocalModel:
    weights = find_weights(settings.model)
    if settings.revision is not None and Path(weights).is_dir():
        raise UsageError("has no effect on a local folder", field="revision", value=settings.revision, hint="remove it")
    names = ("engine", "revision", "dtype", "gpu_memory", *OF_VLLM)
    model = LocalModel(str(weights), **{name: getattr(settings, name) for name in names})
    for name in () if model.by_vllm else OF_VLLM:
        if (value := getattr(settings, name)) is not None:
            raise UsageError("has no effect without vllm, which is not installed", field=name, value=value)
    return model
