"""A real Chromium for the tests, driven over its DevTools protocol: JSON messages in two pipes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--window-size=1100,900",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS: Final = 60.0
MOMENT: Final = 0.01
"""Seconds between two questions whether something is true by now."""


def chromium() -> str:
    """The path of a Chromium: HIPQ_TEST_CHROMIUM, an installed one, or Debian's, which root installs once."""
    if named := os.environ.get("HIPQ_TEST_CHROMIUM"):
        return named
    if not (found := _installed()) and os.geteuid() == 0 and shutil.which("apt-get"):
        with open(f"{tempfile.gettempdir()}/hipq-test-chromium.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want a browser at once
            found = _installed() or _from_debian()
    if not found:
        pytest.skip("no Chromium here: install Debian's chromium, or set HIPQ_TEST_CHROMIUM to the path of one")
    return found


def _installed() -> str:
    """The first of these programs that runs: Ubuntu has scripts with their names that only say what to install."""
    found = filter(None, map(shutil.which, PROGRAMS))
    return next((one for one in found if not subprocess.run([one, "--version"], capture_output=True).returncode), "")


def _from_debian() -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    for command in (install, ["apt-get", "update"], install):  # package lists may be missing, or old
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        if command is install and done.returncode == 0:
            break
    return _installed()


class Left(Exception):
    """The browser has gone on to another page before this one had an answer."""


class Browser:
    """One page of a browser. What the page asks the network for, and what it complains about, is kept."""

    def __init__(self, folder: Path) -> None:
        self.requested: list[str] = []
        """The URLs of all requests, allowed or not."""
        self.complaints: list[str] = []
        """Lines in the console and uncaught errors: a policy that blocks something is told there."""
        self._number = 0
        self._rest = b""
        self._session: dict[str, str] = {}
        self._events: list[str] = []
        reads, self._write = _pipe()
        self._read, writes = _pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{reads} 4>&{writes}', chromium(), *FLAGS, f"--user-data-dir={folder}"],
            pass_fds=(reads, writes), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reads)
        os.close(writes)
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    # -- what a person does -----------------------------------------------------------------------------------------
    def open(self, url: str) -> int:
        """The status of the page, when it is loaded."""
        self._events.clear()
        self.ask("Page.navigate", url=url)
        self._until(lambda: "Page.loadEventFired" in self._events)
        return int(self.evaluate("performance.getEntriesByType('navigation')[0].responseStatus"))

    def click(self, element: str) -> None:
        """With the mouse, in the middle of what this expression in JavaScript is."""
        x, y = self.evaluate(
            f"(one => {{ one.scrollIntoView({{block: 'center'}}); const box = one.getBoundingClientRect();"
            f" return [box.x + box.width / 2, box.y + box.height / 2]; }})({element})"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def enter(self, element: str, text: str) -> None:
        """In place of what is in a field."""
        self.click(element)
        self.evaluate(f"({element}).select()")
        self.ask("Input.insertText", text=text)

    @contextmanager
    def another_tab(self) -> Iterator[None]:
        """Look at another page meanwhile: this one is hidden."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        yield
        self.ask("Target.closeTarget", targetId=target)
        self.ask("Page.bringToFront")

    def evaluate(self, expression: str) -> Any:
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def eventually(self, expression: str) -> Any:
        """The value of an expression, once it is true. A page that leaves at that moment has none."""

        def value() -> Any:
            try:
                return self.evaluate(expression)
            except Left:
                return None

        return self._until(value)

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of the whole page."""
        return b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    # -- the protocol -----------------------------------------------------------------------------------------------
    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            got = self._next(until)
            if got.get("id") == self._number:
                if "navigated" in got.get("error", {}).get("message", ""):
                    raise Left(method)
                assert "error" not in got, (method, got["error"])
                return dict(got["result"])

    def _until(self, true: Callable[[], Any]) -> Any:
        until = time.monotonic() + SECONDS
        while not (found := true()):
            assert time.monotonic() < until, f"it did not come true; the page complains of {self.complaints}"
            self._take_news(until)
        return found

    def _take_news(self, until: float) -> None:
        """What has happened, and happens in a moment: to ask again at once would keep the browser from its work."""
        seconds = MOMENT
        while b"\0" in self._rest or select.select([self._read], [], [], seconds)[0]:
            self._next(until)
            seconds = 0.0

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self._read, 1 << 16) if ready else b""
            assert part, f"the browser says nothing: its exit code is {self._process.poll()}"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        got: dict[str, Any] = json.loads(text)
        self._happened(got.get("method", ""), got.get("params", {}))
        return got

    def _happened(self, name: str, about: dict[str, Any]) -> None:
        self._events.append(name)
        match name:
            case "Network.requestWillBeSent":
                self.requested.append(about["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(about["entry"]["text"])
            case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(about))


def _pipe() -> tuple[int, int]:
    """With numbers that a shell does not use for itself, nor Chromium for its own end."""
    ends = os.pipe()
    found = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return found[0], found[1]
