"""The hands that run handlers: so many at a time, over all queues."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hipq.executors.threads import Threads
from hipq.waiter.held_messages import HeldMessage


class HandlerTask(NamedTuple):
    """A message, and what is to be done with it."""

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
        """Tasks that were launched and are not through."""
        self.stopping = threading.Event()

    def room(self) -> int:
        """Wait until a hand is free, and say how many are; 0 = no more tasks are taken."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopping.is_set() or self._busy < self._concurrency)
            return 0 if self.stopping.is_set() else self._concurrency - self._busy

    def launch(self, tasks: Sequence[HandlerTask]) -> bool:
        """Whether they were taken: all of them, or, when it is stopping, none. RuntimeError if nobody can run them."""
        with self._changed:
            if self.stopping.is_set():
                return False
            self._busy += len(tasks)
            try:
                self._threads.launch(tasks)
            except RuntimeError:
                self._busy -= len(self._threads.unstarted())  # else their hands are never free again
                raise
            return True

    def stop(self) -> list[HandlerTask]:
        """Take no more; those that nobody has begun with. Handlers under way go on."""
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
        except Exception:  # a bug of ours: the thread goes on, and the message comes again
            logging.getLogger("hipq").exception("message %s could not be settled", task.held.message.id)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()
