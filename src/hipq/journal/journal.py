"""The journal as the daemon uses it: jobs are on disk before they are acknowledged, and until the store has them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from hipq.errors import Invalid, JournalBehind, JournalBroken, JournalError, JournalRefused
from hipq.job.names import whole
from hipq.journal import notes
from hipq.journal.append import Appender, Done
from hipq.journal.batch import Batch, check
from hipq.journal.finding import JournalFinding
from hipq.journal.folder import Folder, refusal
from hipq.journal.front import Front
from hipq.journal.position import Position
from hipq.journal.recover import recover
from hipq.journal.refused import RefusedJob, keep
from hipq.journal.reserve import Reserved, ReservedReader
from hipq.journal.tail import Tail

SEGMENT_BYTES: Final = 64 << 20
MOST_BYTES: Final = 1 << 30
_LARGEST: Final = 1 << 50
REMEMBERED: Final = "daemon"
"""The file in which the daemon keeps what it needs while the store is away."""


class Journal:
    """A journal, for any thread. One process at a time may open it, and after a fork only the parent may use it."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open or create the folder, take its lock, and recover its contents. `clock` times reservations."""
        whole(segment_bytes, "segment_bytes", 1, _LARGEST)
        self._most_bytes = whole(most_bytes, "most_bytes", 1, _LARGEST)
        self._pid = os.getpid()
        self._is_closed = False
        self._folder = Folder(folder, make=True)
        try:
            self._folder.lock()
            recovered = recover(self._folder)
            self.identity: Final = recovered.identity
            """The name under which the store keeps the position up to which it has the jobs."""
            self.found: Final[list[JournalFinding]] = recovered.found
            """The problems found at opening, and those since."""
            self._reader = ReservedReader(Front(self._folder, self.found), recovered.segments, clock)
            self._tail = Tail(self._folder, self.identity, recovered.segments[-1], self._reader)
            self._appender = Appender(self._tail, segment_bytes, self._reader)
        except BaseException as error:
            self._folder.close()
            if isinstance(error, OSError):
                raise refusal(error, f"the journal {self._folder.path}") from None
            raise

    # -- writing -----------------------------------------------------------------------------------------------------
    def write(self, batch: Batch, done: Done, *, wake: bool = True) -> None:
        """Write a batch; returns at once. `done` is called once, from the journal's thread: with None when the batch
        is on disk, else with the error. Without `wake` nothing is written before `write_here`."""
        self._check_process()
        size = check(batch)
        if size > self._most_bytes:
            raise Invalid(f"a batch of {size:,} bytes is more than this journal may hold, {self._most_bytes:,}")
        waiting = self.waiting_bytes + self._appender.gathered_bytes
        if waiting + size > self._most_bytes:
            raise JournalBehind(f"{waiting:,} bytes wait to be taken into the store already; try again later")
        self._appender.put(batch, done, size, wake=wake)

    def write_here(self) -> None:
        """Write the collected batches in this thread, which waits for the disk; `done` is called in it. While the
        journal's own thread writes, that one does it, and nobody waits."""
        self._check_process()
        self._appender.write_here()

    def write_now(self, batch: Batch) -> None:
        """Write a batch; returns when it is on disk."""
        waiting = _PendingWrite()
        self.write(batch, waiting.done)
        waiting.wait()

    def wsync(self, done: Done | None = None) -> None:
        """Return when all earlier writes are on disk, or raise their error. With `done` it returns at once and calls
        `done` instead."""
        self._check_process()
        if done is not None:
            self._appender.put(None, done)
            return
        waiting = _PendingWrite()
        self._appender.put(None, waiting.done)
        waiting.wait()

    @property
    def broken(self) -> JournalBroken | None:
        """Why the journal accepts nothing any more; None if it does."""
        return self._tail.broken

    @property
    def has_room(self) -> bool:
        """Whether the last write found room on the disk."""
        return self._tail.has_room

    @property
    def free_bytes(self) -> int:
        """Free bytes on the journal's disk; -1 if unknown."""
        return notes.free_bytes(self._folder)

    def forget_gone(self) -> int:
        """Drop findings about refused jobs that somebody has taken out of quarantine; returns how many."""
        gone = [one for one in self.found if one.kind == "refused" and not notes.is_there(self._folder, one.kept)]
        for one in gone:
            self.found.remove(one)
        return len(gone)

    def look(self) -> None:
        """Check that the folder is still there; if not, the journal is broken. The daemon calls this regularly."""
        if not self._is_closed:
            self._tail.look()

    @property
    def syncs(self) -> int:
        """How often the disk was waited for."""
        return self._tail.syncs

    # -- reading -----------------------------------------------------------------------------------------------------
    def start_at(self, position: Position | None) -> None:
        """Set the store's position, and remove what lies before it. None: the store has nothing of this journal, so
        everything is read. Open reservations become void."""
        self._check_process()
        self._reader.start_at(position, self._tail.first)

    def belong_to(self, store: str) -> None:
        """Tie the journal to the store with this identity, of 32 hex digits. JournalRefused if its jobs went to
        another store so far: the new store would get jobs a second time, because the last segment is still here."""
        self._check_process()
        before = self._folder.store()
        if before == store:
            return
        if before is not None and self._reader.has_jobs:
            raise JournalRefused(
                f"the journal {self._folder.path} belongs to another database, which may have its jobs already: use it "
                "with that database, use another --journal with this one, or let this one take all that is in it, by "
                f"`hipq journal recover {self._folder.path} --as-new`"
            )
        self._folder.set_store(store)

    @property
    def store(self) -> str | None:
        """The identity of the store that gets the jobs; None if there are no jobs, or it is not known yet."""
        return self._folder.store() if self._reader.has_jobs else None

    def remember(self, text: bytes) -> None:
        """Keep a text beside the journal, in place of the previous one. It is on disk when this returns."""
        self._check_process()
        notes.keep(self._folder, REMEMBERED, text)

    def remembered(self) -> bytes:
        """The text that was kept; empty if there is none, or it is damaged."""
        return notes.kept(self._folder, REMEMBERED)

    def read_reserve(self, count: int, seconds: float) -> Reserved | None:
        """Reserve the next batches, with about `count` jobs but at least one batch; None if there is nothing. A
        reservation that is not rsynced within `seconds` goes back."""
        self._check_process()
        return self._reader.reserve(count, seconds)

    def read(self, token: Reserved) -> list[Batch]:
        """The reserved batches, in the order they were written."""
        self._check_process()
        return self._reader.read(token)

    def look_behind(self, position: Position, count: int) -> tuple[list[Batch], Position]:
        """The batches behind a position, with about `count` jobs, and where they end. They are not reserved."""
        self._check_process()
        return self._reader.behind(position, count)

    def rsync(self, token: Reserved) -> None:
        """Forget the reserved batches, after the store's transaction has committed."""
        self._check_process()
        self._reader.forget(token)
        if not self._reader.waiting_bytes:
            self._appender.tidy()

    def quarantine(self, token: Reserved, some: Sequence[RefusedJob]) -> None:
        """Keep the jobs that the store refuses for good in quarantine, where people find them. They are of one
        batch, the only one reserved. Then the store's position may move on, and `rsync` forget the batch."""
        self._check_process()
        # of several batches the end may differ the next time, and the jobs would be kept twice
        (_,) = self._reader.read(token)
        said = set(self.found)  # a set, because there may be a hundred thousand of each
        self.found.extend([one for one in keep(self._folder, token.after, some) if one not in said])

    def wait(self, seconds: float) -> bool:
        """Sleep until there is something to read, or `notify()`; returns whether there is something."""
        self._check_process()
        return self._reader.wait(seconds)

    def notify(self) -> None:
        """Wake the sleeping reader."""
        self._reader.notify()

    @property
    def last(self) -> Position:
        """The position behind the last batch on disk: everything acknowledged so far lies before it."""
        return self._reader.last

    def is_taken(self, position: Position) -> bool:
        """Whether the store has everything before this position."""
        return self._reader.is_taken(position)

    @property
    def waiting_bytes(self) -> int:
        """Bytes on disk that are not known to be in the store."""
        return self._reader.waiting_bytes

    @property
    def waiting_jobs(self) -> int:
        return self._reader.waiting_jobs

    # -- the end -----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Close after all writes are on disk, or have failed."""
        if self._is_closed or self._pid != os.getpid():
            return
        self._is_closed = True
        self._appender.close()
        self._reader.notify()
        self._reader.close()
        self._folder.close()

    def _check_process(self) -> None:
        """Refuse a forked child: it would overwrite what its parent writes."""
        if self._pid != os.getpid():
            raise JournalError("a journal belongs to the process that opened it; a forked one must not use it")
        if self._is_closed:
            raise JournalError("the journal is closed")


class _PendingWrite:
    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: Exception | None = None

    def done(self, error: Exception | None) -> None:
        self._error = error
        self._event.set()

    def wait(self) -> None:
        self._event.wait()
        if self._error:
            raise self._error
