"""From a model to scores in a run directory: load, generate, grade, score.

runs/trim/eval/math500/     settings.json  problems.jsonl  samples.jsonl  grades.jsonl  scores.json

evaluated = evaluate(EvalSettings(model="runs/trim", benchmarks=["math500"], samples=8))
evaluated.scores[0].average     # Interval(value=0.61, low=0.57, high=0.65)
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

from trimsft.data.templates import TemplateError, resolve_template_name
from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import benchmark_name, describe_gradings, describe_source, load_benchmark
from trimsft.evaluate.engines import Engine, identify_model, make_engine
from trimsft.evaluate.generate import Evaluation, Progress, fill
from trimsft.evaluate.grades import grade_record
from trimsft.evaluate.metrics import GREEDY
from trimsft.evaluate.prompts import Prompts, make_prompts
from trimsft.evaluate.samples import SampleRecord
from trimsft.evaluate.scores import BenchmarkScore
from trimsft.evaluate.settings import EvalSettings
from trimsft.grading import Grader, load_scorer
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


def evaluate(
    settings: EvalSettings,
    *,
    on_load: Callable[[Sequence[str]], None] = lambda names: None,
    on_start: Callable[[str, Prompts], None] = lambda name, prompts: None,
    on_progress: Callable[[str, Progress], None] = lambda name, progress: None,
) -> Evaluated:
    """Generate what is missing, grade and score, benchmark by benchmark.

    Interrupted at any moment, it leaves whole files and no processes; the same call continues. What is refused is
    refused before anything is written. A record that holds all samples needs neither a model nor a server. `on_load`
    gets the benchmarks that lack samples, `on_start` a benchmark and its prompts, `on_progress` every sample.
    """
    scorer = load_scorer(settings.grader) if ":" in settings.grader else None
    kind = cast(Literal["strict", "qwen"], "strict" if scorer else settings.grader)
    grader = Grader(kind=kind, scorer=scorer)
    evaluations, records, unfinished = dict[str, Evaluation](), dict[str, SampleRecord](), list[str]()
    for path in settings.benchmarks:
        name, grading = benchmark_name(path), settings.grading_of_rows()
        problems = load_benchmark(path, settings.data_dir, settings.limit, grading, settings.columns)
        evaluations[name] = Evaluation(name, problems, settings, describe_source(path, settings.data_dir))
        records[name] = SampleRecord(settings.run.eval_dir / name)
        if not _is_complete(records[name], evaluations[name]):
            unfinished.append(name)

    if unfinished:
        on_load(unfinished)
        engine = make_engine(settings)
    for name in unfinished:  # all are checked before the first is generated
        evaluations[name] = one = replace(evaluations[name], prompts=_prompts(evaluations[name], engine))
        protocol = one.protocol(engine)
        records[name].refuse_other(protocol, one.problems)
        first = [key for key in protocol.keys(one.problems) if key.sample in (GREEDY, 0)]
        engine.check(list(one.requests(first).values()))
    scores = []
    for name, one in evaluations.items():
        if one.prompts is not None:
            on_start(name, one.prompts)
            fill(records[name], one, engine, on_progress=partial(on_progress, name))
        scores.append(grade_record(records[name], grader, one.problems))
    return Evaluated(settings.run, tuple(scores))


def _is_complete(record: SampleRecord, evaluation: Evaluation) -> bool:
    """Return whether every sample is recorded already; refuse settings that the record does not allow."""
    if record.refuse_other(evaluation.protocol(), evaluation.problems):
        return False
    recorded = record.protocol()
    is_same = _is_same_model(recorded.engine, evaluation.settings)
    return is_same and not record.missing(recorded.keys(record.problems()))


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
    return known.items() <= recorded.items()


def _prompts(evaluation: Evaluation, engine: Engine) -> Prompts:
    """Make the prompts, with notes of what a reader of the scores should know."""
    settings, problems, tokenizer = evaluation.settings, evaluation.problems, engine.tokenizer
    questions, system_prompt = [problem.question for problem in problems], settings.system_prompt
    prompts = make_prompts(questions, tokenizer, template=settings.template, system_prompt=system_prompt)
    notes = [*prompts.notes, *engine.details.get("notes", ())]
    if graded_by := settings.grader if ":" in settings.grader else describe_gradings(problems):
        notes.append(f"graded by {graded_by}")
    if system_prompt is None and any(problem.grading.kind == "regex" for problem in problems):
        looks = "the prompt asks for a boxed answer, but a pattern looks for it elsewhere"
        notes.append(f"{looks}: --system-prompt asks otherwise")
    with suppress(RunError, TemplateError):  # only a hint hangs on it
        config = RunDirectory(settings.model).read_config()
        if config is not None and tokenizer is not None and settings.template == "auto":
            trained = resolve_template_name(str(config.get("template", "auto")), tokenizer)
            if trained != prompts.template:
                taught = f"this run was trained with template {trained!r}"
                notes.append(f"{taught}: --template {trained} asks as it was taught")
    return replace(prompts, notes=tuple(notes))
