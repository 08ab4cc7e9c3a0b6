"""A server that lies, is slow, dies or speaks for a hostile model: nothing hangs, and nothing acts on the reader."""

import gzip
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tools.soak.campaign import Kind, Lost, Trial, require_done, require_told
from tools.soak.inputs import NASTY, mutate

MARKER = "SOAKMARKER"
PLAIN = "The result is"
HOSTILE = (
    r"\boxed{9^{9^{9^{9^9}}}}", r"\boxed{" + "(" * 3_000 + "1" + ")" * 3_000 + "}", r"\boxed{10^{10^{10}}!}",
    r"\boxed{" + r"\frac{1}{" * 500 + "2" + "}" * 500 + "}", r"\boxed{\sum_{i=1}^{10^{12}} i^{i}}",
    r"\boxed{\int_0^{10^9} e^{\sin(x^{x})} dx}", r"\boxed{x^{1000000}-1=0}", r"\boxed{" + "9" * 200_000 + "}",
    r"\boxed{__import__('os').system('touch pwned')}", r"\boxed{eval(open('/etc/passwd').read())}",
    f"<script>{MARKER}()</script><img src=x onerror={MARKER}()>\\boxed{{1}}", f"</script><script>{MARKER}()</script>",
    f"\x1b]0;{MARKER}\x07\x1b[2J\x1b[31m\\boxed{{2}}\x9b5n", "\x00\x01\x02\\boxed{\x00}", "\ud83d\\boxed{\udc00}",
    "\u202e\\boxed{3}\u2066", "\\boxed{" * 20_000, "\\boxed{1}\\boxed{2}" * 5_000, "a" * 2_000_000, "", "\n" * 100_000,
    "\\boxed{\\text{" + "\\text{" * 5_000 + "}", "${jndi:ldap://x}", "{{7*7}}\\boxed{49}", "[red]a[/red]\\boxed{[/]}",
    r"\boxed{\begin{pmatrix}" + r"1&" * 5_000 + r"1\end{pmatrix}}", r"\boxed{\{1,2,\ldots,10^{18}\}}",
)  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer("models" if "models" in self.path else "openapi", 0)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        self._answer("completion", asked.get("seed") or 0)

    def _answer(self, what: str, seed: int) -> None:
        status, headers, body = self.server.reply(what, seed)  # type: ignore[attr-defined]
        if status is None:  # hangs up without a word
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def honest(what: str, seed: int, text: str = PLAIN) -> dict[str, Any]:
    """What a server of the published interface says; another seed gets another text."""
    text = f"{text} \\boxed{{{seed % 97}}}" if text == PLAIN else text
    if what == "models":
        return {"object": "list", "data": [{"id": "soak", "object": "model", "owned_by": "vllm"}]}
    if what == "openapi":
        return {"paths": {"/v1/completions": {}}}
    choice = {"index": 0, "text": text, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 5}}


@contextmanager
def server(reply: Any) -> Iterator[str]:
    """A server at an address of this machine; `reply` gives status, headers and body for what is asked."""
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    running.daemon_threads = True
    running.handle_error = lambda *_: None  # type: ignore[method-assign]
    running.reply = reply  # type: ignore[attr-defined]
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()


def _words(trial: Trial, address: str) -> list[str]:
    asked = ["--samples", "2", "--max-tokens", "16", "--template", "plain", "--out", "out"]
    return ["eval", "soak", "-b", str(trial.bench.benchmark), "--server", address, *asked]


def lie(trial: Trial) -> None:
    """Some replies are wrong; then the server is honest, and the same command fills what is missing."""
    rng, lock = trial.rng, threading.Lock()
    target = rng.choice(("models", "openapi", "completion", "completion", "completion"))
    share, lies = rng.choice((0.3, 1.0)), rng.choice(list(LIES))
    draws = random.Random(rng.random())

    def reply(what: str, seed: int) -> tuple[int | None, dict[str, str], bytes]:
        with lock:
            if what == target and draws.random() < share:
                return LIES[lies](honest(what, seed), draws)
        return _json(honest(what, seed))

    what = f"eval on a server whose {target} replies are wrong ({lies}, {share:.0%})"
    trial.note(what)
    with server(reply) as address:
        words = _words(trial, address)
        require_told(trial.run(words), what)
        share = 0.0
        ended = trial.run(words)
    require_told(ended, f"{what}, once it is honest")
    if target == "completion":
        require_done(ended, f"{what}, once it is honest")


