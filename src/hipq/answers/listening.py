"""Answers that come as messages: read some, keep them in one transaction, then acknowledge them.

    receive -> read -> keep -> done

A crash between any two of these loses nothing: what was not acknowledged comes again, and what was kept already is a
duplicate then. The next are asked for when these are done, so a slow database slows the stream down and nothing else.
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
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.protocols import Store
from hipq.stores.values import Delivered
from hipq.transports import Address, Message, source
from hipq.transports.base import Source

WAIT: Final = 1.0
"""Seconds a source is asked to wait for messages: so long a stop may take."""
REPORT_EVERY: Final = 1.0
SIGN_OF_LIFE: Final = 5.0
"""Seconds between reports while answers come, and while none do."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
"""Seconds until a broken connection is tried again: twice as long each time."""


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
        self._told: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        """How many came, that events have not been told of, and the database not."""
        self.broken: StoreBroken | None = None
        """Why it has ended by itself."""
        self._reported = 0.0
        self._error = ""
        self._pause = FIRST_PAUSE
        self._who = f"{socket.gethostname()}:{os.getpid()}"

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        """Until `stop`. Whatever is wrong with the other side is waited for: it may be back."""
        self._tell("listener started")
        while not self._stopped.is_set():
            try:
                self._listen()
            except StoreBroken as error:
                self.broken = error
                self._tell("listener stopped", error=str(error))
                return
            except HipqError as error:
                self._down(str(error))
            except Exception as error:  # a bug, here or in a client library: said loudly, and the stream goes on
                logging.getLogger("hipq").exception("listener %s failed", self.name)
                self._down(f"{type(error).__name__}: {error}")
        self._report(None, last=True)
        self._tell("listener stopped")

    def _listen(self) -> None:
        checkpoints = StoredCheckpoints(self._store, f"{self._group} {self._where.identity}")
        opened = source(self._where, self._group, checkpoints)
        try:
            while not self._stopped.is_set():
                messages = opened.receive(KEYS_AT_ONCE, WAIT)
                if messages:
                    self.keep(list(messages))
                    opened.done(messages)  # after they are kept: a crash here brings them again, and loses none
                self._up()
                self._report(opened)
        finally:
            opened.close()

    # -- keeping ----------------------------------------------------------------------------------------------------
    def keep(self, messages: list[Message]) -> None:
        """All of them, however long the database is away: nobody else has them meanwhile."""
        pause = FIRST_PAUSE
        while True:
            try:
                now = self._store.now()
                came = Counter(one.outcome for one in self._come(messages, self._reader.read(messages, now), now))
                self._told += came
                self._written += came
                return
            except StoreUnavailable as error:
                self._say_down(str(error))
                if self._stopped.wait(pause):
                    raise  # they come again
                pause = min(pause * 2, LONGEST_PAUSE)

    def _come(self, messages: Sequence[Message], news: Sequence[NewAnswer], now: int) -> Sequence[Delivered]:
        """One transaction; and if the database refuses one of them, each half alone, down to that one."""
        try:
            return self._inbox().deliver(news)
        except StoreRefused as error:
            if len(news) == 1:
                return self._inbox().deliver([self._reader.refused(messages[0], str(error), now)])
            half = len(news) // 2
            first = self._come(messages[:half], news[:half], now)
            return [*first, *self._come(messages[half:], news[half:], now)]

    # -- telling ----------------------------------------------------------------------------------------------------
    def _up(self) -> None:
        if self._error:
            self._error, self._pause = "", FIRST_PAUSE
            self._tell("listener back")

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
            self._tell("listener down", error=error)

    def _tell(self, event: str, **details: Any) -> None:
        now = time.time_ns() // 1000
        with suppress(HipqError):
            now = self._store.now()
        self._events.emit(event, now, self.queue, listener=self.name, **details)

    def _report(self, opened: Source | None, last: bool = False) -> None:
        """Now and then: how many came, and how many are behind them."""
        steady = time.monotonic()
        if steady - self._reported < (REPORT_EVERY if self._written else SIGN_OF_LIFE) and not last:
            return
        self._reported = steady
        lag = None
        if opened is not None:
            with suppress(HipqError):
                lag = opened.lag()
        if self._told:
            self._tell("listener report", **self._told, **({} if lag is None else {"lag": lag}))
            self._told.clear()
        report = Report(self._where.identity, self._who, dict(self._written), lag, self._error, gone=last)
        try:
            write_report(self._store, self._app, self.name, report)
            self._written.clear()
        except StoreUnavailable:
            pass  # the next one says it
        except Exception:  # a report is no reason to stop listening
            logging.getLogger("hipq").exception("listener %s could not report", self.name)


@contextmanager
def listening(listeners: Sequence[Listener]) -> Iterator[None]:
    """Until the end of the block each of them listens, in a thread of its own."""
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
