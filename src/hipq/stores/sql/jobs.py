"""The verbs that read jobs, prune them, and keep the leases of engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import msgspec

from hipq.job.model import LISTED, Brief, Row, queue_of
from hipq.job.progress import Report, Reported
from hipq.job.states import READY, SCHEDULED, WAITING
from hipq.job.when import LATEST
from hipq.stores.filters import HIGHEST, Filter
from hipq.stores.rule_claims import ALL, START
from hipq.stores.sql.dialect import Dialect, Sql
from hipq.stores.sql.rule_claims import Rulebook
from hipq.stores.values import EARLIEST, Counts, Crew, Depth, EndPlace, EngineSeen, Pruned


class JobVerbs(Dialect):
    _rulebook: Rulebook

    # -- jobs by their ids ------------------------------------------------------------------------------------------
    def get(self, job_id: int) -> Row | None:
        if not 0 < job_id < 1 << 63 or not self._statements.knows(queue_of(job_id)):
            return None
        with self._reading() as sql:
            found = sql.rows("get", queue_of(job_id), id=job_id)
        return found[0] if found else None

    def ended(self, ids: Sequence[int]) -> list[Row]:
        return self._rows_of_each("ended", sorted({queue_of(job_id) for job_id in ids}), ids=list(ids))

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        found: dict[int, int] = {}
        with self._reading() as sql:
            for query in sql.of_each("tokens", sorted({queue_of(job_id) for job_id in ids})):
                found |= dict(sql.run(query, {"ids": list(ids)}))
        return found

    # -- how far they have come -------------------------------------------------------------------------------------
    def report(self, reports: Sequence[Report], now: int) -> set[int]:
        by_queue: dict[int, list[Report]] = {}
        for one in reports:
            by_queue.setdefault(queue_of(one.id), []).append(one)

        def work(sql: Sql) -> set[int]:
            stored: set[int] = set()
            for queue, some in sorted(by_queue.items()):
                rows = msgspec.json.encode(some).decode()
                stored |= {job_id for (job_id,) in sql.found("report", queue, rows=rows, now=now)}
            return stored

        return self._transaction(work, patient=False)

    def progress(self, job_id: int, attempt: int) -> Reported | None:
        with self._reading() as sql:
            found = sql.found("progress", id=job_id, attempt=attempt)
        return Reported(*found[0]) if found else None

    def _prune_progress(self, queues: Sequence[int], limit: int) -> int:
        with self._reading() as sql:
            some = {queue for (queue,) in sql.found("progress_queues")}
        return sum(self._changed_if_any("progress_prune", queue, limit=limit) for queue in sorted(some & set(queues)))

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        if engine_id is not None:
            return self._rows_of_each("owned", queues, engine_id=engine_id, limit=limit)
        found = self._rows_of_each("orphans", queues, limit=limit, **self._lease_time())
        return sorted(found, key=lambda row: row.id)

    def _rows_of_each(self, name: str, queues: Sequence[int], **values: Any) -> list[Row]:
        if not queues:
            return []
        with self._reading() as sql:
            return [row for query in sql.of_each(name, queues) for row in sql.read(Row, query, values)]

    # -- jobs by filter ---------------------------------------------------------------------------------------------
    @overload
    def find(self, wanted: Filter, *, brief: Literal[True]) -> list[Brief]: ...
    @overload
    def find(self, wanted: Filter) -> list[Row]: ...
    def find(self, wanted: Filter, *, brief: bool = False) -> list[Brief] | list[Row]:
        selected = ", ".join(LISTED) if brief else self._statements.columns
        pages = [(table, {**self._page_or_few(one, table), "selected": selected}) for table, one in wanted.parts]
        if not pages:
            return []
        around = f"SELECT * FROM ({{}}) AS found ORDER BY id{wanted.order} LIMIT :limit"
        query = self._of_tables("find", wanted.queue, pages, around)
        with self._listing(wanted) as sql:
            return sql.read(Brief if brief else Row, query, wanted._asdict(), once=True)

    def having(self, queues: Sequence[int], wanted: Filter) -> list[int]:
        name = "has_child" if wanted.parent else "has_key"
        first = wanted.job_key or wanted.prefix
        values = {"parent": wanted.parent, "first": first, "last": wanted.job_key or f"{first}{HIGHEST}"}
        with self._reading() as sql:
            return sorted(queue for query in sql.of_each(name, queues) for (queue,) in sql.run(query, values))

    def reach(self, wanted: Filter, rows: int) -> int:
        pages = [(table, self._page(part.walked, table)) for table, part in wanted.parts]
        last = {"selected": "id", "limit": "1 OFFSET :passed"}
        some = [(table, {**page, **last}) for table, page in pages if page["limit"] != "ALL"]  # those are few
        if not some:
            return 0
        farthest = "max" if wanted.newest else "min"
        query = self._of_tables("find", wanted.queue, some, f"SELECT coalesce({farthest}(id), 0) FROM ({{}}) AS found")
        with self._listing(wanted) as sql:
            ((last_id,),) = sql.run(query, wanted._asdict() | {"passed": rows - 1}, once=True)
        return int(last_id)

    def count(self, wanted: Filter) -> int:
        pages = [(table, self._page(one, table)) for table, one in wanted.parts]
        if not wanted.until:  # else it is to be read between two ids
            parts = zip(pages, wanted.parts, strict=True)
            pages = [(table, {**page, "where": self._condition(one)}) for (table, page), (_, one) in parts]
        if not pages:
            return 0
        around = "SELECT count(*) FROM (SELECT 1 FROM ({}) AS found LIMIT :limit) AS counted"
        query = self._of_tables("count", wanted.queue, pages, around)
        with self._listing(wanted) as sql:
            ((count,),) = sql.run(query, wanted._asdict(), once=True)
        return int(count)

    def counts(self, queue: int, most: int, failed_since: int, ended_since: int) -> Counts:
        with self._reading() as sql:
            others = [Depth(*one) for one in sql.found("depth_others", queue, most=most)]
            more = sql.found("depth_more", queue, most=most, failed_since=failed_since, ended_since=ended_since)
        due = {one.phase: one.due for one in others}
        counted = {one.phase: one.jobs for one in others} | dict(more)
        return Counts(**counted, next_start=due[SCHEDULED], next_timeout=due[WAITING])

    def waiting_types(self, queue: int, most: int = 1 << 62, *, todo: bool = False) -> list[str]:
        with self._reading() as sql:
            found = sql.found("todo_types", queue, most=most) if todo else sql.found("waiting_types", queue)
        return list(dict.fromkeys(name for (name,) in found))[:most]

    def depth(self, queue: int, types: Sequence[str], most: int) -> list[Depth]:
        found: list[Depth] = []
        with self._reading() as sql:
            for name in types:
                ((phase, jobs, due),) = sql.found("depth_ready", queue, type=name, most=most)
                found.append(Depth(phase, jobs, due, name))
            return found + [Depth(*one) for one in sql.found("depth_others", queue, most=most)]

    def _page_or_few(self, wanted: Filter, table: str) -> Mapping[str, str]:
        """The parts of find.sql. If all matching jobs have to be sorted, only their ids are, and then the rows on the
        page are read."""
        page = self._page(wanted, table)
        if not wanted.few:
            return page
        ids = self._statements.text("find", wanted.queue, table=f"{{{table}}}", selected="id", **page)
        few = f"id IN (SELECT id FROM ({ids}) AS few)"
        return {"where": few, "by": "", "order": f"id{wanted.order}", "limit": ":limit"}

    def _of_tables(self, name: str, queue: int, pages: Sequence[tuple[str, Mapping[str, str]]], around: str) -> Any:
        """One statement around those of a file for each of these tables."""
        found = [self._statements.text(name, queue, **{"table": f"{{{table}}}", **page}) for table, page in pages]
        parts = " UNION ALL ".join(f"SELECT * FROM ({one}) AS one" for one in found)
        return self._statements.spell(around.format(parts))

    # -- what an engine has to decide on ----------------------------------------------------------------------------
    def due(
        self, queue: int, phase: str, now: int, limit: int, types: Sequence[str] = (), windows: Sequence[str] = ()
    ) -> list[Row]:
        with self._reading() as sql:
            if phase == READY:
                return self._outside_window(sql, queue, types, windows, limit)
            return sql.rows("overdue" if phase == WAITING else "unranked", queue, now=now, limit=limit)

    def _outside_window(
        self, sql: Sql, queue: int, types: Sequence[str], windows: Sequence[str], limit: int
    ) -> list[Row]:
        found: list[Row] = []
        heads = self._rulebook.reader(sql, queue, LATEST).heads(types, START, ALL)
        for job_type, lane, shut, _ in {h.group._replace(factor=0) for h in heads if h.group.time_windows in windows}:
            left = limit - len(found)
            found += sql.rows("ready_outside_window", queue, type=job_type, lane=lane, windows=shut, limit=left)
        return found

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "",
        code: str = "", tenant: str = "", keep: int | None = None,
    ) -> Pruned:  # fmt: skip
        if keep is not None:
            with self._reading(long=True) as sql:
                for ended_at, job_id in sql.found("newest", queue, count=keep):
                    before = max(before, (ended_at, job_id + 1))
        deleted, last = self._prune(
            queue, before_time=before[0], before_id=before[1], after_time=after[0], after_id=after[1], limit=limit,
            job_type=job_type, code=code, tenant=tenant,
        )  # fmt: skip
        return Pruned(deleted, last, before)

    @abstractmethod
    def _prune(self, queue: int, **values: Any) -> tuple[int, EndPlace | None]:
        """Do one step of a prune. Returns how many jobs were deleted, and the last place that was looked at."""

    # -- engines and their leases -----------------------------------------------------------------------------------
    def take_lease(self, seconds: float, label: str, serves: str = "{}", version: str = "", since: int = 0) -> int:
        told = {"label": label, "serves": serves, "version": version, "since": since}
        with self._writing() as sql:
            self._forget_leases(sql)
            ((engine_id,),) = sql.found("take_lease", seconds=seconds, **told, **self._lease_time())
        return int(engine_id)

    def _forget_leases(self, sql: Sql) -> None:
        """Delete the leases that are over, where take_lease.sql does not."""

    def renew_lease(self, engine_id: int, seconds: float) -> Crew | None:
        with self._writing() as sql:
            if not seconds:
                sql.changed("drop_lease", engine_id=engine_id)
                return None
            found = sql.found("renew_lease", engine_id=engine_id, seconds=seconds, **self._lease_time())
        for size, place, now in found:
            self._clock_said(now)
            return Crew(size, place)
        return None

    def _clock_said(self, now: int) -> None:
        """Learn what the database's clock, if it has one, says now."""

    def engines(self) -> list[EngineSeen]:
        with self._reading() as sql:
            return self._engines(sql)

    def _engines(self, sql: Sql) -> list[EngineSeen]:
        return [EngineSeen.of(*row) for row in sql.found("engines", **self._lease_time())]
