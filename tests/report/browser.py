"""A real browser for the tests: Chromium through chromedriver's own HTTP protocol, so no package is needed.

with Browser() as browser:
    browser.open(Path("report.html"))
    browser.run("return document.title")
    browser.console(), browser.requests()
"""

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

_CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
_DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    _CHROMIUM is None or _DRIVER is None, reason="chromium and chromedriver are not installed"
)
_ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
]


class Browser:
    """One window."""

    def __init__(self, size: tuple[int, int] = (1200, 900), javascript: bool = True) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [str(_DRIVER), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        settings: dict[str, Any] = {
            "binary": _CHROMIUM,
            "args": [*_ARGUMENTS, f"--window-size={size[0]},{size[1]}"],
        }
        if not javascript:
            settings["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": settings,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            self._wait()
            opened = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise
        self._session = f"/session/{opened['sessionId']}"

    def open(self, page: Path, fragment: str = "") -> None:
        self._ask("POST", f"{self._session}/url", {"url": page.resolve().as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns; chromedriver is above the page's policy, the page's own script is not."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", f"{self._session}/execute/sync", body)

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self.command("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def width(self, pixels: int, height: int = 900) -> None:
        """A window of any width; the real one cannot be narrower than 500."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=pixels,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def dark(self) -> None:
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        made = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def console(self) -> list[str]:
        """Everything that was said there since the last time, errors of the policy included."""
        return [entry["message"] for entry in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """What was asked for since the last time."""
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._ask("DELETE", self._session)
        self._process.terminate()
        self._process.wait(timeout=20)

    def _wait(self) -> None:
        for _ in range(200):
            with contextlib.suppress(OSError):
                if self._ask("GET", "/status")["ready"]:
                    return
            time.sleep(0.1)
        raise TimeoutError("chromedriver did not start")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:500]}") from None
