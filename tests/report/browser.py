"""A real browser, driven by chromedriver's W3C protocol with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

INSTALLED = shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


class Browser:
    """Chromium without a window; use as a context manager."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._driver = subprocess.Popen(
            [str(shutil.which("chromedriver")), "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "HOME": self._folder.name},
        )
        assert self._driver.stdout is not None
        for line in self._driver.stdout:  # it prints its port once it listens
            if "started successfully on port" in line:
                self._at = f"http://127.0.0.1:{line.rstrip().rstrip('.').rsplit(' ', 1)[1]}"
                break
        self._session = ""
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--window-size=1000,900", f"--user-data-dir={self._folder.name}/profile"]
        wanted = {
            "goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._session = f"/session/{made['sessionId']}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session:
            self._ask("DELETE", self._session)
        self._driver.terminate()
        self._driver.wait(10)
        assert self._driver.stdout is not None
        self._driver.stdout.close()
        self._folder.cleanup()

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = Request(f"{self._at}{path}", data, {"Content-Type": "application/json"})
        request.method = method
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def open(self, url: str) -> None:
        self._ask("POST", f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """The value of a script's `return`."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def wait(self, script: str) -> Any:
        """The value that a script passes to `done`, now or later."""
        body = {"script": f"const done = arguments[0]; {script}", "args": []}
        return self._ask("POST", f"{self._session}/execute/async", body)

    def develop(self, command: str, **settings: object) -> Any:
        """A command of the developer tools."""
        body = {"cmd": command, "params": settings}
        return self._ask("POST", f"{self._session}/goog/cdp/execute", body)

    def press(self, key: str) -> None:
        keys = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        body = {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]}
        self._ask("POST", f"{self._session}/actions", body)

    def resize(self, width: int, height: int) -> None:
        self.develop(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def dark(self, on: bool) -> None:
        wanted = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.develop("Emulation.setEmulatedMedia", features=wanted)

    def console(self) -> list[str]:
        """The page's warnings and errors since the last call."""
        log = self._ask("POST", f"{self._session}/se/log", {"type": "browser"})
        return [line["message"] for line in log if line["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Every address that was requested since the last call."""
        log = self._ask("POST", f"{self._session}/se/log", {"type": "performance"})
        events = [json.loads(line["message"])["message"] for line in log]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        shot = self.develop("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self) -> bytes:
        """The page as a PDF."""
        return base64.b64decode(self._ask("POST", f"{self._session}/print", {}))
