"""The store becomes as a daemon needs it: when that starts or, if the store is away then, once it is there."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from hipq.app import Hipq
from hipq.daemon.ingest import check_database
from hipq.daemon.known import Known
from hipq.daemon.tenancy.tenants import Tenants
from hipq.errors import StoreUnavailable
from hipq.journal import Journal
from hipq.queue import Queue

_log = logging.getLogger("hipq")


class Joining:
    def __init__(self, app: Hipq, queue: Queue, journal: Journal) -> None:
        self._app, self._queue, self._journal = app, queue, journal
        self.known = Known(journal)
        with suppress(StoreUnavailable):
            check_database(app, journal)
        self.tenants = Tenants(app.store)
        self.done = threading.Event()
        """The store is known to be as this program needs it."""

    def join(self) -> None:
        """Bring the store to what this program needs, and learn from it what a start without it takes."""
        if self.done.is_set():
            return
        check_database(self._app, self._journal)
        self._app.migrate()
        self.tenants.look()
        self.keep(queue=self._queue.number)
        self.done.set()

    def keep(self, **changed: object) -> None:
        """What was learnt of the store by now is there at a start without it."""
        self.known.keep(tenants=dict(self.tenants.texts), **changed)

    def join_or_recall(self) -> None:
        try:
            self.join()
        except StoreUnavailable as error:
            if not self.known.facts.queue:
                raise  # what it would accept could not be given an id
            _log.warning("the store is away, and jobs are accepted for it: %s", error)
            self._queue.recall(self.known.facts.queue)
            self.tenants.recall(self.known.facts.tenants)
