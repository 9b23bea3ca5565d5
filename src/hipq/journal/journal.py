"""The journal as the daemon uses it: jobs are on disk before they are acknowledged, and until the store has them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final

from hipq.errors import Invalid, JournalBehind, JournalBroken, JournalRefused
from hipq.job.names import whole
from hipq.journal.append import Appender, Done, Tail
from hipq.journal.batch import Batch, check
from hipq.journal.directory import refusal
from hipq.journal.folder import Folder
from hipq.journal.front import Front
from hipq.journal.quarantine import JournalFinding, RefusedJob, keep_refused
from hipq.journal.recover import recover
from hipq.journal.reserve import JournalReader, Reserved
from hipq.journal.segment import Position

SEGMENT_BYTES: Final = 64 << 20
MOST_BYTES: Final = 1 << 30
_LARGEST: Final = 1 << 50
REMEMBERED: Final = "daemon"
"""The file in which the daemon keeps what it needs while the store is away."""


class Journal(JournalReader):
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
        self.most_bytes = whole(most_bytes, "most_bytes", 1, _LARGEST)
        """Bytes that may wait for the store."""
        self._folder = Folder(folder, make=True)
        try:
            self._folder.lock()
            recovered = recover(self._folder)
            self.identity: Final = recovered.identity
            """The name under which the store keeps the position up to which it has the jobs."""
            self.found: Final[list[JournalFinding]] = recovered.found
            """The problems found at opening, and those since."""
            super().__init__(Front(self._folder, self.found), recovered.segments, clock)
            self._tail = Tail(self._folder, self.identity, recovered.segments[-1], self)
            self._appender = Appender(self._tail, segment_bytes, self)
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
        if size > self.most_bytes:
            raise Invalid(f"a batch of {size:,} bytes is more than this journal may hold, {self.most_bytes:,}")
        waiting = self.waiting_bytes + self._appender.gathered_bytes
        if waiting + size > self.most_bytes:
            raise JournalBehind(f"{waiting:,} bytes wait to be taken into the store already; try again later")
        self._appender.put(batch, done, size, wake=wake)

    def write_here(self) -> None:
        """Write the collected batches in this thread, which waits for the disk; `done` is called in it. While the
        journal's own thread writes, that one does it, and nobody waits."""
        self._check_process()
        self._appender.write_here()

    def write_now(self, batch: Batch) -> None:
        """Write a batch; returns when it is on disk."""
        future: Future[None] = Future()
        self.write(batch, _resolving(future))
        future.result()

    def wsync(self, done: Done | None = None) -> None:
        """Return when all earlier writes are on disk, or raise their error; with `done`, at once, and call `done`."""
        self._check_process()
        future: Future[None] = Future()
        self._appender.put(None, done or _resolving(future))
        if done is None:
            future.result()

    @property
    def path(self) -> str:
        """The folder."""
        return self._folder.path

    @property
    def broken(self) -> JournalBroken | None:
        """Why the journal accepts nothing any more; None if it does."""
        return self._tail.broken

    @property
    def has_room(self) -> bool:
        """Whether the last write found room on the disk."""
        return self._tail.has_room

    @property
    def syncs(self) -> int:
        """How often the disk was waited for."""
        return self._tail.syncs

    @property
    def free_bytes(self) -> int:
        """Bytes that an ordinary user can still write to the journal's disk; -1 if unknown."""
        try:
            found = os.fstatvfs(self._folder.descriptor)
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize

    def look(self) -> None:
        """Check that the folder is still there; if not, the journal is broken. The daemon calls this regularly."""
        if not self._is_closed:
            self._tail.look()

    # -- the store, and the daemon's own text ------------------------------------------------------------------------
    def start_at(self, position: Position | None) -> None:
        """Set the store's position, and remove what lies before it. None: the store has nothing of this journal, so
        everything is read. Open reservations become void."""
        self._check_process()
        self._start_at(position, self._tail.first)

    def belong_to(self, store: str) -> None:
        """Tie the journal to the store with this identity, of 32 hex digits. JournalRefused if its jobs went to
        another store so far: the new store would get jobs a second time, because the last segment is still here."""
        self._check_process()
        before = self._folder.store()
        if before == store:
            return
        if before is not None and self.has_jobs:
            raise JournalRefused(
                f"the journal {self._folder.path} belongs to another database, which may have its jobs already: use it "
                "with that database, use another --journal with this one, or let this one take all that is in it, by "
                f"`hipq journal recover {self._folder.path} --as-new`"
            )
        self._folder.set_store(store)

    @property
    def store(self) -> str | None:
        """The identity of the store that gets the jobs; None if there are no jobs, or it is not known yet."""
        return self._folder.store() if self.has_jobs else None

    def remember(self, text: bytes) -> None:
        """Keep a text beside the journal, in place of the previous one. It is on disk when this returns."""
        self._check_process()
        self._folder.keep(REMEMBERED, text)

    def remembered(self) -> bytes:
        """The text that was kept; empty if there is none, or it is damaged."""
        return self._folder.kept(REMEMBERED)

    # -- reading: see JournalReader ----------------------------------------------------------------------------------
    def rsync(self, token: Reserved) -> None:
        super().rsync(token)
        if not self.waiting_bytes:
            self._appender.tidy()

    def quarantine(self, token: Reserved, some: Sequence[RefusedJob]) -> None:
        """Keep the jobs that the store refuses for good in quarantine, where people find them. They are of one
        batch, the only one reserved. Then the store's position may move on, and `rsync` forget the batch."""
        # of several batches the end may differ the next time, and the jobs would be kept twice
        (_,) = self.read(token)
        said = set(self.found)  # a set, because there may be a hundred thousand of each
        self.found.extend([one for one in keep_refused(self._folder, token.after, some) if one not in said])

    def forget_gone(self) -> int:
        """Drop findings about refused jobs that somebody has taken out of quarantine; returns how many."""
        gone = [one for one in self.found if one.kind == "refused" and not self._folder.has(one.kept)]
        for one in gone:
            self.found.remove(one)
        return len(gone)

    def close(self) -> None:
        """Close after all writes are on disk, or have failed."""
        if self._is_closed or self._pid != os.getpid():
            return
        self._is_closed = True
        self._appender.close()
        self.notify()
        with self._scanning:
            self._front.close()
        self._folder.close()


def _resolving(future: Future[None]) -> Done:
    return lambda error: future.set_exception(error) if error else future.set_result(None)
