"""Plain handlers, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any


class Threads:
    """At most `concurrency` threads, started when there is work. One that outlives its job's time-out is replaced."""

    def __init__(self, run: Callable[[Any], None], concurrency: int, name: str = "hipq") -> None:
        self._run = run
        self._concurrency = concurrency
        self._name = name
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._threads = 0
        self._stuck: set[Any] = set()
        self._lock = threading.Lock()

    def launch(self, tasks: Iterable[Any]) -> None:
        """RuntimeError if there is no thread at all, and none can be started: then nobody has begun with anything."""
        count = 0
        for task in tasks:
            self._queue.put(task)
            count += 1
        with self._lock:
            wanted = min(self._threads + count, self._concurrency)
            missing, self._threads = wanted - self._threads, wanted
        for left in range(missing, 0, -1):
            try:
                threading.Thread(target=self._work, name=f"{self._name}-handler", daemon=True).start()
            except RuntimeError:  # this machine has no room for another just now
                with self._lock:
                    self._threads -= left  # else it is never tried again
                    if self._threads:
                        return  # those that are there do the work
                raise

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            if not task.abandoned:
                self._run(task)
            if task.abandoned:
                with self._lock:
                    if task in self._stuck:  # it was replaced meanwhile: one hand too many
                        self._stuck.remove(task)
                        return

    def unstarted(self) -> list[Any]:
        found = []
        while True:
            try:
                found.append(self._queue.get_nowait())
            except Empty:
                return found

    def abandon(self, task: Any) -> None:
        with self._lock:
            task.abandoned = True
            if task.started and not task.stopped:
                self._stuck.add(task)
                threading.Thread(target=self._work, name=f"{self._name}-handler", daemon=True).start()

    def stuck(self, steady: int) -> int:
        with self._lock:
            return sum(steady >= task.bears_until for task in self._stuck)

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)
