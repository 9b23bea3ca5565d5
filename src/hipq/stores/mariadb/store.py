"""The MariaDB store: every verb one statement or one transaction, from a small pool of connections.

Safe beside any number of other processes: a row is locked before it is written, every write names its token, and claims
pass over rows that others have locked. Locks are taken in an order that all share: keys, jobs by their ids, the rows of
queues, and then only what nobody has to wait for. A deadlock's victim begins again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

import pymysql

from hipq.job.activity import COUNTERS, beginning
from hipq.job.answer import UNUSED
from hipq.job.model import Change, Row, queue_of
from hipq.job.states import PARKED
from hipq.stores import migrations
from hipq.stores.claims import ANY_TYPE, Claim, Peek, Turned
from hipq.stores.clock import Clock
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE, Key, lock_number
from hipq.stores.mariadb.adding import AddingVerbs
from hipq.stores.mariadb.connection import BUSY, Connections, is_deadlock, number_of
from hipq.stores.mariadb.dialect import MariaSql, Text, spelled, statements
from hipq.stores.mariadb.inbox import MariaInbox
from hipq.stores.mariadb.insert import Insert
from hipq.stores.mariadb.listing import page
from hipq.stores.mariadb.rule_claims import MariaRulebook
from hipq.stores.mariadb.turn import MariaTake, Settle, add_counters
from hipq.stores.mariadb.wake import PollingWaker, Teller, Told
from hipq.stores.password import without_password
from hipq.stores.sql.dialect import Sql
from hipq.stores.sql.moment import DatabaseClock
from hipq.stores.sql.pool import ANSWER_SECONDS, LONG_SECONDS, POOL_SIZE
from hipq.stores.sql.rule_claims import narrowed
from hipq.stores.values import EndPlace, WaitingLane
from hipq.stores.waker import lowest

LOCKS: Final = 65_536
"""Numbers of the locks of keys, from 1 on; two keys that share one wait for each other, and no more."""
NOW: Final = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"


class MariaStore(AddingVerbs):
    _now = NOW
    _settle: Settle
    _rulebook: MariaRulebook
    at_once = POOL_SIZE
    changes_at_once = KEYS_AT_ONCE

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        lent: Connections | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`lent`: somebody else's connection, in the place of a pool of ours. `answer_seconds`: how long the server may
        be silent."""
        self.url = without_password(url)
        self._db = lent or Connections(url, on_fork=self._start, answer_seconds=answer_seconds)
        self._clock = clock
        self._known = migrations.migrations(self._schema.package)
        self._statements = statements(self.queues, self._spelled)
        self._insert = Insert(self._statements, lambda: self._db.flavour)
        self._settle = Settle(self._statements, self._insert)
        self._start()

    def _start(self) -> None:
        """What a child has of its own after a fork."""
        self._database_clock = DatabaseClock(self._asked_time, lambda *_: None)
        self._rulebook = MariaRulebook(self.now, self._tell)
        self._take = MariaTake(self._rulebook)
        self._teller = Teller()
        self._waker = PollingWaker(self._told, self._newest)

    def _spelled(self, text: str) -> Text:
        flavour = self._db.flavour
        return spelled(text, flavour.collation, flavour.has_returning)

    def _told(self, floor: int) -> list[Told]:
        with self._db.using() as conn:
            found = self._sql(conn).found("news", floor=floor, writer=self._teller.writer)
        parts = [one.split(":", 3) for (one,) in found]
        return [(int(number), int(queue), rank, int(job)) for number, queue, job, rank in parts]

    def _newest(self) -> int:
        with self._db.using() as conn:
            ((newest,),) = conn.run("SELECT coalesce(max(id), 0) FROM hipq_news").fetchall()
        return int(newest)

    # -- how MariaDB does what all stores do --------------------------------------------------------------------------
    @contextmanager
    def _reading(self, *, long: bool = False, patient: bool = True) -> Iterator[MariaSql]:  # noqa: ARG002
        with self._using(LONG_SECONDS if long else 0) as conn:
            yield self._sql(conn)

    @contextmanager
    def _writing(self) -> Iterator[Sql]:
        """A file may hold several statements: they are committed together."""
        with self._using() as conn, conn.transaction():
            yield self._sql(conn)

    def _lock_note(self, sql: Sql, kind: str, name: str) -> str:
        ((value,),) = sql.found("lock_note", kind=kind, name=name)
        return str(value)

    def _lock_keys(self, sql: Sql, keys: Sequence[Key], changes: Sequence[Change] = ()) -> None:
        if numbers := sorted({lock_number(key) % LOCKS + 1 for key in keys}):
            query = sql.statements.spell(
                sql.statements.text("answer_lock", numbers=", ".join(f"({number})" for number in numbers))
            )
            sql.run(query, {})
        self._settle.lock(sql, {change.before.id for change in changes})

    def _inbox(self, sql: Sql) -> MariaInbox:
        return MariaInbox(sql, self._settle)

    def _page(self, wanted: Filter, table: str) -> Mapping[str, str]:
        return page(wanted, table)

    def _listing(self, wanted: Filter) -> AbstractContextManager[Sql]:  # noqa: ARG002
        return self._reading(long=True)

    def _changed_if_any(self, name: str, queue: int = 0, **values: Any) -> int:
        return self._transaction(lambda sql: sql.changed(name, queue, **values), patient=False)

    def _forget_leases(self, sql: Sql) -> None:
        sql.changed("forget_leases")

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        if engine_id is None:
            self._changed_if_any("forget_leases")
        return super().owned(queues, engine_id, limit)

    # -- the turn ---------------------------------------------------------------------------------------------------
    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        def work(sql: Sql) -> list[tuple[str, int]]:
            found = sql.found("unpark" if phase == PARKED else "stage", queue, now=now, limit=limit)
            if found:
                sql.changed("staged", queue, ids=[job_id for _, job_id in found])
            return found

        return len(
            self._transaction(
                work,
                patient=False,
                ready=lambda found: lowest((queue, (rank, job_id)) for rank, job_id in found),
            )
        )

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        for queue in {claim.queue for claim in claims} | {queue_of(change.before.id) for change in changes}:
            self._statements.table(queue)
        places: dict[int, Any] = {}

        def work(sql: Sql) -> Turned:
            turned, saved = self._settled(sql, changes, now)
            by_queue = sorted(range(len(claims)), key=lambda n: claims[n].queue)  # so that nobody deadlocks
            found = {n: self._take.claim(sql, engine_id, claims[n], now) for n in by_queue}
            for n, claim in enumerate(claims):
                turned.add(claim.queue, *found[n])
            places.clear()
            places.update(self._news_of(engine_id, changes, saved))
            return self._with_answers(sql, turned)

        return self._transaction(work, patient=False, ready=lambda _: places)

    def _prune(self, queue: int, **values: Any) -> tuple[int, EndPlace | None]:
        def work(sql: Sql) -> tuple[int, EndPlace | None]:
            found = sql.found("prune", queue, **values)
            if not found:
                return 0, None
            ids = [
                job_id
                for _, job_id, job_type, code, tenant in found
                if values["job_type"] in ("", job_type)
                and values["code"] in ("", code)
                and values["tenant"] in ("", tenant)
            ]
            gone = [job_id for (job_id,) in sql.found("pruned", queue, ids=ids)] if ids else []
            if gone:
                sql.changed("prune_payloads", ids=gone)
                sql.changed("prune_final", queue, ids=gone)
            return len(gone), (found[-1][0], found[-1][1])

        return self._transaction(work, patient=False)

    # -- counters ---------------------------------------------------------------------------------------------------
    def _folded_into(self, sql: Sql, into: int, which: str, values: dict[str, Any]) -> int:
        return sum(self._folded_queue(sql, into, which, {**values, "queue": queue}) for queue in values["queues"])

    def _folded_queue(self, sql: Sql, into: int, which: str, values: dict[str, Any]) -> int:
        found = sql.run(sql.statements.of("activity_fold", which=which), values)
        if not found or not sql.found("activity_lock"):
            return 0
        sums: dict[tuple[int, str], list[int]] = {}
        gone: dict[tuple[int, str], list[int]] = {}
        for starts, job_type, writer, *counters in found:
            place = beginning(starts, into), job_type
            sums[place] = [a + b for a, b in zip(sums.get(place, [0] * len(COUNTERS)), counters, strict=True)]
            gone.setdefault((starts, job_type), []).append(writer)
        queue, grain = values["queue"], values["grain"]
        for (starts, job_type), writers in gone.items():
            sql.changed("activity_gone", queue=queue, grain=grain, starts=starts, job_type=job_type, writers=writers)
        add_counters(
            sql, [(queue, starts, job_type, into, 0, *some) for (starts, job_type), some in sorted(sums.items())]
        )
        return len(found)

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        if not queues:
            return []
        deciding = ["", *strategies]
        with self._reading() as sql:
            asked = [
                ("peek", queue, {"types": list(narrowed(sql, queue, types)), "any": ANY_TYPE in types})
                for queue, types in queues
            ]
            found = sql.each((name, queue, {**values, "strategies": deciding}) for name, queue, values in asked)
        self._database_clock.heard(found[-1][-1])
        return [
            Peek(queue, bool(is_ready), due, late, bool(owned), bool(parked), bool(new), crons)
            for queue, is_ready, due, late, owned, parked, new, crons, _ in found
        ]

    def locked(self, queues: Sequence[int]) -> set[int]:
        found = set[int]()
        with self._using() as conn:
            sql = self._sql(conn)
            for queue in queues:
                try:
                    sql.found("locked", queue)
                except pymysql.Error as error:
                    if is_deadlock(error) or number_of(error) not in BUSY:
                        raise
                    found.add(queue)
                with suppress(pymysql.Error):
                    conn.run("ROLLBACK")
        return found

    def unused_answers(self, queues: Sequence[int], most: int) -> dict[str, int]:
        asked = [
            ("unused_answers", 0, {"queue": queue, "state": state, "most": most})
            for queue in queues
            for state in UNUSED
        ]
        found: dict[str, int] = {}
        with self._reading() as sql:
            for state, count in sql.each(asked):
                if count:
                    found[state] = found.get(state, 0) + count
        return found

    def lanes(self, queue: int, before: Mapping[str, str], each: int, count: int) -> list[WaitingLane]:
        with self._reading() as sql:
            found = sql.each(
                ("lanes", queue, {"tenant": name, "lane": lane, "each": each}) for name, lane in before.items()
            )
            asked = [("lanes_count", queue, {"tenant": tenant, "lane": lane, "count": count}) for lane, tenant in found]
            return [WaitingLane(*row) for row in sql.each(asked) if row[2]]
