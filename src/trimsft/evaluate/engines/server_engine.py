"""Any server with OpenAI's interface: `vllm serve`, SGLang, `transformers serve`, a hosted model.

engine = ServerEngine("http://localhost:8000", model="runs/trim/model")

vLLM and SGLang take token ids and all sampling parameters; any other server is asked in the published interface. It has
to show that it samples at all. A request is tried again where that can help: timeouts, connections, 429, 5xx. A reply
that is not of the published form is an error of that request, and never a sample.
"""

import os
import queue
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from trimsft.data.visible import visible
from trimsft.errors import one_line
from trimsft.evaluate.engines import Completion, EngineError, Request, Sampling
from trimsft.runs.parsing import parse_json

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
        model: str,
        *,
        concurrency: int = 64,
        timeout: float = 600.0,
        tokenizer: Any = None,
        retries: int = 5,
        pause: float = 1.0,
    ) -> None:
        """`timeout`: seconds of one request; `tokenizer`: the model's, to make prompts here."""
        import httpx

        self.address, self.model, self.tokenizer = read_address(address), model, tokenizer
        self._concurrency, self._timeout, self._retries, self._pause = concurrency, timeout, retries, pause
        self._key = os.environ.get(_KEY)
        headers = {"Accept-Encoding": "identity"}
        self._client = httpx.Client(
            base_url=self.address,
            headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=httpx.Timeout(timeout, connect=10.0),
            limits=httpx.Limits(max_connections=None),
        )
        try:
            listed = parse_json(self._exchange("GET", "/v1/models")[1])["data"]
            owners = {entry.get("owned_by") for entry in listed}
        except httpx.RequestError as error:
            raise EngineError(f"nothing answers at {self.address} ({one_line(error)})", field="server") from error
        except (ValueError, LookupError, TypeError, AttributeError):  # a list of no known form, or none
            owners = set()
        self.takes_all = owners in ({"vllm"}, {"sglang"})
        """Whether it takes token ids and every sampling parameter."""
        self.identity: Mapping[str, Any] = {"model": model, "dialect": "vllm" if self.takes_all else "openai"}
        self.details: Mapping[str, Any] = {"address": self.address}

    def check(self, requests: Sequence[Request]) -> None:
        """Refuse top-k where the interface has none, and a server that gives the same text for every seed."""
        if not self.takes_all and any(request.sampling.top_k for request in requests):
            raise EngineError(f"has no effect on {self.address}, whose interface has none", field="top_k")
        sampled = next((request for request in requests if not request.sampling.is_greedy), None)
        if sampled is None:
            return
        chat = ({"role": "user", "content": _FREE},) if sampled.messages else None
        probe = Sampling(temperature=2.0, max_tokens=48)  # at 2 no model is sure of every word
        answers = self.generate([Request(_FREE, seed, probe, messages=chat) for seed in (1, 2, 3)])
        texts = {completion.text for completion in answers if not completion.error}
        if len(texts) == 1 and texts != {""}:  # who thinks first may say nothing in so few tokens
            problem = f"{self.address} does not sample: with three seeds it writes the same text"
            raise EngineError(problem, field="server")

    def generate(self, requests: Sequence[Request]) -> Generator[Completion, None, None]:
        answers: queue.SimpleQueue[Completion | Exception] = queue.SimpleQueue()
        waiting, taking, stop = iter(enumerate(requests)), threading.Lock(), threading.Event()

        def work() -> None:
            while not stop.is_set():
                with taking:
                    index, request = next(waiting, (None, None))
                if index is None or request is None:
                    return
                try:
                    answers.put(self._complete(index, request))
                except Exception as error:
                    answers.put(error)

        for _ in range(min(self._concurrency, len(requests))):
            # who leaves early, as by Ctrl-C, does not wait for a silent server: the threads are left to it
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in requests:
                answer = answers.get()
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            stop.set()

    def _complete(self, index: int, request: Request) -> Completion:
        import httpx

        path, body = self._question(request)
        error = ""
        for attempt in range(self._retries + 1):
            time.sleep(min(LONGEST_PAUSE, self._pause * 2 ** (attempt - 1)) if attempt else 0.0)
            try:
                status, content = self._exchange("POST", path, body)
            except httpx.RequestError as failure:
                error = f"{type(failure).__name__}: {one_line(failure)}"
                continue
            if status == 200:
                return read_completion(index, content, request.sampling)
            said = content[:2000].decode(errors="replace").replace(self._key or "\0", "***")
            error = f"status {status}: {' '.join(visible(said).split())[:300]}"
            if status != 429 and status < 500:
                break
        return _failed(index, error)

    def _exchange(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Return status and content of a reply; raise where it is too late, too large or packed."""
        import httpx

        deadline, content = time.monotonic() + self._timeout, bytearray()
        with self._client.stream(method, path, json=body) as reply:
            if (encoding := reply.headers.get("Content-Encoding", "identity")) != "identity":
                # to unpack it could take any time and memory, in one piece
                raise httpx.DecodingError(f"it is encoded ({encoding[:40]!r}), which was not asked for")
            for chunk in reply.iter_raw():
                content += chunk
                if len(content) > LARGEST_REPLY:
                    raise httpx.DecodingError(f"an answer of more than {LARGEST_REPLY:,} bytes")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"no whole answer within {self._timeout:g} s")
            return reply.status_code, bytes(content)

    def _question(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Return where to ask, and the body of the request."""
        sampling = request.sampling
        body: dict[str, Any] = {"model": self.model, "seed": request.seed, "max_tokens": sampling.max_tokens}
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        body |= {"stop": list(sampling.stop)} if sampling.stop else {}
        if self.takes_all:
            body |= {"top_k": sampling.top_k or -1, "stop_token_ids": list(sampling.stop_tokens)}
            body |= {"min_p": 0.0, "repetition_penalty": 1.0, "skip_special_tokens": True}
        if request.messages is not None and not (self.takes_all and request.tokens):
            return "/v1/chat/completions", body | {"messages": [dict(message) for message in request.messages]}
        prompt = list(request.tokens) if self.takes_all and request.tokens else request.prompt
        return "/v1/completions", body | {"prompt": prompt}


def read_address(given: str) -> str:
    """Return an address without `/v1` at its end; refuse what is none, and never repeat a secret.

    >>> read_address("http://localhost:8000/v1/")
    'http://localhost:8000'
    """
    try:
        parts = urlsplit(given)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that cannot be
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username is not None:
        hint = f"such as http://localhost:8000, without @, ? and #; a key goes into {_KEY}"
        raise EngineError("is no address of a server", field="server", hint=hint)
    return f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")


def read_completion(index: int, content: bytes, sampling: Sampling) -> Completion:
    """Return the completion in a reply, an error where it is not of the published form."""
    try:
        reply = parse_json(content)
        (choice,) = reply["choices"]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        finish, tokens = choice["finish_reason"], int(reply["usage"]["completion_tokens"])
        text = ("" if text is None else text).encode(errors="replace").decode()  # halves of characters
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return _failed(index, f"an answer that cannot be read ({one_line(error)[:100]}): {content[:200]!r}")
    if finish not in ("stop", "length"):
        return _failed(index, f"the server ended it with {str(finish)[:100]!r}")
    cuts = [text.index(stop) for stop in sampling.stop if stop in text]
    return Completion(index, text[: min(cuts, default=None)], tokens, "stop" if cuts else finish)


def _failed(index: int, error: str) -> Completion:
    return Completion(index, "", 0, "error", visible(error)[:400])
