"""From the journal into the store, in bulk, by a thread of its own.

The store's place in the journal moves on in the transaction that stores the jobs. So a crash anywhere stores each job
once: before the commit nothing has happened, after it the place says so, whether or not the journal heard of it.

What the store is there for and will not take is found by taking fewer at a time, down to one batch, of which the store
then says which jobs these are. They are kept in the journal's quarantine, and all others go on. If one batch after the
other is refused whole, and so is whatever lies behind them, it is not them: then they stay.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from hipq.daemon.accepted import Answering, place_parts, place_text
from hipq.daemon.ids import JournalIds, begin_of
from hipq.daemon.jobs import Jobs
from hipq.errors import SchemaError, StoreDefect, StoreRefused, StoreUnavailable
from hipq.job.model import New, sequence_of
from hipq.journal import Batch, Journal, Position, RefusedJob, Reserved
from hipq.stores.notes import note
from hipq.stores.protocols import Store
from hipq.stores.values import JOURNALS, Stored

if TYPE_CHECKING:
    from hipq.app import Hipq

IDENTITIES: Final = "store"
"""The kind of the note that says which store this is."""
NO_STORE: Final = "none"
"""The identity of a database that is none of ours yet."""
STEP: Final = 5_000
"""Jobs in one transaction, about."""
RESERVED_FOR: Final = 86_400.0
"""Seconds a reservation holds: nobody else reads this journal, and to find out which of a hundred thousand jobs a
database refuses may take it half an hour. One that ran out meanwhile would be divided again, for ever."""
BEAT: Final = 1.0
REST: Final = 0.02
"""Seconds between two transactions: under load one stores what came meanwhile, and leaves disk and processor to what is
being accepted. The first after a pause is stored at once."""
LONGEST_PAUSE: Final = 2.0
REFUSED_MOST: Final = 10
"""Batches that are set aside whole, in a row, if nothing behind them is taken: a store that takes none at all has
something wrong itself."""
TRIED: Final = 1_000
"""Jobs that the store tries in one transaction, to say which it refuses: others wait for its end."""
FLUSH_SECONDS: Final = 5.0
"""Seconds that a stop waits until the store has all that is in the journal: the daemon may not come back."""
LOOK_SECONDS: Final = 0.5
"""Seconds that one look behind refused batches may take; the next look goes on where it ended."""
UNMADE: Final = (ValueError, msgspec.MsgspecError)
"""How it is said that no job can be made of what was written."""
NEVER: Final = (StoreRefused, *UNMADE)
"""The same, and how the store says that it will never take a row."""

_log = logging.getLogger("hipq")


def identity_of(store: Store) -> str:
    """By which a journal knows it again. It goes with what is in the store, when that is moved."""
    new = token_hex(16)
    return note(store, IDENTITIES, "") or store.change_note(IDENTITIES, "", lambda before: before or new)


def check_database(app: Hipq, journal: Journal) -> None:
    """JournalRefused if the journal belongs to another database: before anything is made in this one."""
    if journal.store is None:
        return
    if not has_tables(app.url):
        journal.belong_to(NO_STORE)
    try:
        journal.belong_to(note(app.store, IDENTITIES, "") or NO_STORE)
    except SchemaError as error:
        if error.is_empty:
            journal.belong_to(NO_STORE)


def has_tables(url: str) -> bool:
    """Whether a file of SQLite is there, with tables of ours in it: opening it would make some. It is only read. Of
    another database that is not asked here."""
    path = url.removeprefix("sqlite:///")
    if path == url:
        return True
    if not os.path.exists(path):
        return False
    with closing(sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True)) as conn:
        try:
            return bool(conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'hipq_queues'").fetchall())
        except sqlite3.Error:
            return True  # whatever it is, opening it will say so


class Ingest:
    def __init__(
        self,
        store: Store,
        journal: Journal,
        jobs: Jobs,
        ids: JournalIds,
        added: Callable[[Sequence[New], Sequence[Stored]], None],
        join: Callable[[], None] = lambda: None,
    ) -> None:
        """`added` is told what the store has now. `join` is called before the store is used, by a daemon that started
        while it was away."""
        self._store = store
        self._journal = journal
        self._jobs = jobs
        self._ids = ids
        self._added = added
        self._join = join
        self._answering = Answering(store, journal)
        self._place: str | None = None
        """How far the store has the journal, as it is noted there; None = it must be asked."""
        self._rested = 0.0
        self._step = STEP
        self._refusals = 0
        """Batches set aside whole since something was stored."""
        self._behind = _Behind(store, journal, lambda batch: self._made(batch)[0])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hipq-ingest", daemon=True)
        self.away = ""
        """Why the store cannot be reached, if it cannot."""
        self.stuck = ""
        """Why jobs stay in the journal although it can."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, patient: bool = True) -> None:
        """What the store has not got by now stays in the journal. `patient`: it is given some seconds for that."""
        if patient and self._thread.is_alive():
            until = time.monotonic() + FLUSH_SECONDS
            while self._journal.waiting_jobs and not (self.away or self.stuck) and time.monotonic() < until:
                time.sleep(0.01)
        self._stopping.set()
        self._journal.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if left := self._journal.waiting_jobs:
            _log.warning("%d jobs stay in the journal: the next start takes them in, or `hipq journal recover`", left)
        if self._place is not None and self._journal.is_taken(self._journal.last):
            with suppress(StoreUnavailable):
                self._ids.all_stored()

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                self.step()
                if self.away or self.stuck:
                    _log.info("the store is back" if self.away else "jobs are taken into the store again")
                pause, self.away, self.stuck = 0.0, "", ""
            except Exception as error:
                self._tell(error)
                pause, self._place = min(pause * 2 or 0.05, LONGEST_PAUSE), None

    def _tell(self, error: Exception) -> None:
        """Once, not with every try."""
        why = str(error) or type(error).__name__
        if isinstance(error, StoreUnavailable) and not isinstance(error, StoreDefect):
            if not self.away:
                _log.warning("the store is away: %s", error)
            self.away, self.stuck = why, ""
            return
        if why != self.stuck:
            _log.error("jobs cannot be taken from the journal into the store", exc_info=error)
        self.away, self.stuck = "", why

    def step(self) -> None:
        """Take what there is, or wait a moment for it."""
        if self._place is None:
            self.begin()
        if self._ids.scarce:
            self._ids.reserve()
        self._jobs.see_clock()
        self._answering.look()
        if not self._journal.wait(BEAT) or self._stopping.wait(self._rested - time.monotonic()):
            return
        token = self._journal.read_reserve(self._step, RESERVED_FOR)
        if token is not None:
            self._take(token)
            self._rested = time.monotonic() + REST

    def begin(self) -> None:
        """Ask the store how far it has the journal. JournalRefused if it has more than there is, or is another than the
        one that its jobs went to so far."""
        self._join()
        self._journal.belong_to(identity_of(self._store))
        place = note(self._store, JOURNALS, self._journal.identity)
        position, self._ids.through = place_parts(place)
        self._journal.start_at(Position.of(position) if position else None)
        self._place = place

    def _take(self, token: Reserved) -> None:
        batches = self._journal.read(token)
        try:
            jobs = [job for batch in batches for job in self._jobs.ingested(batch)]
            is_stored = self._put(token, batches, jobs)
        except NEVER as error:
            if len(batches) > 1:
                self._step = max(token.jobs // 2, 1)
                self._place = None  # the reservation is void, and the next one is smaller
                return
            jobs, is_stored = self._put_without_refused(token, batches[0], error)
        if not is_stored:
            self._place = None  # it has more than we knew: the end of a commit was not heard of
            return
        self._place = self._after(token, batches)
        self._ids.through = place_parts(self._place)[1]
        self._ids.stored |= {batch.tenant: batch.first + len(batch.payloads) for batch in batches}
        self._journal.rsync(token)
        if jobs:
            self._refusals, self._step = 0, min(self._step * 2, STEP)
            self._behind.forget()
            self._added([new for _, new in jobs], [Stored(job_id) for job_id, _ in jobs])
        else:
            self._refusals += 1

    def _after(self, token: Reserved, batches: Sequence[Batch]) -> str:
        """What the store notes with these: nothing of a block before theirs will come from this journal."""
        through = max([self._ids.through, *(begin_of(batch.first) for batch in batches)])
        return place_text(token.after, through)

    def _put(self, token: Reserved, batches: Sequence[Batch], jobs: Sequence[tuple[int, New]]) -> bool:
        assert self._place is not None
        return self._store.ingest(jobs, self._journal.identity, self._place, self._after(token, batches))

    def _put_without_refused(
        self, token: Reserved, batch: Batch, error: Exception
    ) -> tuple[list[tuple[int, New]], bool]:
        """Set aside what is refused of a batch and store the rest: what that is, and whether it is stored."""
        jobs, refused = self._divided(batch)
        if jobs:
            if refused:
                self._journal.quarantine(token, refused)
            # On disk by now: who dies here finds it there, and sets it aside once more.
            try:
                return jobs, self._put(token, [batch], jobs)
            except NEVER as again:
                error = again
        if self._refusals >= REFUSED_MOST and (jobs or not self._behind.has_some(token)):
            raise error
        self._journal.quarantine(token, [RefusedJob(batch, f"{self._jobs.described(batch)}: {error}")])
        return [], self._put(token, [batch], [])

    def _divided(self, batch: Batch) -> tuple[list[tuple[int, New]], list[RefusedJob]]:
        """The jobs of a batch that the store takes, and those that it does not."""
        jobs, why = self._made(batch)
        for start in range(0, len(jobs), TRIED):
            found = self._store.refusals(jobs[start : start + TRIED])
            why |= {sequence_of(job_id): reason for job_id, reason in found.items()}
        refused = [one for one in _alone(batch) if one.first in why]
        return (
            [(job_id, job) for job_id, job in jobs if sequence_of(job_id) not in why],
            [RefusedJob(one, f"{self._jobs.described(one)}: {why[one.first]}") for one in refused],
        )

    def _made(self, batch: Batch) -> tuple[list[tuple[int, New]], dict[int, str]]:
        """The jobs that can be made of a batch, and why others cannot, by number."""
        jobs: list[tuple[int, New]] = []
        why: dict[int, str] = {}
        for one in _alone(batch):
            try:
                jobs += self._jobs.ingested(one)
            except UNMADE as error:
                why[one.first] = str(error)
        return jobs, why


class _Behind:
    """What lies in the journal behind batches that the store refuses. None of it is taken out: it says whether the
    store takes any job at all."""

    def __init__(self, store: Store, journal: Journal, made: Callable[[Batch], Sequence[tuple[int, New]]]) -> None:
        """`made` are the jobs of a batch, without those that cannot be made."""
        self._store, self._journal, self._made = store, journal, made
        self._looked: Position | None = None
        """Where the last look ended: all up to here is refused."""
        self._takes: Position | None = None
        """The store takes something before this."""

    def forget(self) -> None:
        """Something was stored: the next time all is looked at anew."""
        self._looked = self._takes = None

    def has_some(self, token: Reserved) -> bool:
        """Whether the store takes any job behind these: then it refuses these, and not all."""
        if self._takes is not None and token.after < self._takes:
            return True
        at = token.after if self._looked is None else max(self._looked, token.after)
        until = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < until:
            batches, after = self._journal.look_behind(at, TRIED)
            if not batches:
                self._looked = None  # what is refused now may be taken later
                return False
            jobs = [job for batch in batches for job in self._made(batch)]
            parts = (jobs[start : start + TRIED] for start in range(0, len(jobs), TRIED))
            if any(len(self._store.refusals(part)) < len(part) for part in parts):
                self._takes = after
                return True
            self._looked = at = after
        return False


def _alone(batch: Batch) -> list[Batch]:
    """Each of its jobs as a batch."""
    return [replace(batch, first=n, payloads=(payload,)) for n, payload in enumerate(batch.payloads, batch.first)]
