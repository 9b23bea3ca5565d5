"""Callbacks that arrive at the same time share transactions: while one batch commits, the next one collects.

One thread writes the batches, so that the event loop never waits for the disk. Each caller gets its outcome after the
commit.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

from hipq.errors import StoreError, StoreRefused
from hipq.job.answer import Answered, NewAnswer
from hipq.stores.inbox_transaction import KEYS_AT_ONCE

MOST: Final = KEYS_AT_ONCE
"""The most callbacks that may wait: as many as fit into one transaction."""

Make = Callable[[], NewAnswer]
Outcome = Answered | Exception
Deliver = Callable[[Sequence[NewAnswer]], Sequence[Outcome]]
Waiting = asyncio.Future[Answered]


class Overloaded(Exception):
    """Too many callbacks are waiting already."""


class AnswerBatches:
    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._gathered: list[tuple[Make, Waiting]] = []
        self._delivery = False

    async def deliver(self, make: Make) -> Answered:
        """Deliver an answer with the next batch. `make` runs in the thread too, because it reads the database."""
        if self._pid != os.getpid():
            self._start()  # a forked child has no copy of the thread
        future: Waiting = asyncio.get_running_loop().create_future()
        with self._lock:
            if len(self._gathered) >= MOST:
                raise Overloaded
            self._gathered.append((make, future))
            start, self._delivery = not self._delivery, True
        if start:
            try:
                threading.Thread(target=self._deliver_batches, name="hipq-callbacks", daemon=True).start()
            except RuntimeError:  # no more threads: the next caller tries again
                with self._lock:
                    self._gathered, self._delivery = [one for one in self._gathered if one[1] is not future], False
                raise Overloaded from None
        return await future

    def _deliver_batches(self) -> None:
        while True:
            with self._lock:
                gathered, self._gathered = self._gathered, []
                if not gathered:
                    self._delivery = False
                    return
            news: list[NewAnswer] = []
            waiting: list[Waiting] = []
            refused: list[tuple[Waiting, Outcome]] = []
            down: Exception | None = None
            for make, future in gathered:
                try:
                    if down is None:
                        news.append(make())
                        waiting.append(future)
                except Exception as error:
                    refused.append((future, error))
                    down = error if _is_down(error) else None
                else:
                    if down is not None:  # trying each answer would take each of them as long
                        refused.append((future, down))
            _tell(refused)
            _tell(list(zip(waiting, self._arrived(news), strict=True)))

    def _arrived(self, news: list[NewAnswer]) -> Sequence[Outcome]:
        """Deliver all answers in one transaction; if one of them fails, each half by itself, down to that one."""
        if not news:
            return []
        try:
            return self._deliver(news)
        except Exception as error:
            if _is_down(error) or len(news) == 1:
                return [error] * len(news)
        half = len(news) // 2
        return [*self._arrived(news[:half]), *self._arrived(news[half:])]


def _is_down(error: Exception) -> bool:
    return isinstance(error, StoreError) and not isinstance(error, StoreRefused)


def _tell(outcomes: Sequence[tuple[Waiting, Outcome]]) -> None:
    """Give the callers their outcomes. Each event loop is woken once for all its callers, because waking costs a
    system call."""

    def done(loop: asyncio.AbstractEventLoop) -> None:
        for future, outcome in outcomes:
            if future.get_loop() is not loop or future.done():
                continue  # cancelled: the caller has gone
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    for loop in {future.get_loop() for future, _ in outcomes}:
        try:
            loop.call_soon_threadsafe(done, loop)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for this any more
