"""The PostgreSQL store: every verb one statement or one transaction, from a small pool of connections.

Safe beside any number of other processes without a lock of its own: a row is locked before it is written, every write
names its token, and claims pass over rows that others have locked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg

from hipq.errors import StoreUnavailable
from hipq.job.model import Change, Row
from hipq.job.states import PARKED
from hipq.job.when import SECOND
from hipq.stores import migrations
from hipq.stores.claim_groups import RankPosition
from hipq.stores.claims import ANY_TYPE, Claim, Peek, Turned
from hipq.stores.clock import Clock
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE, Key, lock_number
from hipq.stores.password import without_password
from hipq.stores.postgres.adding import AddingVerbs
from hipq.stores.postgres.connection import Connection, Connections, in_transaction, patiently
from hipq.stores.postgres.dialect import statements
from hipq.stores.postgres.inbox import PostgresInbox
from hipq.stores.postgres.insert import Insert
from hipq.stores.postgres.listing import page, planned
from hipq.stores.postgres.rule_claims import PostgresRulebook
from hipq.stores.postgres.scan_floor import BOTTOM, ScanFloor
from hipq.stores.postgres.turn import Settle, Take
from hipq.stores.postgres.wake import Listener, ListeningWaker
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.moment import DatabaseClock
from hipq.stores.sql.notices import Notices
from hipq.stores.sql.pool import ANSWER_SECONDS, LONG_SECONDS, POOL_SIZE
from hipq.stores.sql.rule_claims import narrowed
from hipq.stores.sql.settle import Saved, claimed_entry
from hipq.stores.values import EndPlace
from hipq.stores.waker import lowest

T = TypeVar("T")


class PostgresStore(AddingVerbs):
    _now = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"
    _settle: Settle
    _rulebook: PostgresRulebook
    at_once = POOL_SIZE
    changes_at_once = KEYS_AT_ONCE

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        lent: Connections | None = None,
        *,
        listen_url: str = "",
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`lent`: somebody else's connection, in the place of a pool of ours. `listen_url`: the address to LISTEN at,
        where `url` leads through a pooler. `answer_seconds`: how long the server may be silent."""
        self.url = without_password(url)
        self._db = lent or Connections(
            url,
            on_fork=self._start,
            listen_url=listen_url,
            answer_seconds=answer_seconds,
            on_silence=lambda: self._listener.reopen(),
        )
        self._clock = clock
        self._known = migrations.migrations(self._schema.package)
        self._statements = statements(self.queues)
        self._insert = Insert(self._statements)
        self._settle = Settle(self._statements, self._insert)
        self._notices = Notices()
        self._trusted: WeakSet[psycopg.Connection[Any]] = WeakSet()
        self._listeners: list[Listener] = []
        self._start()

    def _start(self) -> None:
        """What a child has of its own after a fork: descriptors, and locks that may have been held at that moment."""
        self._database_clock = DatabaseClock(self._asked_time, self._db.in_vain)
        self._floors = ScanFloor()
        self._rulebook = PostgresRulebook(self.now)
        self._take = Take(self._statements, self._floors, self._rulebook)
        self._listener = Listener(self._db.connect_to_listen, self._db.is_own, self._floors.lower, self._unheard)
        self._listeners.append(self._listener)  # a child keeps its parent's, and does not touch it
        self._waker = ListeningWaker(self._listener)

    def close(self) -> None:
        self._listener.close()
        super().close()

    # -- how PostgreSQL does what all stores do ---------------------------------------------------------------------
    @contextmanager
    def _reading(self, *, long: bool = False, patient: bool = True) -> Iterator[Sql]:
        began = time.monotonic()
        try:
            with self._using(LONG_SECONDS if long else 0) as conn:
                yield self._sql(conn)
        except StoreUnavailable as error:
            if not patient:
                self._db.in_vain(error, began)
            raise

    def _writing(self) -> AbstractContextManager[Sql]:
        return self._reading()

    def _transaction(
        self,
        work: Callable[[Sql], T],
        *,
        patient: bool = True,
        ready: Callable[[T], Mapping[int, RankPosition]] = lambda _: {},
    ) -> T:
        with self._using() as conn:
            sql = self._sql(conn)
            result = (self._patiently if patient else in_transaction)(conn, lambda: work(sql))
            self._announce(conn, ready(result))
        return result

    def _patiently(self, conn: Connection, work: Callable[[], T]) -> T:
        return patiently(conn, work)

    def _lock_note(self, sql: Sql, kind: str, name: str) -> str:
        """There is always a row to lock, and it is never deleted: else two who find none would both write one."""
        sql.changed("make_note", kind=kind, name=name)
        ((value,),) = sql.found("lock_note", kind=kind, name=name)
        return str(value)

    def _lock_keys(self, sql: Sql, keys: Sequence[Key], changes: Sequence[Change] = ()) -> None:
        if numbers := sorted({lock_number(key) for key in keys}):
            sql.changed("answer_lock", numbers=numbers)
            self._settle.lock(sql, {change.before.id for change in changes})

    def _inbox(self, sql: Sql) -> PostgresInbox:
        return PostgresInbox(sql, self._settle)

    def _page(self, wanted: Filter, table: str) -> Mapping[str, str]:
        return page(wanted, table)

    @contextmanager
    def _listing(self, wanted: Filter) -> Iterator[Sql]:
        with self._reading(long=True) as sql, planned(sql.conn, wanted):
            yield sql

    def _changed_if_any(self, name: str, queue: int = 0, **values: Any) -> int:
        with self._writing() as sql:
            return sql.changed(name, queue, **values)

    # -- the turn ---------------------------------------------------------------------------------------------------
    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        with self._writing() as sql:
            staged = sql.found("unpark" if phase == PARKED else "stage", queue, now=now, limit=limit)
            self._announce(sql.conn, lowest((queue, (rank, job_id)) for rank, job_id in staged))
        return len(staged)

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        values = {"engine_id": engine_id, "now": now, "entry": claimed_entry(engine_id, now)}
        with self._writing() as sql:
            self._listener.hear()  # before it claims: floors must be below what was heard
            try:
                won: list[Row] = []
                if not changes and len(claims) == 1:
                    # One statement that writes needs no transaction around it.
                    won, picked = self._take.freely(sql, claims[0], values)
                    if picked:
                        turned = Turned(frozenset(), [])
                        turned.add(claims[0].queue, won, picked)
                        return self._with_answers(sql, turned)
                    claims = [claims[0]._replace(limit=claims[0].limit - len(won))]
                turned, saved, found = in_transaction(sql.conn, lambda: self._turned(sql, changes, claims, values))
            except BaseException:
                for claim in claims:
                    self._floors.lower(claim.queue, BOTTOM)  # what it claimed is ready as before
                raise
            turned.won.extend(won)
            self._announce(sql.conn, self._news_of(engine_id, changes, saved))
            for n, claim in enumerate(claims):
                turned.add(claim.queue, *found[n])
            return self._with_answers(sql, turned)

    def _turned(
        self, sql: Sql, changes: Sequence[Change], claims: Sequence[Claim], values: dict[str, Any]
    ) -> tuple[Turned, Saved, dict[int, tuple[list[Row], Picked]]]:
        turned, saved = self._settled(sql, changes, values["now"])
        by_queue = sorted(range(len(claims)), key=lambda n: claims[n].queue)  # so that nobody deadlocks
        return turned, saved, {n: self._take.claim(sql, claims[n], values) for n in by_queue}

    def _prune(self, queue: int, **values: Any) -> tuple[int, EndPlace | None]:
        with self._reading(long=True) as sql:
            found = sql.found("prune", queue, **values)
        return (found[0][0], (found[0][1], found[0][2])) if found else (0, None)

    def _folded_into(self, sql: Sql, into: int, which: str, values: dict[str, Any]) -> int:
        if not sql.found("activity_lock")[0][0]:
            return 0
        query = self._statements.of("activity_fold", which=which)
        return int(sql.run(query, {**values, "into": into, "period": into * SECOND})[0][0])

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        if not queues:
            return []
        query = b" UNION ALL ".join(self._statements.of("peek", queue) for queue, _ in queues)
        with self._using() as conn:
            sql, deciding = self._sql(conn), ["", *strategies]
            queues = [(queue, narrowed(sql, queue, types)) for queue, types in queues]
            values = [value for _, types in queues for value in (list(types), list(types), deciding, ANY_TYPE in types)]
            found = conn.execute(query, values).fetchall()
        self._database_clock.heard(found[-1][-1])
        return [Peek(*row[:-1]) for row in found]

    def locked(self, queues: Sequence[int]) -> set[int]:
        tables = [self._statements.table(queue) for queue in queues]
        with self._reading() as sql:
            return {queue for (queue,) in sql.found("locked", queues=list(queues), tables=tables)}

    def _unheard(self) -> None:
        """Anything may have happened: nobody listened."""
        self._floors.forget()
        self._waker.notify()
