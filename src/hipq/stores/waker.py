"""Waking one sleeping thread from any other, from a signal handler, or because a file descriptor has news."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from hipq.job.model import New
from hipq.job.states import READY
from hipq.job.when import SECOND
from hipq.stores.claim_groups import TOP, RankPosition
from hipq.stores.values import Stored

News = Mapping[int, RankPosition]
"""Queues in which something may have changed, by number, each with the first place where; `TOP`: whoever serves the
queue has to look. News about no queue in particular is under `HERE` or `ELSEWHERE`."""
HERE: Final = 0
"""In place of a queue's number: something happened in this process, in any of its queues."""
ELSEWHERE: Final = -1
"""In place of a queue's number: another process has changed something in the database, in an unknown queue."""
NOTIFIED: Final[News] = {HERE: TOP}
NO_NEWS: Final[News] = {}

SOON: Final = 120 * SECOND
"""Microseconds. A job that is due later than this is found by the engines' own looks, which come once a minute at
least."""


class Waking(Protocol):
    """What an engine sleeps on, and what wakes it."""

    def wait(self, seconds: float) -> News:
        """Sleep until something may have changed, and return where. No news: a handler has ended, or the time is
        over."""

    def notify(self, *, done: bool = False) -> None:
        """Wake whoever waits in this process. `done`: only a handler has ended, and nothing has changed in the store.
        May be called from any thread and any signal handler."""

    @property
    def hears_queues(self) -> bool:
        """Whether this process hears news of others that says which queue it is about."""

    def clear(self) -> None:
        """All handlers that have ended so far are known: they do not end the next wait."""


class Waker:
    """A pipe with flags in front of it: notifying costs a system call only while somebody sleeps.

    There is news, or a handler has ended, which is no reason to look for work.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._news = False
        self._done = False
        self._sleeping = False

    @property
    def has_news(self) -> bool:
        return self._news

    @property
    def has_done(self) -> bool:
        return self._done

    def notify(self, *, done: bool = False) -> None:
        if done:
            self._done = True
        else:
            self._news = True
        if self._sleeping:
            self._wake()

    def clear(self) -> None:
        """All handlers that have ended so far are known: they do not end the next wait."""
        self._done = False

    def _wake(self) -> None:
        try:
            os.write(self._writing, b"!")
        except OSError:
            pass  # the pipe is full, and nobody has read it yet; or a handler closed it, which the engine notices

    def sleep(self, seconds: float, also: Sequence[int] = ()) -> tuple[bool, list[int]]:
        """Sleep until somebody notifies. Returns whether there is news, and which of the other descriptors have
        something to read."""
        self._sleeping = True  # before looking at the flags: who notifies from here on writes to the pipe
        try:
            ready = _readable([self._reading, *also], 0 if self._news or self._done else max(seconds, 0))
        finally:
            self._sleeping = False
        news = self._news or (self._reading in ready and not self._done)
        if news:  # else what comes between the look and here would be lost
            self._news = False
        if self._reading in ready:
            ready.remove(self._reading)
            try:
                os.read(self._reading, 65536)
            except BlockingIOError:
                pass  # a forked child, which has the same pipe, was faster
        if not ready:  # else whoever looks after those must see that there was one
            self._done = False
        return news, ready

    def wait(self, seconds: float) -> News:
        """Sleep until something may have changed, and return where. No news: a handler has ended, or the time is
        over."""
        return NOTIFIED if self.sleep(seconds)[0] else NO_NEWS

    @property
    def hears_queues(self) -> bool:
        """Whether other processes say in which queue something has changed."""
        return False

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


def _readable(descriptors: list[int], seconds: float) -> list[int]:
    poll = select.poll()  # not select(): that one fails from descriptor 1024 on
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(seconds * 1000)]


def soon(jobs: Iterable[New], stored: Iterable[Stored]) -> Iterator[tuple[int, RankPosition]]:
    """The queues and places of the jobs that were added and are due soon."""
    for job, (job_id, duplicate) in zip(jobs, stored, strict=True):
        if not duplicate and is_soon(job):
            yield job.queue, (job.rank, job_id)


def is_soon(job: New) -> bool:
    return job.phase == READY or job.scheduled_run_time <= job.create_time + SOON


def lowest(places: Iterable[tuple[int, RankPosition]]) -> dict[int, RankPosition]:
    """The first place in each queue."""
    found: dict[int, RankPosition] = {}
    for queue, place in places:
        if queue not in found or place < found[queue]:
            found[queue] = place
    return found
