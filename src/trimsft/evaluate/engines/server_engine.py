"""Any server with OpenAI's interface: `vllm serve`, SGLang, `transformers serve`, a hosted model.

engine = ServerEngine("http://localhost:8000", model="runs/trim/model")

Servers differ in how they are told "no top-k" and what a seed is worth, so the engine asks which one it talks to:

- vllm (SGLang too): prompts as token ids and all sampling parameters.
- transformers: samples only if a whole generation config asks for it, and takes text or chats, not ids. Its seed is
  one for the whole process, so requests go one by one.
- openai: what the published interface has; no top-k, and seeds are best effort.

A request is tried again after a pause where that can help (timeouts, connections, 429, 5xx).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from trimsft.errors import one_line
from trimsft.evaluate.engines.base import Completion, EngineError, Finish, Request, Sampling

if TYPE_CHECKING:
    import httpx

Dialect = Literal["vllm", "transformers", "openai"]

LONGEST_PAUSE = 30.0
_KEY = "OPENAI_API_KEY"


class ServerEngine:
    """A model behind an address."""

    name = "server"

    def __init__(
        self,
        address: str,
        model: str | None = None,
        *,
        dialect: Dialect | None = None,
        concurrency: int | None = None,
        retries: int = 3,
        pause: float = 1.0,
        timeout: float = 600.0,
    ) -> None:
        """`model` None: the only one served; `dialect` None: ask the server; `timeout`: seconds of one request."""
        if not address.startswith(("http://", "https://")):
            raise EngineError("the address must begin with http:// or https://", field="server", value=address)
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency: must be at least 1, got {concurrency}")
        self.address = address.rstrip("/").removesuffix("/v1")
        self._retries, self._pause, self._timeout = retries, pause, timeout
        with self._connect() as client:
            served = self._list_models(client)
            self.dialect: Dialect = dialect or _ask_dialect(client, served)
        self.model = self._choose_model(model, [str(entry.get("id")) for entry in served])
        self._concurrency = concurrency or (1 if self.dialect == "transformers" else 64)
        self.identity: Mapping[str, Any] = {"model": self.model, "dialect": self.dialect}
        self.details: Mapping[str, Any] = {"address": self.address, "concurrency": self._concurrency}

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        filtered = next((request.sampling.top_k for request in requests if request.sampling.top_k), None)
        if self.dialect == "openai" and filtered:
            problem = f"has no effect on {self.address}, whose interface has none"
            raise EngineError(problem, field="top_k", value=filtered, hint="remove it")
        with self._connect() as client, ThreadPoolExecutor(self._concurrency) as pool:
            futures: list[Future[Completion]] = [
                pool.submit(self._complete, client, index, request) for index, request in enumerate(requests)
            ]
            try:
                for answered in as_completed(futures):
                    yield answered.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _connect(self) -> httpx.Client:
        import httpx

        key, host = os.environ.get(_KEY), urlsplit(self.address).hostname or ""
        is_local = host in ("localhost", "::1") or host.startswith("127.")
        return httpx.Client(
            base_url=self.address,
            timeout=httpx.Timeout(self._timeout, connect=10.0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=None),
            trust_env=not is_local,  # a proxy cannot reach this machine's own ports
        )

    def _complete(self, client: httpx.Client, index: int, request: Request) -> Completion:
        import httpx

        path, body = self._question(request)
        error = ""
        for attempt in range(self._retries + 1):
            time.sleep(min(LONGEST_PAUSE, self._pause * 2 ** (attempt - 1)) if attempt else 0.0)
            try:
                response = client.post(path, json=body)
            except httpx.TransportError as failure:
                error = f"{type(failure).__name__}: {one_line(failure)}"
                continue
            if response.status_code == 200:
                return _read_answer(index, response, request.sampling)
            error = f"status {response.status_code}: {_message(response)}"
            if response.status_code in (401, 403, 404):
                raise self._refused(response.status_code, f"{self.address} answers: {error}")
            if response.status_code != 429 and response.status_code < 500:
                break
        return Completion(index, "", 0, "error", error)

    def _question(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Where to ask, and what."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": request.seed,
            **({"stop": list(sampling.stop)} if sampling.stop else {}),
            **_extras(self.dialect, sampling),
        }
        if self.dialect == "vllm" and request.tokens is not None:
            return "/v1/completions", {**body, "prompt": list(request.tokens)}
        if request.messages is not None:
            return "/v1/chat/completions", {**body, "messages": [dict(m) for m in request.messages]}
        return "/v1/completions", {**body, "prompt": request.prompt}

    def _list_models(self, client: httpx.Client) -> list[dict[str, Any]]:
        import httpx

        try:
            response = client.get("/v1/models", timeout=30.0)
        except httpx.TransportError as error:
            raise EngineError(
                f"nothing answers at {self.address} ({one_line(error)})",
                field="server",
                hint="start the server, or correct the address",
            ) from error
        if response.status_code in (401, 403):
            raise self._refused(401, f"{self.address} answers: {_message(response)}")
        try:
            return [entry for entry in response.json()["data"] if isinstance(entry, dict)]
        except (ValueError, KeyError, TypeError):
            return []  # transformers serve fails here where no model was ever downloaded

    def _choose_model(self, model: str | None, served: Sequence[str]) -> str:
        if model is None and len(served) == 1:
            return served[0]
        names = ", ".join(served[:20]) or "none"
        if model is None:
            raise EngineError(f"name the one to ask at {self.address}", field="model", hint=f"it lists {names}")
        if self.dialect == "vllm" and model not in served:  # other lists are not complete
            raise EngineError(f"{model!r} is not served at {self.address}", field="model", hint=f"it serves {names}")
        return model

    def _refused(self, status: int, problem: str) -> EngineError:
        key = f"put the key that the server asks for into the environment variable {_KEY}"
        hint = f"does it know the model {self.model!r}?" if status == 404 else key
        return EngineError(problem, field="server", hint=hint)


def _ask_dialect(client: httpx.Client, served: Sequence[Mapping[str, Any]]) -> Dialect:
    import httpx

    if any(entry.get("owned_by") in ("vllm", "sglang") for entry in served):
        return "vllm"
    try:
        paths = client.get("/openapi.json", timeout=30.0).json()["paths"]
    except (httpx.TransportError, ValueError, KeyError, TypeError):
        return "openai"
    return "transformers" if "/load_model" in paths else "openai"


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


def _read_answer(index: int, response: httpx.Response, sampling: Sampling) -> Completion:
    try:
        answer = response.json()
        choice = answer["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        finish, tokens = choice.get("finish_reason"), int(answer["usage"]["completion_tokens"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return Completion(index, "", 0, "error", f"an answer that cannot be read ({error!r}): {response.text[:200]!r}")
    if finish not in ("stop", "length"):
        return Completion(index, "", 0, "error", f"the server ended it with {finish!r}")
    cuts = [text.index(stop) for stop in sampling.stop if stop in (text or "")]
    ended: Finish = "stop" if cuts or finish == "stop" else "length"
    return Completion(index, (text or "")[: min(cuts, default=None)], tokens, ended)


def _message(response: httpx.Response) -> str:
    """What the server says is wrong, on one line."""
    try:
        content = response.json()
        detail = content.get("error", content.get("detail", content))
        text = detail.get("message", detail) if isinstance(detail, dict) else detail
    except (ValueError, AttributeError):
        text = response.text
    return " ".join(str(text).split())[:300]
