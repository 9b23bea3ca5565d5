"""Plain handlers, in threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

from hipq.executors.execution import Execution


class Runnable(Protocol):
    @property
    def abandoned(self) -> bool: ...


T = TypeVar("T", bound=Runnable)


class Threads(Generic[T]):
    """At most `concurrency` threads, started when there is work. Each takes its next task itself. A thread that
    outlives its job's time-out is replaced.

    A batch is handed over at once, with one call per thread that may be waiting: with a call per task, quick tasks
    would cost more to hand over than to run.
    """

    def __init__(self, run: Callable[[T], None], concurrency: int, name: str = "hipq") -> None:
        self._run = run
        self._concurrency = concurrency
        self._name = name
        self._tasks: deque[T] = deque()
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """Wakes threads that found no task: True = look again, False = end."""
        self._threads = 0
        self._stuck: set[T] = set()
        self._lock = threading.Lock()

    def launch(self, tasks: Sequence[T]) -> None:
        """RuntimeError if there is no thread and none can be started: then none of these has begun."""
        self._tasks.extend(tasks)  # before the calls: a thread that is called looks here
        with self._lock:
            wanted = min(self._threads + len(tasks), self._concurrency)
            there, missing, self._threads = self._threads, wanted - self._threads, wanted
        for _ in range(min(len(tasks), there - self._calls.qsize())):  # threads that are always busy answer no call
            self._calls.put(True)
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
        while True:
            try:
                task = self._tasks.popleft()
            except IndexError:
                if self._calls.get():
                    continue
                return
            if not task.abandoned:
                self._run(task)
            if task.abandoned:
                with self._lock:
                    if task in self._stuck:  # it was replaced meanwhile, so there is one thread too many
                        self._stuck.remove(task)
                        return

    def unstarted(self) -> list[T]:
        """Take back the tasks that have not started."""
        found: list[T] = []
        while True:
            try:
                found.append(self._tasks.popleft())
            except IndexError:
                return found

    def abandon(self: Threads[Execution], execution: Execution) -> None:
        """Start another thread in the place of one whose execution was abandoned, since a thread cannot be stopped."""
        with self._lock:
            if execution.run.is_under_way:
                self._stuck.add(execution)
                threading.Thread(target=self._work, name=f"{self._name}-handler", daemon=True).start()

    def stuck(self: Threads[Execution], steady: int) -> int:
        """How many abandoned executions still run after the time they had to stop."""
        with self._lock:
            return sum(execution.is_stuck(steady) for execution in self._stuck)

    def close(self) -> None:
        for _ in range(self._threads):
            self._calls.put(False)
