"""What each kind of server is told, and what its answers say; neither knows of connections.

- vllm (SGLang too): prompts as token ids and all sampling parameters.
- transformers: samples only if a whole generation config asks for it, and takes text or chats, not ids.
- openai: what the published interface has; no top-k, seeds are best effort, and the server's own defaults stay.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimsft.data.visible import visible
from trimsft.errors import RunError
from trimsft.evaluate.engines.base import Completion, Dialect, Finish, Request, Sampling
from trimsft.runs.parsing import ParseError, checked, parse_json


def question(model: str, dialect: Dialect, request: Request) -> tuple[str, bytes]:
    """Where to ask, and the body of the request."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": request.seed,
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
        **_extras(dialect, sampling),
    }
    path = "/v1/completions"
    if dialect == "vllm" and request.tokens is not None:
        body["prompt"] = list(request.tokens)
    elif request.messages is not None:
        path, body["messages"] = "/v1/chat/completions", [dict(message) for message in request.messages]
    else:
        body["prompt"] = request.prompt
    return path, json.dumps(body).encode()  # ASCII: a problem may hold half of a character


def _extras(dialect: Dialect, sampling: Sampling) -> dict[str, Any]:
    """What a server of this kind has to be told beside the published interface."""
    if dialect == "vllm":
        neutral = {"min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": True}
        return {"top_k": sampling.top_k or -1, "stop_token_ids": list(sampling.stop_tokens), **neutral}
    if dialect == "openai":
        return {}
    config = {
        "do_sample": not sampling.is_greedy,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "repetition_penalty": 1.0,
        "max_new_tokens": sampling.max_tokens,
        **({"eos_token_id": list(sampling.stop_tokens)} if sampling.stop_tokens else {}),
    }
    return {"generation_config": json.dumps(config)}


@dataclass
class _Message:
    content: str | None


@dataclass
class _Choice:
    finish_reason: str | None
    message: _Message | None = None
    text: str | None = None


@dataclass
class _Usage:
    completion_tokens: int


@dataclass
class _Reply:
    choices: list[_Choice]
    usage: _Usage


def read_completion(index: int, content: bytes, sampling: Sampling) -> Completion:
    """The completion in a reply; one that is not of the published form is an error of this request alone."""
    try:
        reply = checked(_Reply, parse_json(content), where="reply")
    except (ParseError, RunError) as error:
        problem = error.problem if isinstance(error, RunError) else str(error)
        return _failed(index, f"an answer that cannot be read ({visible(problem)}): {content[:200]!r}")
    if len(reply.choices) != 1:
        return _failed(index, f"an answer with {len(reply.choices):,} texts, where one was asked for")
    choice, tokens = reply.choices[0], reply.usage.completion_tokens
    if choice.finish_reason not in ("stop", "length"):
        return _failed(index, f"the server ended it with {choice.finish_reason!r}")
    if choice.message is None and choice.text is None:
        return _failed(index, f"an answer without a text: {content[:200]!r}")
    if not 0 <= tokens <= sampling.max_tokens + 1:  # some count the end beside the limit
        return _failed(index, f"an answer of {tokens:,} tokens, where {sampling.max_tokens:,} were allowed")
    text = (choice.message.content if choice.message else choice.text) or ""
    text = text.encode(errors="replace").decode()  # halves of characters
    cuts = [text.index(stop) for stop in sampling.stop if stop in text]
    ended: Finish = "stop" if cuts or choice.finish_reason == "stop" else "length"
    return Completion(index, text[: min(cuts, default=None)], tokens, ended)


def _failed(index: int, error: str) -> Completion:
    return Completion(index, "", 0, "error", error[:400])


def read_message(content: bytes, secrets: Sequence[str] = ()) -> str:
    """What the server says is wrong: one line, nothing that acts on a terminal, no secret that it repeats."""
    try:
        said = parse_json(content)
        said = said.get("error", said.get("detail", said)) if isinstance(said, dict) else said
        text = str(said.get("message", said)) if isinstance(said, dict) else str(said)
    except ParseError:
        text = content[:2000].decode(errors="replace")
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(visible(text).split())[:300]


def read_models(content: bytes) -> list[dict[str, Any]]:
    """The models that a server lists; none where the list is not of the published form."""
    try:
        listed = parse_json(content)
    except ParseError:
        return []
    entries = listed.get("data") if isinstance(listed, dict) else None
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
