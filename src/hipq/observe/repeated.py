"""Repeated warnings about tenants: a few lines of each kind in a minute, and then one with a count.

Twenty thousand jobs without a handler are one thing to know, not twenty thousand; and no tenant fills a daemon's log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FEW: Final = 5
"""Lines of one event of one tenant that are written as they happen, within SECONDS."""
SECONDS: Final = 60.0
SHOWN: Final = ("type", "error")
"""The fields of the last event that a line with a count shows."""

Write = Callable[[str, Mapping[str, Any]], None]


class _Kind:
    """One event of one tenant, since a moment."""

    __slots__ = ("count", "last", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.last: Mapping[str, Any] = {}


class Repeated:
    """Writes or counts warnings. Thread-safe."""

    def __init__(self, write: Write, steady: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._steady = steady
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self._timer: threading.Timer | None = None

    def tell(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write this line now, or count it."""
        with self._lock:
            now, key = self._steady(), (event, fields["tenant"])
            kind = self._kinds.get(key)
            if kind is None:
                kind = self._kinds[key] = _Kind(now)
            kind.count += 1
            kind.last = fields
            is_written = kind.count <= FEW
            if self._timer is None:
                self._timer = threading.Timer(SECONDS, self.flush)
                self._timer.daemon = True
                self._timer.start()
        if is_written:
            self._write(event, fields)

    def flush(self) -> None:
        """Write the counted lines."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        now = self._steady()
        for (event, tenant), kind in kinds.items():
            if kind.count > FEW:
                shown = {name: kind.last[name] for name in SHOWN if name in kind.last}
                more = {"tenant": tenant, "count": kind.count - FEW, "seconds": round(now - kind.since)}
                self._write(event, more | shown)