def _json(value: Any, status: int = 200) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


def _slow(value: Any, draws: random.Random) -> tuple[int, dict[str, str], bytes]:
    time.sleep(draws.uniform(0, 1))
    return _json(value)


LIES = {
    "another value in it": lambda value, draws: _json(mutate(value, draws)),
    "not an object": lambda value, draws: _json(draws.choice(NASTY)),
    "content of another type": lambda value, draws: _json(
        mutate(value, draws) if "choices" not in value else _content(value, draws.choice(NASTY))
    ),
    "no JSON": lambda value, draws: (200, {}, draws.randbytes(200)),
    "HTML": lambda value, draws: (200, {"Content-Type": "text/html"}, b"<html>" + b"<b>" * 1000),
    "deeply nested": lambda value, draws: (200, {}, b"[" * 200_000),
    "bad gzip": lambda value, draws: (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b" + draws.randbytes(60)),
    "gzip of nothing": lambda value, draws: (200, {"Content-Encoding": "gzip"}, gzip.compress(b"")),
    "a body shorter than announced": lambda value, draws: (200, {"Content-Length": "0"}, b""),
    "a status of error": lambda value, draws: _json(
        {"error": {"message": draws.choice(NASTY)}}, draws.choice((400, 413, 422))
    ),
    "a refusal": lambda value, draws: _json({"error": draws.choice(NASTY)}, draws.choice((401, 403, 404))),
    "no reply": lambda value, draws: (None, {}, b""),
    "slow": _slow,
    "a redirect to itself": lambda value, draws: (302, {"Location": "/v1/completions"}, b""),
    "odd tokens": lambda value, draws: _json({**value, "usage": {"completion_tokens": draws.choice(NASTY)}}),
}


def _content(value: dict[str, Any], content: Any) -> dict[str, Any]:
    choice = {**value["choices"][0], "text": content, "message": {"content": content}}
    return {**value, "choices": [choice]}


def speak_for_a_hostile_model(trial: Trial) -> None:
    """Texts that attack the grader, the terminal and the page."""
    draws = random.Random(trial.rng.random())
    first = HOSTILE[trial.number % len(HOSTILE)]

    def reply(what: str, seed: int) -> tuple[int, dict[str, str], bytes]:
        return _json(honest(what, seed, f"{seed} " + (first if draws.random() < 0.5 else draws.choice(HOSTILE))))

    what = f"answers such as {first[:40]!r}"
    trial.note(what)
    with server(reply) as address:
        evaluated = trial.run(_words(trial, address), timeout=180)
    require_told(evaluated, what)
    reported = trial.run(["report", "out", "--out", "page"]) if evaluated.code == 0 else None
    if reported is not None:
        require_done(reported, f"report of {what}")
        page = (trial.folder / "page" / "report.html").read_text(errors="replace")
        if any(bad in page for bad in (f"<script>{MARKER}", f"<img src=x onerror={MARKER}", "\x1b", "\x00")):
            raise Lost(f"{what}: it stands in the page as it was said")
    for ended in (evaluated, *([reported] if reported else [])):
        if any(bad in ended.out + ended.err for bad in ("\x1b]0;", "\x1b[2J", "\x00", "\x9b")):
            raise Lost(f"{what}: it acts on the terminal")
    if list(trial.folder.rglob("pwned")):
        raise Lost(f"{what}: it was run")


KINDS = [Kind("lying-server", lie, weight=2), Kind("hostile-answers", speak_for_a_hostile_model, weight=1.5)]
