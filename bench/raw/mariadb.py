"""The ceiling on MariaDB: the same tables, indexes, batches and durability, in plain SQL with nothing around it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pymysql

from bench.raw.sqlite import row
from hipq.job.model import COLUMNS
from hipq.stores.mariadb.address import options_of

_NAMES = ", ".join(f"`{name}`" for name in COLUMNS)
_MARKS = ", ".join(["%s"] * len(COLUMNS))
_AT_ONCE = 1000


class RawMariaDB:
    def __init__(self, url: str, table: str, queue: int) -> None:
        self._conn: Any = pymysql.connect(**options_of(url), autocommit=True, charset="utf8mb4")
        self._run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._table = table
        self._queue = queue

    def _run(self, query: str, values: Any = None) -> Any:
        cursor = self._conn.cursor()
        cursor.execute(query, values)
        return cursor

    def close(self) -> None:
        self._conn.close()

    def vacuum(self) -> bool:
        """The server purges what was deleted by itself, at once."""
        self._run(f"ANALYZE TABLE {self._table}").fetchall()
        return True

    def counts(self) -> tuple[int, int]:
        """How many jobs are live, and how many are done as they should be."""
        final = f"SELECT count(*) FROM {self._table}_final WHERE state = 'final' AND error = 'NONE'"
        ((live, done),) = self._run(f"SELECT (SELECT count(*) FROM {self._table}), ({final})").fetchall()
        return live, done

    def insert_one_by_one(self, payloads: Sequence[str]) -> None:
        """An id, then a row that is committed: two round trips each."""
        for data in payloads:
            ((number,),) = self._run(f"SELECT NEXTVAL({self._table}_ids) << 16 | {self._queue}").fetchall()
            values = row(number, "", data, time.time_ns() // 1000)
            self._run(f"INSERT INTO {self._table} ({_NAMES}) VALUES ({_MARKS})", values)

    def insert_many(self, payloads: Sequence[str], keys: Sequence[str] | None) -> None:
        """Rows as VALUES, a thousand in a statement, all in one transaction."""
        now, count = time.time_ns() // 1000, len(payloads)
        query = f"SELECT NEXTVAL({self._table}_ids) << 16 | {self._queue} FROM seq_1_to_{count}"
        ids = [number for (number,) in self._run(query).fetchall()]
        rows = [row(*one, now) for one in zip(ids, keys or [""] * count, payloads, strict=True)]
        self._run("BEGIN")
        for start in range(0, count, _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            marks = ", ".join([f"({_MARKS})"] * len(some))
            again = f"ON DUPLICATE KEY UPDATE id = {self._table}.id"
            self._run(f"INSERT INTO {self._table} ({_NAMES}) VALUES {marks} {again}", [v for one in some for v in one])
        self._run("COMMIT")

    def drain(self, batch: int = 500) -> int:
        """Claim a batch, finish the last one, in one transaction a turn, until nothing is ready."""
        table, done = self._table, 0
        last: list[int] = []
        kept = ", ".join(
            {"state": "'final'", "phase": "'done'", "result": "'null'"}.get(name, f"`{name}`") for name in COLUMNS
        )
        pick = (
            f"SELECT id FROM {table} WHERE phase = 'ready' AND job_type = 'work' AND lane = '' AND windowed = '[]' "
            f"AND throttle_factor = 1000 ORDER BY `rank`, id LIMIT {batch} FOR UPDATE SKIP LOCKED"
        )
        claim = (
            f"UPDATE {table} SET state = 'running', held = throttle_factor, owner = 1, token = token + 1, "
            "attempt = attempt + 1, deadline = %(now)s, history = concat('[', %(entry)s, ']'), update_time = %(now)s, "
            "phase = 'executing' WHERE id IN %(ids)s"
        )
        while True:
            self._run("BEGIN")
            if last:
                some = {"ids": last}
                self._run(f"INSERT INTO {table}_final ({_NAMES}) SELECT {kept} FROM {table} WHERE id IN %(ids)s", some)
                self._run(f"DELETE FROM {table} WHERE id IN %(ids)s", some)
            last = [number for (number,) in self._run(pick).fetchall()]
            if last:
                self._run(claim, {"now": time.time_ns() // 1000, "entry": '{"at":1}', "ids": last})
                self._run(f"SELECT {_NAMES} FROM {table} WHERE id IN %(ids)s", {"ids": last}).fetchall()
            self._run("COMMIT")
            if not last:
                return done
            done += len(last)
