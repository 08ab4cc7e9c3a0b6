"""A real browser for the tests: Chromium through chromedriver's own HTTP protocol, so no package is needed.

browser = Browser()
browser.open(Path("report.html"))
browser.run("return document.title")
browser.console(), browser.requests()
browser.close()
"""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
ARGUMENTS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars"),
    "--window-size=1400,1000",
]
PATIENCE = 60.0  # seconds after which something that has not happened never will


def wait(done: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Browser:
    """One window, with an empty profile."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen([str(DRIVER), f"--port={port}"], stdout=quiet, stderr=quiet)
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": CHROMIUM, "args": ARGUMENTS},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            wait(self._is_ready)
            opened = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._process.kill()
            raise
        self._session = f"/session/{opened['sessionId']}"

    def open(self, page: Path, fragment: str = "") -> None:
        # from elsewhere, or another fragment alone would load nothing
        self._ask("POST", f"{self._session}/url", {"url": "about:blank"})
        self.console(), self.requests()
        self._ask("POST", f"{self._session}/url", {"url": page.resolve().as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns; chromedriver is above the page's policy, the page's own script is not."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name: str, **parameters: Any) -> Any:
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": name, "params": parameters})

    def press(self, *keys: str) -> None:
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {}
            self.command("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text)
            self.command("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def text(self, name: str) -> str:
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def box(self, selector: str) -> tuple[float, ...]:
        """Left, top, right and bottom of the first such element."""
        script = "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        return tuple(self.run(script + "return [b.left, b.top, b.right, b.bottom]", selector))

    def size(self, width: int, height: int = 900) -> None:
        """A window of any width; the real one cannot be narrower than 500."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **metrics)

    def scheme(self, name: str) -> None:
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def reset(self) -> None:
        self.command("Emulation.clearDeviceMetricsOverride")
        self.command("Emulation.setTouchEmulationEnabled", enabled=False)
        self.command("Emulation.setEmulatedMedia", media="", features=[])
        self.command("Emulation.setScriptExecutionDisabled", value=False)

    def console(self) -> list[str]:
        """Everything that was said there since the last time, errors of the policy included."""
        return [entry["message"] for entry in self._ask("POST", f"{self._session}/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        entries = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._ask("DELETE", self._session)
        self._process.terminate()
        self._process.wait(timeout=PATIENCE)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._ask("GET", "/status")["ready"])
        return False

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on this machine
        try:
            with opener.open(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()[:500]}") from None
