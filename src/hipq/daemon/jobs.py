"""Jobs of tenants, as the daemon's front sees them: added through the journal, looked at and changed in the store.

A tenant has only its own: to anybody else they do not exist.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hipq.daemon import job_factory, payloads
from hipq.daemon.census import Census
from hipq.daemon.http.job_json import in_json
from hipq.daemon.job_factory import Options as Options
from hipq.daemon.written import Gathered, Written
from hipq.errors import NotFound
from hipq.job.model import Brief, New, Row, numbered
from hipq.job.states import EXECUTING, FINAL, WAITING
from hipq.job.when import later, to_datetime
from hipq.journal import Batch
from hipq.stores.filters import Filter
from hipq.stores.values import TOP, WaitingLane

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.daemon.http.feed import Feed
    from hipq.daemon.ids import Ids
    from hipq.journal import Journal
    from hipq.queue import Queue

DONE: Final = "__done"
"""The lock of a job that is archived."""
ARCHIVED: Final = 1000
"""Years by which `dt` of an archived job is later than its end."""
LANES: Final = 1000
COUNTED: Final = 1000
LOOKED_AT: Final = 5_000
"""Jobs that are looked at for one page: others wait meanwhile, so one who wants more asks again."""


class Page(NamedTuple):
    """Part of a list."""

    rows: list[Brief]
    next: int
    """The id behind which the next one begins; 0 = that was all."""


class Jobs:
    def __init__(
        self, app: Hipq, queue: Queue, journal: Journal, ids: Ids, feed: Feed, run_seconds: float = 3600.0
    ) -> None:
        self._app = app
        self._queue = queue
        self._ids = ids
        self._gathered = Gathered(Written(journal), ids, self.now)
        self._ahead = 0
        """Microseconds by which the store's clock is ahead of this machine's, as last seen."""
        self.events = feed
        self.run_seconds = run_seconds

    # -- adding -----------------------------------------------------------------------------------------------------
    def put(
        self, tenant: str, jobtype: str, some: Sequence[bytes], options: Options,
        done: Callable[[builtins.list[int] | Exception], None],
    ) -> None:  # fmt: skip
        """Add jobs without a key, from an event loop, on which `done` is called later: with their ids when they are in
        the journal, on disk, else with what went wrong. If this raises, it is never called."""
        count, queue = len(some), self._queue.number
        size = count
        for payload in some:
            payloads.check(payload)
            size += len(payload)
        text = "{}" if options == job_factory.PLAIN else msgspec.json.encode(options).decode()

        def written(first: int | Exception) -> None:
            done(first if isinstance(first, Exception) else [numbered(first + n, queue) for n in range(count)])

        self._gathered.put(tenant, jobtype, some, text, size, written)

    def add_to_store(self, tenant: str, jobtype: str, some: Sequence[bytes], options: Options) -> builtins.list[int]:
        """Add jobs with a key: only the store knows whether another live job has it."""
        for payload in some:
            payloads.check(payload)
        now, queue = self._app.store.now(), self._queue.number
        ids = self._ids.for_store(tenant, len(some))
        pairs = zip(ids, some, strict=True)
        news = [job_factory.job(queue, tenant, jobtype, payload, options, now, job_id) for job_id, payload in pairs]
        stored = self._app.store.enqueue(news, all_or_nothing=True)
        self._app.added(news, stored)
        return [one.id for one in stored]

    def now(self) -> int:
        """The store's time, without asking it: it may be away."""
        return time.time_ns() // 1000 + self._ahead

    def see_clock(self) -> None:
        self._ahead = self._app.store.now() - time.time_ns() // 1000

    def ingested(self, batch: Batch) -> list[tuple[int, New]]:
        """The jobs of a batch, with their ids."""
        options, queue = job_factory.loaded(batch.options), self._queue.number
        news = [job_factory.job(queue, batch.tenant, batch.jobtype, one, options, batch.date) for one in batch.payloads]
        return [(numbered(number, queue), new) for number, new in enumerate(news, batch.first)]

    def described(self, batch: Batch) -> str:
        """Which jobs these are, for people."""
        first, last = (numbered(batch.first + n, self._queue.number) for n in (0, len(batch.payloads) - 1))
        which = f"the job {first}" if first == last else f"{len(batch.payloads):,} jobs, {first} to {last}"
        return f"{which} of {batch.tenant}-{batch.jobtype}"

    # -- looking ----------------------------------------------------------------------------------------------------
    def get(self, tenant: str, job_id: int) -> Row:
        """Another tenant's job is not read: how long that takes would tell whether it is there, and how large it is."""
        wanted = Filter(self._queue.number, tenant=tenant, after=job_id - 1, until=job_id, limit=1)
        found = self._app.store.find(wanted)
        if not found:
            raise NotFound(f"there is no job {job_id}")
        return found[0]

    def seen_again(self, before: Row) -> Row:
        """The job as it is by now: it is read whole only if something has happened to it."""
        wanted = Filter(self._queue.number, tenant=before.tenant, after=before.id - 1, until=before.id, limit=1)
        found = self._app.store.find(wanted, brief=True)
        if found and found[0].token == before.token:
            return before
        return self.get(before.tenant, before.id)

    def payload(self, row: Row) -> bytes:
        return payloads.given(row.job_data)

    def result(self, row: Row) -> bytes:
        return payloads.given(row.result) if row.result else b""

    def list(
        self, tenant: str, *, type: str = "", state: str = "", phase: str = "", code: str = "", key: str = "",
        after: int = 0, limit: int = 100,
    ) -> Page:  # fmt: skip
        wanted = Filter(
            self._queue.number, job_type=type, job_key=key, state=state, phase=phase, tenant=tenant, code=code,
            after=after, limit=limit,
        )  # fmt: skip
        is_picky = type or phase or code or state not in ("", FINAL)  # else every job that is looked at is shown
        until = self._app.store.reach(wanted, LOOKED_AT) if is_picky else 0
        rows = self._app.store.find(wanted._replace(until=until), brief=True)
        return Page(rows, rows[-1].id if len(rows) == limit else until)

    def children(self, tenant: str, job_id: int, after: int = 0, limit: int = 100) -> Page:
        """Jobs that the handler of this one has added: they are of the same tenant."""
        parent = self.get(tenant, job_id)
        wanted = Filter(self._queue.number, parent=parent.id, after=after, limit=limit)
        rows = self._app.store.find(wanted, brief=True)
        return Page(rows, rows[-1].id if len(rows) == limit else 0)

    def census(self, tenant: str) -> Census:
        return Census(self._app.store, self._queue.number, tenant)

    def lanes(self) -> builtins.list[WaitingLane]:
        """The types of which jobs wait, of all tenants, and how many jobs, up to a thousand each."""
        found: builtins.list[WaitingLane] = []
        tenant = TOP
        while tenants := self._app.store.tenants(self._queue.number, tenant, LANES):
            for tenant in tenants:
                before = TOP
                while some := self._app.store.lanes(self._queue.number, {tenant: before}, LANES, COUNTED):
                    found += some
                    before = some[-1].lane
        return sorted(found)

    def usage(self, tenants: Sequence[str] | None = None) -> dict[str, tuple[int, int]]:
        """Jobs and bytes that are not final: of these tenants, or of all."""
        found = self._app.store.usage(self._queue.number, tenants)
        return {name: (one.jobs, one.size) for name, one in found.items()}

    def waiting(self, tenants: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The same with answers that no job has taken: what quotas are about."""
        found = self.usage(tenants)
        for name, one in self._app.store.usage(self._queue.number, tenants, of="answers").items():
            jobs, size = found.get(name, (0, 0))
            found[name] = (jobs + one.jobs, size + one.size)
        return found

    def ended(self, tenants: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Jobs that have ended, and bytes of them. Step by step: others have their turn in between."""
        found: dict[str, tuple[int, int]] = {}
        for name in tenants:
            jobs = size = after = 0
            while True:
                some, after = self._app.store.census(self._queue.number, name, "sizes", after, COUNTED)
                jobs, size = jobs + sum(one.jobs for one in some), size + sum(one.size for one in some)
                if not after:
                    break
            found[name] = (jobs, size)
        return found

    def why(self, tenant: str, job_id: int) -> dict[str, Any]:
        self.get(tenant, job_id)
        return dict(msgspec.to_builtins(self._app.why(job_id), enc_hook=str))

    def seen(self, row: Row) -> dict[str, Any]:
        """A job as the first design shows it: `dt` is when it may start; when its run is timed out; or, of one that is
        archived, a thousand years after it ended."""
        final = row.state == FINAL
        return {
            "id": str(row.id),
            "type": row.job_type,
            "dt": _archived(row) if final else _iso(self._run_timeout(row) or row.scheduled_run_time),
            "lock": DONE if final else str(row.owner) if row.owner else "",
            "data": None,
            **in_json("data", self.payload(row)),
            "create_dt": _iso(row.create_time),
            "done_dt": _iso(row.update_time) if final else None,
        }

    def _run_timeout(self, row: Row) -> int:
        """When the run of a job that executes is timed out; 0 if it does not execute."""
        if row.phase != EXECUTING:
            return 0
        return min(row.deadline, later(row.update_time, self.run_seconds))

    async def result_of(self, tenant: str, job_id: int, seconds: float) -> Row:
        """The job when it is final; or as it is, when that takes longer."""
        row = await asyncio.to_thread(self.get, tenant, job_id)
        if row.state != FINAL and seconds > 0:
            found = await self._app.database.results.ended(row, seconds)
            row = found if found is not None else await asyncio.to_thread(self.get, tenant, job_id)
        return row

    # -- changing ---------------------------------------------------------------------------------------------------
    def cancel(self, tenant: str, job_id: int, reason: str = "") -> Row:
        self.get(tenant, job_id)
        self._app.cancel(job_id, reason or "cancelled over HTTP")
        return self.get(tenant, job_id)

    def retry(self, tenant: str, job_id: int) -> Row:
        self.get(tenant, job_id)
        self._app.retry_now(job_id)
        return self.get(tenant, job_id)

    def is_awaited(self, tenant: str, type: str, key: str) -> bool:
        """Whether a job waits for an answer with this key."""
        wanted = Filter(self._queue.number, job_type=type, job_key=key, phase=WAITING, tenant=tenant, limit=1)
        return self._app.store.count(wanted) > 0

    def answer(
        self, tenant: str, type: str, key: str, data: bytes, *, answer_id: str = "", error: bool = False,
        attempt: int = 0,
    ) -> str:  # fmt: skip
        """Bring the answer a job waits for. It is the job's result, byte for byte, whatever it is made of."""
        payloads.check(data)
        new = self._queue.arrived(
            type, key, None, answer_id=answer_id or None, error=error, attempt=attempt or None,
            written=payloads.stored(data),
        )  # fmt: skip
        return self._app.answers.deliver([replace(new, tenant=tenant)])[0].outcome.value


def _archived(row: Row) -> str:
    ended = to_datetime(row.update_time)
    return ended.replace(year=ended.year + ARCHIVED).isoformat()


def _iso(moment: int) -> str:
    return to_datetime(moment).isoformat()
