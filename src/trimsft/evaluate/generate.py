"""Fill the record of an evaluation: ask an engine for every sample that is not there yet, and write each down at once.

evaluation = Evaluation("math500", problems, settings, prompts=make_prompts([p.problem for p in problems], tokenizer))
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

from trimsft.data.templates import resolve_template_name
from trimsft.errors import RunError
from trimsft.evaluate.benchmarks import Problem, fingerprint
from trimsft.evaluate.engines import Engine, Request
from trimsft.evaluate.metrics import GREEDY
from trimsft.evaluate.prompts import Prompts
from trimsft.evaluate.samples import Key, ProblemSet, Protocol, Sample, SampleRecord
from trimsft.evaluate.settings import EvalSettings

GIVE_UP_AFTER = 20
"""Failures in a row that end it: a server that is gone does not come back for each of 4,000 requests."""
SAMPLES_FOR_RATE = 8
"""Samples before a time left is shown: many are generated at once, and the first ones come late."""


@dataclass(frozen=True)
class Evaluation:
    """What is asked of a model on one benchmark."""

    benchmark: str
    problems: Sequence[Problem]
    settings: EvalSettings
    source: str | None = None
    """Where the problems were read from, for the record; what they are is known by their fingerprint."""
    prompts: Prompts | None = None  # made with the tokenizer, that is once the model is loaded

    def protocol(self, engine: Engine | None = None) -> Protocol:
        """Return what the samples depend on; without engine and prompts what is known before a model is loaded."""
        settings, prompts, known = self.settings, self.prompts, self.settings.sampling
        prompt = {"system_prompt": settings.system_prompt, "stop": list(known.stop)}
        sampling = asdict(prompts.ended(known) if prompts else known)
        if prompts is not None:
            prompt |= {"template": prompts.template, "example": prompts.example}
        else:
            prompt |= (
                {} if settings.template == "auto" else {"template": resolve_template_name(settings.template, None)}
            )
            del sampling["stop"], sampling["stop_tokens"]  # the template adds its own
        notes = {"source": self.source, "notes": list(prompts.notes if prompts else ())}
        return Protocol(
            benchmark=self.benchmark,
            problems=ProblemSet(len(self.problems), fingerprint(self.problems)),
            prompt=prompt,
            sampling=sampling,
            samples=settings.samples,
            greedy=settings.greedy,
            temperatures=sorted(map(float, settings.temperatures)),
            temperature_samples=settings.temperature_samples if settings.temperatures else 0,
            seed=settings.seed,
            engine={} if engine is None else {"name": engine.name, **engine.identity},
            details={} if engine is None else {**engine.details, **notes},
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


@dataclass
class Progress:
    """How far an evaluation is; rates count what this process has generated."""

    total: int
    resumed: int  # samples that were recorded before
    max_tokens: int  # of one sample
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
        """Return all of it in one line: at first the most that it can take, later the tokens and the time left."""
        seconds, missing = max(time.monotonic() - self.started, 1e-9), self.total - self.done
        line = f"{self.done:,} of {self.total:,} samples"
        if self.generated:
            line += f", {self.generated / seconds:.3g}/s, {self.tokens / seconds:,.0f} tokens/s"
        elif missing:
            line += f", at most {missing * self.max_tokens:,} tokens"
        if self.generated >= SAMPLES_FOR_RATE and missing:
            minutes, rest = divmod(round(missing * seconds / self.generated), 60)
            tokens = missing * self.tokens / self.generated
            line += f", about {tokens:,.0f} tokens and {minutes // 60}:{minutes % 60:02}:{rest:02} left"
        return f"{line}, {self.failed:,} failed" if self.failed else line


def fill(
    record: SampleRecord,
    evaluation: Evaluation,
    engine: Engine,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Generate what is missing and record each text as it comes; requests that fail stay missing."""
    protocol, problems, failures = evaluation.protocol(engine), evaluation.problems, 0
    assert evaluation.prompts is not None
    wanted = protocol.keys(problems)
    shas = {p.id: prompt.sha for p, prompt in zip(problems, evaluation.prompts.prompts, strict=True)}
    with record.lock(), contextlib.closing(record):
        record.refuse_other(protocol, problems)
        for sample in record:
            if shas.get(sample.problem) != sample.prompt_sha:
                problem = f"sample {sample.sample} of {sample.problem!r} answers another prompt than the one asked now"
                hint = "has the chat template changed? choose another output directory"
                raise RunError(f"{record.folder}: {problem}", hint=hint)
        record.settle(protocol, problems)
        missing = record.missing(wanted)
        progress = Progress(len(wanted), len(wanted) - len(missing), evaluation.settings.max_tokens)
        on_progress(progress)
        requests = evaluation.requests(missing)
        keys = dict(enumerate(requests))
        with contextlib.closing(engine.generate(list(requests.values()))) as completions:  # some may go unread
            for completion in completions if missing else ():
                key = keys.pop(completion.index)  # an engine that answers twice ends here
                if completion.finish == "error":
                    progress.failed += 1
                    failures += 1
                    record.last_error = completion.error
                else:
                    failures = 0
                    progress.generated += 1
                    progress.tokens += completion.tokens
                    sample = Sample(
                        problem=key.problem,
                        sample=key.sample,
                        seed=requests[key].seed,
                        text=completion.text,
                        tokens=completion.tokens,
                        finish=completion.finish,
                        prompt_sha=shas[key.problem],
                        temperature=key.temperature,
                    )
                    record.append(sample)
                on_progress(progress)
                if failures >= GIVE_UP_AFTER:
                    break
        return progress
