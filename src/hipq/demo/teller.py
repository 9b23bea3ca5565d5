"""The shop's side of the bank: starts its process, sends requests, reads its ledger, ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from hipq.errors import HipqError

_PROGRAM: Final = Path(__file__).with_name("bank.py")
_PATIENCE: Final = 60.0
"""Seconds until a call is given up. They are many, because a request that the bank has accepted must not look
refused."""


class BankGone(HipqError):
    """The bank's process has ended."""


class Teller:
    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self._port = port
        self.process = process

    def request(self, key: str, attempt: int, region: str, number: int) -> None:
        """Ask for money. Raises if the bank refuses."""
        body = {"key": key, "attempt": attempt, "region": region, "number": number}
        status, _ = self._call("POST", "/requests", body)
        if status != 202:
            raise ConnectionError(f"the bank said {status}")

    def call_off(self, key: str, attempt: int) -> None:
        self._call("POST", "/call-off", {"key": key, "attempt": attempt})

    @property
    def ledger(self) -> dict[str, Any]:
        """The bank's counts so far."""
        try:
            found: dict[str, Any] = self._call("GET", "/ledger")[1]
        except (OSError, HTTPException, ValueError):
            raise BankGone("the pretend bank does not answer any more: has somebody ended its process?") from None
        return found

    def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE)
        try:
            connection.request(method, path, json.dumps(body))
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def bank(callback_port: int, pace: float) -> Iterator[Teller]:
    """A bank that sends its answers to this port. It reads from a pipe that nobody writes to: whatever ends the demo
    ends the bank, too."""
    command = [sys.executable, "-P", str(_PROGRAM), str(callback_port), str(pace)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        if not first:
            raise BankGone("the pretend bank could not start: see what it says above")
        yield Teller(int(first), process)
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
