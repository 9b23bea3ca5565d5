"""The SQLite store: every verb one `BEGIN IMMEDIATE` transaction on one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from hipq.errors import StoreUnavailable
from hipq.job.model import Change, New
from hipq.job.states import EXECUTING, PARKED, READY, SCHEDULED, WAITING, Code
from hipq.stores import migrations
from hipq.stores.claim_groups import RankPosition
from hipq.stores.claims import ANY_TYPE, Claim, Peek, Turned
from hipq.stores.clock import Clock, SystemClock, boot_id
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE
from hipq.stores.refusals import Given, refusals
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.rule_claims import narrowed
from hipq.stores.sql.schema import Schema
from hipq.stores.sql.store import SqlStore
from hipq.stores.sqlite.batch import in_json
from hipq.stores.sqlite.connection import LACKS_TABLES, Connection, is_locked, signpost, translated
from hipq.stores.sqlite.dialect import SqliteSql, statements
from hipq.stores.sqlite.inbox import SqliteInbox
from hipq.stores.sqlite.insert import Insert, checked, savepoint
from hipq.stores.sqlite.rule_claims import SqliteRulebook
from hipq.stores.sqlite.schema import SqliteSchema
from hipq.stores.sqlite.turn import Settle, SqliteTake
from hipq.stores.sqlite.watch import FileWaker
from hipq.stores.values import EndPlace, Stored

T = TypeVar("T")
MOVING: Final = '{"moving":[]}'
"""What an engine serves that is none, but moves the jobs to another database: while it is alive, nobody claims any."""
_MANY_QUEUES: Final = 100
"""SQLite joins at most 500 SELECTs in one statement."""

_SMALL: Final = {EXECUTING: "_owner", PARKED: "_parked"}
"""The indexes of phases that few jobs have."""
_PHASES: Final = {**_SMALL, READY: "_ready", SCHEDULED: "_stage", WAITING: "_wait"}
"""The indexes of all phases."""


class SqliteStore(SqlStore):
    _schema = SqliteSchema
    _insert: Insert
    _rulebook: SqliteRulebook
    at_once = 1
    changes_at_once = KEYS_AT_ONCE

    def __init__(self, path: str, clock: Clock | None = None, lent: Connection | None = None) -> None:
        """`lent`: somebody else's connection, in the place of one of ours; then nothing is migrated here."""
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self.path = path
        self._clock = clock or SystemClock()
        self._boot = boot_id()
        self._known = migrations.migrations(self._schema.package)
        self._statements = statements(self.queues)
        self._insert = Insert(self._statements)
        self._settle = Settle(self._statements, self._insert)
        self._rulebook = SqliteRulebook(self.now)
        self._take = SqliteTake(self._statements, self._rulebook)
        self._db = lent or Connection(path, on_fork=self._start)
        self._start()
        if lent is None:
            self.migrate()

    def _start(self) -> None:
        """What a child process makes anew after a fork: with its parent's descriptors, the two would take each other's
        news."""
        self._waker = FileWaker(self._db)

    @property
    def waker(self) -> FileWaker:
        return self._waker

    def now(self) -> int:
        return self._clock.now()

    def close(self) -> None:
        self._db.close()
        self._waker.close()

    # -- how SQLite does what all stores do -------------------------------------------------------------------------
    @contextmanager
    def _reading(self, *, long: bool = False, patient: bool = True) -> Iterator[Sql]:  # noqa: ARG002
        with self._db.reading(patient) as conn:
            yield SqliteSql(conn, self._statements)

    @contextmanager
    def _writing(self) -> Iterator[Sql]:
        with self._db.writing() as conn:
            yield SqliteSql(conn, self._statements)

    def _transaction(
        self,
        work: Callable[[Sql], T],
        *,
        patient: bool = True,  # noqa: ARG002 - there is one lock, and everybody waits for it as long
        ready: Callable[[T], Mapping[int, RankPosition]] = lambda _: {},  # noqa: ARG002 - engines watch the file
    ) -> T:
        with self._writing() as sql:
            return work(sql)

    def _lease_time(self) -> Mapping[str, Any]:
        return {"steady": self._clock.steady(), "boot": self._boot}

    def _lock_note(self, sql: Sql, kind: str, name: str) -> str:
        query = "SELECT value FROM hipq_notes WHERE kind = ? AND name = ?"
        found = sql.conn.execute(query, (kind, name)).fetchone()
        return str(found[0]) if found else ""

    def _lock_keys(self, sql: Sql, keys: Sequence[Any], changes: Sequence[Change] = ()) -> None:
        """A transaction that holds the write lock."""

    def _inbox(self, sql: Sql) -> SqliteInbox:
        return SqliteInbox(sql, self._settle)

    def _listing(self, wanted: Filter) -> Any:  # noqa: ARG002
        return self._reading()

    def _condition(self, wanted: Filter) -> str:
        """SQLite finds a partial index by the words of its condition, and does not see that they follow from others."""
        if wanted.code in ("", Code.OK):
            return wanted.condition()
        wrong = "code <> 'ok'" if wanted.table == "final" else "(error <> 'NONE' OR code <> 'NONE')"
        return f"{wanted.condition()} AND {wrong}"

    def _page(self, wanted: Filter, table: str) -> Mapping[str, str]:
        index = _index(wanted, table)
        by = " NOT INDEXED" if index == "id" else f" INDEXED BY {{{table}}}{index}" if index else ""
        order = f"{wanted.id}{wanted.order}"
        return {"where": self._condition(wanted), "by": by, "order": order, "limit": ":limit"}

    def _changed_if_any(self, name: str, queue: int = 0, **values: Any) -> int:
        with self._reading() as sql:
            if not sql.found(f"{name}_any", queue, **values):
                return 0
        with self._writing() as sql:
            return sql.changed(name, queue, **values)

    # -- setting up -------------------------------------------------------------------------------------------------
    def migrate(self) -> list[str]:
        with self._reading() as sql:
            if moved := signpost(sql.conn):
                raise moved
            schema = self.schema(sql)
            if schema.version().number and schema.is_complete():
                self._check(schema)
                return []
        return super().migrate()

    def _change_schema(self, work: Callable[[Schema], T], *_: Any, **__: Any) -> T:
        try:
            with self._writing() as sql:
                return work(self.schema(sql))
        except StoreUnavailable as error:
            if not is_locked(error.__cause__):
                raise
            raise StoreUnavailable(LACKS_TABLES) from error

    # -- adding -----------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        if conn is not None:
            for queue in {job.queue for job in jobs}:
                # Before their transaction holds the write lock that our connection may wait for.
                self._statements.table(queue)
            self._db.check()
            try:
                return self._insert.inside(checked(conn, self._db.path), jobs, all_or_nothing)
            except StoreUnavailable:
                self.queues()  # which says if they have moved
                raise
        with self._db.writing() as own:
            stored = self._insert.many(own, jobs, all_or_nothing)
        self.waker.notify()
        return stored

    def refusals(self, jobs: Sequence[tuple[int, New]]) -> dict[int, str]:
        with self._db.writing() as conn:

            def put(some: Given) -> None:
                with savepoint(conn):
                    self._insert.given(conn, some)

            conn.execute("SAVEPOINT hipq_tried")
            found = refusals(jobs, put, translated)
            conn.execute("ROLLBACK TO hipq_tried")
        return found

    # -- the turn ---------------------------------------------------------------------------------------------------
    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        with self._writing() as sql:
            return sql.changed("unpark" if phase == PARKED else "stage", queue, now=now, limit=limit)

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        with self._writing() as sql:
            turned, _ = self._settled(sql, changes, now)
            if claims and self._alive(sql, engine_id):
                for claim in claims:
                    if not claim.ticket or self._is_held(sql, claim, engine_id):
                        turned.add(claim.queue, *self._take.claim(sql, engine_id, claim, now))
            return self._with_answers(sql, turned)

    def _alive(self, sql: Sql, engine_id: int) -> bool:
        return bool(sql.found("alive", engine_id=engine_id, moving=MOVING, **self._lease_time()))

    def _is_held(self, sql: Sql, claim: Claim, engine_id: int) -> bool:
        """Hand the ticket in. Returns whether it was still held."""
        values = self._lease_time()
        return sql.changed("use_ticket", claim.queue, ticket=claim.ticket, engine_id=engine_id, **values) == 1

    def _take_ticket(self, sql: Sql, queue: int, engine_id: int, seconds: float) -> int:
        return super()._take_ticket(sql, queue, engine_id, seconds) if self._alive(sql, engine_id) else 0

    def _prune(self, queue: int, **values: Any) -> tuple[int, EndPlace | None]:
        with self._writing() as sql:
            ((gone, last, job_id),) = sql.found("prune", queue, **values)
            for table in (f"{self._statements.table(queue)}_final", "hipq_payloads"):
                sql.conn.execute(f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (gone,))
        return len(msgspec.json.decode(gone)), (last, job_id) if job_id is not None else None

    def _fold(self, sql: Sql, into: int, values: dict[str, Any]) -> int:
        if into:
            sql.changed("activity_fold", into=into, **values)
        return sql.changed("activity_delete", **values)

    def _forget_leases(self, sql: Sql) -> None:
        sql.changed("forget_leases", **self._lease_time())

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        deciding, now = in_json(("", *strategies)), self.now()
        found: list[Peek] = []
        for start in range(0, len(queues), _MANY_QUEUES):
            with self._reading() as sql:
                some = [(queue, narrowed(sql, queue, types)) for queue, types in queues[start : start + _MANY_QUEUES]]
            parts = [self._statements.of("peek", queue) for queue, _ in some]
            values = [
                value
                for _, types in some
                for value in (in_json(types), now, in_json(types), deciding, ANY_TYPE in types, now)
            ]
            with self._db.reading() as conn:
                rows = conn.execute(" UNION ALL ".join(parts), values).fetchall()
            found += [
                Peek(queue, bool(ready), due, late, bool(owned), bool(parked), bool(new), crons)
                for queue, ready, due, late, owned, parked, new, crons in rows
            ]
        return found

    def locked(self, queues: Sequence[int]) -> set[int]:  # noqa: ARG002
        return set()  # a lock is one of the whole file


def _index(wanted: Filter, table: str) -> str:
    """What a tenant has by its own indexes: SQLite might read what others have by another one, or all that the tenant
    has where a key is given. What is looked for between two ids, there and nowhere else. Jobs of a phase that few have
    by the index of the phase."""
    if wanted.parent:
        return "_parent"
    if wanted.tenant:
        return "_tenant" if not wanted.job_key else "_key" if table == "live" else "_named"
    if wanted.until and not wanted.few:
        return "id" if wanted.code in ("", Code.OK) else "_retry" if table == "live" else "_code"
    if wanted.job_key or wanted.prefix:
        return "_key" if wanted.few else ""
    if wanted.owned is not None:
        return "_owner" if wanted.owned else "_todo"
    return (_PHASES if wanted.few else _SMALL).get(wanted.phase, "")
