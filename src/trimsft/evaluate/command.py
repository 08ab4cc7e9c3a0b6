"""`trimsft eval`: from a model to scores in a run directory.

runs/trim/eval/math500/     settings.json  problems.jsonl  samples.jsonl  grades.jsonl  scores.json
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import (
    BenchmarkError,
    Problem,
    benchmark_name,
    describe_source,
    load_benchmark,
)
from trimsft.evaluate.engines.base import Engine, EngineError, Sampling
from trimsft.evaluate.generate import Evaluation, Progress, check_protocol, fill
from trimsft.evaluate.judge import judge, read_scores
from trimsft.evaluate.prompts import Prompts, make_prompts
from trimsft.evaluate.samples import IncompleteEvaluation as IncompleteEvaluation
from trimsft.evaluate.samples import SampleRecord
from trimsft.grading import Grader
from trimsft.runs import RunDirectory
from trimsft.scoring.scores import BenchmarkScore
from trimsft.text.templates import TemplateError, check_template_name, resolve_template_name

ENGINES = ("auto", "transformers", "vllm", "server")
DTYPES = ("auto", "float32", "bfloat16", "float16")
GRADERS = ("strict", "qwen")
REFUSALS = (BenchmarkError, EngineError, RunError, TemplateError, ValueError)
"""What is wrong with a request, said in one line."""


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What `trimsft eval` is asked for; the defaults are the paper's protocol."""

    model: str
    """A run directory, a model folder, a name of the hub, or what a server calls it."""
    benchmarks: Sequence[str]
    data_dir: Path | None = None
    out: Path | None = None
    engine: str = "auto"
    server: str | None = None
    samples: int = 8
    greedy: bool = True
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    limit: int | None = None
    template: str = "auto"
    system_prompt: str | None = None
    dtype: str = "auto"
    revision: str | None = None
    grader: str = "strict"
    gpu_memory: float | None = None
    """Share of it that generation may take; None: what the engine finds free."""

    def __post_init__(self) -> None:
        """What is wrong without looking at any model is said before one is loaded."""
        check_protocol(self.samples, self.greedy, self.sampling)
        check_template_name(self.template)
        if self.gpu_memory is not None and not 0 < self.gpu_memory <= 1:
            raise ValueError(f"gpu_memory: must be above 0 and at most 1, got {self.gpu_memory}")
        for field_name, known in (("dtype", DTYPES), ("grader", GRADERS), ("engine", ENGINES)):
            if getattr(self, field_name) not in known:
                value = getattr(self, field_name)
                raise ValueError(f"{field_name}: unknown name {value!r}; known: {', '.join(known)}")
        names = [benchmark_name(name) for name in self.benchmarks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            paths = [str(path) for path in self.benchmarks if benchmark_name(path) == twice]
            raise BenchmarkError(
                f"benchmark: {' and '.join(map(repr, paths))} would both be recorded as {twice!r}; name it once, or "
                "rename a file"
            )

    @property
    def run(self) -> RunDirectory:
        """Where it is recorded: beside the training of the model, or in a directory of its own."""
        if self.out is not None:
            return RunDirectory(self.out)
        folder = Path(self.model)
        is_run = (folder / "manifest.json").is_file()
        return RunDirectory(folder if is_run else Path("runs") / f"{folder.name.lower()}-eval")

    @property
    def weights(self) -> str:
        """The model itself: of a run directory, what it trained."""
        folder = Path(self.model)
        if (folder / "manifest.json").is_file():
            if not (folder / "model").is_dir():
                raise EngineError(f"model: {self.model!r} is a run without a model yet; finish its training first")
            return str(folder / "model")
        if self.model.startswith(("/", "./", "../", "~")) and not folder.is_dir():
            raise EngineError(f"model: no such folder: {self.model!r}")
        return self.model


def evaluate(
    settings: EvalSettings,
    *,
    on_start: Callable[[str, Prompts], None] = lambda name, prompts: None,
    on_progress: Callable[[str, Progress], None] = lambda name, progress: None,
) -> list[BenchmarkScore]:
    """Generate what is missing, grade and score, benchmark by benchmark."""
    sources = {benchmark_name(name): describe_source(name, settings.data_dir) for name in settings.benchmarks}
    sets = {
        benchmark_name(name): load_benchmark(name, settings.data_dir, settings.limit) for name in settings.benchmarks
    }
    engine = make_engine(settings)
    scores = []
    with make_grader(settings.grader) as grader:
        for name, problems in sets.items():
            prompts = _prompts(settings, engine, problems)
            on_start(name, prompts)
            evaluation = Evaluation(
                benchmark=name,
                problems=problems,
                prompts=prompts,
                sampling=settings.sampling,
                samples=settings.samples,
                greedy=settings.greedy,
                seed=settings.seed,
                source=sources[name],
            )
            record = SampleRecord(settings.run.eval_dir / name)
            fill(record, evaluation, engine, on_progress=partial(on_progress, name)).require_complete()
            scores.append(judge(record, grader))
    return scores


def _prompts(settings: EvalSettings, engine: Engine, problems: Sequence[Problem]) -> Prompts:
    tokenizer = getattr(engine, "tokenizer", None)
    prompts = make_prompts(
        [problem.problem for problem in problems],
        tokenizer,
        template=settings.template,
        system_prompt=settings.system_prompt,
    )
    taught = _trained_template(settings, tokenizer)
    if settings.template != "auto" or taught in (None, prompts.template):
        return prompts
    note = f"this run was trained with template {taught!r}: --template {taught} asks as it was taught"
    return replace(prompts, notes=(*prompts.notes, note))


def _trained_template(settings: EvalSettings, tokenizer: Any) -> str | None:
    """The template that a run directory was trained with; None where nothing is known of it."""
    path = RunDirectory(Path(settings.model)).config_path
    if tokenizer is None or not path.is_file():
        return None
    import yaml

    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        return resolve_template_name(str(given.get("template", "auto")), tokenizer)
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TemplateError):
        return None  # only a hint hangs on it


