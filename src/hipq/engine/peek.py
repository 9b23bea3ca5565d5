"""A look at what there is to do, now and next: after something happened, and once a poll as a safety net."""

from __future__ import annotations

from collections.abc import Sequence

from hipq.engine.batch import Batch
from hipq.engine.due import Due
from hipq.engine.lease import Lease
from hipq.engine.queue_watch import QueueWatches
from hipq.engine.setup import Setup
from hipq.engine.stage import STEP
from hipq.engine.timetable import Timetable
from hipq.job.states import PARKED
from hipq.stores.claims import Peek


class Peeks:
    def __init__(
        self, setup: Setup, watches: QueueWatches, batch: Batch, lease: Lease, due: Due, timetable: Timetable
    ) -> None:
        self._setup = setup
        self._watches = watches
        self._batch = batch
        self._lease = lease
        self._due = due
        self._timetable = timetable
        self.idle = False
        """Nothing was due and nothing executed at the last peek."""

    def look(self, now: int) -> None:
        began = self._setup.steady()
        wanted = [(watch.queue.number, watch.queue.types) for watch in self._watches.served()]
        found = self._setup.store.peek(wanted, self._watches.strategies)
        self._lease.part_with_cancelled(now, began)
        self._timetable.peeks.looked(began, self._setup.steady())
        for peek in found:
            self._watches[peek.queue].peeked(peek)
        self._lease.seen_owned = bool(self._watches.locked) or any(peek.owned for peek in found)
        self.idle = not (self._work(found, now) or self._batch.in_flight or self._due.more_answers)
        self._timetable.peeked(began)

    def _work(self, found: Sequence[Peek], now: int) -> bool:
        """Whether there is something to do, here or for another engine, that no time need pass for."""
        reminded = [self._remind(peek) for peek in found if peek.parked or peek.ready]
        return (
            self._lease.seen_owned
            or any(reminded)
            or any(0 < moment <= now for peek in found for moment in (peek.next_start, peek.next_deadline))
            or any(peek.ready and self._watches[peek.queue].retry_at != 0 for peek in found)
            or any(watch.closed or (watch.throttling and watch.throttling.busy) for watch in self._watches)
        )

    def _remind(self, peek: Peek) -> bool:
        """Jobs wait there: ask the throttler about them (again) or, where no throttler is left, make parked ones ready;
        whether some are."""
        watch = self._watches[peek.queue]
        if watch.throttling:
            watch.throttling.remind(peek.ready, round(self._setup.poll * 1e6))
            return False
        if not peek.parked or self._setup.store.rules(peek.queue).throttled:
            return False
        watch.claim_again()
        return self._setup.store.stage(peek.queue, PARKED, 0, STEP) > 0
