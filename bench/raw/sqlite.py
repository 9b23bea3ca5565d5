"""The ceiling on SQLite: the same tables, indexes, batches and durability, in plain SQL with nothing around it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from hipq.job.answer import KEPT
from hipq.job.meta import PLAIN
from hipq.job.model import COLUMNS
from hipq.job.order import order
from hipq.job.states import INITIAL, READY
from hipq.job.windows import ALWAYS
from hipq.stores.sqlite.connection import PAGES_IN_LOG

_ORDER = order("time", 1.0)
_NAMES = ", ".join(COLUMNS)
_MARKS = ", ".join("?" * len(COLUMNS))


def row(job_id: int, key: str, data: str, now: int, phase: str = READY) -> tuple[Any, ...]:
    return (
        job_id, "", "", "work", key or str(job_id), INITIAL, phase, _ORDER.rank(now, 100), 100, 1000, 0, ALWAYS,
        86400.0, now, 0, "", "", 0, 0, 0, 0, 0, "NONE", "NONE", 0, now, now, data, "", PLAIN, "[]",
    )  # fmt: skip


class RawSqlite:
    def __init__(self, path: str, table: str, queue: int) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        self._conn.execute("PRAGMA synchronous = FULL")
        self._conn.execute(f"PRAGMA wal_autocheckpoint = {PAGES_IN_LOG}")
        self._table = table
        self._queue = queue
        self._last = 0

    def close(self) -> None:
        self._conn.close()

    def vacuum(self) -> bool:
        """SQLite has nothing of that kind."""
        return False

    def counts(self) -> tuple[int, int]:
        """How many jobs are live, and how many are done as they should be."""
        query = (
            f"SELECT (SELECT count(*) FROM {self._table}), "
            f"(SELECT count(*) FROM {self._table}_final WHERE state = 'final' AND error = 'NONE')"
        )
        live, done = self._conn.execute(query).fetchone()
        return live, done

    def _ids(self, count: int) -> list[int]:
        query = "UPDATE hipq_queues SET last_id = last_id + ? WHERE number = ? RETURNING last_id"
        ((last,),) = self._conn.execute(query, (count, self._queue)).fetchall()
        return [n << 16 | self._queue for n in range(last - count + 1, last + 1)]

    def insert_one_by_one(self, payloads: Sequence[str]) -> None:
        for data in payloads:
            self._conn.execute("BEGIN IMMEDIATE")
            (job_id,) = self._ids(1)
            query = f"INSERT INTO {self._table} ({_NAMES}) VALUES ({_MARKS})"
            self._conn.execute(query, row(job_id, "", data, time.time_ns() // 1000))
            self._conn.execute("COMMIT")

    def insert_many(self, payloads: Sequence[str], keys: Sequence[str] | None) -> None:
        self._conn.execute("BEGIN IMMEDIATE")
        now = time.time_ns() // 1000
        names = keys or [""] * len(payloads)
        ids = self._ids(len(payloads))
        rows = [row(job_id, key, data, now) for job_id, key, data in zip(ids, names, payloads, strict=True)]
        self._conn.executemany(
            f"INSERT INTO {self._table} ({_NAMES}) VALUES ({_MARKS}) "
            "ON CONFLICT (tenant, job_type, job_key) DO NOTHING",
            rows,
        )
        self._conn.execute("COMMIT")

    def drain(self, batch: int = 500) -> int:
        """Claim a batch, finish the last one, in one transaction a turn, until nothing is ready."""
        return self._turns(lambda: self._rows(f"{self._group('1')} ORDER BY rank, id LIMIT ?", (batch,)))

    def request_and_answer(self, batch: int, answers: int) -> int:
        """Claim a batch, let the last one wait, in one transaction a turn; then the last one's answers, some at a
        time, end it."""
        pick = f"{self._group('1', 'ask')} ORDER BY rank, id LIMIT ?"
        return self._turns(
            lambda: self._rows(pick, (batch,)), self._wait, lambda rows: self.answer([one[4] for one in rows], answers)
        )

    def drain_limited(self, limit: int, weights: int) -> int:
        """The first jobs whose weights fit into what is left of a limit; one group a weight, merged in order."""
        heads = " UNION ALL ".join(
            f"SELECT * FROM ({self._group(str(weight))} ORDER BY rank, id LIMIT :room)"
            for weight in range(1, weights + 1)
        )
        pick = (
            f"SELECT {_NAMES} FROM ("
            f"SELECT *, sum(throttle_factor / 1000) OVER (ORDER BY rank, id) AS units FROM ({heads})) "
            "WHERE units <= :room"
        )
        return self._turns(lambda: self._rows(pick, {"room": limit - sum(self._held().values())}))

    def drain_lanes(self, limit: int, fair: bool, batch: int = 500) -> int:
        """Of each lane as many as its limit leaves room for: the first of all lanes in order or, fairly, one of each of
        the next lanes."""
        after, most = "", 1 if fair else limit

        def first() -> list[Any]:
            nonlocal after
            used = self._held()
            lanes = self._lanes(after, batch) if fair else self._lanes("", 1 << 30)
            after = lanes[-1] if lanes else ""
            found = [row for lane in lanes for row in self._first_of(lane, min(limit - used.get(lane, 0), most))]
            ids = json.dumps([job_id for _, job_id in sorted(found)[:batch]])
            query = f"SELECT {_NAMES} FROM {self._table} WHERE id IN (SELECT value FROM json_each(?)) ORDER BY rank, id"
            return self._rows(query, (ids,))

        return self._turns(first)

    def answer(self, keys: Sequence[str], batch: int) -> None:
        """Jobs that wait end with their answers, which are kept: so many in a transaction."""
        conn, table = self._conn, self._table
        which = f"(SELECT id FROM {table} WHERE job_type = 'ask' AND job_key IN (SELECT value FROM json_each(?)))"
        finished = _NAMES.replace("state", "'final'").replace("phase", "'done'").replace("result", "'null'")
        columns = ", ".join(name for name in KEPT if name != "id")
        for start in range(0, len(keys), batch):
            some, now = json.dumps(keys[start : start + batch]), time.time_ns() // 1000
            conn.execute("BEGIN IMMEDIATE")
            conn.execute(
                f"INSERT INTO hipq_answers ({columns}) SELECT {self._queue}, '', 'ask', job_key, '', 0, '{'0' * 32}', "
                f"'{{}}', 0, 0, 'settled', id, {now}, {now}, {now}, {now}, 1, '' FROM {table} WHERE id IN {which}",
                (some,),
            )
            conn.execute(
                f"INSERT INTO {table}_final ({_NAMES}) SELECT {finished} FROM {table} WHERE id IN {which}", (some,)
            )
            conn.execute(f"DELETE FROM {table} WHERE id IN {which}", (some,))
            conn.execute("COMMIT")

    def _lanes(self, after: str, count: int) -> list[str]:
        """The next lanes, from the beginning again behind the last; all of them by skipping through the index."""
        one = f"SELECT min(lane) FROM {self._table} WHERE phase = 'ready' AND job_type = 'work' AND lane > "
        query = (
            f"WITH RECURSIVE lanes (lane) AS (SELECT ({one} ?) UNION ALL "
            f"SELECT ({one} lanes.lane) FROM lanes WHERE lanes.lane IS NOT NULL) "
            "SELECT lane FROM lanes WHERE lane IS NOT NULL LIMIT ?"
        )
        found = [lane for (lane,) in self._rows(query, (after, count))]
        return found or [lane for (lane,) in self._rows(query, ("", count))]

    def _first_of(self, lane: str, count: int) -> list[Any]:
        query = (
            f"SELECT rank, id FROM {self._table} WHERE phase = 'ready' AND job_type = 'work' AND lane = ? "
            "AND time_windows = '[]' AND throttle_factor = 1000 ORDER BY rank, id LIMIT ?"
        )
        return self._rows(query, (lane, count))

    def _group(self, weight: str, job_type: str = "work") -> str:
        return (
            f"SELECT {_NAMES} FROM {self._table} WHERE phase = 'ready' AND job_type = '{job_type}' AND lane = '' "
            f"AND time_windows = '[]' AND throttle_factor = 1000 * {weight}"
        )

    def _held(self) -> dict[str, int]:
        query = (
            f"SELECT lane, sum(held) / 1000 FROM {self._table} INDEXED BY {self._table}_owner "
            "WHERE held <> 0 GROUP BY lane"
        )
        return dict(self._conn.execute(query).fetchall())

    def _rows(self, query: str, values: Any) -> list[Any]:
        return self._conn.execute(query, values).fetchall()

    def _finish(self, ids: str) -> None:
        table = self._table
        finished = _NAMES.replace("state", "'final'").replace("phase", "'done'").replace("result", "'null'")
        which = "id IN (SELECT value FROM json_each(?))"
        self._conn.execute(f"INSERT INTO {table}_final ({_NAMES}) SELECT {finished} FROM {table} WHERE {which}", (ids,))
        self._conn.execute(f"DELETE FROM {table} WHERE {which}", (ids,))

    def _wait(self, ids: str) -> None:
        now = time.time_ns() // 1000
        self._conn.execute(
            f"UPDATE {self._table} SET phase = 'waiting', owner = 0, token = token + 1, deadline = ?, "
            "wait = ?, history = ?, update_time = ? WHERE id IN (SELECT value FROM json_each(?))",
            (now + 86_400_000_000, '{"until":1,"heartbeat":0.0}', '[{"at":1},{"at":2,"event":"waits"}]', now, ids),
        )

    def _turns(
        self,
        pick: Callable[[], list[Any]],
        save: Callable[[str], None] | None = None,
        then: Callable[[list[Any]], None] = lambda _: None,
    ) -> int:
        """`save` is done to the last batch in the transaction that claims the next, `then` after it."""
        conn, table, save = self._conn, self._table, save or self._finish
        claim = (
            f"UPDATE {table} SET state = 'running', phase = 'executing', held = throttle_factor, owner = 1, "
            "token = token + 1, attempt = attempt + 1, deadline = ?, history = '[' || ? || ']', update_time = ? "
            "WHERE id IN (SELECT value FROM json_each(?))"
        )
        done = 0
        last: list[Any] = []
        while True:
            now = time.time_ns() // 1000
            conn.execute("BEGIN IMMEDIATE")
            if last:
                save(json.dumps([one[0] for one in last]))
            before, last = last, pick()
            if last:
                conn.execute(claim, (now, '{"at":1}', now, json.dumps([one[0] for one in last])))
            conn.execute("COMMIT")
            then(before)
            done += len(last)
            if not last:
                return done
