"""What a daemon does beside its work: limits are kept up to date, what has ended is purged when nobody wants to look at
it any more, what is wrong with the journal is said, and it is noted whose journal it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from hipq.app import Hipq
from hipq.daemon.handlers.handlers import Handlers
from hipq.daemon.job_factory import ORDER
from hipq.daemon.joining import Joining
from hipq.daemon.take_over import note_engine
from hipq.engine import prune
from hipq.errors import HipqError
from hipq.journal import Journal
from hipq.limits.handlers import PerHandler
from hipq.limits.tenants import PerTenant
from hipq.queue import Queue

PRUNE_SECONDS: Final = 60.0
"""Seconds between two times that what has ended is purged, and that uses of tokens are written down."""
TIDY_SECONDS: Final = 1.0

_log = logging.getLogger("hipq")


class Upkeep:
    def __init__(self, app: Hipq, queue: Queue, journal: Journal, joining: Joining, keep: Callable[[], float]) -> None:
        """`keep`: seconds for which jobs that have ended are kept."""
        self._app, self._queue, self._journal, self._joining, self._keep = app, queue, journal, joining, keep
        self.handlers = Handlers(app.store, limits_changed=self._keep_limits_now)
        self._told = 0
        """How much of what is wrong with the journal was said."""

    def tell_findings(self) -> None:
        """What is wrong with the journal, found when it was opened or while it is read."""
        for finding in self._journal.found[self._told :]:
            _log.log(logging.ERROR if finding.is_damage else logging.WARNING, "journal: %s", finding)
            self._told += 1

    def keep_limits(self) -> None:
        """What a tenant may run at a time, and what a handler may, are limits like others: exact over all daemons."""
        found = self._joining.tenants.look().tenants.items()
        caps = {name: one.quotas.running for name, one in found if one.quotas.running}
        own = self.handlers.limits()
        limits = (*((PerTenant(caps),) if caps else ()), *((PerHandler(own),) if own else ()))
        store, queue = self._app.store, self._queue.number
        rules = store.rules(queue)  # not what we wrote: another daemon may have known less
        if rules.limits != limits or rules.order != ORDER:
            store.change_rules(queue, lambda rules: replace(rules, limits=limits, order=ORDER))

    def _keep_limits_now(self) -> None:
        """A handler has come with another limit: it holds when whoever has put it hears so."""
        if self._joining.done.is_set():
            with suppress(HipqError):  # then it holds within a second
                self.keep_limits()

    def run(self, stopping: threading.Event, engine_id: Callable[[], int]) -> None:
        """Until the daemon stops. `engine_id`: of the engine that works here by now."""
        steady, purge_at, noted = self._app.database.steady, 0.0, 0
        while not stopping.wait(TIDY_SECONDS):
            self._told -= self._journal.forget_gone()
            self.tell_findings()
            self._journal.look()
            if not self._joining.done.is_set():
                continue
            try:
                if noted != (now := engine_id()):
                    note_engine(self._app.store, self._journal.identity, now)
                    noted = now
                self.keep_limits()
                self._joining.keep()
                if steady() >= purge_at:
                    self._joining.tenants.uses.save()
                    self.purge(stopping)
                    purge_at = steady() + PRUNE_SECONDS * 1e6
            except HipqError as error:
                _log.debug("what has ended could not be purged: %s", error)
            except Exception:
                _log.exception("quotas could not be kept, or what has ended could not be purged")

    def purge(self, stopping: threading.Event) -> None:
        store = self._app.store
        before = store.now() - round(self._keep() * 1e6)
        for _ in prune.prune(store, self._queue.number, (before, 0)):
            if stopping.is_set():
                break
