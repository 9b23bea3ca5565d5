"""The ceiling on PostgreSQL: the same tables, indexes, batches and durability, in plain SQL with nothing around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from bench.raw.sqlite import row
from hipq.job.answer import KEPT
from hipq.job.model import COLUMNS

_NAMES = ", ".join(COLUMNS)
_MARKS = ", ".join(["%s"] * len(COLUMNS))


class RawPostgres:
    def __init__(self, url: str, table: str, queue: int) -> None:
        self._conn = psycopg.connect(url, autocommit=True)
        self._conn.prepare_threshold = 1
        for name in ("enable_seqscan", "enable_mergejoin", "enable_hashjoin", "enable_bitmapscan"):
            self._conn.execute(f"SET {name} = off")  # nobody analyzed these tables: the plans must be good without it
        self._conn.execute("SET max_parallel_workers_per_gather = 0")
        self._table = table
        self._queue = queue
        (self._sequence,) = self._one(
            "SELECT relname FROM pg_class WHERE relkind = 'S' AND relname LIKE %s", f"{table}%"
        )

    def _one(self, query: str, *values: Any) -> tuple[Any, ...]:
        found = self._conn.execute(query, values).fetchone()
        assert found is not None
        return tuple(found)

    def close(self) -> None:
        self._conn.close()

    def vacuum(self) -> bool:
        """As autovacuum does."""
        self._conn.execute(f"VACUUM ANALYZE {self._table}")
        return True

    def counts(self) -> tuple[int, int]:
        """How many jobs are live, and how many are done as they should be."""
        query = (
            f"SELECT (SELECT count(*) FROM {self._table}), "
            f"(SELECT count(*) FROM {self._table}_final WHERE state = 'final' AND error = 'NONE')"
        )
        live, done = self._one(query)
        return live, done

    def insert_one_by_one(self, payloads: Sequence[str]) -> None:
        """One round trip each: the id from the sequence in the same statement."""
        names = ", ".join(name for name in COLUMNS if name not in ("id", "job_key"))
        marks = ", ".join(["%s"] * (len(COLUMNS) - 2))
        query = (
            f"WITH fresh AS (SELECT nextval('{self._sequence}') << 16 | {self._queue} AS id) "
            f"INSERT INTO {self._table} (id, job_key, {names}) SELECT id, id::text, {marks} FROM fresh RETURNING id"
        )
        for data in payloads:
            values = row(0, "", data, time.time_ns() // 1000)
            self._conn.execute(query, (*values[1:4], *values[5:])).fetchone()

    def insert_many(self, payloads: Sequence[str], keys: Sequence[str] | None) -> None:
        """COPY to a temporary table, then INSERT ... ON CONFLICT."""
        now = time.time_ns() // 1000
        conn = self._conn
        with conn.transaction(), conn.cursor() as cursor:
            cursor.execute(
                f"SELECT nextval('{self._sequence}') << 16 | {self._queue} FROM generate_series(1, %s)",
                (len(payloads),),
            )
            ids = [one[0] for one in cursor.fetchall()]
            names = keys or [""] * len(payloads)
            cursor.execute(f"CREATE TEMP TABLE raw_load (LIKE {self._table}) ON COMMIT DROP")
            with cursor.copy(f"COPY raw_load ({_NAMES}) FROM STDIN") as copy:
                for job_id, key, data in zip(ids, names, payloads, strict=True):
                    copy.write_row(row(job_id, key, data, now))
            cursor.execute(
                f"INSERT INTO {self._table} SELECT * FROM raw_load ON CONFLICT (tenant, job_type, job_key) "
                "DO NOTHING RETURNING id"
            )
            assert len(cursor.fetchall()) == len(payloads)

    def drain(self, batch: int = 500) -> int:
        """Claim a batch, finish the last one, in one transaction a turn, until nothing is ready."""
        pick = f"{self._group()} AND throttle_factor = 1000 ORDER BY rank, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED"
        return self._turns(pick, lambda: {"batch": batch})

    def request_and_answer(self, batch: int, answers: int) -> int:
        """Claim a batch, let the last one wait, in one transaction a turn; then the last one's answers, some at a
        time, end it."""
        group = self._group(job_type="ask")
        pick = f"{group} AND throttle_factor = 1000 ORDER BY rank, id LIMIT %(batch)s FOR UPDATE SKIP LOCKED"
        return self._turns(
            pick, lambda: {"batch": batch}, self._wait, lambda rows: self.answer([one[4] for one in rows], answers)
        )

    def drain_limited(self, limit: int, weights: int) -> int:
        """The first jobs whose weights fit into what is left of a limit; one group a weight, merged in order."""
        pick = (
            "SELECT id FROM (SELECT id, sum(throttle_factor / 1000) OVER (ORDER BY rank, id) AS units FROM ("
            f"SELECT head.* FROM generate_series(1, {weights}) AS weight CROSS JOIN LATERAL ("
            f"{self._group('id, rank, throttle_factor')} AND throttle_factor = 1000 * weight ORDER BY rank, id "
            "LIMIT %(room)s) AS head) AS heads) AS sums WHERE units <= %(room)s"
        )
        return self._turns(pick, lambda: {"room": limit - sum(self._locked().values())})

    def drain_lanes(self, limit: int, fair: bool, batch: int = 500) -> int:
        """Of each lane as many as its limit leaves room for: the first of all lanes in order or, fairly, one of each of
        the next lanes."""
        pick = (
            "SELECT head.id FROM unnest(%(lanes)s::text[], %(rooms)s::bigint[]) AS line (lane, room) "
            f"CROSS JOIN LATERAL ({self._group('id, rank', 'line.lane')} AND throttle_factor = 1000 "
            "ORDER BY rank, id LIMIT line.room) AS head ORDER BY head.rank, head.id LIMIT %(batch)s"
        )
        after, most = "", 1 if fair else limit

        def values() -> dict[str, Any]:
            nonlocal after
            used = self._locked()
            lanes = self._lanes(after, batch) if fair else self._lanes("", 1 << 30)
            after = lanes[-1] if lanes else ""
            return {"lanes": lanes, "rooms": [min(limit - used.get(lane, 0), most) for lane in lanes], "batch": batch}

        return self._turns(pick, values)

    def answer(self, keys: Sequence[str], batch: int) -> None:
        """Jobs that wait end with their answers, which are kept: so many in a transaction, their keys locked."""
        table = self._table
        kept = ", ".join({"state": "'final'", "phase": "'done'"}.get(name, name) for name in COLUMNS)
        columns = ", ".join(name for name in KEPT if name != "id")
        lock = "SELECT count(pg_advisory_xact_lock(hashtextextended(key, 0))) FROM unnest(%s::text[]) AS key"
        insert = (
            f"INSERT INTO hipq_answers ({columns}) SELECT {self._queue}, '', 'ask', job_key, '', 0, '{'0' * 32}', "
            f"'{{}}', 0, 0, 'settled', id, 1, 1, 1, 1, 1, '' FROM {table} WHERE job_type = 'ask' AND job_key = ANY (%s)"
        )
        finish = (
            f"WITH d AS (DELETE FROM {table} WHERE job_type = 'ask' AND job_key = ANY (%s) RETURNING *) "
            f"INSERT INTO {table}_final ({_NAMES}) SELECT {kept} FROM d"
        )
        for start in range(0, len(keys), batch):
            some = sorted(keys[start : start + batch])
            with self._conn.transaction():
                for query in (lock, insert, finish):
                    self._conn.execute(query, (some,))

    def _lanes(self, after: str, count: int) -> list[str]:
        """The next lanes, from the beginning again behind the last; all of them by skipping through the index."""
        one = (
            f"SELECT lane FROM {self._table} t WHERE phase = 'ready' AND job_type = 'work' AND t.lane > {{}} "
            "ORDER BY lane LIMIT 1"
        )
        query = (
            f"WITH RECURSIVE lanes AS (({one.format('%s')}) UNION ALL "
            f"SELECT ({one.format('lanes.lane')}) FROM lanes WHERE lanes.lane IS NOT NULL) "
            "SELECT lane FROM lanes WHERE lane IS NOT NULL LIMIT %s"
        )
        found = [lane for (lane,) in self._conn.execute(query, (after, count)).fetchall()]
        return found or [lane for (lane,) in self._conn.execute(query, ("", count)).fetchall()]

    def _locked(self) -> dict[str, int]:
        """The queue's lock, then what is held by lane."""
        self._conn.execute(f"SELECT FROM hipq_queues WHERE number = {self._queue} FOR UPDATE")
        query = f"SELECT lane, sum(held)::bigint / 1000 FROM {self._table} WHERE held <> 0 GROUP BY lane"
        return dict(self._conn.execute(query).fetchall())

    def _group(self, names: str = "id", lane: str = "''", job_type: str = "work") -> str:
        return (
            f"SELECT {names} FROM {self._table} WHERE phase = 'ready' AND job_type = '{job_type}' AND lane = {lane} "
            "AND time_windows = '[]'"
        )

    def _finish(self, ids: list[int]) -> None:
        values = {"state": "'final'", "phase": "'done'", "result": "'null'"}
        self._conn.execute(
            f"WITH d AS (DELETE FROM {self._table} l USING unnest(%s::bigint[]) t(id) WHERE l.id = t.id RETURNING l.*) "
            f"INSERT INTO {self._table}_final ({_NAMES}) "
            f"SELECT {', '.join(values.get(name, name) for name in COLUMNS)} FROM d",
            (ids,),
        )

    def _wait(self, ids: list[int]) -> None:
        now = time.time_ns() // 1000
        self._conn.execute(
            f"UPDATE {self._table} l SET phase = 'waiting', owner = 0, token = token + 1, deadline = %s, "
            "wait = %s, history = %s, update_time = %s FROM unnest(%s::bigint[]) t(id) WHERE l.id = t.id",
            (now + 86_400_000_000, '{"until":1,"heartbeat":0.0}', '[{"at":1},{"at":2,"event":"waits"}]', now, ids),
        )

    def _turns(
        self,
        pick: str,
        values: Callable[[], dict[str, Any]],
        save: Callable[[list[int]], None] | None = None,
        then: Callable[[list[Any]], None] = lambda _: None,
    ) -> int:
        """`save` is done to the last batch in the transaction that claims the next, `then` after it."""
        conn, table, save = self._conn, self._table, save or self._finish
        claim = (
            f"WITH p AS ({pick}) "
            f"UPDATE {table} l SET state = 'running', phase = 'executing', held = throttle_factor, owner = 1, "
            "token = token + 1, attempt = attempt + 1, deadline = %(now)s, history = '[' || %(entry)s || ']', "
            f"update_time = %(now)s FROM p WHERE l.id = p.id RETURNING {', '.join('l.' + name for name in COLUMNS)}"
        )
        done = 0
        last: list[Any] = []
        while True:
            now = time.time_ns() // 1000
            with conn.transaction():
                if last:
                    save([one[0] for one in last])
                before, last = last, conn.execute(claim, values() | {"now": now, "entry": '{"at":1}'}).fetchall()
            then(before)
            done += len(last)
            if not last:
                return done
