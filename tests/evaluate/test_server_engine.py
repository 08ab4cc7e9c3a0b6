"""The server engine against a stand-in."""

import contextlib
import gzip
import json
import signal
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trimsft.evaluate.engines import Engine, EngineError, Request, Sampling, server_engine
from trimsft.evaluate.engines.server_engine import ServerEngine

from .test_engines import complete, make_requests

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


class StandIn(ThreadingHTTPServer):
    """A server that answers as it is told and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, owner: str = "vllm", models: tuple[str, ...] = ("m",)) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = echo
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.drip = 0.0  # seconds before each byte of an answer
        self.models: Any = {"data": [{"id": name, "owned_by": owner} for name in models]}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        self._send(200 if self.path == "/v1/models" else 404, self.server.models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self._send(*self.server.answer(body))

    def _send(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        if data.startswith(b"\x1f\x8b"):
            self.send_header("Content-Encoding", "gzip, gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever asked has left
            for byte in data if self.server.drip and self.command == "POST" else ():
                time.sleep(self.server.drip)
                self.wfile.write(bytes([byte]))
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def said(text: Any, finish: Any = "stop", tokens: Any = 3) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": finish}], "usage": {"completion_tokens": tokens}}


def echo(body: dict[str, Any]) -> tuple[int, Any]:
    answer = said(f"seed {body['seed']}")
    if "messages" in body:
        answer["choices"][0]["message"] = {"content": answer["choices"][0].pop("text")}
    return 200, answer


@pytest.fixture
def serve() -> Iterator[Callable[..., StandIn]]:
    servers: list[StandIn] = []

    def start(**settings: Any) -> StandIn:
        servers.append(StandIn(**settings))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_vllm_gets_token_ids_and_every_parameter(serve: Callable[..., StandIn]) -> None:
    server = serve()
    engine = ServerEngine(server.address + "/v1/", "m")
    requests = make_requests(samples=2, stop=("\n",))
    completions = complete(engine, requests)
    assert [c.text for c in completions] == [f"seed {request.seed}" for request in requests]
    assert {(c.tokens, c.finish) for c in completions} == {(3, "stop")}
    path, body = next(item for item in server.asked if item[1]["seed"] == 1)
    assert path == "/v1/completions"
    prompt, limits = list(requests[1].tokens), {"stop": ["\n"], "stop_token_ids": [0, 2], "max_tokens": 12}
    neutral = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert body == {"model": "m", "prompt": prompt, "seed": 1, **limits, **neutral, "skip_special_tokens": True}
    assert engine.identity == {"model": "m", "dialect": "vllm"} and isinstance(engine, Engine)


def test_other_servers_get_what_the_interface_has(serve: Callable[..., StandIn]) -> None:
    server = serve(owner="somebody")
    engine = ServerEngine(server.address, "m")
    complete(engine, [Request("1+1?", 5, Sampling(max_tokens=4, stop=("\n",)))])
    sampling = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 4, "seed": 5, "stop": ["\n"]}
    assert server.asked == [("/v1/completions", {"model": "m", "prompt": "1+1?", **sampling})]
    assert engine.identity["dialect"] == "openai"
    chat = ({"role": "user", "content": "1+1?"},)
    assert complete(engine, [Request("", 5, Sampling(), messages=chat)])[0].text == "seed 5"
    assert server.asked[-1][0] == "/v1/chat/completions" and server.asked[-1][1]["messages"] == [*chat]
    with pytest.raises(EngineError, match=r"top_k: has no effect on http"):
        engine.check([Request("1+1?", 5, Sampling(top_k=20))])


def test_a_server_that_does_not_sample_is_refused(serve: Callable[..., StandIn]) -> None:
    """Whatever the cause: greedy decoding, a seed that is always the same, a cache on the way."""
    server = serve()
    engine = ServerEngine(server.address, "m", retries=0)
    greedy, sampled = make_requests(samples=1)[:2]
    engine.check([greedy, sampled])
    server.answer = lambda body: (200, said("It is 2."))
    engine.check([greedy])  # who asks for nothing random may be answered alike
    with pytest.raises(EngineError, match="does not sample: with three seeds it writes the same text"):
        engine.check([greedy, sampled])
    # a model that is sure of every word at temperature 1 is none of these
    server.answer = lambda body: echo(body) if body["temperature"] > 1 else (200, said("It is 2."))
    engine.check([sampled])


def test_ctrl_c_ends_it_at_once_while_the_server_is_silent(serve: Callable[..., StandIn]) -> None:
    server, silence = serve(), threading.Event()
    server.answer = lambda body: (silence.wait(60), echo(body))[1]
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            complete(ServerEngine(server.address, "m"), make_requests(samples=0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        silence.set()


def test_what_may_pass_is_tried_again(serve: Callable[..., StandIn]) -> None:
    server = serve()
    server.answer = lambda body: echo(body) if len(server.asked) > 2 else (429, {"error": {"message": "busy"}})
    engine = ServerEngine(server.address, "m", retries=2, pause=0.01)
    (request, *_) = make_requests(samples=0)
    assert complete(engine, [request])[0].finish == "stop" and len(server.asked) == 3
    server.answer = lambda body: (503, {"error": {"message": "\x1b[2J busy\nnow"}})
    failed = complete(engine, [request])[0]
    assert failed.finish == "error" and failed.error.startswith("status 503: ") and len(server.asked) == 6
    assert "busy" in failed.error and failed.error.isprintable()


def test_packed_answers_are_not_unpacked(serve: Callable[..., StandIn]) -> None:
    """A few hundred bytes of gzip in gzip would be gigabytes, in one piece that no limit of time can interrupt."""
    server = serve()
    engine = ServerEngine(server.address, "m", retries=0, timeout=5.0)
    bomb = gzip.compress(gzip.compress(bytes(2**28)))
    server.answer, server.models = lambda body: (200, bomb), bomb
    tracemalloc.start()
    try:
        (completion,) = complete(engine, make_requests(samples=0)[:1])
        with pytest.raises(EngineError, match=r"nothing answers at .* \(it is encoded \('gzip, gzip'\)"):
            ServerEngine(server.address, "m")
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert "it is encoded ('gzip, gzip'), which was not asked for" in (completion.error or "")
    assert server.headers[-1]["accept-encoding"] == "identity"


def test_an_answer_may_neither_drip_nor_flood(serve: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    server.answer = lambda body: (200, b" " * 2_000)
    monkeypatch.setattr(server_engine, "LARGEST_REPLY", 1_000)
    engine = ServerEngine(server.address, "m", retries=0, timeout=0.3)
    (completion,) = complete(engine, make_requests(samples=0)[:1])
    assert completion.error == "DecodingError: an answer of more than 1,000 bytes"
    server.answer, server.drip = echo, 0.05  # of some 100 bytes
    (completion,) = complete(engine, make_requests(samples=0)[:1])
    assert completion.error == "ReadTimeout: no whole answer within 0.3 s"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"not json", "an answer that cannot be read"),
        (said("x") | {"choices": said("x")["choices"] * 2}, "an answer that cannot be read (too many values"),
        (said(["x"]), "an answer that cannot be read"),
        (said("x", finish="content_filter"), "the server ended it with 'content_filter'"),
    ],
)
def test_an_answer_that_is_none(serve: Callable[..., StandIn], answer: Any, says: str) -> None:
    server = serve()
    server.answer = lambda body: (200, answer)
    (completion,) = complete(ServerEngine(server.address, "m", retries=0), make_requests(samples=0)[:1])
    assert completion.finish == "error" and completion.text == "" and says in (completion.error or "")
    assert (completion.error or "").isprintable() and len(completion.error or "") < 800


def test_a_text_is_cut_at_a_stop_and_whole_in_unicode(serve: Callable[..., StandIn]) -> None:
    server = serve()
    engine = ServerEngine(server.address, "m")
    server.answer = lambda body: (200, said("It is \ud83d 2.\n\nProblem: more", finish="length"))
    (completion,) = complete(engine, [Request("?", 1, Sampling(stop=("\n\nProblem:",)))])
    assert (completion.text, completion.finish) == ("It is ? 2.", "stop")


def test_clear_errors(serve: Callable[..., StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(EngineError, match=f"nothing answers at {address}"):
        ServerEngine(address, "m")
    for given in ("localhost:8000", "http://me:hush@host", "http://host/v1?key=hush"):
        with pytest.raises(EngineError, match=r"server: is no address of a server; such as http") as refused:
            ServerEngine(given, "m")
        assert "hush" not in str(refused.value)
    server = serve()
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    server.answer = lambda body: (401, "who is secret?")
    engine = ServerEngine(server.address, "a")
    assert "who is ***?" in str(complete(engine, make_requests(samples=0))[0].error)
    assert server.headers[-1]["authorization"] == "Bearer secret"
    assert "secret" not in str((engine.identity, engine.details))
