"""The PostgreSQL store: every verb one statement or one transaction, from a small pool of connections.

Safe beside any number of other processes without a lock of its own: a row is locked before it is written, every write
names its token, and claims pass over rows that others have locked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, overload
from weakref import WeakSet

import msgspec
import psycopg
from psycopg.pq import TransactionStatus

from hipq.errors import Invalid, SchemaError, StoreUnavailable
from hipq.job.event_names import JobEvent
from hipq.job.model import LISTED, Brief, Change, New, Row, queue_of
from hipq.job.states import ANSWERED, PARKED, WAITING
from hipq.stores import large, migrations
from hipq.stores.claim_groups import RankPosition
from hipq.stores.claims import ANY_TYPE, Claim, Peek, Turned
from hipq.stores.clock import Clock
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE, close_out, keys_to_lock, match_waiting
from hipq.stores.password import without_password
from hipq.stores.postgres import schema
from hipq.stores.postgres.connection import (
    CALLER_SECONDS,
    POOL_SIZE,
    Connection,
    Connections,
    in_transaction,
    patiently,
    translated,
)
from hipq.stores.postgres.dialect import PostgresDialect
from hipq.stores.postgres.inbox import AnswerVerbs, PostgresInbox, given, lock_keys
from hipq.stores.postgres.insert import Insert, cursor
from hipq.stores.postgres.listing import condition, page, planned
from hipq.stores.postgres.moment import DatabaseClock
from hipq.stores.postgres.rule_claims import Rulebook
from hipq.stores.postgres.rules import RuleVerbs
from hipq.stores.postgres.scan_floor import BOTTOM, TOP, ScanFloor
from hipq.stores.postgres.session import ANSWER_SECONDS, LONG_SECONDS, MIGRATION_SECONDS
from hipq.stores.postgres.statements import READ, Statements
from hipq.stores.postgres.turn import Settle, Take, freed, listed, ready, rows
from hipq.stores.postgres.wake import LATEST_ID, Listener, Notices, is_soon, lowest, notify, soon
from hipq.stores.rule_claims import Picked
from hipq.stores.sql.settle import Saved
from hipq.stores.values import EARLIEST, EndPlace, EngineSeen, Pruned, QueueTables, Stored
from hipq.stores.waker import Waker


class PostgresStore(PostgresDialect, RuleVerbs, AnswerVerbs):
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
        self._known = schema.known()
        self._identity = ""
        self._statements = Statements(self.queues)
        self._insert = Insert(self._statements)
        self._settle = Settle(self._statements, self._insert)
        self._notices = Notices()
        self._trusted: WeakSet[psycopg.Connection[Any]] = WeakSet()
        self._listeners: list[Listener] = []
        self._start()

    def _start(self) -> None:
        """What a child has of its own after a fork: descriptors, and locks that may have been held at that moment."""
        self._waker = Waker()
        self._database_clock = DatabaseClock(self._db)
        self._floors = ScanFloor()
        self._rulebook = Rulebook(self._statements, self.now)
        self._take = Take(self._statements, self._floors, self._rulebook)
        self._listener = Listener(self._db.connect_to_listen, self._db.is_own, self._floors.lower, self._unheard)
        self._listeners.append(self._listener)  # a child keeps its parent's, and does not touch it

    def now(self) -> int:
        if self._clock:
            return self._clock.now()
        self._db.check_fork()
        return self._database_clock.now()

    def close(self) -> None:
        self._db.check_fork()
        self._listener.close()
        self._db.close()
        self._waker.close()

    # -- setting up -------------------------------------------------------------------------------------------------
    def migrate(self) -> list[str]:
        with self._db.using(MIGRATION_SECONDS) as conn, conn.transaction():
            try:
                applied = schema.migrate(conn, self._known)
            except psycopg.errors.InsufficientPrivilege as error:
                raise _may_not_create(self.url, error) from None
            self._check(conn)
        return applied

    def _check(self, conn: Connection) -> None:
        found, accepts, identity = schema.version(conn)
        migrations.check_version(found, accepts, self._known, self.url)
        if identity.startswith(schema.INCOMING):
            raise StoreUnavailable(
                f"{self.url} has a copy of jobs that are still elsewhere: run `hipq move` to its end"
            )
        self._identity = identity

    def arrived(self, move: str) -> None:
        """Jobs have moved here, and the signpost says so: from now on they may be used."""
        query = "UPDATE hipq_meta SET identity = %s WHERE identity = %s"
        with self._db.using() as conn:
            arrived = schema.ARRIVED + move
            conn.execute(query, (arrived, schema.INCOMING + move))
            if schema.version(conn)[2] != arrived:
                raise StoreUnavailable(
                    f"{self.url} is not the database that jobs were moved to, or is as it was before: restored from an "
                    "older backup, perhaps"
                )

    def _using(self, answer_seconds: float = 0) -> AbstractContextManager[Connection]:
        """A connection to a database that is known to have our tables."""
        if not self._identity:
            with self._db.using() as conn:
                self._check(conn)
        return self._db.using(answer_seconds)

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        with self._using() as conn:
            found = schema.complete(conn, self._known, app, name, table)
            self._check(conn)  # after that look: what was found may have been moved here just now
            if not found:
                found = self._made(conn, app, name, table)
        self._statements.learn([found])
        return found

    def _made(self, conn: Connection, app: str, name: str, table: str) -> QueueTables:
        with conn.transaction():
            schema.lock(conn, CALLER_SECONDS)
            self._check(conn)
            try:
                return schema.complete_now(conn, self._known, app, name, table)
            except psycopg.errors.InsufficientPrivilege as error:
                raise _may_not_create(f"{self.url}: queue {app}.{name}", error) from None

    def queues(self, app: str = "") -> list[QueueTables]:
        with self._using() as conn:
            found = schema.registered(conn)
        self._statements.learn(found)
        return [queue for queue in found if not app or queue.app == app]

    def drop_queue(self, number: int) -> None:
        with self._using(LONG_SECONDS) as conn:
            in_transaction(conn, lambda: schema.drop(conn, number))
        self._statements.forget(number)

    def restored(self, margin: int) -> None:
        with self._using(MIGRATION_SECONDS) as conn:
            in_transaction(conn, lambda: schema.restored(conn, margin))

    def _table(self, queue: int) -> str:
        return self._statements.table(queue)

    # -- adding -----------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        if not jobs:
            return []
        if conn is not None:
            return self._insert_in(conn, jobs, all_or_nothing)
        with self._using() as own:
            stored = self._added(own, jobs, all_or_nothing)
        self.notify()
        return stored

    def _added(self, conn: Connection, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        if len(jobs) == 1 and not large.oversized([(0, jobs[0].job_data)]):
            try:
                return [self._added_one(conn, jobs[0], all_or_nothing)]
            except (psycopg.errors.LockNotAvailable, psycopg.errors.ProgramLimitExceeded):
                pass  # somebody's lock, or no room for notices: it can be stored all the same
        stored = patiently(conn, lambda: self._insert.many(conn, jobs, all_or_nothing))
        self._announce(conn, lowest(soon(jobs, stored)))
        return stored

    def _added_one(self, conn: Connection, job: New, all_or_nothing: bool) -> Stored:
        """Told with what stores it: a notice is a commit, and a second one would cost as much as the first."""
        notify = is_soon(job) and self._notices.wanted(job.queue, (job.rank, LATEST_ID))
        told = False
        try:
            stored = self._insert.one(conn, job, all_or_nothing, notify)
            told = not stored.duplicate
        finally:
            if notify and not told:
                self._notices.unsent(job.queue)
        if not stored.duplicate:
            self._floors.lower(job.queue, (job.rank, stored.id))
        return stored

    def _insert_in(self, conn: Any, jobs: Sequence[New], all_or_nothing: bool) -> list[Stored]:
        """Insert inside a user's transaction; an error undoes our part of it and no more."""
        usable(conn)
        try:
            if not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
                cursor(conn).execute("SELECT")  # begins their transaction, which is theirs to commit
            with conn.transaction():  # a savepoint, unless they are in autocommit mode and in no transaction
                self._trust(conn)
                stored = self._insert.many(conn, jobs, all_or_nothing, may_copy=False)
                for queue, place in lowest(soon(jobs, stored)).items():
                    notify(conn, queue, place)
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        return stored

    def _trust(self, conn: psycopg.Connection[Any]) -> None:
        """Refuse a connection to another database: a job stored there would never be run."""
        if conn in self._trusted:
            return
        there = cursor(conn).execute("SELECT to_regclass('hipq_meta') IS NOT NULL").fetchone() == (True,)
        found = cursor(conn).execute("SELECT identity FROM hipq_meta").fetchone() if there else None
        with self._using():  # which knows whose database this should be
            pass
        if found != (self._identity,):
            raise Invalid(f"conn is open on the database {conn.info.dbname!r} of {conn.info.host}, not on {self.url}")
        self._trusted.add(conn)

    def _announce(self, conn: Connection, ready: Mapping[int, RankPosition]) -> None:
        """Tell this process's claims and other processes' engines what was committed and is due."""
        for queue, place in ready.items():
            self._floors.lower(queue, place)
            if self._notices.wanted(queue, place):
                try:
                    notify(conn, queue, place)
                except psycopg.Error:
                    pass  # the jobs are stored: that must not look like a failure, and engines look by themselves

    # -- the turn ---------------------------------------------------------------------------------------------------
    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        with self._using() as conn:
            query = self._statements.of("unpark" if phase == PARKED else "stage", queue)
            staged = conn.execute(query, {"now": now, "limit": limit}, binary=True).fetchall()
            self._announce(conn, lowest((queue, (rank, job_id)) for rank, job_id in staged))
        return len(staged)

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        entry = msgspec.json.encode({"at": now, "event": JobEvent.CLAIMED, "by": engine_id}).decode()
        values = {"engine_id": engine_id, "now": now, "entry": entry}
        with self._using() as conn:
            if self._listener.hear():
                self.notify()  # what was heard now, no later wait hears

            def work() -> tuple[Turned, Saved, dict[int, tuple[list[Row], Picked]]]:
                if keys := keys_to_lock(changes):  # keys, then jobs, then answers: so do all
                    lock_keys(conn, self._statements, keys)
                    self._settle.lock(conn, {change.before.id for change in changes})
                inbox = PostgresInbox(conn, self._statements, self._settle)
                matched = match_waiting(inbox, changes, now)
                saved = self._settle.save(conn, matched.changes)
                placed = close_out(inbox, saved.changes, matched, now)
                by_queue = sorted(range(len(claims)), key=lambda n: claims[n].queue)  # so that nobody deadlocks
                turned = Turned(
                    saved.lost, [*won], saved.children, answered=matched.answered(saved.lost), placed=placed
                )
                return turned, saved, {n: self._take.claim(conn, claims[n], values) for n in by_queue}

            try:
                if not changes and len(claims) == 1:
                    # One statement that writes needs no transaction around it.
                    won, picked = self._take.freely(conn, claims[0], values)
                    if picked:
                        turned = Turned(frozenset(), [])
                        turned.add(claims[0].queue, won, picked)
                        return self._with_answers(conn, turned)
                    claims = [claims[0]._replace(limit=claims[0].limit - len(won))]
                else:
                    won = []
                turned, saved, found = in_transaction(conn, work)
            except BaseException:
                for claim in claims:
                    self._floors.lower(claim.queue, BOTTOM)  # what it claimed is ready as before
                raise
            due = ready(saved)
            self._announce(conn, due)
            for queue in freed(saved) - due.keys():
                if self._rulebook.limited(queue) and self._rulebook.shared(queue):
                    self._announce(conn, {queue: TOP})  # others may have waited for that
            taken = {queue_of(change.before.id) for change in changes if change.before.owner not in (0, engine_id)}
            self._announce(conn, dict.fromkeys(taken - due.keys(), TOP))  # whose handlers need not go on
            for n, claim in enumerate(claims):
                turned.add(claim.queue, *found[n])
            return self._with_answers(conn, turned)

    def _with_answers(self, conn: Connection, turned: Turned) -> Turned:
        """After the claim is committed: what a job has to look at is its own, and stays so."""
        turned.answers.update(given(conn, self._statements, [row.id for row in turned.won if row.phase == ANSWERED]))
        return turned

    def due(self, queue: int, phase: str, now: int, limit: int) -> list[Row]:
        name = "overdue" if phase == WAITING else "unranked"
        return self._select(self._statements.of(name, queue), {"now": now, "limit": limit})

    def prune(
        self, queue: int, before: EndPlace, limit: int, after: EndPlace = EARLIEST, job_type: str = "",
        code: str = "", tenant: str = "",
    ) -> Pruned:  # fmt: skip
        values = {
            "before_time": before[0], "before_id": before[1], "after_time": after[0], "after_id": after[1],
            "limit": limit, "job_type": job_type, "code": code, "tenant": tenant,
        }  # fmt: skip
        with self._using(LONG_SECONDS) as conn:
            found = conn.execute(self._statements.of("prune", queue), values).fetchone()
        return Pruned(found[0], (found[1], found[2])) if found else Pruned(0, None)

    def newest(self, queue: int, count: int) -> EndPlace | None:
        with self._using(LONG_SECONDS) as conn:
            found: EndPlace | None = conn.execute(self._statements.of("newest", queue), {"count": count}).fetchone()
        return found

    # -- engines and their leases -----------------------------------------------------------------------------------
    def take_lease(self, seconds: float, label: str, serves: str = "{}") -> int:
        ((engine_id,),) = self._lease("take_lease", seconds=seconds, label=label, serves=serves)
        return int(engine_id)

    def renew_lease(self, engine_id: int, seconds: float) -> bool:
        found = self._lease("renew_lease" if seconds else "drop_lease", seconds=seconds, engine_id=engine_id)
        return bool(found and seconds)

    def _lease(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        with self._using() as conn:
            return conn.execute(self._statements.plain(name), values).fetchall()

    def engines(self) -> list[EngineSeen]:
        with self._using() as conn:
            return schema.engines(conn)

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        if not queues:
            return []
        name, values = ("orphans" if engine_id is None else "owned"), {"engine_id": engine_id, "limit": limit}
        query = b" UNION ALL ".join(b"(%s)" % self._statements.of(name, queue) for queue in queues)
        with self._using() as conn:
            return rows(conn, query, values)

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        if not queues:
            return []
        query = b" UNION ALL ".join(self._statements.of("peek", queue) for queue, _ in queues)
        with self._using() as conn:
            deciding = ["", *strategies]
            values = [value for _, types in queues for value in (list(types), list(types), deciding, ANY_TYPE in types)]
            found = conn.execute(query, values).fetchall()
        self._database_clock.heard(found[-1][-1])
        return [Peek(*row[:-1]) for row in found]

    def get(self, job_id: int) -> Row | None:
        if not -(1 << 63) <= job_id < 1 << 63 or not self._statements.knows(queue_of(job_id)):
            return None
        found = self._select(self._statements.of("get", queue_of(job_id)), {"id": job_id})
        return found[0] if found else None

    @overload
    def find(self, wanted: Filter, *, brief: Literal[True]) -> list[Brief]: ...
    @overload
    def find(self, wanted: Filter) -> list[Row]: ...
    def find(self, wanted: Filter, *, brief: bool = False) -> list[Brief] | list[Row]:
        query = self._page(wanted, ", ".join(LISTED) if brief else READ)
        if not query:
            return []
        with self._using(LONG_SECONDS) as conn, planned(conn, wanted):
            if brief:
                return listed(conn, query, wanted._asdict())
            return rows(conn, query, wanted._asdict(), prepare=False)

    def reach(self, wanted: Filter, rows: int) -> int:
        only = Filter(wanted.queue, tenant=wanted.tenant, job_key=wanted.job_key, after=wanted.after)
        tables = [table for table in wanted.tables if not (wanted.job_key and table == "live")]  # there are but a few
        last = {"columns": "id", "limit": "1 OFFSET %(rows)s - 1"}
        found = self._of_tables("find", wanted.queue, {table: page(only, table) | last for table in tables})
        if not found:
            return 0
        query = b"SELECT coalesce(min(id), 0) FROM (%s) AS found" % found
        with self._using(LONG_SECONDS) as conn, planned(conn, only):
            ((last_id,),) = conn.execute(query, only._asdict() | {"rows": rows}, prepare=False).fetchall()
        return int(last_id)

    def _page(self, wanted: Filter, columns: str) -> bytes:
        parts = {table: page(wanted, table) | {"columns": columns} for table in wanted.tables}
        found = self._of_tables("find", wanted.queue, parts)
        return b"SELECT * FROM (%s) AS found ORDER BY id LIMIT %%(limit)s" % found if found else b""

    def count(self, wanted: Filter) -> int:
        found = self._of_tables("count", wanted.queue, {table: {"where": condition(wanted)} for table in wanted.tables})
        if not found:
            return 0
        query = b"SELECT count(*) FROM (SELECT 1 FROM (%s) AS found LIMIT %%(limit)s) AS counted" % found
        with self._using(LONG_SECONDS) as conn:
            ((count,),) = conn.execute(query, wanted._asdict(), prepare=False).fetchall()
        return int(count)

    def _of_tables(self, name: str, queue: int, parts: Mapping[str, Mapping[str, str]]) -> bytes:
        """A file's statement for each of these tables, with its parts; b"" if there is none."""
        found = [self._statements.of(name, queue, table=f"{{{table}}}", **more) for table, more in parts.items()]
        return b" UNION ALL ".join(b"(%s)" % one for one in found)

    def locked(self, queues: Sequence[int]) -> set[int]:
        tables = [self._table(queue) for queue in queues]
        with self._using() as conn:
            found = conn.execute(self._statements.plain("locked"), {"queues": list(queues), "tables": tables})
            return {queue for (queue,) in found.fetchall()}

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        if not ids:
            return {}
        query = b" UNION ALL ".join(self._statements.of("tokens", queue) for queue in sorted(set(map(queue_of, ids))))
        with self._using() as conn:
            return dict(conn.execute(query, {"ids": list(ids)}).fetchall())

    def _select(self, query: bytes, values: Any) -> list[Row]:
        with self._using() as conn:
            return rows(conn, query, values)

    # -- waking -----------------------------------------------------------------------------------------------------
    def _unheard(self) -> None:
        """Anything may have happened: nobody listened."""
        self._floors.forget()
        self.notify()

    def notify(self, *, done: bool = False) -> None:
        self._waker.notify(done=done)

    def clear(self) -> None:
        self._waker.clear()

    def wait(self, seconds: float) -> bool:
        self._db.check_fork()
        descriptor = self._listener.fileno()
        rang, news = self._waker.wait(seconds, () if descriptor < 0 else (descriptor,))
        heard = bool(news) and self._listener.hear()
        return rang or heard


def _may_not_create(whose: str, error: psycopg.Error) -> SchemaError:
    return SchemaError(
        f"{whose} lacks tables, and this role may not make them ({error.diag.message_primary}): run `hipq migrate "
        "MODULE:APP` as the role that owns the schema"
    )


def usable(conn: Any) -> Connection:
    """A user's connection, if jobs can be added through it."""
    if not isinstance(conn, psycopg.Connection):
        kind = f"{type(conn).__module__}.{type(conn).__name__}"
        raise Invalid(f"conn must be a psycopg.Connection (psycopg 3, not async), not {kind}")
    if conn.info.transaction_status == TransactionStatus.INERROR:
        raise Invalid("conn is in a transaction that has failed; roll it back first")
    return conn
