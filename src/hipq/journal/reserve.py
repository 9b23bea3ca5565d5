"""Reading: batches are reserved from the front, moved into the store, and forgotten. Expired reservations go back.

Reservations follow each other without a gap, and one that goes back is handed out again unchanged: so the store's
position, which must be `before` of the next, is never inside one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from hipq.errors import JournalError
from hipq.journal.batch import Batch
from hipq.journal.front import Front, FrontRead
from hipq.journal.position import BEGINNING, Position
from hipq.journal.segment import Segment

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
    batches: list[Batch] = field(repr=False)
    deadline: float = field(repr=False)


@dataclass(eq=False)
class _Range:
    """Batches that were handed out and are not forgotten yet."""

    before: Position
    after: Position
    jobs: int
    bytes: int
    holder: Reserved
    is_done: bool = False


class ReservedReader:
    def __init__(self, front: Front, segments: list[Segment], clock: Callable[[], float] = time.monotonic) -> None:
        self._front, self._clock = front, clock
        self._scanning = threading.Lock()  # held while files are read
        # held for a moment only, because the writing thread needs it too
        self._news = threading.Condition(threading.Lock())
        self._segments = list(segments)
        self._opened_at = segments[-1].end
        self._last = max((segment.end for segment in segments if segment.jobs), default=BEGINNING)
        """The position behind the last batch."""
        self._ranges: deque[_Range] = deque()
        self._read: Position | None = None
        self._reserved = self._scanned = self._handed_out = BEGINNING
        self._is_rung = False
        self.waiting_jobs = sum(segment.jobs for segment in segments)
        self.waiting_bytes = sum(segment.bytes for segment in segments)

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

    def is_drained(self) -> bool:
        """Whether the store has everything that is on disk."""
        with self._news:
            return self._read is not None and self._has_all()

    @property
    def has_jobs(self) -> bool:
        """Whether any jobs are on disk, whether or not the store has them."""
        with self._news:
            return any(segment.jobs for segment in self._segments)

    @property
    def last(self) -> Position:
        """The position behind the last batch that is on disk."""
        with self._news:
            return self._last

    def is_taken(self, position: Position) -> bool:
        """Whether the store has everything before this position."""
        with self._news:
            return self._read is not None and (self._read >= position or self._has_all())

    def _has_all(self) -> bool:
        return not self._ranges and self._scanned >= self._last

    # -- where the store is ------------------------------------------------------------------------------------------
    def start_at(self, position: Position | None, first: int) -> None:
        """Set the store's position. `first` is the segment that this process writes to first."""
        with self._scanning:
            with self._news:
                segments = list(self._segments)
            passed = self._front.passed(segments, position, max(self._opened_at, self._handed_out), first)
            with self._news:
                self._ranges.clear()
                self._read = self._reserved = self._scanned = position or BEGINNING
                self.waiting_jobs = sum(segment.jobs for segment in self._segments) - passed.jobs
                self.waiting_bytes = sum(segment.bytes for segment in self._segments) - passed.bytes
                self._news.notify_all()
            self._forget()

    # -- reserve, read, forget ---------------------------------------------------------------------------------------
    def reserve(self, count: int, seconds: float) -> Reserved | None:
        with self._scanning:
            if self._read is None:
                raise JournalError("nobody has said where the store is: start_at() first")
            deadline = self._clock() + seconds
            for one in self._ranges:
                if self._has_gone_back(one):
                    batches = self._front.again(self._snapshot(), one.before, one.after)
                    return self._hold(one, batches, deadline)
            found = self._front.next(self._snapshot(), self._scanned, count, BYTES_AT_ONCE)
            return self._hand_out(found, deadline)

    def _hand_out(self, found: FrontRead, deadline: float) -> Reserved | None:
        holder = Reserved(self._reserved, found.after, found.jobs, found.batches, deadline)
        with self._news:
            self._scanned = found.after
            if found.batches:
                self._ranges.append(_Range(holder.before, holder.after, found.jobs, found.bytes, holder))
                self._reserved = found.after
                self._handed_out = max(self._handed_out, found.after)
            self._settle()
        return holder if found.batches else None

    def _hold(self, one: _Range, batches: list[Batch], deadline: float) -> Reserved:
        holder = Reserved(one.before, one.after, one.jobs, batches, deadline)
        with self._news:
            one.holder = holder
        return holder

    def _has_gone_back(self, one: _Range) -> bool:
        return not one.is_done and one.holder.deadline <= self._clock()

    def _snapshot(self) -> list[tuple[Segment, int]]:
        with self._news:
            return [(segment, segment.length) for segment in self._segments]

    def read(self, token: Reserved) -> list[Batch]:
        with self._news:
            if any(one.holder is token and not self._has_gone_back(one) and not one.is_done for one in self._ranges):
                return list(token.batches)
        raise JournalError("the reservation has run out, so its batches went back to the journal; reserve again")

    def behind(self, position: Position, count: int) -> tuple[list[Batch], Position]:
        with self._scanning:
            found = self._front.next(self._snapshot(), position, count, BYTES_AT_ONCE)
            return found.batches, found.after

    def forget(self, token: Reserved) -> None:
        """Forget batches that the store has. This is right however late it happens: the store's position refuses
        what is taken twice."""
        with self._scanning:
            with self._news:
                for one in self._ranges:
                    if (one.before, one.after) == (token.before, token.after):
                        one.is_done = True
                        one.holder.batches = []
                while self._ranges and self._ranges[0].is_done:
                    gone = self._ranges.popleft()
                    self._read = gone.after
                    self.waiting_jobs -= gone.jobs
                    self.waiting_bytes -= gone.bytes
                self._settle()
            self._forget()

    def _settle(self) -> None:
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
        with self._scanning:
            self._forget()
        until = time.monotonic() + seconds
        with self._news:
            while not self._has_something() and not self._is_rung:
                left = until - time.monotonic()
                if left <= 0:
                    break
                out = [one.holder.deadline - self._clock() for one in self._ranges if not one.is_done]
                self._news.wait(max(min([left, *out]), 0.001))
            self._is_rung = False
            return self._has_something()

    def _has_something(self) -> bool:
        if self._read is None:
            return False
        return self._scanned < self._last or any(self._has_gone_back(one) for one in self._ranges)

    def notify(self) -> None:
        with self._news:
            self._is_rung = True
            self._news.notify_all()

    def close(self) -> None:
        with self._scanning:
            self._front.close()
