"""Reading: batches are reserved from the front, moved into the store, and forgotten. Expired reservations go back.

Reservations follow each other without a gap, and one that goes back is handed out again unchanged: so the store's
position, which must be `before` of the next, is never inside one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from hipq.errors import JournalError
from hipq.journal.batch import Batch
from hipq.journal.front import Front
from hipq.journal.segment import BEGINNING, Position, Segment

BYTES_AT_ONCE: Final = 16 << 20
"""A reservation ends where it has more bytes than this, however few jobs they are."""


@dataclass(eq=False)
class Reserved:
    """The right to read some batches, for a time."""

    before: Position
    """The position that the store must have to take the batches."""
    after: Position
    """The store's position after that."""
    jobs: int
    bytes: int
    batches: list[Batch] = field(repr=False)
    deadline: float = field(repr=False)
    is_done: bool = field(default=False, repr=False)
    """Whether the store has the batches."""


class JournalReader:
    """The reading half of a journal, for any thread."""

    def __init__(self, front: Front, segments: list[Segment], clock: Callable[[], float]) -> None:
        self._front, self._clock = front, clock
        self._pid = os.getpid()
        self._is_closed = False
        self._scanning = threading.Lock()  # held while files are read
        # held for a moment only, because the writing thread needs it too
        self._news = threading.Condition(threading.Lock())
        self._segments = list(segments)
        self._opened_at = segments[-1].end
        self._last = max((segment.end for segment in segments if segment.jobs), default=BEGINNING)
        self._reservations: deque[Reserved] = deque()
        """What was handed out and is not forgotten yet."""
        self._read: Position | None = None
        self._reserved = self._scanned = self._handed_out = BEGINNING
        self._is_rung = False
        self.waiting_jobs = sum(segment.jobs for segment in segments)
        self.waiting_bytes = sum(segment.bytes for segment in segments)
        """Bytes on disk that are not known to be in the store."""

    def _check_process(self) -> None:
        """Refuse a forked child: it would overwrite what its parent writes."""
        if self._pid != os.getpid():
            raise JournalError("a journal belongs to the process that opened it; a forked one must not use it")
        if self._is_closed:
            raise JournalError("the journal is closed")

    # -- from the writing thread -------------------------------------------------------------------------------------
    def began(self, segment: Segment) -> None:
        with self._news:
            self._segments.append(segment)

    def arrived(self, segment: Segment, length: int, jobs: int) -> None:
        """Note bytes that are on disk: only now may they be read."""
        with self._news:
            more = length - segment.length
            segment.length, segment.jobs, segment.bytes = length, segment.jobs + jobs, segment.bytes + more
            self.waiting_jobs += jobs
            self.waiting_bytes += more
            self._last = segment.end
            self._news.notify_all()

    @property
    def has_jobs(self) -> bool:
        """Whether any jobs are on disk, whether or not the store has them."""
        with self._news:
            return any(segment.jobs for segment in self._segments)

    @property
    def last(self) -> Position:
        """The position behind the last batch on disk: everything acknowledged so far lies before it."""
        with self._news:
            return self._last

    @property
    def taken(self) -> Position | None:
        """The position before which the store has everything; None: it was not asked yet."""
        with self._news:
            return self._read

    def is_taken(self, position: Position) -> bool:
        """Whether the store has everything before this position."""
        with self._news:
            return self._read is not None and (self._read >= position or self._has_all())

    def _has_all(self) -> bool:
        return not self._reservations and self._scanned >= self._last

    # -- reserve, read, forget ---------------------------------------------------------------------------------------
    def _start_at(self, position: Position | None, first: int) -> None:
        """Set the store's position. `first` is the segment that this process writes to first."""
        with self._scanning:
            with self._news:
                segments = list(self._segments)
            passed = self._front.passed(segments, position, max(self._opened_at, self._handed_out), first)
            with self._news:
                self._reservations.clear()
                self._read = self._reserved = self._scanned = position or BEGINNING
                self.waiting_jobs = sum(segment.jobs for segment in self._segments) - passed.jobs
                self.waiting_bytes = sum(segment.bytes for segment in self._segments) - passed.bytes
                self._news.notify_all()
            self._forget()

    def read_reserve(self, count: int, seconds: float) -> Reserved | None:
        """Reserve the next batches, with about `count` jobs but at least one batch; None if there is nothing. A
        reservation that is not rsynced within `seconds` goes back."""
        self._check_process()
        with self._scanning:
            if self._read is None:
                raise JournalError("nobody has said where the store is: start_at() first")
            deadline, token = self._clock() + seconds, None
            for index, one in enumerate(self._reservations):
                if self._has_gone_back(one):
                    batches = self._front.again(self._snapshot(), one.before, one.after)
                    with self._news:
                        self._reservations[index] = token = replace(one, batches=batches, deadline=deadline)
                    return token
            found = self._front.next(self._snapshot(), self._scanned, count, BYTES_AT_ONCE)
            with self._news:
                self._scanned = found.after
                if found.batches:
                    token = Reserved(self._reserved, found.after, found.jobs, found.bytes, found.batches, deadline)
                    self._reservations.append(token)
                    self._reserved = found.after
                    self._handed_out = max(self._handed_out, found.after)
                self._stop_waiting_for_damage()
            return token

    def _has_gone_back(self, one: Reserved) -> bool:
        return not one.is_done and one.deadline <= self._clock()

    def _snapshot(self) -> list[tuple[Segment, int]]:
        with self._news:
            return [(segment, segment.length) for segment in self._segments]

    def read(self, token: Reserved) -> list[Batch]:
        """The reserved batches, in the order they were written."""
        self._check_process()
        with self._news:
            if token in self._reservations and not token.is_done and not self._has_gone_back(token):
                return list(token.batches)
        raise JournalError("the reservation has run out, so its batches went back to the journal; reserve again")

    def look_behind(self, position: Position, count: int) -> tuple[list[Batch], Position]:
        """The batches behind a position, with about `count` jobs, and where they end. They are not reserved."""
        self._check_process()
        with self._scanning:
            found = self._front.next(self._snapshot(), position, count, BYTES_AT_ONCE)
            return found.batches, found.after

    def rsync(self, token: Reserved) -> None:
        """Forget the reserved batches, after the store's transaction has committed. This is right however late it
        happens: the store's position refuses what is taken twice."""
        self._check_process()
        with self._scanning:
            with self._news:
                for one in self._reservations:
                    if (one.before, one.after) == (token.before, token.after):
                        one.is_done = True
                        one.batches = []
                while self._reservations and self._reservations[0].is_done:
                    gone = self._reservations.popleft()
                    self._read = gone.after
                    self.waiting_jobs -= gone.jobs
                    self.waiting_bytes -= gone.bytes
                self._stop_waiting_for_damage()
            self._forget()

    def _stop_waiting_for_damage(self) -> None:
        """Stop waiting for bytes that were damaged after they were written: they are never read."""
        if self._has_all():
            self.waiting_jobs = self.waiting_bytes = 0

    def _forget(self) -> None:
        """Delete segments that are fully read, but never the last: the next one's number follows from it."""
        gone: list[Segment] = []
        with self._news:
            while len(self._segments) > 1 and self._read is not None and self._segments[0].end <= self._read:
                gone.append(self._segments.pop(0))
        for segment in gone:
            self._front.delete(segment)

    # -- waiting -----------------------------------------------------------------------------------------------------
    def wait(self, seconds: float) -> bool:
        """Sleep until there is something to read, or `notify()`; returns whether there is something."""
        self._check_process()
        with self._scanning:
            self._forget()
        until = time.monotonic() + seconds
        with self._news:
            while not self._has_something() and not self._is_rung:
                left = until - time.monotonic()
                if left <= 0:
                    break
                out = [one.deadline - self._clock() for one in self._reservations if not one.is_done]
                self._news.wait(max(min([left, *out]), 0.001))
            self._is_rung = False
            return self._has_something()

    def _has_something(self) -> bool:
        if self._read is None:
            return False
        return self._scanned < self._last or any(map(self._has_gone_back, self._reservations))

    def notify(self) -> None:
        """Wake the sleeping reader."""
        with self._news:
            self._is_rung = True
            self._news.notify_all()
