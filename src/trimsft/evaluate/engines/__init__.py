"""Say what every engine takes and gives, and make one from settings.

engine = make_engine(EvalSettings(model="runs/trim", benchmarks=["math500"], dtype="bfloat16"))
for completion in engine.generate([Request("What is 1+1?", seed=7, sampling=Sampling())]):
    completion.index, completion.text, completion.tokens, completion.finish    # 0, "It is ...", 4, "stop"
"""

import importlib.util
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from trimsft.errors import UsageError
from trimsft.options import check_options, option
from trimsft.runs import find_weights, fingerprint_folder

if TYPE_CHECKING:
    from trimsft.evaluate.settings import EvalSettings

Finish = Literal["stop", "length", "error"]


class EngineError(UsageError):
    """An engine that cannot work at all; a single request that fails is a `Completion` instead."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of a drawn text; the defaults are the paper's, and nothing is left to a checkpoint or an engine."""

    temperature: float = option(1.0, help="Temperature of the samples; 0 is greedy decoding.", least=0, most=10_000)
    top_p: float = option(
        1.0, help="Samples come from the likeliest tokens that hold this share (1: all tokens).", above=0, most=1
    )
    top_k: int = option(0, help="Samples come from this many likeliest tokens (0: all tokens).", least=0)
    max_tokens: int = option(2048, help="New tokens of an answer at most.", least=1)
    stop: tuple[str, ...] = option((), help="A text that ends an answer and is no part of it. Repeat it for several.")
    stop_tokens: tuple[int, ...] = ()  # tokens that do the same, beside the eos of tokenizer and model

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))
        check_options(self)
        if 0 < self.temperature < 1e-4:
            raise UsageError("must be 0 (greedy), or at least 0.0001", field="temperature", value=self.temperature)
        if not all(self.stop):
            raise UsageError("must be texts, none of them empty", field="stop", value=self.stop)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Request:
    """One text to be generated."""

    prompt: str
    seed: int
    sampling: Sampling
    tokens: tuple[int, ...] = ()
    """The prompt as token ids: what engines take where they can, so that no second bos is added."""
    messages: tuple[Mapping[str, str], ...] | None = None
    """The prompt as a chat, for servers that render it themselves."""


@dataclass(frozen=True)
class Completion:
    """The result of one request."""

    index: int  # position of the request among those given
    text: str
    tokens: int  # new tokens, the one that stopped it included
    finish: Finish
    error: str | None = None  # what went wrong, where `finish` is error


@runtime_checkable
class Engine(Protocol):
    """Anything that completes prompts."""

    name: str
    identity: Mapping[str, Any]  # what texts depend on beside the requests, such as the dtype
    details: Mapping[str, Any]  # what else is worth recording, such as versions
    tokenizer: Any  # the model's; None where a server has it, and renders chats itself

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse, with an `EngineError`, what it cannot do: called before anything of them is recorded."""

    def generate(self, requests: Sequence[Request]) -> Generator[Completion, None, None]:
        """Yield a completion for each request, in any order, each as soon as it is there."""


def make_engine(settings: "EvalSettings") -> Engine:
    """Return what the settings name: a server, vLLM where it is installed, else transformers."""
    if settings.server is not None:
        from trimsft.data.encode import load_tokenizer
        from trimsft.evaluate.engines.server_engine import ServerEngine

        name = settings.tokenizer or (settings.model if Path(settings.model).is_dir() else None)
        return ServerEngine(
            settings.server,
            settings.model,
            concurrency=settings.concurrency,
            tokenizer=load_tokenizer(name, field="tokenizer") if name else None,
        )
    model = find_weights(settings.model)
    if settings.engine == "vllm" or (settings.engine == "auto" and importlib.util.find_spec("vllm") is not None):
        from trimsft.evaluate.engines.vllm_engine import VllmEngine

        return VllmEngine(model, dtype=settings.dtype)
    from trimsft.evaluate.engines.transformers_engine import TransformersEngine

    return TransformersEngine(model, dtype=settings.dtype)


def require_room(requests: Sequence[Request], limit: int | None) -> None:
    """Refuse answers that may grow beyond a model's positions after the longest prompt."""
    if limit is None or not requests:
        return
    longest, new = max(len(r.tokens) for r in requests), max(r.sampling.max_tokens for r in requests)
    if longest + new > limit:
        problem = f"{new:,} new tokens after a prompt of {longest:,} exceed the model's {limit:,} positions"
        raise EngineError(problem, field="max_tokens", hint=f"use at most {max(0, limit - longest):,}")


def identify_model(model: str | Path) -> dict[str, Any]:
    """Return what a model is known by: a folder by its content, else by its name."""
    return {"model_sha256": fingerprint_folder(Path(model))} if Path(model).is_dir() else {"model": str(model)}
