"""Fill the record of an evaluation: ask an engine for every sample that is not there yet, and write each down at once.

evaluation = Evaluation("math500", problems, make_prompts([p.problem for p in problems], tokenizer), settings)
progress = fill(SampleRecord(run.eval_dir / "math500"), evaluation, engine, on_progress=lambda p: print(p.line()))
progress.is_complete

Killed at any moment, the same call goes on: what is recorded is not generated again, and what was in flight comes out
the same, because the seed of a sample depends on the evaluation's seed, the problem and the sample's number only.
"""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trimsft.data.templates import resolve_template_name
from trimsft.errors import RunError
from trimsft.evaluate.engines import Engine, EngineError, Request
from trimsft.evaluate.problems import Problem, fingerprint
from trimsft.evaluate.prompts import Prompts
from trimsft.evaluate.samples import GREEDY, Key, Sample, SampleRecord, wanted_keys
from trimsft.evaluate.settings import EvalSettings

GIVE_UP_AFTER = 20
"""Failures in a row that end an attempt: a server that is gone does not come back for each of 4,000 requests."""
SAMPLES_FOR_RATE = 8
"""Samples before a time left is shown: many are generated at once, and the first ones come late."""


@dataclass(frozen=True)
class Evaluation:
    """What is asked of a model on one benchmark."""

    benchmark: str
    problems: Sequence[Problem]
    prompts: Prompts
    protocol: EvalSettings
    source: str | None = None
    """Where the problems were read from, for the record; what they are is known by their fingerprint."""

    def settings(self, engine: Engine) -> dict[str, Any]:
        """Return everything that the samples depend on; under `details`, what else is worth knowing."""
        return {
            **settings_of(self.benchmark, self.problems, self.protocol, self.prompts),
            "engine": {"name": engine.name, **engine.identity},
            "details": {**engine.details, "source": self.source, "notes": list(self.prompts.notes)},
        }

    def wanted(self) -> dict[Key, None]:
        """Return every sample that is asked for, in the order of the problems."""
        return wanted_keys(settings_of(self.benchmark, self.problems, self.protocol), [p.id for p in self.problems])

    def requests(self, keys: Iterable[Key]) -> dict[Key, Request]:
        """Return the requests for these samples."""
        sampled = self.prompts.ended(self.protocol.sampling)
        greedy = replace(sampled, temperature=0.0, top_p=1.0, top_k=0)
        at = {None: sampled} | {t: replace(sampled, temperature=t) for t in self.protocol.temperatures}
        prompts = {p.id: prompt for p, prompt in zip(self.problems, self.prompts.prompts, strict=True)}
        return {
            key: Request(
                prompt=prompts[key.problem].text,
                seed=sample_seed(self.protocol.seed, key),
                sampling=greedy if key.sample == GREEDY else at[key.temperature],
                tokens=prompts[key.problem].tokens,
                messages=prompts[key.problem].messages,
            )
            for key in keys
        }

    def check(self, engine: Engine) -> None:
        """Refuse what the engine cannot do, before anything is written: a request of each kind for each problem."""
        kinds = [key for key in self.wanted() if key.sample in (GREEDY, 0)]
        engine.check(list(self.requests(kinds).values()))


def settings_of(
    benchmark: str, problems: Sequence[Problem], protocol: EvalSettings, prompts: Prompts | None = None
) -> dict[str, Any]:
    """Return the settings of a record, but for the engine; without prompts, those known before a model is asked."""
    prompt: dict[str, Any] = {"system_prompt": instruction_of(protocol, problems)}
    sampling = asdict(protocol.sampling if prompts is None else prompts.ended(protocol.sampling))
    if prompts is not None:
        prompt |= {"template": prompts.template, "example": prompts.example}
    else:
        prompt |= {} if protocol.template == "auto" else {"template": resolve_template_name(protocol.template, None)}
        del sampling["stop"], sampling["stop_tokens"]  # the template adds its own
    return {
        "benchmark": benchmark,
        "problems": {"count": len(problems), "sha256": fingerprint(problems)},
        "prompt": {**prompt, "stop": list(protocol.sampling.stop)},
        "sampling": sampling,
        "samples": protocol.samples,
        "greedy": protocol.greedy,
        "temperatures": sorted(map(float, protocol.temperatures)),
        "temperature_samples": protocol.temperature_samples if protocol.temperatures else 0,
        "seed": protocol.seed,
    }


