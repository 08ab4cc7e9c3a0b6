"""From a model to scores in a run directory: load, generate, grade, score.

runs/trim/eval/math500/     settings.json  problems.jsonl  samples.jsonl  grades.jsonl  scores.json

evaluated = evaluate(EvalSettings(model="runs/trim", benchmarks=["math500"], samples=8))
evaluated.scores[0].average     # Interval(value=0.61, low=0.57, high=0.65)

Killed at any moment, the same call goes on: what was in flight comes out the same, because the seed of a sample depends
on the evaluation's seed, the problem, the sample's number and temperature only.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import Problem, benchmark_name, fingerprint, load_benchmark
from trimsft.evaluate.engines import Engine, Request, identify_model, make_engine
from trimsft.evaluate.metrics import GREEDY
from trimsft.evaluate.prompts import Prompts, make_prompts
from trimsft.evaluate.samples import Key, Protocol, Sample, SampleRecord
from trimsft.evaluate.scores import BenchmarkScore, grade_record
from trimsft.evaluate.settings import EvalSettings
from trimsft.grading import Grader, load_scorer
from trimsft.runs import RunDirectory, find_weights
from trimsft.tables import Cell, Table, Tabular

GIVE_UP_AFTER = 20
"""Failures in a row that end it: a server that is gone does not come back for each of 4,000 requests."""


@dataclass(frozen=True)
class Evaluated(Tabular):
    """The scores of an evaluation, in the order of its benchmarks, and where it is recorded."""

    run: RunDirectory
    scores: tuple[BenchmarkScore, ...]

    def as_json(self) -> list[dict[str, Any]]:
        """Return the scores for a program: without the counts of every problem."""
        return [{name: value for name, value in asdict(s).items() if name != "per_problem"} for s in self.scores]

    @property
    def tables(self) -> list[Table]:
        k = min(score.samples for score in self.scores)
        metrics = ["average", f"pass@{k}", f"majority@{k}", "greedy"] if k else ["greedy"]
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
    on_progress: Callable[[str, int, int, str], None] = lambda name, done, total, text: None,
) -> Evaluated:
    """Generate what is missing, grade and score, benchmark by benchmark.

    What is refused is refused before anything is written. A record that holds all samples needs neither a model nor a
    server. `on_load` gets the benchmarks that lack samples.
    """
    scorer = load_scorer(settings.grader) if ":" in settings.grader else None
    grader = Grader(kind="qwen" if settings.grader == "qwen" else "strict", scorer=scorer)
    evaluations, records, unfinished = dict[str, Evaluation](), dict[str, SampleRecord](), list[str]()
    for path in settings.benchmarks:
        name, letters = benchmark_name(path), settings.rows_graded.kind == "choice"
        problems = load_benchmark(path, settings.limit, letters=letters)
        evaluations[name] = Evaluation(name, problems, settings)
        records[name] = SampleRecord(settings.run.eval_dir / name)
        if not _is_complete(records[name], evaluations[name]):
            unfinished.append(name)

    if unfinished:
        on_load(unfinished)
        engine = make_engine(settings)
    for name in unfinished:  # all are checked before the first is generated
        evaluations[name] = one = evaluations[name].with_prompts(engine.tokenizer)
        protocol = one.protocol(engine)
        records[name].refuse_other(protocol)
        first = [key for key in protocol.keys(one.problems) if key.sample in (GREEDY, 0)]
        engine.check(list(one.requests(first).values()))
    scores = []
    for name, one in evaluations.items():
        if one.prompts is not None:
            on_start(name, one.prompts)
            fill(records[name], one, engine, on_progress=partial(on_progress, name))
        scores.append(grade_record(records[name], grader, one.problems, settings.rows_graded))
    return Evaluated(settings.run, tuple(scores))


def _is_complete(record: SampleRecord, evaluation: Evaluation) -> bool:
    """Return whether every sample of the model is recorded; refuse settings that the record does not allow.

    Which model it is, is known without loading it as far as its files and the settings say.
    """
    settings = evaluation.settings
    if record.refuse_other(evaluation.protocol()):
        return False
    known: dict[str, Any] = {} if settings.dtype == "auto" else {"dtype": settings.dtype}
    known |= {} if settings.engine == "auto" else {"name": settings.engine}
    if settings.server is not None:
        known |= {"name": "server", "model": settings.model}
    else:
        try:
            known |= identify_model(find_weights(settings.model))
        except RunError:  # beside a training whose model is gone, the record is of that model
            if settings.out is not None or not RunDirectory(settings.model).is_finished():
                return False
    recorded = record.protocol()
    return known.items() <= recorded.engine.items() and not record.missing(recorded.keys(evaluation.problems))


# ---- what is asked, and what comes back


@dataclass(frozen=True)
class Evaluation:
    """Hold the questions that a model is asked on one benchmark."""

    benchmark: str
    problems: Sequence[Problem]
    settings: EvalSettings
    prompts: Prompts | None = None  # made with the tokenizer, that is once the model is loaded

    def with_prompts(self, tokenizer: Any) -> Evaluation:
        """Return the same with its prompts; `tokenizer` is None where a server has it."""
        questions, settings = [problem.question for problem in self.problems], self.settings
        template, system_prompt = settings.template, settings.system_prompt
        return replace(self, prompts=make_prompts(questions, tokenizer, template=template, system_prompt=system_prompt))

    def protocol(self, engine: Engine | None = None) -> Protocol:
        """Return what the samples depend on, as far as it is known without a model where no engine is given."""
        settings, prompts, known = self.settings, self.prompts, self.settings.sampling
        prompt = {"system_prompt": settings.system_prompt, "stop": list(known.stop)}
        sampling = asdict(prompts.ended(known) if prompts else known)
        if prompts is not None:
            prompt |= {"template": prompts.template, "example": prompts.example}
        else:
            del sampling["stop"], sampling["stop_tokens"]  # the template adds its own
        if prompts is None and settings.template != "auto":
            prompt["template"] = settings.template
        return Protocol(
            benchmark=self.benchmark,
            problems={"count": len(self.problems), "sha256": fingerprint(self.problems)},
            prompt=prompt,
            sampling=sampling,
            samples=settings.samples,
            temperatures=sorted(map(float, settings.temperatures)),
            temperature_samples=settings.temperature_samples if settings.temperatures else 0,
            seed=settings.seed,
            engine={} if engine is None else {"name": engine.name, **engine.identity},
            details={} if engine is None or prompts is None else dict(engine.details),
        )

    def requests(self, keys: Iterable[Key]) -> dict[Key, Request]:
        """Return the requests for these samples."""
        assert self.prompts is not None
        sampled = self.prompts.ended(self.settings.sampling)
        greedy = replace(sampled, temperature=0.0, top_p=1.0, top_k=0)
        at = {None: sampled} | {t: replace(sampled, temperature=t) for t in self.settings.temperatures}
        prompts = {p.id: prompt for p, prompt in zip(self.problems, self.prompts.prompts, strict=True)}
        return {
            key: Request(
                prompt=prompts[key.problem].text,
                seed=sample_seed(self.settings.seed, key),
                sampling=greedy if key.sample == GREEDY else at[key.temperature],
                tokens=prompts[key.problem].tokens,
                messages=prompts[key.problem].messages,
            )
            for key in keys
        }


def sample_seed(seed: int, key: Key) -> int:
    """Return a seed of 31 bits, which every engine takes; it depends on nothing but its arguments."""
    at = "" if key.temperature is None else f"\0{key.temperature:g}"
    digest = hashlib.sha256(f"{seed}\0{key.problem}\0{key.sample}{at}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def fill(
    record: SampleRecord,
    evaluation: Evaluation,
    engine: Engine,
    *,
    on_progress: Callable[[int, int, str], None] = lambda done, total, text: None,
) -> int:
    """Generate what is missing, record each text as it comes, and return how many; what fails stays missing."""
    protocol, problems, failures, generated = evaluation.protocol(engine), evaluation.problems, 0, 0
    assert evaluation.prompts is not None
    wanted = protocol.keys(problems)
    shas = {one.id: prompt.sha for one, prompt in zip(problems, evaluation.prompts.prompts, strict=True)}
    with record.lock():
        record.refuse_other(protocol)
        for sample in record:
            if shas.get(sample.problem, sample.prompt_sha) != sample.prompt_sha:
                problem = f"sample {sample.sample} of {sample.problem!r} answers another prompt"
                hint = "has the chat template changed? choose another output directory"
                raise RunError(f"{record.folder}: {problem}", hint=hint)
        record.settle(protocol, problems)
        missing = record.missing(wanted)
        started, tokens = time.monotonic(), 0

        def show(hint: str) -> None:
            done = len(wanted) - len(missing) + generated
            on_progress(done, len(wanted), f"{done:,} of {len(wanted):,} samples, {hint}")

        show(f"at most {len(missing) * evaluation.settings.max_tokens:,} tokens")
        requests = evaluation.requests(missing)
        keys = dict(enumerate(requests))
        with contextlib.closing(engine.generate(list(requests.values()))) as completions:  # some may go unread
            for completion in completions if missing else ():
                key = keys.pop(completion.index)  # an engine that answers twice ends here
                if completion.finish == "error":
                    record.last_error = completion.error
                    failures += 1
                    if failures >= GIVE_UP_AFTER:
                        break
                    continue
                made: dict[str, Any] = {
                    "text": completion.text,
                    "tokens": completion.tokens,
                    "finish": completion.finish,
                }
                record.append(Sample(**key._asdict(), **made, seed=requests[key].seed, prompt_sha=shas[key.problem]))
                failures, generated, tokens = 0, generated + 1, tokens + completion.tokens
                seconds = time.monotonic() - started
                minutes = (len(missing) / generated - 1) * seconds / 60
                show(f"{tokens / seconds:,.0f} tokens/s, about {minutes:.0f} minutes left")
        return generated
