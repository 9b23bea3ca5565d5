"""The threads that run handlers: a fixed number for all queues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hipq.executors.threads import Threads
from hipq.waiter.held_messages import HeldMessage


class HandlerTask(NamedTuple):
    """A message and the function that handles it."""

    held: HeldMessage
    run: Callable[[HeldMessage], None]

    @property
    def abandoned(self) -> bool:
        return False


class HandlerThreads:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._threads = Threads(self._work, concurrency, "hipq-waiter")
        self._changed = threading.Condition()
        self._busy = 0
        """Tasks that were launched and have not finished."""
        self.stopping = threading.Event()

    def room(self) -> int:
        """Wait until a thread is free, and return how many are; 0 = no more tasks are accepted."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopping.is_set() or self._busy < self._concurrency)
            return 0 if self.stopping.is_set() else self._concurrency - self._busy

    def launch(self, tasks: Sequence[HandlerTask]) -> bool:
        """Launch all tasks, or none while stopping: then False. RuntimeError if no thread can be started."""
        with self._changed:
            if self.stopping.is_set():
                return False
            self._busy += len(tasks)
            try:
                self._threads.launch(tasks)
            except RuntimeError:
                self._busy -= len(self._threads.unstarted())  # otherwise their threads would count as busy for ever
                raise
            return True

    def stop(self) -> list[HandlerTask]:
        """Accept no more tasks, and return those that no thread has begun. Running handlers go on."""
        with self._changed:
            self.stopping.set()
            left: list[HandlerTask] = self._threads.unstarted()
            self._busy -= len(left)
            self._threads.close()
            self._changed.notify_all()
            return left

    @property
    def busy(self) -> int:
        with self._changed:
            return self._busy

    def _work(self, task: HandlerTask) -> None:
        try:
            task.run(task.held)
        except Exception:  # a bug of hipq: the thread goes on, and the message is received again
            logging.getLogger("hipq").exception("message %s could not be settled", task.held.message.id)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()
