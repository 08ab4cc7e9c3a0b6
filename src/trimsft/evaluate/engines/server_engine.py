"""Any server with OpenAI's interface: `vllm serve`, SGLang, a hosted model.

engine = ServerEngine("http://localhost:8000", model="runs/trim/model")

Servers differ in how they are told to sample: vLLM and SGLang take prompts as token ids and all sampling parameters;
`openai` is the published interface, which has no top-k, best-effort seeds, and leaves the server's own defaults. A
server that does not say which it is is refused until the user names its dialect, and before the first sample it has to
show that it samples at all.

A request is tried again after a pause where that can help (timeouts, connections, 429, 5xx): the pause that the server
asks for, or a longer one each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from trimsft.data.visible import visible
from trimsft.errors import RunError, TrimSFTError, one_line
from trimsft.evaluate.engines import DIALECTS, Completion, Dialect, EngineError, Finish, Request, Sampling
from trimsft.runs.parsing import ParseError, checked, parse_json

if TYPE_CHECKING:
    import httpx

Put: TypeAlias = Callable[[Any], None]

LONGEST_PAUSE = 30.0
LARGEST_REPLY = 32 * 2**20  # bytes
_KEY = "OPENAI_API_KEY"
_FREE = "Write forty random words, each on a line of its own."
"""A model that samples does not answer this twice in the same way."""


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
        tokenizer: Any = None,
    ) -> None:
        """`model` None: the only one served; `dialect` None: ask the server; `timeout`: seconds of one request.

        `tokenizer`: the model's, to make prompts here as the other engines do; None leaves chats to the server.
        """
        self.tokenizer = tokenizer
        self._address = read_address(address)
        self.address = self._address.url
        key, login = os.environ.get(_KEY), self._address.login
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._secrets = [secret for secret in (key, *(login or ())) if secret]
        self._retries, self._pause, self._timeout = retries, pause, timeout
        served = next(_in_background(self._list_models))
        self.dialect: Dialect = dialect or self._find_dialect(served)
        self.model = self._choose_model(model, [visible(entry.get("id"))[:200] for entry in served])
        self._concurrency = concurrency or 64
        self.identity: Mapping[str, Any] = {"model": self.model, "dialect": self.dialect}
        self.details: Mapping[str, Any] = {"address": self.address, "concurrency": self._concurrency}

    def check(self, requests: Sequence[Request]) -> None:
        filtered = next((request.sampling.top_k for request in requests if request.sampling.top_k), None)
        if self.dialect == "openai" and filtered:
            problem = f"has no effect on {self.address}, whose interface has none"
            raise EngineError(problem, field="top_k", value=filtered, hint="remove it")
        if sampled := next((request for request in requests if not request.sampling.is_greedy), None):
            self._require_sampling(sampled)

    def generate(self, requests: Sequence[Request]) -> Iterator[Completion]:
        return _in_background(partial(self._ask_all, requests))

    def close(self) -> None:
        """End nothing: connections are those of one `generate`, and the server is not ours."""

    # ---- requests

    async def _ask_all(self, requests: Sequence[Request], put: Put) -> None:
        waiting = iter(enumerate(requests))

        async def work(client: httpx.AsyncClient) -> None:
            for index, request in waiting:
                put(await self._complete(client, index, request))

        async with self._connect() as client:
            workers = [asyncio.ensure_future(work(client)) for _ in range(min(self._concurrency, len(requests)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _complete(self, client: httpx.AsyncClient, index: int, request: Request) -> Completion:
        import httpx

        path, body = question(self.model, self.dialect, request)
        error, asked_to_wait = "", 0.0
        for attempt in range(self._retries + 1):
            pause = max(asked_to_wait, self._pause * 2 ** (attempt - 1)) if attempt else 0.0
            await asyncio.sleep(min(LONGEST_PAUSE, pause))
            try:
                status, content, asked_to_wait = await _exchange(client, self._timeout, "POST", path, body)
            except (httpx.RequestError, TimeoutError) as failure:
                error, asked_to_wait = f"{type(failure).__name__}: {one_line(failure)}", 0.0
                continue
            if content is None:
                return _failed(index, f"an answer of more than {LARGEST_REPLY:,} bytes")
            if status == 200:
                return read_completion(index, content, request.sampling)
            error = f"status {status}: {read_message(content, self._secrets)}"
            if status in (401, 403, 404):
                raise self._refused(status, error)
            if status != 429 and status < 500:
                break
        return Completion(index, "", 0, "error", error)

    def _connect(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            base_url=self.address,
            auth=self._address.login,
            timeout=httpx.Timeout(None, connect=10.0),  # of an answer, `_exchange` limits the whole
            headers=self._headers,
            verify=self.address.startswith("https:"),  # certificates take their time to load
            limits=httpx.Limits(max_connections=None),
            trust_env=not self._address.is_local,  # a proxy cannot reach this machine's own ports
        )

    # ---- who is there

    async def _list_models(self, put: Put) -> None:
        """Put the models that the server lists; none where it has no list of the published form."""
        import httpx

        async with self._connect() as client:
            for attempt in range(self._retries + 1):
                await asyncio.sleep(self._pause if attempt else 0.0)
                try:
                    status, content, _ = await _exchange(client, 30.0, "GET", "/v1/models")
                    break
                except (httpx.RequestError, TimeoutError) as error:
                    if attempt == self._retries or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                        problem = f"nothing answers at {self.address} ({one_line(error)})"
                        hint = "start the server, or correct the address"
                        raise EngineError(problem, field="server", hint=hint) from error
        if status in (401, 403):
            raise self._refused(status, read_message(content or b"", self._secrets))
        try:
            listed = parse_json(content) if status == 200 and content else None
        except ParseError:
            listed = None
        entries = listed.get("data") if isinstance(listed, dict) else None
        put([entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else [])

    def _find_dialect(self, served: Sequence[Mapping[str, Any]]) -> Dialect:
        owners = {str(entry.get("owned_by")) for entry in served}
        if owners and owners <= {"vllm", "sglang"}:
            return "vllm"
        if self._address.host == "api.openai.com":
            return "openai"
        raise EngineError(
            f"{self.address} does not say what kind of server it is, and a wrong guess may decode greedily or with a "
            "top-k of its own",
            field="server",
            hint=f"name its dialect: {', '.join(DIALECTS)} (openai leaves every default of the server in place)",
            remedy=("server_dialect", "NAME"),
        )

    def _require_sampling(self, sampled: Request) -> None:
        """Refuse a server that gives the same text for every seed, also at a temperature that no model withstands."""
        chat = ({"role": "user", "content": _FREE},) if sampled.messages else None
        for temperature in (sampled.sampling.temperature, 2.0):
            probe = Sampling(temperature=temperature, max_tokens=48)
            probes = [Request(_FREE, seed, probe, messages=chat) for seed in (1, 2, 3)]
            completions = list(self.generate(probes))
            answered = [completion.text for completion in completions if not completion.error]
            if len(answered) < 2:
                if temperature != sampled.sampling.temperature:  # hosted models may allow no other
                    break
                raise TrimSFTError(f"{self.address} does not answer: {next(c.error for c in completions if c.error)}")
            texts = set(answered)
            if len(texts) > 1 or texts == {""}:  # a model that thinks first may say nothing in so few tokens
                return
        raise EngineError(
            f"{self.address} does not sample: with three seeds it writes the same text",
            field="server",
            hint=f"is {self.dialect} not its dialect, or are answers cached on the way?",
            remedy=("server_dialect", "NAME"),
        )

    def _choose_model(self, model: str | None, served: Sequence[str]) -> str:
        if model is None and len(served) == 1:
            return served[0]
        names = ", ".join(served[:20]) or "none"
        if model is None:
            raise EngineError(f"name the one to ask at {self.address}", field="model", hint=f"it lists {names}")
        if self.dialect == "vllm" and model not in served:  # other lists are not complete
            raise EngineError(f"{model!r} is not served at {self.address}", field="model", hint=f"it serves {names}")
        return model

    def _refused(self, status: int, message: str) -> EngineError:
        hint = f"put the key that the server asks for into the environment variable {_KEY}"
        if status == 404:
            hint = f"does it know the model {self.model!r}?"
        return EngineError(f"{self.address} answers: {message}", field="server", hint=hint)


# ---- connections


def _in_background(work: Callable[[Put], Coroutine[Any, Any, None]]) -> Iterator[Any]:
    """Yield what `work` puts, as it comes, and raise what it raises.

    It runs in a thread of its own: a notebook's thread has a loop already, and a listener who leaves early, as Ctrl-C
    does, cancels it at once and closes its connections, however long a server is silent.
    """
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    loop, end = asyncio.new_event_loop(), object()

    async def finish() -> None:
        try:
            await work(answers.put)
            answers.put(end)
        except Exception as error:
            answers.put(error)

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.run_until_complete(loop.shutdown_asyncgens())  # replies that were left in the middle

    task = loop.create_task(finish())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while (answer := answers.get()) is not end:
            if isinstance(answer, Exception):
                raise answer
            yield answer
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


async def _exchange(
    client: httpx.AsyncClient, seconds: float, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes | None, float]:
    """Return status and content of a reply (None: too large to be meant), and the seconds it asks to wait."""
    import httpx

    try:
        async with asyncio.timeout(seconds), client.stream(method, path, content=body) as response:
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding.lower() != "identity":  # to unpack it could take any time and memory, in one piece
                raise httpx.DecodingError(f"it is encoded ({encoding[:40]!r}), which was not asked for")
            wait = _seconds(response.headers.get("Retry-After", ""))
            content = bytearray()
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > LARGEST_REPLY:
                    return response.status_code, None, wait
            return response.status_code, bytes(content), wait
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {seconds:g} s") from None


def _seconds(text: str) -> float:
    """Return what a header says in seconds; 0 for anything else, such as a date."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII) else 0.0


