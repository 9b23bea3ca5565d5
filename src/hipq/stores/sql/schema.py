"""The schema's version, its migrations, and the registry of queues with the tables of each.

The steps are the same in all databases; each says in SQL of its own what differs.

One session at a time changes a schema. Where what makes a table is committed at once, each step can be taken again: the
registry says last what is done.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from hipq.errors import NameClash
from hipq.stores import migrations
from hipq.stores.sql.dialect import Sql
from hipq.stores.values import EngineSeen, QueueTables

Engines = Callable[[], Iterable[EngineSeen]]
_BESIDE: Final = ("hipq_payloads", "hipq_progress")
"""What is filed under the ids of jobs;"""
_OF_QUEUES: Final = ("hipq_answers", "hipq_tickets", "hipq_crons", "hipq_activity")
"""and what is filed under the numbers of queues."""


class Version(NamedTuple):
    number: int = 0
    """That of the last migration; 0 = there are no tables yet."""
    accepts: int = 0
    """The oldest program that works on it."""
    identity: str = ""
    """What tells this database from all others, if it is a server's."""


class Schema(ABC):
    """The schema of the database that a connection leads to, and the migrations that this program knows."""

    package: ClassVar[str]
    """Where its migrations are."""
    errors: ClassVar[type[Exception]]
    """What the driver raises."""
    there: ClassVar[str]
    """A query for those of `:names` that are tables, or take the name of one."""
    places: ClassVar[Mapping[str, str]] = {}
    """Queries for what differs in a copy of a database."""
    note: ClassVar[str] = "hipq_meta"
    """The table that says where the database was made."""

    def __init__(self, sql: Sql, known: list[migrations.Migration] | None = None) -> None:
        self.sql = sql
        self.known = known or migrations.migrations(self.package)

    # -- the database -----------------------------------------------------------------------------------------------
    @abstractmethod
    def version(self) -> Version: ...

    @abstractmethod
    def _note_version(self, migration: migrations.Migration, *, is_first: bool) -> None:
        """The tables are as this migration leaves them."""

    def migrate(self) -> list[str]:
        """Apply what the database or a queue has not had; the names of what was applied."""
        found = self.version().number
        applied: list[str] = []
        for migration in self.known:
            if is_new := migration.number > found:
                self._script(migration.database)
                self._note_version(migration, is_first=not found and not applied)
            behind = [queue for queue, level in self.levels() if 0 < level < migration.number]
            for queue in behind:
                self.extend([migration], queue)
            if is_new or behind:
                applied.append(migration.name)
        if not found:
            self.note_place()
        return applied

    def is_complete(self) -> bool:
        """Whether neither the database nor a queue lacks anything this program knows of."""
        mine = self.known[-1].number
        return self.version().number >= mine and all(level >= mine for _, level in self.levels())

    def place(self) -> dict[str, str]:
        """Where the database is; without what the server does not tell this user, or does not know."""
        found = {}
        for name, query in self.places.items():
            with suppress(self.errors, ValueError), self._apart():
                ((value,),) = self.sql.rows_of(query)
                found[name] = str(value)
        return found

    def _apart(self) -> AbstractContextManager[Any]:
        """A failure in it leaves the transaction as it was."""
        return nullcontext()

    def note_place(self) -> None:
        """Whatever this database is a copy of, it lives here from now on."""
        self.sql.write(f"UPDATE {self.note} SET place = :place", place=msgspec.json.encode(self.place()).decode())

    def noted_place(self) -> dict[str, str]:
        found = self.sql.rows_of(f"SELECT place FROM {self.note}")
        return {
            name: text for (facts,) in found for name, text in msgspec.json.decode(facts, type=dict[str, str]).items()
        }

    def restored(self, margin: int, engines: Engines) -> None:
        """Move on whatever counts."""
        self.note_place()
        if not margin:
            return
        migrations.check_stopped(engines())
        self.sql.write("DELETE FROM hipq_engines")
        for table, column in (("hipq_engines", "engine_id"), ("hipq_answers", "id")):
            self.count_from(table, column, self._last(table, column) + margin)
        queues = self.registered()
        for queue in queues:
            self.ids_from(queue.table, self._last_id(queue.table) + margin)
            self.sql.write(f"UPDATE {queue.table} SET token = token + :margin", margin=margin)
        self._queues_from(max((queue.number for queue in queues), default=0))
        self.sql.write("UPDATE hipq_dropped SET highest = highest + :lost", lost=migrations.QUEUES_LOST)

    def number_above(self, queue: int, answer: int) -> None:
        """Move the counters of queues and answers on, as far as they are not there yet."""
        self._queues_from(queue)
        self.count_from("hipq_answers", "id", answer)

    def _queues_from(self, number: int) -> None:
        self.sql.write("UPDATE hipq_dropped SET highest = :number WHERE highest < :number", number=number)

    # -- the registry of queues -------------------------------------------------------------------------------------
    def levels(self, which: str = "", **values: Any) -> list[tuple[QueueTables, int]]:
        """The queues, each with the number of the last migration its tables have had."""
        query = f'SELECT number, app, name, "table", "schema" FROM hipq_queues {which} ORDER BY number'
        return [(QueueTables(*row[:4]), row[4]) for row in self.sql.rows_of(query, **values)]

    def registered(self) -> list[QueueTables]:
        return [queue for queue, level in self.levels() if level > 0]

    def complete(self, app: str, name: str, table: str) -> QueueTables | None:
        """This queue, if it is registered and its tables lack nothing this program knows of."""
        levels = dict(self.levels("WHERE app = :app AND name = :name", app=app, name=name))
        found = migrations.owner(list(levels), app, name, table)
        return found if found and not migrations.lacking(self.known, levels[found]) else None

    def complete_now(self, app: str, name: str, table: str) -> QueueTables:
        """Register a queue, unless somebody was first, and give its tables what they lack."""
        levels = dict(self.levels())
        queue = migrations.owner(list(levels), app, name, table)
        if not queue:
            self.check_free(app, name, table)
            ((dropped,),) = self.sql.rows_of("SELECT highest FROM hipq_dropped")
            queue = QueueTables(migrations.next_number(levels, dropped), app, name, table)
            self.sql.write(
                'INSERT INTO hipq_queues (number, app, name, "table", "schema") '
                "VALUES (:number, :app, :name, :table, 0)",
                **queue._asdict(),
            )
        try:
            self.extend(migrations.lacking(self.known, levels.get(queue, 0)), queue)
        except self.errors as error:
            if reason := self.clash(error):
                raise NameClash(f"queue {app}.{name} wants the table {table}: {reason}") from None
            raise
        return queue

    def check_free(self, app: str, name: str, table: str) -> None:
        """Raise if somebody has tables by the names of this queue's."""
        if self.sql.rows_of(self.there, names=[table, f"{table}_final", f"{table}_ids"]):
            raise NameClash(f"queue {app}.{name} wants the table {table}, and {table} or {table}_final exists already")

    def extend(self, some: Sequence[migrations.Migration], queue: QueueTables) -> None:
        for migration in some:
            self._script(migrations.tables(migration.queue, queue))
            self._note_level(queue.number, migration.number)

    def _note_level(self, queue: int, level: int) -> None:
        self.sql.write('UPDATE hipq_queues SET "schema" = :level WHERE number = :number', level=level, number=queue)

    def drop(self, number: int, engines: Engines) -> None:
        """Remove a queue and all that is filed under its number."""
        queue = migrations.numbered(self.registered(), number)
        migrations.check_left(queue, engines(), set())  # before an engine at work has to wait for us
        self._lock_out(queue, engines)
        self._remove([queue.table, f"{queue.table}_final"])
        self._drop_ids(queue.table)
        self._forget(number)

    @abstractmethod
    def _lock_out(self, queue: QueueTables, engines: Engines) -> None:
        """From here on nobody uses the tables of this queue; `_check_left` has looked under that lock."""

    def _check_left(self, queue: QueueTables, engines: Engines) -> None:
        owners = self.sql.rows_of(f"SELECT DISTINCT owner FROM {queue.table} WHERE owner <> 0")
        migrations.check_left(queue, engines(), {owner for (owner,) in owners})

    def _remove(self, tables: Sequence[str]) -> None:
        for table in tables:
            for beside in _BESIDE:
                self.sql.write(f"DELETE FROM {beside} WHERE id IN (SELECT id FROM {table})")
            self.sql.write(f"DROP TABLE {table}")

    def _forget(self, number: int) -> None:
        for table in _OF_QUEUES:
            self.sql.write(f"DELETE FROM {table} WHERE queue = :number", number=number)
        self.sql.write("DELETE FROM hipq_queues WHERE number = :number", number=number)
        self._queues_from(number)

    def drop_tables(self, live: str) -> None:
        """The tables of a queue and what counts its ids, as far as they are there."""
        for table in (live, f"{live}_final"):
            self.sql.write(f"DROP TABLE IF EXISTS {table}")
        self._drop_ids(live)

    # -- what databases write otherwise -----------------------------------------------------------------------------
    @abstractmethod
    def _script(self, text: str) -> None:
        """Run the statements of a migration."""

    @abstractmethod
    def count_from(self, table: str, column: str, last: int) -> None:
        """The next row of a table gets a number above this one."""

    @abstractmethod
    def _last(self, table: str, column: str) -> int:
        """The number that a row of a table got last, or would get now."""

    def _drop_ids(self, live: str) -> None:  # noqa: B027
        """Drop what counts the ids of a queue, if that is apart from the registry."""

    @abstractmethod
    def ids_from(self, live: str, last: int) -> None:
        """The next job of a queue gets an id above this one."""

    @abstractmethod
    def _last_id(self, live: str) -> int: ...

    def clash(self, error: Exception) -> str:  # noqa: ARG002
        """What an error says, if a name of an index is taken."""
        return ""


class ServerSchema(Schema):
    """That of a server's database, which has a name of its own."""

    def version(self) -> Version:
        if not self.sql.rows_of(self.there, names=["hipq_meta"]):
            return Version()
        found = self.sql.rows_of("SELECT version, accepts, identity FROM hipq_meta")
        return Version(*found[0]) if found else Version()

    def _note_version(self, migration: migrations.Migration, *, is_first: bool) -> None:
        query = "UPDATE hipq_meta SET version = :version, accepts = :accepts"
        if is_first:
            query = "INSERT INTO hipq_meta (version, accepts) VALUES (:version, :accepts)"
        self.sql.write(query, version=migration.number, accepts=migration.accepts)

    def rename(self, name: str, instead_of: str) -> None:
        """What tells the database from all others."""
        query = "UPDATE hipq_meta SET identity = :name WHERE identity = :before"
        self.sql.write(query, name=name, before=instead_of)

    @abstractmethod
    def forbidden(self, error: Exception) -> str:
        """What an error says, if this user may not make tables."""
