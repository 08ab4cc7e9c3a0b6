"""What every engine takes and gives.

engine = ScriptedEngine(lambda request: "It is \\\\boxed{2}.")
for completion in engine.generate([Request("What is 1+1?", seed=7, sampling=Sampling())]):
    completion.index, completion.text, completion.tokens, completion.finish    # 0, "It is ...", 4, "stop"
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from trimsft.errors import UsageError
from trimsft.runs import fingerprint_folder

_LARGEST = 2**31 - 1
Finish = Literal["stop", "length", "error"]


class EngineError(UsageError):
    """An engine that cannot work at all, in one line; a single request that fails is a `Completion` instead."""


class UnsuitedModel(Exception):
    """A model that cannot be decoded in slots; `generate` of transformers can."""


@dataclass(frozen=True)
class Sampling:
    """How a text is drawn; the defaults are the paper's, and nothing is left to a checkpoint or an engine."""

    temperature: float = 1.0
    """0: greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: all tokens."""
    max_tokens: int = 2048
    """New tokens at most."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer and are not part of it."""
    stop_tokens: tuple[int, ...] = field(default=())
    """Tokens that do the same, beside the eos of tokenizer and model."""

    def __post_init__(self) -> None:
        warm = _is_number(self.temperature, 1e-4, 1e4)
        _require(self, "temperature", "0 (greedy), or from 0.0001 to 10,000", self.temperature == 0 or warm)
        _require(self, "top_p", "above 0 and at most 1", _is_number(self.top_p, 0, 1) and self.top_p > 0)
        _require(self, "top_k", "an integer >= 0, 0 for all tokens", _is_count(self.top_k, 0))
        _require(self, "top_k", f"at most {_LARGEST:,}", self.top_k <= _LARGEST)
        _require(self, "max_tokens", "an integer >= 1", _is_count(self.max_tokens, 1))
        _require(self, "stop", "a tuple of texts, none of them empty", all(_is_text(s) for s in self.stop))
        are_ids = all(_is_count(t, 0) and t <= _LARGEST for t in self.stop_tokens)
        _require(self, "stop_tokens", "token ids", are_ids)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Request:
    """One text to be generated."""

    prompt: str
    seed: int
    sampling: Sampling
    tokens: tuple[int, ...] | None = None
    """The prompt as token ids: what the engine takes where it can, so that nobody adds a second bos."""
    messages: tuple[Mapping[str, str], ...] | None = None
    """The prompt as a chat, for servers that render it themselves."""


@dataclass(frozen=True)
class Completion:
    """What became of one request."""

    index: int
    """Position of the request among those given."""
    text: str
    tokens: int
    """New tokens, the one that stopped it included."""
    finish: Finish
    error: str | None = None
    """What went wrong, where `finish` is error."""


@runtime_checkable
class Engine(Protocol):
    """Anything that completes prompts."""

    name: str

    @property
    def identity(self) -> Mapping[str, Any]:
        """What the texts depend on beside the requests, such as model and dtype: may not change within a record."""

    @property
    def details(self) -> Mapping[str, Any]:
        """What else is worth recording, such as versions; it may change between two starts."""

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """A completion for each request, in any order, each as soon as it is there."""


def identify_model(model: str | Path, revision: str | None = None) -> dict[str, Any]:
    """What a model is known by: a folder by what it holds, for it may move; anything else by name and revision."""
    if Path(model).is_dir():
        return {"model_sha256": fingerprint_folder(Path(model))}
    return {"model": str(model), "revision": revision}


def _require(sampling: Sampling, name: str, what: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name}: must be {what}, got {getattr(sampling, name)!r}")


def _is_number(value: object, low: float, high: float) -> bool:
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and low <= value <= high  # type: ignore[arg-type, operator]


def _is_count(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
