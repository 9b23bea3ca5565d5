"""The SQLite store: every verb one `BEGIN IMMEDIATE` transaction on one connection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, overload

import msgspec

from hipq.errors import StoreUnavailable
from hipq.job.model import LISTED, Brief, Change, New, Row, queue_of
from hipq.job.states import ANSWERED, PARKED, WAITING
from hipq.stores import migrations
from hipq.stores.claims import ANY_TYPE, Claim, Peek, Turned
from hipq.stores.clock import Clock, SystemClock, boot_id
from hipq.stores.filters import Filter
from hipq.stores.inbox_transaction import KEYS_AT_ONCE, close_out, match_waiting
from hipq.stores.sqlite import schema
from hipq.stores.sqlite.batch import NAMES, in_json, read, read_listed
from hipq.stores.sqlite.connection import Connection, signpost
from hipq.stores.sqlite.dialect import SqliteDialect
from hipq.stores.sqlite.inbox import AnswerVerbs, SqliteInbox, given
from hipq.stores.sqlite.insert import Insert, checked
from hipq.stores.sqlite.rule_claims import Rulebook, texts
from hipq.stores.sqlite.rules import RuleVerbs
from hipq.stores.sqlite.statements import Statements
from hipq.stores.sqlite.tickets import Tickets
from hipq.stores.sqlite.turn import Settle, Take
from hipq.stores.sqlite.watch import Watch
from hipq.stores.values import EARLIEST, EndPlace, EngineSeen, Pruned, QueueTables, Stored
from hipq.stores.waker import Waker

T = TypeVar("T")
SYNC_SECONDS: Final = 1.0
"""The longest a commit is waited for whose pages were seen to be written."""
MOVING: Final = '{"moving":[]}'
"""What an engine serves that is none, but moves the jobs elsewhere: while it is alive, nobody claims any."""
_MANY_QUEUES: Final = 100
"""SQLite joins at most 500 SELECTs in one statement."""


class SqliteStore(SqliteDialect, RuleVerbs, AnswerVerbs):
    at_once = 1
    changes_at_once = KEYS_AT_ONCE

    def __init__(self, path: str, clock: Clock | None = None, lent: Connection | None = None) -> None:
        """`lent`: somebody else's connection, in the place of one of ours; then nothing is migrated here."""
        self.url = f"sqlite:///{path}" if path else "sqlite://"
        self.path = path
        self._clock = clock or SystemClock()
        self._boot = boot_id()
        self._known = schema.known()
        self._statements = Statements(self.queues)
        self._insert = Insert(self._statements)
        self._settle = Settle(self._statements, self._insert)
        self._rulebook = Rulebook(self._statements, self.now)
        self._take = Take(self._statements, self._rulebook)
        self._tickets = Tickets(self._clock, self._boot)
        self._db = lent or Connection(path, on_fork=self._start)
        self._start()
        if lent is None:
            self.migrate()

    def _start(self) -> None:
        """What a child has of its own after a fork: its parent's descriptors would take each other's news."""
        self._waker = Waker()
        self._watch: Watch | None = None
        self._version_seen = 0

    def now(self) -> int:
        return self._clock.now()

    def close(self) -> None:
        self._db.close()
        self._waker.close()
        if self._watch:
            self._watch.close()

    # -- setting up -------------------------------------------------------------------------------------------------
    def migrate(self) -> list[str]:
        applied = []
        with self._db.reading() as conn:
            if moved := signpost(conn):
                raise moved
            found, accepts = schema.version(conn)
            migrated = found > 0 and schema.migrated(conn, self._known)
        if not migrated:
            with self._db.writing() as conn:
                applied = schema.migrate(conn, self._known)  # nothing, if another process was first
                if not found and applied and self.path:
                    schema.note_place(conn, self._db.path)
                migrations.check_version(*schema.version(conn), self._known, self.url)
        else:
            migrations.check_version(found, accepts, self._known, self.url)
        return applied

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        with self._db.reading() as conn:
            found = schema.complete(conn, self._known, app, name, table)
        if not found:
            with self._db.writing() as conn:
                found = schema.complete_now(conn, self._known, app, name, table)
        self._statements.learn([found])
        return found

    def queues(self, app: str = "") -> list[QueueTables]:
        with self._db.reading() as conn:
            found = schema.registered(conn)
        self._statements.learn(found)
        return [queue for queue in found if not app or queue.app == app]

    def drop_queue(self, number: int) -> None:
        with self._db.writing() as conn:
            queue = migrations.numbered(schema.registered(conn), number)
            owners = conn.execute(f"SELECT DISTINCT owner FROM {queue.table} WHERE owner <> 0").fetchall()
            migrations.check_left(queue, self._engines(conn), {owner for (owner,) in owners})
            schema.drop(conn, queue)
        self._statements.forget(number)

    def restored(self, margin: int) -> None:
        with self._db.writing() as conn:
            if self.path:
                schema.note_place(conn, self._db.path)
            if not margin:
                return
            migrations.check_stopped(self._engines(conn))
            conn.execute("DELETE FROM hipq_engines")
            conn.execute("UPDATE hipq_queues SET last_id = last_id + ?", (margin,))
            for table in ("hipq_engines", "hipq_answers"):
                if (
                    conn.execute("UPDATE sqlite_sequence SET seq = seq + ? WHERE name = ?", (margin, table)).rowcount
                    == 0
                ):
                    conn.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, margin))
            for queue in schema.registered(conn):
                conn.execute(f"UPDATE {queue.table} SET token = token + ?", (margin,))
            query = (
                "UPDATE hipq_dropped SET highest = ? + max(highest, coalesce((SELECT max(number) FROM hipq_queues), 0))"
            )
            conn.execute(query, (migrations.QUEUES_LOST,))

    # -- adding -----------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        if conn is not None:
            for queue in {job.queue for job in jobs}:
                self._statements.table(
                    queue
                )  # before their transaction holds the write lock our connection may wait for
            self._db.check()
            try:
                return self._insert.inside(checked(conn, self._db.path), jobs, all_or_nothing)
            except StoreUnavailable:
                self.queues()  # which says if they have moved
                raise
        with self._db.writing() as own:
            stored = self._insert.many(own, jobs, all_or_nothing)
        self.notify()
        return stored

    # -- the turn ---------------------------------------------------------------------------------------------------
    def stage(self, queue: int, phase: str, now: int, limit: int) -> int:
        name = "unpark" if phase == PARKED else "stage"
        with self._db.writing() as conn:
            return conn.execute(self._statements.of(name, queue), {"now": now, "limit": limit}).rowcount

    def turn(self, engine_id: int, changes: Sequence[Change], claims: Sequence[Claim], now: int) -> Turned:
        with self._db.writing() as conn:
            inbox = SqliteInbox(conn, self._statements, self._settle)
            matched = match_waiting(inbox, changes, now)
            saved = self._settle.save(conn, matched.changes)
            placed = close_out(inbox, saved.changes, matched, now)
            turned = Turned(saved.lost, [], saved.children, answered=matched.answered(saved.lost), placed=placed)
            if claims and self._alive(conn, engine_id):
                for claim in claims:
                    if not claim.ticket or self._tickets.used(conn, claim.queue, claim.ticket, engine_id):
                        turned.add(claim.queue, *self._take.claim(conn, engine_id, claim, now))
            turned.answers.update(given(conn, [row.id for row in turned.won if row.phase == ANSWERED]))
        return turned

    def _alive(self, conn: sqlite3.Connection, engine_id: int) -> bool:
        """Whether this engine may claim: it is alive, and nobody is moving the jobs elsewhere."""
        alive = "SELECT 1 FROM hipq_engines WHERE {} = ? AND lease_until > ? AND boot = ?"
        query = f"{alive.format('engine_id')} AND NOT EXISTS ({alive.format('serves')})"
        lease = (self._clock.steady(), self._boot)
        return bool(conn.execute(query, (engine_id, *lease, MOVING, *lease)).fetchall())

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
        with self._db.writing() as conn:
            gone, last, job_id = conn.execute(self._statements.of("prune", queue), values).fetchone()
            for table in (f"{self._statements.table(queue)}_final", "hipq_payloads"):
                conn.execute(f"DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (gone,))
        return Pruned(len(msgspec.json.decode(gone)), (last, job_id) if job_id is not None else None)

    def newest(self, queue: int, count: int) -> EndPlace | None:
        with self._db.reading() as conn:
            found = conn.execute(self._statements.of("newest", queue), {"count": count}).fetchall()
        return found[0] if found else None

    # -- engines and their leases -----------------------------------------------------------------------------------
    def take_lease(self, seconds: float, label: str, serves: str = "{}") -> int:
        with self._db.writing() as conn:
            steady = self._clock.steady()
            conn.execute("DELETE FROM hipq_engines WHERE lease_until <= ? OR boot <> ?", (steady, self._boot))
            query = "INSERT INTO hipq_engines (lease_until, boot, label, serves) VALUES (?, ?, ?, ?)"
            return conn.execute(query, (steady + round(seconds * 1e6), self._boot, label, serves)).lastrowid or 0

    def renew_lease(self, engine_id: int, seconds: float) -> bool:
        with self._db.writing() as conn:
            if not seconds:
                conn.execute("DELETE FROM hipq_engines WHERE engine_id = ?", (engine_id,))
                return False
            steady = self._clock.steady()
            query = "UPDATE hipq_engines SET lease_until = ? WHERE engine_id = ? AND lease_until > ? AND boot = ?"
            return conn.execute(query, (steady + round(seconds * 1e6), engine_id, steady, self._boot)).rowcount == 1

    def engines(self) -> list[EngineSeen]:
        with self._db.reading() as conn:
            return self._engines(conn)

    def _engines(self, conn: sqlite3.Connection) -> list[EngineSeen]:
        query = (
            "SELECT engine_id, label, serves FROM hipq_engines WHERE lease_until > ? AND boot = ? ORDER BY engine_id"
        )
        return [EngineSeen.of(*row) for row in conn.execute(query, (self._clock.steady(), self._boot)).fetchall()]

    def owned(self, queues: Sequence[int], engine_id: int | None, limit: int = 1 << 62) -> list[Row]:
        if engine_id is not None:
            return self._of_each("owned", queues, {"engine_id": engine_id, "limit": limit})
        values = {"steady": self._clock.steady(), "boot": self._boot, "limit": limit}
        return sorted(self._of_each("orphans", queues, values), key=lambda row: row.id)

    def _of_each(self, name: str, queues: Sequence[int], values: Mapping[str, Any]) -> list[Row]:
        """The rows a file's statement finds in each of these queues, in one statement."""
        found: list[Row] = []
        for start in range(0, len(queues), _MANY_QUEUES):
            parts = [f"SELECT * FROM ({self._statements.of(name, q)})" for q in queues[start : start + _MANY_QUEUES]]
            found += self._select(" UNION ALL ".join(parts), values)
        return found

    # -- looking ----------------------------------------------------------------------------------------------------
    def peek(self, queues: Sequence[tuple[int, tuple[str, ...]]], strategies: tuple[str, ...] = ()) -> list[Peek]:
        deciding, now = texts(("", *strategies)), self.now()
        found: list[Peek] = []
        for start in range(0, len(queues), _MANY_QUEUES):
            some = queues[start : start + _MANY_QUEUES]
            parts = [self._statements.of("peek", queue) for queue, _ in some]
            values = [
                value
                for _, types in some
                for value in (texts(types), now, texts(types), deciding, ANY_TYPE in types, now)
            ]
            with self._db.reading() as conn:
                rows = conn.execute(" UNION ALL ".join(parts), values).fetchall()
            found += [
                Peek(queue, bool(ready), due, late, bool(owned), bool(parked))
                for queue, ready, due, late, owned, parked in rows
            ]
        return found

    def get(self, job_id: int) -> Row | None:
        if not 0 < job_id < 1 << 63 or not self._statements.knows(queue_of(job_id)):
            return None
        rows = self._select(self._statements.of("get", queue_of(job_id)), {"id": job_id})
        return rows[0] if rows else None

    @overload
    def find(self, wanted: Filter, *, brief: Literal[True]) -> list[Brief]: ...
    @overload
    def find(self, wanted: Filter) -> list[Row]: ...
    def find(self, wanted: Filter, *, brief: bool = False) -> list[Brief] | list[Row]:
        query = self._page(wanted, ", ".join(LISTED) if brief else NAMES)
        if not query:
            return []
        with self._db.reading() as conn:
            return read_listed(conn, query, wanted._asdict()) if brief else read(conn, query, wanted._asdict())

    def reach(self, wanted: Filter, rows: int) -> int:
        only = Filter(wanted.queue, tenant=wanted.tenant, job_key=wanted.job_key, after=wanted.after)
        found = self._of_tables("reach", only, tables=wanted.tables)
        if not found:
            return 0
        with self._db.reading() as conn:
            query = f"SELECT coalesce(min(id), 0) FROM ({found})"
            return int(conn.execute(query, only._asdict() | {"rows": rows}).fetchone()[0])

    def _page(self, wanted: Filter, columns: str) -> str:
        found = self._of_tables("find", wanted, columns)
        return f"SELECT * FROM ({found}) ORDER BY id LIMIT :limit" if found else ""

    def count(self, wanted: Filter) -> int:
        found = self._of_tables("count", wanted)
        if not found:
            return 0
        with self._db.reading() as conn:
            query = f"SELECT count(*) FROM (SELECT 1 FROM ({found}) LIMIT :limit)"
            return int(conn.execute(query, wanted._asdict()).fetchone()[0])

    def _of_tables(self, name: str, wanted: Filter, columns: str = "", tables: Sequence[str] | None = None) -> str:
        """A file's statement for each table in which such jobs can be; "" if there is none."""
        one = self._statements.files[name].replace("{columns}", columns)
        one = one.replace("{where}", wanted.condition(":{}", "instr({}, {}) > 0"))
        parts = [
            f"SELECT * FROM ({one})".replace("{table}", f"{{{table}}}{_by_key(wanted, table)}")
            for table in (wanted.tables if tables is None else tables)
        ]
        return migrations.tables(" UNION ALL ".join(parts), self._statements.tables(wanted.queue))

    def locked(self, queues: Sequence[int]) -> set[int]:  # noqa: ARG002
        return set()  # a lock is one of the whole file

    def tokens(self, ids: Sequence[int]) -> dict[int, int]:
        queues = sorted({queue_of(job_id) for job_id in ids})
        found: dict[int, int] = {}
        for start in range(0, len(queues), _MANY_QUEUES):
            parts = [self._statements.of("tokens", queue) for queue in queues[start : start + _MANY_QUEUES]]
            with self._db.reading() as conn:
                found |= dict(conn.execute(" UNION ALL ".join(parts), {"ids": in_json(ids)}).fetchall())
        return found

    def _select(self, query: str, values: Any) -> list[Row]:
        with self._db.reading() as conn:
            return read(conn, query, values)

    # -- waking -----------------------------------------------------------------------------------------------------
    def notify(self, *, done: bool = False) -> None:
        self._waker.notify(done=done)

    def clear(self) -> None:
        self._waker.clear()

    def wait(self, seconds: float) -> bool:
        if self._watch is None and self.path:
            self._watch = Watch(self._db.path)
            self._version_seen = self._version()
            return True  # what was written between the caller's last look and this moment would not show: look again
        if self._watch is None or self._watch.fd < 0:
            return self._waker.wait(seconds)[0]
        self._watch.heard()  # our own writes; whatever another process wrote meanwhile shows in the version
        if self._changed():
            return True
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            rang, news = self._waker.wait(left, (self._watch.fd,))
            if not news:
                return rang
            if rang or (self._watch.heard() and self._committed(min(left, SYNC_SECONDS))):
                return True
        return False

    def _version(self) -> int:
        with self._db.reading() as conn:
            return int(conn.execute("PRAGMA data_version").fetchone()[0])

    def _changed(self) -> bool:
        version = self._version()
        changed = version != self._version_seen
        self._version_seen = version
        return changed

    def _committed(self, seconds: float) -> bool:
        """The kernel reports the write before SQLite shows the commit, which comes after the disk's sync: look again
        soon, and less often the longer it takes; but a handler that ended need not wait for that."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds and not self._waker.nudged:
            if self._changed() or self._waker.rung:  # a write of our own comes with a ring, not with a new version
                return True
            time.sleep(min(max(0.0002, passed / 5), 0.005))
        return False


def _by_key(wanted: Filter, table: str) -> str:
    """The index that finds a tenant's job by its key: SQLite would read all that the tenant has, in order."""
    if not (wanted.tenant and wanted.job_key):
        return ""
    return f" INDEXED BY {{{table}}}_{'key' if table == 'live' else 'named'}"
