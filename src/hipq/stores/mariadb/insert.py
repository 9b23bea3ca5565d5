"""Adding jobs, on a connection of ours or on a user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from hipq.job.model import New
from hipq.stores import large
from hipq.stores.mariadb.dialect import MariaSql, Text, check, in_json
from hipq.stores.mariadb.flavour import Flavour
from hipq.stores.sql.insert import SqlInsert, inserted
from hipq.stores.sql.statements import Statements

CHUNK: Final = 1000
"""Rows in one statement,"""
LARGEST: Final = 4 << 20
"""and characters: the server takes 16 MB by default."""


def keep(sql: MariaSql, payloads: Iterable[tuple[int, str]]) -> None:
    """Put large payloads aside, in the transaction that stores their rows."""
    query = "INSERT INTO hipq_payloads (id, data) VALUES (%(id)s, %(data)s) ON DUPLICATE KEY UPDATE data = VALUES(data)"
    for job_id, data in large.oversized(payloads):
        check([data])
        sql.execute(query, {"id": job_id, "data": data})


def chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    """Rows that fit into one statement."""
    some: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        length = sum(len(value) for value in row if type(value) is str)
        if some and (len(some) == CHUNK or size + length > LARGEST):
            yield some
            some, size = [], 0
        some.append(row)
        size += length
    if some:
        yield some


class Insert(SqlInsert):
    """`flavour`: of the server, once it is known."""

    def __init__(self, statements: Statements[Text], flavour: Any) -> None:
        super().__init__(statements)
        self._flavour = flavour

    def _sql(self, conn: Any) -> MariaSql:
        return MariaSql(conn, self._statements)

    def _fresh(self, conn: Any, queue: int, count: int) -> list[int]:
        flavour: Flavour = self._flavour()
        nulls = ", ".join(["(NULL)"] * count)
        query = flavour.take_ids.format(live=self._statements.table(queue), count=count, nulls=nulls)
        cursor = self._sql(conn).execute(query, {})
        if cursor.description:
            return [number for (number,) in cursor.fetchall()]
        first = cursor.lastrowid
        ((step,),) = self._sql(conn).rows_of("SELECT @@auto_increment_increment")
        last = first + step * (count - 1)
        self._sql(conn).execute(
            f"DELETE FROM {self._statements.table(queue)}_ids WHERE id BETWEEN {first} AND {last}", {}
        )
        return list(range(first, last + 1, step))

    def _put(self, conn: Any, queue: int, jobs: Sequence[tuple[int, New]], may_copy: bool) -> set[int]:  # noqa: ARG002
        sql, query, added = self._sql(conn), self._statements.of("insert", queue), set[int]()
        wanted = {(job_id, job.create_time) for job_id, job in jobs}
        for rows in chunks(inserted(job_id, job) for job_id, job in jobs):
            found = sql.run(query, {"rows": in_json(rows)})
            if not self._flavour().has_returning:
                found = sql.found("added", queue, ids=[row[0] for row in rows])
            # In the place of one whose key, or number, was taken comes the job that has it.
            added |= {job_id for job_id, at in found if (job_id, at) in wanted}
        keep(sql, ((job_id, job.job_data) for job_id, job in jobs if job_id in added))
        return added
