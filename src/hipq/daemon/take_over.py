"""Taking over the journal of a daemon whose machine does not come back: what it accepted comes into the store.

It goes the way of the daemon itself, `Ingest`: the store's place in the journal moves on in the transaction that stores
the jobs. So it may be killed anywhere and run again, run twice at once, or run although its daemon comes back after
all: each job is stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from hipq.app import Hipq
from hipq.daemon.http.feed import Feed
from hipq.daemon.ids import journal_ids
from hipq.daemon.ingest import Ingest, check_database, has_tables
from hipq.daemon.jobs import Jobs
from hipq.daemon.known import Known
from hipq.daemon.options import APP, QUEUE
from hipq.errors import Invalid, JournalRefused
from hipq.journal import Journal, JournalFinding
from hipq.journal.folder import Folder
from hipq.journal.recover import outline
from hipq.stores.notes import note
from hipq.stores.protocols import Store

ENGINE: Final = "journal engine"
"""The kind of notes that say which engine works beside a journal, by the journal's identity."""


class TakenOver(NamedTuple):
    journal: str
    """The identity of the journal."""
    jobs: int
    """Jobs that the store had not got. Those that it refuses are among them, and in quarantine."""
    found: list[JournalFinding]


def note_engine(store: Store, journal: str, engine_id: int) -> None:
    """This engine works beside this journal: while it lives, nobody takes that over."""
    store.change_note(ENGINE, journal, lambda _: str(engine_id))


def take_over(folder: str, db: str, stored: Callable[[int], None]) -> TakenOver:
    """Store what is in a journal. `stored` is called with how many jobs more were. JournalRefused if its daemon lives,
    or the journal is another database's; StoreUnavailable."""
    with ExitStack() as opened:
        app = Hipq(APP, db)
        opened.callback(app.close)
        if not has_tables(app.url) or not any(one.name == QUEUE for one in app.store.queues(APP)):
            raise Invalid("no daemon has used this database")
        _check_daemon_is_dead(app.store, _identity(folder))  # before the journal is opened, which cuts off its end
        journal = Journal(folder)
        opened.callback(journal.close)
        check_database(app, journal)
        queue = app.queue(QUEUE)
        ids = journal_ids(app.store, queue.number, journal.identity, Known(journal))
        ingest = Ingest(app.store, journal, Jobs(app, queue, journal, ids, Feed(app.events)), ids, lambda *_: None)
        ingest.begin()
        ids.reserve()  # all that its daemon may have given out lie below these
        jobs = journal.waiting_jobs
        while left := journal.waiting_jobs:
            ingest.step()
            stored(left - journal.waiting_jobs)
        ids.all_stored()
        return TakenOver(journal.identity, jobs, list(journal.found))


def _identity(folder: str) -> str:
    found = Folder(folder, make=False)
    try:
        segments = outline(found).segments
        return found.identity() or (segments[-1].journal if segments else "")
    finally:
        found.close()


def _check_daemon_is_dead(store: Store, journal: str) -> None:
    said = note(store, ENGINE, journal)
    for engine in store.engines():
        if str(engine.engine_id) == said:
            raise JournalRefused(
                f"the daemon of this journal is alive ({engine.label}): stop it, or wait until its lease is over, in "
                f"{max(engine.lease, 1):.0f} seconds if its machine is gone"
            )
