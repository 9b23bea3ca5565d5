"""What happens to jobs, for those who watch: each has a few places, and one that is too slow is told so and let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, Final

from hipq.events import JOB_EVENTS, Event, Events
from hipq.job.states import NONE
from hipq.job.when import to_datetime

PLACES: Final = 1000
"""Events that may wait for one reader."""


class Feed:
    def __init__(self, events: Events) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, list[_Reader]] = {}
        self._events: Events | None = events
        """Not subscribed to until somebody watches: what nobody wants costs nothing."""

    async def subscribe(self, tenant: str) -> AsyncIterator[dict[str, Any]]:
        reader = _Reader(asyncio.get_running_loop())
        with self._lock:
            self._readers.setdefault(tenant, []).append(reader)
            if self._events is not None:
                self._events.subscribe(self._happened, *JOB_EVENTS)
                self._events = None
        try:
            while (event := await reader.queue.get()) is not None:
                yield event
            yield {"event": "too slow", "error": f"more than {PLACES} events waited to be read; begin again"}
        finally:
            with self._lock:
                self._readers[tenant].remove(reader)
                if not self._readers[tenant]:
                    del self._readers[tenant]

    def _happened(self, event: Event) -> None:
        """In the thread that made the change."""
        row = event.job
        if row is None or row.tenant not in self._readers:
            return
        told = {
            "event": event.name, "at": to_datetime(event.at).isoformat(), "id": str(row.id), "type": row.job_type,
            "key": row.job_key, "state": row.state, "phase": row.phase, "attempt": row.attempt,
            "code": None if row.code == NONE else row.code, "exitcode": row.exitcode or None,
        }  # fmt: skip
        with self._lock:
            for reader in self._readers.get(row.tenant, ()):
                reader.tell(told)


class _Reader:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._gone = False

    def tell(self, told: dict[str, Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._put, told)
        except RuntimeError:
            pass  # the loop is closed

    def _put(self, told: dict[str, Any]) -> None:
        if self._gone:
            return
        self._gone = self.queue.qsize() >= PLACES
        self.queue.put_nowait(None if self._gone else told)
