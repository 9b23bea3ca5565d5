"""A peer's driver, running: asked line by line, with a limit of time for each answer."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.peers import ENVIRONMENTS, HERE, Listed, PeerFailed
from bench.peers.environment import in_a_line

PATIENCE = 60.0
"""Seconds a command may take: its samples are sized for one or two."""
_GOODBYE = 10.0


class Driven:
    def __init__(self, listed: Listed, python: Path, address: str, patience: float = PATIENCE) -> None:
        self.listed = listed
        self._patience = patience
        self._unread = b""
        ENVIRONMENTS.mkdir(exist_ok=True)
        self._log = (ENVIRONMENTS / f"{Path(listed.driver).name}-{listed.store}.log").open("w")
        self._process = subprocess.Popen(
            [python, str(HERE / f"{listed.driver}.py"), address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=HERE,
            process_group=0,  # so that what it has started ends with it
        )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def about(self) -> dict[str, str]:
        found: dict[str, str] = self._ask("about", 0)
        return found

    def rate(self, verb: str, count: int) -> float:
        """Jobs a second."""
        reply = self._ask(verb, count)
        if reply is None:
            raise PeerFailed("it has no such call")
        return count / float(reply["seconds"])

    def latency(self, count: int) -> list[float]:
        """Milliseconds, of so many jobs."""
        return [float(one) for one in self._ask("latency", count)["milliseconds"]]

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_GOODBYE)
        except subprocess.TimeoutExpired:
            self._kill()
        self._process.stdout.close()
        self._log.close()

    def _ask(self, verb: str, count: int) -> Any:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": verb, "count": count}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line()
        except BrokenPipeError:
            line = b""
        if not line:
            self._kill()
            raise PeerFailed(f"its driver ended (its log, {Path(self._log.name).name}, says why)")
        reply = json.loads(line)
        if reply and "error" in reply:
            raise PeerFailed(in_a_line(reply["error"]))
        return reply

    def _line(self) -> bytes:
        """Its next line; empty: it has ended. One that does not answer in time is killed."""
        assert self._process.stdout
        output = self._process.stdout.fileno()
        until = time.monotonic() + self._patience
        while b"\n" not in self._unread:
            if not select.select([output], [], [], max(until - time.monotonic(), 0))[0]:
                self._kill()
                raise PeerFailed(f"did not answer within {self._patience:.0f} s")
            some = os.read(output, 65_536)
            if not some:
                return b""
            self._unread += some
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
