"""Adding jobs: ids from the queue's sequence, rows in as few statements as there can be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from hipq.errors import DuplicateKey, StoreUnavailable
from hipq.job.model import New, numbered
from hipq.stores import large
from hipq.stores.refusals import renamed, taken
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.statements import Statements
from hipq.stores.values import Stored

TRIES: Final = 10
INSERTED: Final = (
    "id", "tenant", "lane", "job_type", "job_key", "job_data", "phase", "rank", "priority", "throttle_factor",
    "time_windows", "timeout", "scheduled_run_time", "create_time", "update_time", "meta",
)  # fmt: skip
"""What insert.sql gets of a new job."""


def inserted(job_id: int, job: New) -> tuple[Any, ...]:
    return (
        job_id, job.tenant, job.lane, job.job_type, job.job_key or str(job_id), large.inline(job.job_data), job.phase,
        job.rank, job.priority, job.throttle_factor, job.time_windows, job.timeout, job.scheduled_run_time,
        job.create_time, job.create_time, job.meta,
    )  # fmt: skip


class Wanted(msgspec.Struct):
    """A key to look for. `position`: the number of the job or the answer, or the id of the job, that it belongs to."""

    position: int
    tenant: str
    job_type: str
    job_key: str


def in_json(rows: Iterable[Any]) -> str:
    """Rows as one parameter. Lists, one per column, cost the client seven to forty times as much."""
    return msgspec.json.encode(list(rows)).decode()


class SqlInsert(ABC):
    """Adding jobs to a database in which several connections may do so at the same time."""

    def __init__(self, statements: Statements[Any]) -> None:
        self._statements = statements

    def many(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool, may_copy: bool = True) -> list[Stored]:
        """Add jobs of any size, in the open transaction."""
        stored: dict[int, Stored] = {}
        todo: Sequence[int] = range(len(jobs))
        reserved = [job.id for job in jobs]
        for _ in range(TRIES):
            by_queue: dict[int, list[int]] = {}
            for index in todo:
                by_queue.setdefault(jobs[index].queue, []).append(index)
            for queue in sorted(by_queue):  # in an order all share, as the keys within each: so nobody deadlocks
                ids = self._take_ids(conn, queue, [reserved[index] for index in by_queue[queue]])
                pairs = list(zip(ids, by_queue[queue], strict=True))
                stored |= self._add(conn, queue, jobs, pairs, may_copy)
            refused = [(index, jobs[index]) for index in todo if index not in stored and jobs[index].job_key]
            for index, holder in sorted(self._holders(conn, refused).items()):
                stored[index] = duplicate(jobs[index], holder, all_or_nothing)
            # Left are jobs without a key whose id somebody chose as a key, and those whose key was given up meanwhile.
            todo = [index for index in todo if index not in stored]
            if not todo:
                return [stored[index] for index in range(len(jobs))]
            reserved = [0] * len(jobs)
        raise restless([jobs[index] for index in todo])

    def _add(
        self, conn: Any, queue: int, jobs: Sequence[New], pairs: list[tuple[int, int]], may_copy: bool
    ) -> dict[int, Stored]:
        """The jobs that were added, by their positions in `jobs`."""
        if any(jobs[index].job_key for _, index in pairs):
            pairs.sort(key=lambda pair: _whole_key(jobs[pair[1]]))
        added = self._put(conn, queue, [(job_id, jobs[index]) for job_id, index in pairs], may_copy)
        return {index: Stored(job_id) for job_id, index in pairs if job_id in added}

    def given(self, conn: Any, jobs: Sequence[tuple[int, New]]) -> None:
        """Add jobs under ids that were given out before. DuplicateKey if one has a key that is taken."""
        by_queue: dict[int, list[tuple[int, New]]] = {}
        for job_id, job in jobs:
            by_queue.setdefault(job.queue, []).append((job_id, job))
        for queue, some in sorted(by_queue.items()):
            if there := self._there(conn, queue, [job_id for job_id, _ in some]):
                raise taken(there)
            if any(job.job_key for _, job in some):
                some.sort(key=lambda pair: _whole_key(pair[1]))
            added = self._put(conn, queue, some, True)
            keyed = list(enumerate(job for job_id, job in some if job.job_key and job_id not in added))
            holders = self._holders(conn, keyed)
            for number, job in keyed:
                if number not in holders:
                    raise restless([job])  # whose key was given up meanwhile
                raise DuplicateKey(job.job_type, job.job_key, holders[number])
            if left := renamed(some, added):
                self._put(conn, queue, left, False)

    def _take_ids(self, conn: Any, queue: int, reserved: list[int]) -> list[int]:
        """These ids, with new ones in place of 0."""
        if not (count := reserved.count(0)):
            return reserved
        fresh = iter(self._fresh(conn, queue, count))
        return [job_id or numbered(next(fresh), queue) for job_id in reserved]

    @abstractmethod
    def _fresh(self, conn: Any, queue: int, count: int) -> list[int]:
        """Take this many numbers of the queue's sequence."""

    @abstractmethod
    def _put(self, conn: Any, queue: int, jobs: Sequence[tuple[int, New]], may_copy: bool) -> set[int]:
        """Write jobs whose keys are free, with their payloads. Returns the ids of those that were written."""

    @abstractmethod
    def _sql(self, conn: Any) -> Sql:
        """This connection, which may be a user's own."""

    def _there(self, conn: Any, queue: int, ids: list[int]) -> list[int]:
        """Which of these ids jobs have, live or final."""
        return [job_id for (job_id,) in self._sql(conn).found("there", queue, ids=ids)]

    def _holders(self, conn: Any, refused: list[tuple[int, New]]) -> dict[int, int]:
        """The ids of the live jobs that have the keys of these, by the numbers given with them."""
        found: dict[int, int] = {}
        for queue in {job.queue for _, job in refused}:
            wanted = [Wanted(n, job.tenant, job.job_type, job.job_key) for n, job in refused if job.queue == queue]
            found |= dict(self._sql(conn).found("holders", queue, rows=in_json(wanted)))
        return found


def _whole_key(job: New) -> str:
    return f"{job.job_key}\0{job.job_type}\0{job.tenant}"


def duplicate(job: New, holder: int, all_or_nothing: bool) -> Stored:
    if all_or_nothing:
        raise DuplicateKey(job.job_type, job.job_key, holder)
    return Stored(holder, duplicate=True)


def restless(jobs: list[New]) -> StoreUnavailable:
    names = ", ".join(repr(job.job_key) for job in jobs[:3])
    return StoreUnavailable(f"the jobs with the keys {names} come and go too fast to add another; try again")
