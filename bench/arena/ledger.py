"""What was added, began and ended, as producers and workers say in lines: what is missing, what ran twice, how late."""

from __future__ import annotations

import threading
import time
from typing import IO, NamedTuple


class Start(NamedTuple):
    at: float
    """By the clock of this process."""
    late: float
    """Seconds after its job was added."""


class Ledger:
    """Fed by one thread a pipe, asked by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added = set[int]()
        self._done: dict[int, int] = {}
        self._starts: list[Start] = []
        self._ended: list[float] = []

    def follow(self, lines: IO[bytes]) -> threading.Thread:
        thread = threading.Thread(target=self._read, args=[lines], daemon=True)
        thread.start()
        return thread

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            kind, _, rest = line.decode(errors="replace").strip().partition(" ")
            words = rest.split()
            with self._lock:
                if kind == "A" and len(words) == 2:
                    self._added.update(range(int(words[0]), int(words[1]) + 1))
                elif kind == "S" and len(words) == 2:
                    self._starts.append(Start(time.monotonic(), float(words[1])))
                elif kind == "D" and len(words) == 1:
                    self._done[int(words[0])] = self._done.get(int(words[0]), 0) + 1
                    self._ended.append(time.monotonic())

    @property
    def added(self) -> int:
        with self._lock:
            return len(self._added)

    @property
    def missing(self) -> int:
        """Jobs that were acknowledged and have not run to their end."""
        with self._lock:
            return len(self._added - self._done.keys())

    @property
    def doubled(self) -> int:
        """Jobs that ran to their end more than once."""
        with self._lock:
            return sum(count > 1 for count in self._done.values())

    def ended(self, since: float, until: float) -> int:
        with self._lock:
            return sum(since <= at < until for at in self._ended)

    def late(self, since: float, until: float) -> list[float]:
        """Seconds from adding to start, of what began meanwhile, sorted."""
        with self._lock:
            return sorted(one.late for one in self._starts if since <= one.at < until)


def percentile(values: list[float], part: float) -> float | None:
    return values[min(int(part * len(values)), len(values) - 1)] if values else None
