"""The shop's side of the bank: a teller that asks for money, and a reception that takes the bank's answers."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from hipq.demo.bank import Server, call
from hipq.errors import HipqError
from hipq.job_type import JobType

_PROGRAM: Final = Path(__file__).with_name("bank.py")


class BankGone(HipqError):
    """The bank's process has ended."""


class Teller:
    def __init__(self, port: int) -> None:
        self._port = port

    def request(self, key: str, attempt: int, region: str, number: int) -> None:
        """Ask for money. Raises if the bank refuses."""
        body = {"key": key, "attempt": attempt, "region": region, "number": number}
        status, _ = call(self._port, "/requests", body)
        if status != 202:
            raise ConnectionError(f"the bank said {status}")

    def call_off(self, key: str, attempt: int) -> None:
        call(self._port, "/call-off", {"key": key, "attempt": attempt})

    @property
    def ledger(self) -> dict[str, Any]:
        """The bank's counts so far."""
        try:
            found: dict[str, Any] = call(self._port, "/ledger")[1]
        except (OSError, HTTPException, ValueError):
            raise BankGone("the pretend bank does not answer any more: has somebody ended its process?") from None
        return found


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
        yield Teller(int(first))
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Reception:
    """The shop's HTTP address for the bank's answers. An answer is acknowledged when hipq has stored it."""

    def __init__(self, charge: JobType) -> None:
        self._charge = charge
        self._lock = threading.Lock()
        self.words: Counter[str] = Counter()
        """hipq's outcomes of the answers, counted."""
        try:
            self._server = Server(self._reply)
        except OSError as error:
            raise HipqError(f"the pretend bank needs a port on 127.0.0.1 to call back: {error.strerror}") from None
        self.port = self._server.server_port

    def take(self, answer: dict[str, Any]) -> str:
        options = {name: answer[name] for name in ("answer_id", "error", "attempt")}
        return self._charge.answer(answer["key"], answer["data"], **options)

    def _reply(self, _path: str, answer: dict[str, Any]) -> tuple[int, Any]:
        try:
            outcome = self.take(answer)
        except HipqError as error:
            return 503, {"error": str(error)}  # not stored: the bank sends it again
        with self._lock:
            self.words[outcome] += 1
        return 200, {"outcome": outcome}

    def __enter__(self) -> Reception:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