@dataclass(frozen=True)
class Address:
    """Where a server is; what must never be shown or recorded is set apart."""

    url: str  # without a login: may be shown and recorded
    login: tuple[str, str] | None = field(default=None, repr=False)  # user and password

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def is_local(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def read_address(given: str) -> Address:
    """Return the address as given; refuse what is none, and never repeat a login or what may be a key.

    >>> read_address("http://me:secret@localhost:8000/v1/")
    Address(url='http://localhost:8000')
    """
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that cannot be
        is_address = False
    if not is_address:
        shown: dict[str, Any] = {} if "@" in given else {"value": given}
        hint = "it begins with http:// or https://, such as http://localhost:8000"
        raise EngineError("is no address of a server", field="server", hint=hint, **shown)
    if parts.query or parts.fragment:
        hint = f"leave out what stands from ? or # on; a key goes into the environment variable {_KEY}"
        raise EngineError("must be an address without a query", field="server", hint=hint)
    place = parts.netloc.rpartition("@")[2]
    url = f"{parts.scheme}://{place}{parts.path}".rstrip("/").removesuffix("/v1")
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return Address(url, login)


# ---- what is asked, and what the answers say


def question(model: str, dialect: Dialect, request: Request) -> tuple[str, bytes]:
    """Return where to ask, and the body of the request."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": model,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        "seed": request.seed,
        **({"stop": list(sampling.stop)} if sampling.stop else {}),
    }
    if dialect == "vllm":
        body |= {"top_k": sampling.top_k or -1, "stop_token_ids": list(sampling.stop_tokens)}
        body |= {"min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": True}
    path = "/v1/completions"
    if dialect == "vllm" and request.tokens is not None:
        body["prompt"] = list(request.tokens)
    elif request.messages is not None:
        path, body["messages"] = "/v1/chat/completions", [dict(message) for message in request.messages]
    else:
        body["prompt"] = request.prompt
    return path, json.dumps(body).encode()  # ASCII: a problem may hold half of a character


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
    """Return the completion in a reply; one that is not of the published form is an error of this request alone."""
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
    """Return the server's complaint in one line: nothing that acts on a terminal, no secret that it repeats."""
    try:
        said = parse_json(content)
        said = said.get("error", said.get("detail", said)) if isinstance(said, dict) else said
        text = str(said.get("message", said)) if isinstance(said, dict) else str(said)
    except ParseError:
        text = content[:2000].decode(errors="replace")
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(visible(text).split())[:300]
