"""Answers that arrive as messages: receive some, keep them in one transaction, then acknowledge them.

    receive -> read -> keep -> done

A crash between any two of these steps loses nothing: the server delivers again what was not acknowledged, and an answer
that was kept already is a duplicate then. The next messages are asked for when these are done, so a slow database slows
the stream down and nothing else.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from hipq.answers.checkpoints import StoredCheckpoints
from hipq.answers.inbox import Inbox
from hipq.answers.reading import Reader
from hipq.answers.reports import Report, write_report
from hipq.errors import HipqError, StoreBroken, StoreRefused, StoreUnavailable
from hipq.events import Events
from hipq.job.answer import NewAnswer
from hipq.job.event_names import ListenerEvent
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store
from hipq.stores.values import Delivered
from hipq.transports import Address, Message, source
from hipq.transports.base import Source

WAIT: Final = 1.0
"""Seconds a source is asked to wait for messages; a stop may take that long."""
REPORT_EVERY: Final = 1.0
SIGN_OF_LIFE: Final = 5.0
"""Seconds between reports while no answers arrive; `REPORT_EVERY` while some do."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
"""The most seconds until a broken connection is tried again: from `FIRST_PAUSE`, twice as long each time."""


class Listener:
    """Listens to one stream, in one thread."""

    def __init__(
        self,
        app: str,
        to: str,
        where: Address,
        reader: Reader,
        store: Store,
        inbox: Callable[[], Inbox],
        events: Events,
    ) -> None:
        self.name = f"{to} {where.identity}"
        self._app = app
        self.queue = to.partition(".")[0]
        self._where = where
        self.stream = where.identity
        self._group = where.options.get("group") or f"hipq-{app}-{to}"
        self._reader = reader
        self._store = store
        self._inbox = inbox
        self._events = events
        self._stopped = threading.Event()
        self._unannounced: Counter[str] = Counter()
        """Answers by outcome that no event has reported yet."""
        self._unwritten: Counter[str] = Counter()
        """Answers by outcome that no report in the database counts yet."""
        self.broken: StoreBroken | None = None
        """Why the listener has ended by itself."""
        self._reported = 0.0
        self._error = ""
        self._pause = FIRST_PAUSE
        self._who = f"{socket.gethostname()}:{os.getpid()}"

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Listen until `stop`. If the server or the database is away, the listener tries again until it is back."""
        self._tell(ListenerEvent.STARTED)
        while not self._stopped.is_set():
            try:
                self._listen()
            except StoreBroken as error:
                self.broken = error
                self._tell(ListenerEvent.STOPPED, error=str(error))
                return
            except HipqError as error:
                self._down(str(error))
            except Exception as error:  # a bug, here or in a client library: said loudly, and the stream goes on
                logging.getLogger("hipq").exception("listener %s failed", self.name)
                self._down(f"{type(error).__name__}: {error}")
        self._report(None, last=True)
        self._tell(ListenerEvent.STOPPED)

    def _listen(self) -> None:
        checkpoints = StoredCheckpoints(self._store, f"{self._group} {self._where.identity}")
        opened = source(self._where, self._group, checkpoints)
        try:
            while not self._stopped.is_set():
                messages = opened.receive(KEYS_AT_ONCE, WAIT)
                if messages:
                    self.keep(list(messages))
                    opened.done(messages)  # after they are kept: a crash here delivers them again, and loses none
                self._up()
                self._report(opened)
        finally:
            opened.close()

    # -- keeping ----------------------------------------------------------------------------------------------------
    def keep(self, messages: list[Message]) -> None:
        """Keep all these messages, however long the database is away: nobody else has them meanwhile."""
        pause = FIRST_PAUSE
        while True:
            try:
                now = self._store.now()
                delivered = self._deliver(messages, self._reader.read(messages, now), now)
                outcomes = Counter(str(one.outcome) for one in delivered)
                self._unannounced += outcomes
                self._unwritten += outcomes
                return
            except StoreUnavailable as error:
                self._say_down(str(error))
                if self._stopped.wait(pause):
                    raise  # the server delivers them again
                pause = min(pause * 2, LONGEST_PAUSE)

    def _deliver(self, messages: Sequence[Message], news: Sequence[NewAnswer], now: int) -> Sequence[Delivered]:
        """Deliver answers in one transaction; if the database refuses one, each half alone, down to that one."""
        try:
            return self._inbox().deliver(news)
        except StoreRefused as error:
            if len(news) == 1:
                return self._inbox().deliver([self._reader.refused(messages[0], str(error), now)])
            half = len(news) // 2
            first = self._deliver(messages[:half], news[:half], now)
            return [*first, *self._deliver(messages[half:], news[half:], now)]

    # -- telling ----------------------------------------------------------------------------------------------------
    def _up(self) -> None:
        if self._error:
            self._error, self._pause = "", FIRST_PAUSE
            self._tell(ListenerEvent.BACK)

    def _down(self, error: str) -> None:
        if self._stopped.is_set():
            return
        self._say_down(error)
        self._report(None)
        self._stopped.wait(self._pause * random.uniform(0.75, 1.25))
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def _say_down(self, error: str) -> None:
        if error != self._error:
            self._error = error
            self._tell(ListenerEvent.DOWN, error=error)

    def _tell(self, event: str, **details: Any) -> None:
        now = time.time_ns() // 1000
        with suppress(HipqError):
            now = self._store.now()
        self._events.emit(event, now, self.queue, listener=self.name, **details)

    def _report(self, opened: Source | None, last: bool = False) -> None:
        """Report, now and then, how many answers arrived and how many messages are behind them."""
        steady = time.monotonic()
        if steady - self._reported < (REPORT_EVERY if self._unwritten else SIGN_OF_LIFE) and not last:
            return
        self._reported = steady
        lag = None
        if opened is not None:
            with suppress(HipqError):
                lag = opened.lag()
        if self._unannounced:
            self._tell(ListenerEvent.REPORT, **self._unannounced, **({} if lag is None else {"lag": lag}))
            self._unannounced.clear()
        report = Report(self._where.identity, self._who, dict(self._unwritten), lag, self._error, gone=last)
        try:
            write_report(self._store, self._app, self.name, report)
            self._unwritten.clear()
        except StoreUnavailable:
            pass  # the next one says it
        except Exception:  # a report is no reason to stop listening
            logging.getLogger("hipq").exception("listener %s could not report", self.name)


@contextmanager
def listening(listeners: Sequence[Listener]) -> Iterator[None]:
    """Run each listener in a thread of its own until the end of the block."""
    threads = [threading.Thread(target=one.run, name="hipq-listener", daemon=True) for one in listeners]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one in listeners:
            one.stop()
        for thread in threads:
            thread.join()
