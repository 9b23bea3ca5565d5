"""Writing: one thread appends. While it syncs, the next batches collect, and share the next write and the next sync.

The thread is the journal's own or, while that sleeps, another one: an event loop that has just collected the posts of
all its connections would wait longer for another thread to wake up than for a quick disk.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hipq.errors import JournalBehind, JournalError
from hipq.journal.batch import Batch, encode
from hipq.journal.reserve import JournalReader
from hipq.journal.tail import Tail

GATHER_MOST: Final = 64 << 20
"""Bytes that may wait in memory while the disk is busy."""
TIDY_BYTES: Final = 1 << 20
"""A segment that was fully read is replaced by an empty one if it has more bytes than this."""

Done = Callable[[Exception | None], None]
_log: Final = logging.getLogger("hipq.journal")


class Entry(NamedTuple):
    batch: Batch | None
    """None: there is nothing to write, and the caller waits for all earlier writes."""
    done: Done
    size: int
    is_behind: bool
    """Whether a write was under way when the entry arrived."""


class Appender:
    def __init__(self, tail: Tail, segment_bytes: int, reader: JournalReader) -> None:
        self._tail, self._segment_bytes, self._reader = tail, segment_bytes, reader
        self.gathered_bytes = 0
        self._gather = threading.Condition()  # held for a moment only
        self._gathered: deque[Entry] = deque()
        self._writing = threading.Lock()
        """Held while a group of entries is written, by whichever thread that does."""
        self._is_writing = self._is_to_tidy = self._is_closing = False
        self._before: Exception | None = None  # the error of the group written last
        self._thread = threading.Thread(target=self._run, name="hipq-journal", daemon=True)
        self._thread.start()

    # -- from any thread ---------------------------------------------------------------------------------------------
    def put(self, batch: Batch | None, done: Done, size: int = 0, *, wake: bool = True) -> None:
        """Add a batch without ever waiting for the disk. Without `wake` it is for `write_here`, which must follow."""
        with self._gather:
            self._tail.check()
            if self._is_closing:
                raise JournalError("the journal is closed")
            if self.gathered_bytes and self.gathered_bytes + size > GATHER_MOST:
                raise JournalBehind("the disk does not keep up with what is written; try again later")
            self._gathered.append(Entry(batch, done, size, self._is_writing))
            self.gathered_bytes += size
            if wake:
                self._gather.notify()

    def write_here(self) -> None:
        """Write the collected batches in this thread, unless another thread is writing: then the journal's own does."""
        if self._writing.acquire(blocking=False):
            try:
                self._write_gathered()
            finally:
                self._writing.release()
        with self._gather:
            if self._gathered:
                self._gather.notify()

    def tidy(self) -> None:
        """Give disk space back after everything was read."""
        if self._tail.segment.length > TIDY_BYTES:
            with self._gather:
                self._is_to_tidy = True
                self._gather.notify()

    def close(self) -> None:
        """Close after everything that was put is written."""
        with self._gather:
            self._is_closing = True
            self._gather.notify()
        self._thread.join()
        self._tail.close()

    # -- the thread --------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._gather:
                self._gather.wait_for(lambda: self._gathered or self._is_to_tidy or self._is_closing)
                if self._is_closing and not self._gathered:
                    break
            with self._writing:
                if self._is_to_tidy:
                    self._tidy()
                self._write_gathered()
        with self._writing:
            pass  # another thread has written what it took

    def _write_gathered(self) -> None:
        with self._gather:
            group, self._gathered = self._gathered, deque()
            self._is_writing = True  # together with taking the group: who comes later is behind it
        failed: Exception | None = None
        while group:
            part: list[Entry] = []
            error: Exception | None = None
            try:
                self._append(group, part)
            except JournalError as wrong:
                error = wrong
            except Exception as wrong:  # whatever it is, nobody may wait for ever
                error = self._tail.fail(f"the journal's thread failed: {wrong!r:.200}")
            self._tell(part, error, failed)
            failed = failed or error
        with self._gather:
            self._is_writing, self._before = False, failed

    def _tidy(self) -> None:
        self._is_to_tidy = False
        if not self._tail.broken and self._reader.is_taken(self._reader.last):
            try:
                self._tail.begin()
            except JournalError:
                pass  # tidying may fail

    def _append(self, group: deque[Entry], part: list[Entry]) -> None:
        """Move entries that fit into one segment, at least one, from `group` to `part`, and write them."""
        part.append(group.popleft())
        tail, batch = self._tail, part[0].batch
        tail.check()
        if batch is None:
            return
        tail.open()
        records = [self._encoded(batch, 0)]
        # a batch that is larger than a segment gets one of its own
        is_empty = tail.segment.length == tail.segment.start
        if not is_empty and (tail.is_full or not self._fits(len(records[0]))):
            tail.begin()
            records = [self._encoded(batch, 0)]
        size, jobs = len(records[0]), len(batch.payloads)
        while group:
            if (batch := group[0].batch) is not None:
                record = self._encoded(batch, size)
                if not self._fits(size + len(record)):
                    break
                records.append(record)
                size, jobs = size + len(record), jobs + len(batch.payloads)
            part.append(group.popleft())
        tail.append(b"".join(records), jobs)

    def _encoded(self, batch: Batch, behind: int) -> bytes:
        segment = self._tail.segment
        return encode(batch, segment.salt, segment.length + behind)

    def _fits(self, size: int) -> bool:
        return self._tail.segment.length + size <= self._segment_bytes

    def _tell(self, part: list[Entry], error: Exception | None, failed: Exception | None) -> None:
        with self._gather:
            self.gathered_bytes -= sum(entry.size for entry in part)
        for entry in part:
            news = error
            if entry.batch is None:
                news = failed or error or (self._before if entry.is_behind else None)
            try:
                entry.done(type(news)(str(news)) if news else None)
            except Exception:
                _log.exception("what was to be told of a batch in the journal failed")
