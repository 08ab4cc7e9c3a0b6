"""A server of one page on 127.0.0.1: read-only, and nothing but the numbers of the trainings that are watched.

    with WatchServer(Watched(Path("runs/trim")), port=0) as server:
        server.address                      # http://127.0.0.1:43210/
        server.serve_forever()

Any page of the web may send its visitor's browser here under a name of its own (DNS rebinding): requests whose Host is
not this machine are refused, and no answer may be framed or read by another origin.
"""

from __future__ import annotations

import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trimsft.errors import UsageError
from trimsft.report.watch.follow import Watched
from trimsft.report.watch.page import page_of, state_of

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
"""Hosts that a request may be for; any port, since ssh may forward another one."""
_PATIENCE = 10  # seconds that a connection may be silent
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class WatchServer(ThreadingHTTPServer):
    """Serves the page and its numbers until it is shut down."""

    daemon_threads = True
    allow_reuse_address = True  # a port that was left a moment ago is free

    def __init__(self, watched: Watched, *, port: int, every: float = 1.0) -> None:
        self._watched, self._looking = watched, threading.Lock()
        self.page, self.policy = page_of(None, title=f"Watching {watched.path}", every=every)
        try:
            super().__init__((ADDRESS, port), _Answer)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            hint = "choose another one, or 0 for any that is free"
            raise UsageError(f"cannot be used ({reason})", field="port", value=port, hint=hint) from error

    @property
    def address(self) -> str:
        return f"http://{ADDRESS}:{self.server_address[1]}/"

    def state(self) -> dict[str, Any]:
        """How the trainings stand; one thread looks at a time."""
        with self._looking:
            return state_of(self._watched.look_kindly())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is nothing to say; anything else is a bug."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Answer(BaseHTTPRequestHandler):
    server: WatchServer
    timeout = _PATIENCE
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "trimsft", ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if not is_local(self.headers.get("Host")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"this is not the host that was asked for\n", "text/plain")
        elif asked.path == "/":
            self._send(HTTPStatus.OK, self.server.page.encode(), "text/html; charset=utf-8")
        elif asked.path == "/favicon.ico":  # browsers ask by themselves
            self._send(HTTPStatus.NO_CONTENT, b"", "image/x-icon")
        elif asked.path == "/state.json":
            state = self.server.state()
            if parse_qs(asked.query).get("seen") == [state["version"]]:
                self._send(HTTPStatus.NO_CONTENT, b"", "application/json")
            else:
                self._send(HTTPStatus.OK, json.dumps(state).encode(), "application/json")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        policy = f"{self.server.policy}; frame-ancestors 'none'"
        for name, value in {**_HEADERS, "Content-Security-Policy": policy, "Content-Type": kind}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        """Requests are not told: there is one a second."""


def is_local(host: str | None) -> bool:
    """Whether the Host of a request is this machine.

    >>> is_local("127.0.0.1:8765"), is_local("localhost"), is_local("evil.example:8765"), is_local(None)
    (True, True, False, False)
    """
    name, _, port = (host or "").strip().lower().partition(":")
    return name in NAMES and (not port or port.isdecimal())
