"""What happens to jobs, for those who watch: each has a few places, and one that is too slow is told so and let go.

Every event has an id. Who comes back with the id it read last is told what came behind that, as long as it is
remembered; else it is told that something is missing.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

from hipq.events import JOB_EVENTS, Event, Events
from hipq.job.states import NONE
from hipq.job.when import to_datetime

PLACES: Final = 1000
"""Events that may wait for one reader."""
REMEMBERED: Final = 1000
"""Events of a tenant that are kept for who comes back."""
KEEP_SECONDS: Final = 300.0
"""How long a tenant's events are kept when nobody reads them any more."""


class Feed:
    def __init__(self, events: Events) -> None:
        self._lock = threading.Lock()
        self._readers: dict[str, list[_Reader]] = {}
        self._events: Events | None = events
        """Not subscribed to until somebody watches: what nobody wants costs nothing."""
        self._name = secrets.token_hex(8)
        """What tells this daemon's ids from others', and from those before it was started again."""
        self._number = 0
        """The number of the last event."""
        self._kept: dict[str, _Kept] = {}
        """The last events, by tenant."""

    async def subscribe(self, tenant: str, last: str = "") -> AsyncGenerator[dict[str, Any]]:
        """What happens from now on; with the id of the last event that was read, what has happened since then."""
        reader = _Reader(asyncio.get_running_loop(), asyncio.Queue())
        with self._lock:
            missed = self._since(tenant, last) if last else []
            self._readers.setdefault(tenant, []).append(reader)
            self._forget()
            self._kept.setdefault(tenant, _Kept(self._number))
            if self._events is not None:
                self._events.subscribe(self._happened, *JOB_EVENTS)
                self._events = None
        try:
            for one in missed:
                yield one
            while (event := await reader.queue.get()) is not None:
                yield event
            yield {"event": "too slow", "error": f"more than {PLACES} events waited to be read; begin again"}
        finally:
            with self._lock:
                self._readers[tenant].remove(reader)
                if not self._readers[tenant]:
                    del self._readers[tenant]
                    self._kept[tenant].left = time.monotonic()

    def _since(self, tenant: str, last: str) -> list[dict[str, Any]]:
        name, _, number = last.partition("-")
        kept = self._kept.get(tenant)
        read = int(number) if name == self._name and number.isdecimal() else -1
        if kept is None or not kept.since <= read <= self._number:
            return [{"event": "missed", "error": "what happened since that event is not known here any more"}]
        return [event for n, event in kept.events if n > read]

    def _forget(self) -> None:
        """What nobody has come back for."""
        old = time.monotonic() - KEEP_SECONDS
        for tenant in [name for name, kept in self._kept.items() if name not in self._readers and kept.left < old]:
            del self._kept[tenant]

    def _happened(self, event: Event) -> None:
        """In the thread that made the change."""
        row = event.job
        if row is None or row.tenant not in self._kept:
            return
        told = {
            "event": event.name, "at": to_datetime(event.at).isoformat(), "id": str(row.id), "tenant": row.tenant,
            "type": row.job_type,
            "key": row.job_key, "state": row.state, "phase": row.phase, "attempt": row.attempt,
            "code": None if row.code == NONE else row.code, "exitcode": row.exitcode or None,
        }  # fmt: skip
        with self._lock:
            self._number += 1
            told["event_id"] = f"{self._name}-{self._number}"
            if kept := self._kept.get(row.tenant):
                kept.add(self._number, told)
            for reader in self._readers.get(row.tenant, ()):
                reader.tell(told)


class _Kept:
    """The last events of one tenant."""

    def __init__(self, since: int) -> None:
        self.since = since
        """The number behind which none is missing."""
        self.events: deque[tuple[int, dict[str, Any]]] = deque()
        self.left = 0.0
        """When its last reader left."""

    def add(self, number: int, told: dict[str, Any]) -> None:
        self.events.append((number, told))
        if len(self.events) > REMEMBERED:
            self.since = self.events.popleft()[0]


class _Reader(NamedTuple):
    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[dict[str, Any] | None]
    """What is to be read; None behind it: more than there is room for."""

    def tell(self, told: dict[str, Any]) -> None:
        try:
            self.loop.call_soon_threadsafe(self._put, told)
        except RuntimeError:
            pass  # the loop is closed

    def _put(self, told: dict[str, Any]) -> None:
        if self.queue.qsize() <= PLACES:
            self.queue.put_nowait(told if self.queue.qsize() < PLACES else None)