def instruction_of(protocol: EvalSettings, problems: Sequence[Problem]) -> str | None:
    """Return the system prompt that was asked for: as a setting, or in the rows of the benchmark, the same in all."""
    return problems[0].instruction if protocol.system_prompt is None else protocol.system_prompt


def sample_seed(seed: int, key: Key) -> int:
    """Return a seed of 31 bits, which every engine takes; it depends on nothing but its arguments."""
    at = "" if key.temperature is None else f"\0{key.temperature:g}"
    digest = hashlib.sha256(f"{seed}\0{key.problem}\0{key.sample}{at}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


@dataclass
class Progress:
    """How far an evaluation is; rates count what this process has generated."""

    total: int
    resumed: int  # samples that were recorded before
    generated: int = 0
    failed: int = 0  # requests that failed, each time
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        return self.resumed + self.generated

    @property
    def is_complete(self) -> bool:
        return self.done == self.total

    def line(self) -> str:
        """Return all of it in one line, with the time left once a few samples tell the rate."""
        seconds, missing = max(time.monotonic() - self.started, 1e-9), self.total - self.done
        line = f"{self.done:,} of {self.total:,} samples"
        if self.generated:
            line += f", {self.generated / seconds:.3g}/s, {self.tokens / seconds:,.0f} tokens/s"
        if self.generated >= SAMPLES_FOR_RATE and missing:
            minutes, rest = divmod(round(missing * seconds / self.generated), 60)
            line += f", {minutes // 60}:{minutes % 60:02}:{rest:02} left"
        return f"{line}, {self.failed:,} failed" if self.failed else line


def fill(
    record: SampleRecord,
    evaluation: Evaluation,
    engine: Engine,
    *,
    attempts: int = 3,
    pause: float = 2.0,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Generate what is missing; requests that fail are asked again, up to `attempts` times, with longer pauses."""
    wanted = evaluation.wanted()
    shas = {p.id: prompt.sha for p, prompt in zip(evaluation.problems, evaluation.prompts.prompts, strict=True)}
    with record.lock(), contextlib.closing(record):
        settings = evaluation.settings(engine)
        record.refuse_other(settings, evaluation.problems)
        for sample in record:
            if shas.get(sample.problem) != sample.prompt_sha:
                problem = f"sample {sample.sample} of {sample.problem!r} answers another prompt than the one asked now"
                hint = "has the chat template changed? choose another output directory"
                raise RunError(f"{record.folder}: {problem}", hint=hint)
        record.settle(settings, evaluation.problems)
        missing = record.missing(wanted)
        progress = Progress(len(wanted), resumed=len(wanted) - len(missing))
        on_progress(progress)
        for attempt in range(attempts):
            if not missing:
                break
            time.sleep(pause * 2 ** (attempt - 1) if attempt else 0)
            _record_completions(record, evaluation.requests(missing), shas, engine, progress, on_progress)
            missing = record.missing(missing)
        return progress


def _record_completions(
    record: SampleRecord,
    requests: dict[Key, Request],
    shas: dict[str, str],
    engine: Engine,
    progress: Progress,
    on_progress: Callable[[Progress], None],
) -> None:
    """Record each completion as it comes, until too many requests in a row have failed."""
    keys, failures = dict(enumerate(requests)), 0
    with contextlib.closing(engine.generate(list(requests.values()))) as completions:  # its answers may go unread
        for completion in completions:
            key = keys.pop(completion.index, None)
            if key is None:
                problem = f"{engine.name} answers request {completion.index} twice, or one that was not asked"
                raise EngineError(problem, field="engine")
            if completion.finish == "error":
                progress.failed += 1
                failures += 1
                record.last_error = completion.error
            else:
                failures = 0
                progress.generated += 1
                progress.tokens += completion.tokens
                record.append(
                    Sample(
                        problem=key.problem,
                        sample=key.sample,
                        temperature=key.temperature,
                        seed=requests[key].seed,
                        text=completion.text,
                        tokens=completion.tokens,
                        finish=completion.finish,
                        prompt_sha=shas[key.problem],
                    )
                )
            on_progress(progress)
            if failures == GIVE_UP_AFTER:
                return
