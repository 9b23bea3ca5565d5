"""Writing: one thread appends. While it syncs, the next batches collect, and share the next write and the next sync.

The thread is the journal's own or, while that sleeps, another one: an event loop that has just collected the posts of
all its connections would wait longer for another thread to wake up than for a quick disk. Every error of the disk is
either temporary or final.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from hipq.errors import HipqError, JournalBehind, JournalBroken, JournalError, JournalFull
from hipq.journal.batch import Batch, encode
from hipq.journal.directory import NO_ROOM, reason, write_all
from hipq.journal.folder import Folder
from hipq.journal.reserve import JournalReader
from hipq.journal.segment import Segment, name_of

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
        self._is_called = False
        """Whether the journal's thread was called to write: what it was called for may be large, and is not for a
        thread that others wait for."""
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
                self._is_called = True
                self._gather.notify()

    def write_here(self) -> None:
        """Write the collected batches in this thread, unless another thread writes or the journal's own was called:
        then that one does."""
        if not self._is_called and self._writing.acquire(blocking=False):
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
            self._is_called, self._is_writing = False, True  # with taking the group: who comes later is behind it
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


class Tail:
    """The end of the journal: the segment that is written to, by one thread at a time."""

    def __init__(self, folder: Folder, identity: str, last: Segment, reader: JournalReader) -> None:
        self._folder, self._identity, self._reader = folder, identity, reader
        self.segment = last
        self.first = last.number if last.length == last.start else last.number + 1
        """The segment that the first batch goes to. It is a new one, unless the last is empty: after a crash nothing
        is written behind what is there, so that positions the store knows never change their meaning."""
        self.is_full = False
        """Whether the file cannot grow any further."""
        self.has_room = True
        """Whether the last write found room on the disk."""
        self.broken: JournalBroken | None = None
        self.syncs = 0
        self._descriptor = -1

    def check(self) -> None:
        if self.broken:
            raise JournalBroken(str(self.broken))

    def open(self) -> None:
        """Open the segment before the first write."""
        self.check()
        if self._descriptor >= 0:
            return
        if self.segment.number < self.first:
            self.begin()
            return
        try:
            self._descriptor = self._folder.open(name_of(self.segment.number), os.O_WRONLY)
        except FileNotFoundError:
            self.begin()  # somebody removed the empty segment
        except HipqError as error:
            raise JournalError(str(error)) from None

    def append(self, data: bytes, jobs: int) -> None:
        """Append bytes; they are on disk when this returns. If it raises, none of them are in the file, or nothing
        is ever written again."""
        segment = self.segment
        try:
            write_all(self._descriptor, data, segment.length)
        except OSError as error:
            raise self._cut_back(error) from None
        self._sync()
        if not os.fstat(self._descriptor).st_nlink:  # the bytes are on disk, but in a file without a name
            raise self.fail(f"{self._name()} was removed by somebody else")
        self.has_room = True
        self._reader.arrived(segment, segment.length + len(data), jobs)

    def begin(self) -> None:
        """Begin a new segment, after the old one is synced to its end."""
        if self._descriptor >= 0:
            self._sync()  # it may have been truncated
        number = self.segment.number + 1
        try:
            descriptor, segment = self._folder.create(self._identity, number, self.segment.end)
        except FileExistsError:
            raise self.fail(f"{self._name(number)} is there already: somebody else writes to this journal") from None
        except JournalBroken as error:
            raise self.fail(str(error)) from None
        except OSError as error:
            if error.errno in NO_ROOM:
                self.has_room = False
                raise JournalFull from None
            raise JournalError(f"{self._name(number)} could not be made: {reason(error)}") from None
        self.close()
        self._descriptor, self.segment, self.is_full = descriptor, segment, False
        self._reader.began(segment)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def look(self) -> None:
        """Check that the folder is where it was: otherwise nobody finds what is written there."""
        if self.broken is None and not self._folder.is_there():
            self.fail(f"the folder {self._folder.path} of the journal was removed, or is another now")

    # -- when it goes wrong ------------------------------------------------------------------------------------------
    def _sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self.fail(f"{self._name()} could not be synced: {reason(error)}") from None
        self.syncs += 1

    def _cut_back(self, error: OSError) -> JournalError:
        """Truncate a partial write: otherwise the next batch would follow half a batch."""
        try:
            os.ftruncate(self._descriptor, self.segment.length)
        except OSError as second:
            return self.fail(f"{self._name()} could not be cut back to what was acknowledged: {reason(second)}")
        if error.errno not in NO_ROOM:
            return self.fail(f"{self._name()} could not be written: {reason(error)}")
        self.has_room, self.is_full = False, error.errno == errno.EFBIG
        return JournalFull()

    def fail(self, why: str) -> JournalBroken:
        """Fail for good: a failed sync may have dropped bytes, and the kernel says so only once."""
        self.broken = self.broken or JournalBroken(f"{why}; nothing is accepted any more: restart, and check the disk")
        return JournalBroken(str(self.broken))

    def _name(self, number: int | None = None) -> str:
        return self._folder.where(name_of(number or self.segment.number))
