"""What handlers print, while they print it, for those who follow a job. Of each job that runs here the last lines are
at hand, so that whoever comes late sees them; of one that runs at another daemon they are there when its run has ended,
in the job's history."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec

from hipq.job.event_names import RAN
from hipq.job.model import Row
from hipq.job.states import EXECUTING, FINAL, NONE
from hipq.sandbox.output import escaped

KEPT: Final = 8 << 10
"""Bytes of a running job's output that are at hand for who comes late."""
WAITING: Final = 1 << 20
"""Bytes that may wait for one reader; of more, the first are dropped."""
LOOK: Final = 1.0
"""Seconds between two looks at a job that is followed."""
TOGETHER: Final = 0.05
"""Seconds for which lines are gathered: those that come one by one are told together."""
ELSEWHERE: Final = "another daemon runs it: what it prints is told when its run has ended"


class _Running:
    """The output of one job that runs here."""

    def __init__(self) -> None:
        self.last: deque[bytes] = deque()
        self.size = 0

    def add(self, lines: bytes) -> None:
        lines = lines[-KEPT:]
        self.last.append(lines)
        self.size += len(lines)
        while self.size - len(self.last[0]) >= KEPT:
            self.size -= len(self.last.popleft())


class _Reader(NamedTuple):
    loop: asyncio.AbstractEventLoop
    came: asyncio.Event
    lines: deque[bytes]


class _Ran(msgspec.Struct):
    event: str
    log: str = ""


_history: Final = msgspec.json.Decoder(list[_Ran])


class JobOutput:
    """For any thread; followed on an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, _Running] = {}
        self._readers: dict[int, list[_Reader]] = {}

    # -- where jobs run ---------------------------------------------------------------------------------------------
    def began(self, job_id: int) -> None:
        with self._lock:
            self._running[job_id] = _Running()

    def printed(self, job_id: int, lines: bytes) -> None:
        with self._lock:
            if running := self._running.get(job_id):
                running.add(lines)
            for reader in self._readers.get(job_id, ()):
                reader.lines.append(lines)
                while sum(map(len, reader.lines)) > WAITING:
                    reader.lines.popleft()
                try:
                    reader.loop.call_soon_threadsafe(reader.came.set)
                except RuntimeError:
                    pass  # the loop is closed

    def ended(self, job_id: int) -> None:
        with self._lock:
            self._running.pop(job_id, None)

    # -- who follows one --------------------------------------------------------------------------------------------
    async def follow(
        self, row: Row, look: Callable[[Row], Awaitable[Row]], in_flight: Container[int]
    ) -> AsyncGenerator[dict[str, Any]]:
        """What the job has printed in its runs until now, what it prints, and how it ended. `look`: the job as it is
        by now, given how it was. `in_flight`: the jobs that this daemon has in hand."""
        with self._reading(row.id) as reader:
            row = await look(row)
            told = _logs(row)
            for log in filter(None, told):
                yield _output(row, f"{log}\n")
            if row.id not in self._running:
                reader.lines.clear()  # the run that they are of has ended meanwhile: it is in the history
            is_told = is_live = False
            while row.state != FINAL:
                if row.phase == EXECUTING and row.id not in in_flight and not is_told:
                    is_told = True
                    yield {"event": "elsewhere", "error": ELSEWHERE}
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.came.wait(), LOOK)
                    await asyncio.sleep(TOGETHER)
                reader.came.clear()
                row = await look(row)
                came = self._taken(reader)
                if came:
                    yield _output(row, came)
                is_live = is_live or bool(came)
                logs = _logs(row)
                for log in filter(None, logs[len(told) + is_live :]):  # of the first, the lines were told
                    yield _output(row, f"{log}\n")
                if len(logs) > len(told):
                    told, is_live = logs, False
            yield {"event": "ended", "state": row.state, "code": None if row.code == NONE else row.code}

    @contextmanager
    def _reading(self, job_id: int) -> Iterator[_Reader]:
        reader = _Reader(asyncio.get_running_loop(), asyncio.Event(), deque())
        with self._lock:
            self._readers.setdefault(job_id, []).append(reader)
            if running := self._running.get(job_id):
                reader.lines.extend(running.last)
                reader.came.set()
        try:
            yield reader
        finally:
            with self._lock:
                self._readers[job_id].remove(reader)
                if not self._readers[job_id]:
                    del self._readers[job_id]

    def _taken(self, reader: _Reader) -> str:
        with self._lock:
            lines = b"".join(reader.lines)
            reader.lines.clear()
        return "\n".join(escaped(line) for line in lines.decode("utf-8", "backslashreplace").split("\n"))


def _output(row: Row, text: str) -> dict[str, Any]:
    return {"event": "output", "attempt": row.attempt, "text": text}


def _logs(row: Row) -> list[str]:
    """What was kept of each run's output, in their order."""
    return [entry.log for entry in _history.decode(row.history) if entry.event == RAN]