def make_engine(settings: EvalSettings) -> Engine:
    """The engine asked for; auto is a server where an address is given, vLLM where it is installed."""
    name = settings.engine
    if settings.server is not None and name not in ("auto", "server"):
        raise EngineError(f"server: {settings.server!r} has no effect with engine {name!r}; remove one of them")
    if settings.server is not None:
        from trimsft.evaluate.engines.server_engine import ServerEngine

        return ServerEngine(settings.server, settings.model)
    if name == "server":
        raise EngineError("server: the engine 'server' needs an address, such as http://localhost:8000")
    alike: dict[str, Any] = {"revision": settings.revision, "dtype": settings.dtype}
    if settings.gpu_memory is not None:
        alike["gpu_memory"] = settings.gpu_memory
    if name == "vllm" or (name == "auto" and importlib.util.find_spec("vllm") is not None):
        from trimsft.evaluate.engines.vllm_engine import VllmEngine

        return VllmEngine(settings.weights, **alike)
    from trimsft.evaluate.engines.transformers_engine import TransformersEngine

    return TransformersEngine(settings.weights, **alike)


def make_grader(kind: str) -> AbstractContextManager[Grader]:
    return Grader(os.cpu_count() or 1, kind=kind)  # type: ignore[arg-type]


def load_run(path: Path, benchmarks: Sequence[str] = ()) -> list[BenchmarkScore]:
    """The scores of a run directory; all graded the same way, or none."""
    folder = RunDirectory(path).eval_dir
    if not folder.is_dir():
        raise RunError(f"{path}: holds no evaluation; make one with trimsft eval")
    there = sorted(entry.name for entry in folder.iterdir() if (entry / "scores.json").is_file())
    if not there:
        raise RunError(f"{path}: holds no scores; finish its evaluation with trimsft eval")
    names = list(benchmarks) or there
    if missing := next((name for name in names if name not in there), None):
        raise RunError(f"{path}: holds no scores of {missing!r}; it has {', '.join(there)}")
    found = [read_scores(SampleRecord(folder / name)) for name in names]
    graders = sorted({grader for _, grader in found})
    if len(graders) > 1:
        raise RunError(f"{path}: was graded by {' and '.join(graders)}; grade it again with one of them")
    return [scores for scores, _ in found]


def as_json(scores: Sequence[BenchmarkScore]) -> list[dict[str, Any]]:
    """Scores for a program: without the counts of every problem."""
    return [{name: value for name, value in s.as_dict().items() if name != "per_problem"} for s in scores]
