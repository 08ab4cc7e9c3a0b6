"""`trimsft watch` as a server and as a command: what it hands out, to whom, and how it ends."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.watch.test_follow import begin, line, write
from trimsft.cli import app
from trimsft.report.watch.follow import Watched
from trimsft.report.watch.page import page_of
from trimsft.report.watch.server import WatchServer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = begin(tmp_path / "run", "auto-trim")
    write(folder, line(1, gate=1.0, exponent=1.0, gap_p50=float("nan")), {"step": 1, "train_runtime": 3.0})
    return folder


@pytest.fixture
def server(run: Path) -> Iterator[WatchServer]:
    with WatchServer(Watched(run), port=0) as opened:
        thread = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def ask(
    server: WatchServer, path: str, method: str = "GET", host: str | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_page_and_its_numbers(server: WatchServer, run: Path) -> None:
    answer, page = ask(server, "/")
    policy = answer.headers["Content-Security-Policy"]
    assert answer.status == 200 and b"<script>" in page and b"http-equiv" in page
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and answer.headers["X-Content-Type-Options"] == "nosniff"
    answer, body = ask(server, "/state.json?seen=")
    state = json.loads(body)
    (shown,) = state["runs"]
    assert (shown["label"], shown["state"], shown["step"]) == ("AutoTrim", "finished", [1])
    assert shown["fields"] == {"loss": [1.0], "nll": [2.0], "gate": [1.0]}  # no column of NaN
    assert ask(server, f"/state.json?seen={state['version']}")[0].status == 204
    write(run, line(2))
    assert len(json.loads(ask(server, f"/state.json?seen={state['version']}")[1])["runs"][0]["step"]) == 2


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "127.0.0.1:x"])
def test_other_hosts_get_nothing(server: WatchServer, host: str) -> None:
    answer, body = ask(server, "/state.json", host=host or " ")
    assert answer.status == 421 and b"runs" not in body


def test_nothing_else_is_there_and_nothing_can_be_written(server: WatchServer) -> None:
    for path in ("/config.yaml", "/../config.yaml", "/train/telemetry.jsonl", "/%2e%2e/manifest.json"):
        assert ask(server, path)[0].status == 404
    assert [ask(server, "/", method)[0].status for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [501] * 4
    answer, body = ask(server, "/", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert ask(server, "/", host="localhost:9999")[0].status == 200  # ssh may forward another port


def test_a_page_of_one_moment_asks_nobody(run: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>{{ told }}"
    page, policy = page_of(Watched(run).look(), title=hostile)
    assert "connect-src 'none'" in policy and "&lt;/script&gt;" in page and "<img" not in page
    assert '"label":"AutoTrim"' in page


# ---- the command


def watch(*arguments: object):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)], catch_exceptions=False)


def test_once_writes_a_page_or_a_picture(run: Path, tmp_path: Path) -> None:
    assert watch(run, "--once", "--out", tmp_path / "a.html").stdout == f"Wrote {tmp_path / 'a.html'}\n"
    assert "AutoTrim" in (tmp_path / "a.html").read_text()
    assert watch(run, "--once", "--out", tmp_path / "a.png").exit_code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert watch(run, "--once", "--text").stdout.startswith("AutoTrim  finished at step 1")
    assert watch(run, "--text").stdout.startswith("AutoTrim  finished at step 1")  # ends with the training


def test_what_cannot_be_done_is_said_in_one_line(run: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = watch(run, "--port", port)
    assert refused.exit_code == 2 and refused.stderr.startswith(
        f"trimsft: --port: cannot be used (Address already in use), got {port}"
    )
    for arguments, message in (
        (["--out", "a.html"], "--out: has no effect, got 'a.html'; give --once, too"),
        (["--once", "--text", "--out", "a.html"], "--out: has no effect, got 'a.html'; leave out --text"),
        (["--once", "--out", "a.txt"], "--out: must be a file, got 'a.txt'; it ends in .html"),
        (["--port", "70000"], "--port: must be at most 65535, got 70000"),
    ):
        result = watch(run, *arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1) and message in result.stderr
    for how in ([], ["--text"], ["--once"]):
        file = watch(run / "train" / "telemetry.jsonl", *how)
        assert (file.exit_code, file.stderr.count("\n")) == (2, 1)
        assert file.stderr.startswith("trimsft: RUN: is a file, got ") and "name the run directory" in file.stderr
    for name in ("a.png", "a.html"):
        nothing = watch(tmp_path / "later", "--once", "--out", tmp_path / name)
        assert nothing.exit_code == 2 and "waits for a training" in nothing.stderr
        assert not (tmp_path / name).exists()


def test_an_interruption_ends_it_without_a_traceback(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(server: WatchServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(WatchServer, "serve_forever", interrupted)
    result = watch(run, "--port", "0")
    assert "http://127.0.0.1:" in result.stdout and "AutoTrim finished at step 1" in result.stdout
    assert result.exit_code == 130 and result.stderr == "trimsft: no longer watching; a training goes on as it was\n"
