"""Changes of many jobs of a tenant, step by step. A step looks at a bounded number of jobs, so that others have their
turn in between; and whoever asks is told how far it got, and asks again. So nothing is lost if the daemon dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from hipq.errors import Conflict, Invalid
from hipq.job import names
from hipq.job.event_names import JobEvent
from hipq.job.model import Row
from hipq.job.states import FINAL
from hipq.operate import Changed, Operator
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.daemon.ids import Ids
    from hipq.queue import Queue

LOOKED_AT: Final = 5_000
"""Jobs that one step looks at."""
STEP: Final = 100
"""Jobs that one step changes, in one transaction."""
MOST: Final = 1_000_000
"""Where counting stops."""


class Found(NamedTuple):
    """What one step found."""

    rows: list[Row]
    after: int
    """The id behind which the next step begins; 0 = that was all."""


class Bulk:
    def __init__(self, app: Hipq, queue: Queue, ids: Ids) -> None:
        self._app, self._store, self._queue, self._ids = app, app.store, queue, ids

    def wanted(self, tenant: str, table: str, before: int, after: int = 0, **filters: Any) -> Filter:
        """Jobs of a tenant that were added before a moment."""
        columns = {"type": "job_type", "key": "job_key"}
        said = {columns.get(name, name): value for name, value in filters.items()}
        if said.get("state") and (said["state"] == FINAL) != (table == "final"):
            ended = "have ended" if table == "final" else "have not ended"
            raise Invalid(f"this is about jobs that {ended}: none of them is {said['state']}")
        return Filter(self._queue.number, tenant=tenant, table=table, before=before, after=after, **said)

    def now(self) -> int:
        return self._store.now()

    def count(self, wanted: Filter) -> tuple[int, int]:
        """How many there are among those that one step looks at, and where the next one begins."""
        until = self._store.reach(wanted, LOOKED_AT)
        return self._store.count(wanted._replace(until=until, limit=LOOKED_AT)), until

    def find(self, wanted: Filter) -> Found:
        until = self._store.reach(wanted, LOOKED_AT)
        rows = self._store.find(wanted._replace(until=until, limit=STEP))
        return Found(rows, rows[-1].id if len(rows) == STEP else until)

    def cancel(self, rows: list[Row], reason: str) -> Changed:
        operator = Operator(self._app)
        move = operator.cancel(names.reason(reason or "cancelled over HTTP"))
        return operator.all_of(rows, move, JobEvent.CANCELLED).counted

    def retry(self, rows: list[Row], _reason: str = "") -> Changed:
        operator = Operator(self._app)
        return operator.all_of(rows, operator.run_now, JobEvent.HURRIED).counted

    def requeue(self, tenant: str, rows: list[Row]) -> list[int]:
        """Add a job like each of these, which have ended; one whose key a live job has is left out. Their ids are the
        tenant's own: they tell nothing of what others add."""
        operator, ids = Operator(self._app), self._ids.for_store(tenant, len(rows))
        news = [replace(operator.like(row), id=job_id) for row, job_id in zip(rows, ids, strict=True)]
        stored = self._store.enqueue(news)
        self._app.added(news, stored)
        return [one.id for one in stored if not one.duplicate]

    def requeue_one(self, row: Row) -> int:
        if row.state != FINAL:
            raise Conflict(f"job {row.id} is {row.state} ({row.phase}): it has not ended")
        added = self.requeue(row.tenant, [row])
        if not added:
            raise Conflict(f"a live job has the key of job {row.id}: none was added")
        return added[0]
