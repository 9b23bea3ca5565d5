"""The consumer: messages of all queues that have a handler, and beside them exactly one poller.

    consumer = Consumer(...)
    consumer.run(stop, hurry)

`stop` lets handlers finish, and gives back what nobody has begun with. `hurry` gives back what they work on, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Final

from hipq.job.names import whole
from hipq.waiter.connection import QueueConnection
from hipq.waiter.handler_threads import HandlerThreads
from hipq.waiter.intake import Handling, Intake
from hipq.waiter.supervised import Supervised

CONCURRENCY: Final = 10
WAIT: Final = 20
"""Seconds that SQS waits for messages before it says that there are none: so long a stop may take."""
LOOK: Final = 0.1
"""Seconds between looks at what was asked of us. Nothing here waits for the events themselves: a signal's handler may
set them in this very thread, which would wait for itself."""

_log: Final = logging.getLogger("hipq")


class Consumer:
    def __init__(
        self,
        connect: Callable[[str], QueueConnection],
        handlings: Mapping[str, Handling],
        poller: Callable[[threading.Event], None] | None,
        *,
        concurrency: int = CONCURRENCY,
        wait: int = WAIT,
    ) -> None:
        """`connect` opens a queue by its name; `poller` runs until it is told to stop."""
        whole(concurrency, "concurrency", 1, 1_000)
        whole(wait, "wait", 0, WAIT)
        self._connect = connect
        self._handlings = handlings
        self._poller = Supervised("poller", poller) if poller is not None else None
        self._hands = HandlerThreads(concurrency)
        self._wait = wait
        self._intakes: list[Intake] = []

    @property
    def counts(self) -> Counter[str]:
        """How many messages were handled, failed, were given back, or lost."""
        return sum((one.counts for one in self._intakes), Counter())

    def run(self, stop: threading.Event, hurry: threading.Event | None = None) -> int:
        """Until `stop` is set; how many handlers still run, which is none unless `hurry` is set too. A queue that is
        not there, or a server that does not answer, is an error now, and waited for later."""
        with ExitStack() as closing:
            for name, handling in self._handlings.items():
                self._intakes.append(Intake(self._connect(name), handling, self._hands, self._wait))
                closing.callback(self._intakes[-1].close)
            for one in self._intakes:
                one.start()
            _log.info("consuming %s", ", ".join(self._handlings))
            while not stop.is_set():
                if self._poller is not None:
                    self._poller.ensure_running(time.monotonic())
                time.sleep(LOOK)
            self._finish(hurry or threading.Event())
        left = self._hands.busy
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        _log.info("consumer stopped: %s", counts or "no messages came")
        return left

    def _finish(self, hurry: threading.Event) -> None:
        if self._poller is not None:
            self._poller.stop()
        unstarted = self._hands.stop()
        _log.info("consumer stopping: %s handlers finish, %s messages are given back", self._hands.busy, len(unstarted))
        for one in self._intakes:
            one.stop([task.held for task in unstarted if task.held.message.queue == one.name])
        while not hurry.is_set() and not self._is_through():
            time.sleep(LOOK / 2)
        for one in self._intakes:
            one.give_up()

    def _is_through(self) -> bool:
        at_rest = self._poller is None or not self._poller.is_alive
        return not self._hands.busy and at_rest and all(one.is_through for one in self._intakes)
