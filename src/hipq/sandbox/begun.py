"""Which jobs have begun, and which nobody wants any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

Stop = Callable[[], object]
UNWANTED: Final = "nobody wants it any more"
"""The error of a job that was abandoned."""


def _nothing() -> None:
    """The stop of a job that has ended: there is nothing to stop."""


class BegunJobs:
    """The jobs of all batches by their names, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[str, Stop | None] = {}
        """How to stop each job; None: it has not begun."""
        self._unwanted: set[str] = set()
        self._closed = False

    def add(self, names: Iterable[str]) -> None:
        with self._lock:
            self._stops.update(dict.fromkeys(names))

    def remove(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._stops.pop(name, None)
                self._unwanted.discard(name)

    def wants(self, name: str) -> bool:
        with self._lock:
            return name not in self._unwanted and not self._closed

    def begin(self, name: str, stop: Stop) -> bool:
        """Begin a job, if it is still wanted. From now on abandoning the job calls `stop`, which must not block."""
        with self._lock:
            if name in self._unwanted or self._closed:
                return False
            self._stops[name] = stop
            return True

    def end(self, name: str, has_begun: bool = True) -> None:
        """Note that a job has ended or, after all, not begun."""
        with self._lock:
            self._stops[name] = _nothing if has_begun else None

    def abandon(self, name: str) -> None:
        """Stop a job that is not wanted any more; if it has not begun, it will not."""
        with self._lock:
            if name in self._stops:
                self._unwanted.add(name)
                (self._stops[name] or _nothing)()

    def withdraw(self, name: str) -> bool:
        """Take back a job that has not begun; False: it has, or is not known."""
        with self._lock:
            if self._stops.get(name, _nothing) is not None:
                return False
            self._unwanted.add(name)
            return True

    def close(self) -> None:
        """Stop all jobs, and begin none any more."""
        with self._lock:
            self._closed = True
            for stop in self._stops.values():
                (stop or _nothing)()
