"""The consumer: runs the handlers of all queues, and beside them exactly one poller.

    consumer = Consumer(...)
    consumer.run(stop, stop_now)

`stop` lets running handlers finish and gives back messages that no handler has begun. `stop_now` gives back the
messages in running handlers, too.
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
"""Seconds that SQS waits for messages before it answers that there are none. A stop may take this long."""
LOOK: Final = 0.1
"""Seconds between looks at the two events. Waiting on an event is not possible here: a signal handler may set the
event in this very thread, which would then wait for itself."""

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
        """`connect` opens a queue by its name; `poller` runs until its event is set."""
        whole(concurrency, "concurrency", 1, 1_000)
        whole(wait, "wait", 0, WAIT)
        self._connect = connect
        self._handlings = handlings
        self._poller = Supervised("poller", poller) if poller is not None else None
        self._threads = HandlerThreads(concurrency)
        self._wait = wait
        self._intakes: list[Intake] = []

    @property
    def counts(self) -> Counter[str]:
        """How many messages were handled, failed, were given back, or lost."""
        return sum((one.counts for one in self._intakes), Counter())

    def run(self, stop: threading.Event, stop_now: threading.Event | None = None) -> int:
        """Run until `stop` is set, and return how many handlers still run: none, unless `stop_now` is set too. At
        the start a missing queue or a silent server is an error; later the consumer waits for it."""
        with ExitStack() as closing:
            for name, handling in self._handlings.items():
                self._intakes.append(Intake(self._connect(name), handling, self._threads, self._wait))
                closing.callback(self._intakes[-1].close)
            for one in self._intakes:
                one.start()
            _log.info("consuming %s", ", ".join(self._handlings))
            while not stop.is_set():
                if self._poller is not None:
                    self._poller.ensure_running(time.monotonic())
                time.sleep(LOOK)
            self._finish(stop_now or threading.Event())
        left = self._threads.busy
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        _log.info("consumer stopped: %s", counts or "no messages came")
        return left

    def _finish(self, stop_now: threading.Event) -> None:
        if self._poller is not None:
            self._poller.stop()
        unstarted = self._threads.stop()
        _log.info(
            "consumer stopping: %s handlers finish, %s messages are given back", self._threads.busy, len(unstarted)
        )
        for one in self._intakes:
            one.stop([task.held for task in unstarted if task.held.message.queue == one.name])
        while not stop_now.is_set() and not self._is_through():
            time.sleep(LOOK / 2)
        for one in self._intakes:
            one.give_up()

    def _is_through(self) -> bool:
        at_rest = self._poller is None or not self._poller.is_alive
        return not self._threads.busy and at_rest and all(one.is_through for one in self._intakes)
