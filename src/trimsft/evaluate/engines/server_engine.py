"""Any server with OpenAI's interface: `vllm serve`, SGLang, `transformers serve`, a hosted model.

engine = ServerEngine("http://localhost:8000", model="runs/trim/model")

Servers differ in how they are told to sample (see `dialects`), so the engine asks which one it talks to. It never
guesses: a server that does not say is refused until the user names its dialect, and before the first sample it has to
show that it samples at all. Requests to `transformers serve` go one by one, because its seed is the whole process's.

A request is tried again after a pause where that can help (timeouts, connections, 429, 5xx): the pause that the server
asks for, or a longer one each time.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from trimsft.data.visible import visible
from trimsft.errors import TrimSFTError, one_line
from trimsft.evaluate.engines.address import read_address
from trimsft.evaluate.engines.background import Put, in_background
from trimsft.evaluate.engines.base import DIALECTS, Completion, Dialect, EngineError, Request, Sampling
from trimsft.evaluate.engines.dialects import question, read_completion, read_message, read_models
from trimsft.runs.parsing import ParseError, parse_json

if TYPE_CHECKING:
    import httpx

LONGEST_PAUSE = 30.0
LARGEST_REPLY = 32 * 2**20  # bytes
_KEY = "OPENAI_API_KEY"
_FREE = "Write forty random words, each on a line of its own."
"""What no model that samples answers twice in the same way."""


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
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency: must be at least 1, got {concurrency}")
        key, login = os.environ.get(_KEY), self._address.login
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._secrets = [secret for secret in (key, *(login or ())) if secret]
        self._retries, self._pause, self._timeout = retries, pause, timeout
        served = read_models(self._page("/v1/models"))
        self.dialect: Dialect = dialect or self._ask_dialect(served)
        self.model = self._choose_model(model, [visible(entry.get("id"))[:200] for entry in served])
        self._concurrency = concurrency or (1 if self.dialect == "transformers" else 64)
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
        return in_background(partial(self._ask_all, requests))

    def close(self) -> None:
        """Nothing is to be ended: connections are those of one `generate`, and the server is not ours."""

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
                return Completion(index, "", 0, "error", f"an answer of more than {LARGEST_REPLY:,} bytes")
            if status == 200:
                return read_completion(index, content, request.sampling)
            error = f"status {status}: {read_message(content, self._secrets)}"
            if status in (401, 403, 404):
                raise self._refused(status, f"{self.address} answers: {error}")
            if status != 429 and status < 500:
                break
        return Completion(index, "", 0, "error", error)

    def _connect(self, *, keep: bool = True) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            base_url=self.address,
            auth=self._address.login,
            timeout=httpx.Timeout(None, connect=10.0),  # of an answer, `_exchange` limits the whole
            headers=self._headers,
            verify=self.address.startswith("https:"),  # certificates take their time to load
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None if keep else 0),
            trust_env=not self._address.is_local,  # a proxy cannot reach this machine's own ports
        )

    # ---- who is there

    def _page(self, path: str) -> bytes:
        """The content of a page; empty where the server has none."""
        (content,) = in_background(partial(self._fetch, path))
        return bytes(content)

    async def _fetch(self, path: str, put: Put) -> None:
        import httpx

        # each on a connection of its own: a server that fails at one page closes it while the next is asked for
        async with self._connect(keep=False) as client:
            for attempt in range(self._retries + 1):
                await asyncio.sleep(self._pause if attempt else 0.0)
                try:
                    status, content, _ = await _exchange(client, 30.0, "GET", path)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    raise self._silent(error) from error
                except (httpx.RequestError, TimeoutError) as error:
                    if attempt == self._retries:
                        raise self._silent(error) from error
                    continue
                if status in (401, 403):
                    said = read_message(content or b"", self._secrets)
                    raise self._refused(status, f"{self.address} answers: {said}")
                put(content if status == 200 and content else b"")
                return

    def _ask_dialect(self, served: Sequence[Mapping[str, Any]]) -> Dialect:
        try:
            page = parse_json(self._page("/openapi.json"))
        except ParseError:
            page = None
        paths = page.get("paths") if isinstance(page, dict) else None
        if isinstance(paths, dict) and "/load_model" in paths:
            return "transformers"
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

    def _refused(self, status: int, problem: str) -> EngineError:
        key = f"put the key that the server asks for into the environment variable {_KEY}"
        hint = f"does it know the model {self.model!r}?" if status == 404 else key
        return EngineError(problem, field="server", hint=hint)

    def _silent(self, error: Exception) -> EngineError:
        problem = f"nothing answers at {self.address} ({one_line(error)})"
        return EngineError(problem, field="server", hint="start the server, or correct the address")


async def _exchange(
    client: httpx.AsyncClient, seconds: float, method: str, path: str, body: bytes | None = None
) -> tuple[int, bytes | None, float]:
    """Status and content of a reply, None for one that is too large to be meant; and the seconds it asks to wait."""
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
    """What a header says in seconds; 0 for anything else, such as a date."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII) else 0.0
