"""The schema of a MariaDB database. What makes or drops a table is committed at once, by itself: what is there already
was made by somebody who was cut off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import pymysql

from hipq.errors import StoreBusy
from hipq.stores import migrations
from hipq.stores.mariadb.connection import number_of, waiting
from hipq.stores.mariadb.flavour import Flavour
from hipq.stores.sql.pool import CALLER_SECONDS
from hipq.stores.sql.schema import Engines, ServerSchema
from hipq.stores.values import QueueTables

T = TypeVar("T")
_THERE: Final = (1050, 1060, 1061, 1826, 3822)
"""A table, a column, an index or a check is there already; and what says that there is"""
_MAY_NOT: Final = (1142, 1044, 1227, 1370)
DROPPED: Final = -1
"""In the place of a queue's level: it is being dropped."""


class MariaSchema(ServerSchema):
    package = "hipq.stores.mariadb"
    errors = pymysql.Error
    there = (
        "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() "
        "AND table_name {in text names}"
    )
    places = {  # noqa: RUF012
        "server": "SELECT @@server_id",
        "host": "SELECT @@hostname",
        "folder": "SELECT @@datadir",
        "database": "SELECT DATABASE()",
        "table": "SELECT create_time FROM information_schema.tables "
        "WHERE table_schema = DATABASE() AND table_name = 'hipq_meta'",
    }

    @property
    def _flavour(self) -> Flavour:
        return self.sql.conn.flavour  # type: ignore[no-any-return]

    @contextmanager
    def locked(self, seconds: float) -> Iterator[None]:
        """Nobody else changes the schema meanwhile. The lock lasts until it is given back or the session ends, whatever
        is committed."""
        name = "CONCAT('hipq:', LEFT(SHA2(DATABASE(), 256), 40))"
        ((locked,),) = self.sql.rows_of(f"SELECT GET_LOCK({name}, {seconds or 3600})")
        if not locked:
            raise StoreBusy("MariaDB: somebody else is changing the tables of hipq")
        try:
            yield
        finally:
            with suppress(pymysql.Error, OSError):
                self.sql.rows_of(f"SELECT RELEASE_LOCK({name})")

    def alone(self, work: Callable[[], T], seconds: float) -> T:
        with self.locked(seconds):
            return work()

    def complete_now(self, app: str, name: str, table: str) -> QueueTables:
        for queue, level in self.levels():
            if level == DROPPED:
                self._dropped(queue)  # whoever began it was cut off
        return super().complete_now(app, name, table)

    def drop(self, number: int, engines: Engines) -> None:
        queue = migrations.numbered(self.registered(), number)
        with self.sql.conn.transaction():
            self._lock_out(queue, engines)
            self._note_level(number, DROPPED)
        self._dropped(queue)

    def _lock_out(self, queue: QueueTables, engines: Engines) -> None:
        """Its row is locked: nobody claims meanwhile, and later nobody knows the queue."""
        self.sql.rows_of("SELECT number FROM hipq_queues WHERE number = :number FOR UPDATE", number=queue.number)
        self._check_left(queue, engines)

    def _dropped(self, queue: QueueTables) -> None:
        """Its tables are locked before anything is deleted: who is adding a job ends first, or fails."""
        wanted = [queue.table, f"{queue.table}_final"]
        tables = [name for (name,) in self.sql.rows_of(self.there, names=wanted)]
        locks = ", ".join(f"{name} WRITE" for name in (*tables, "hipq_payloads", "hipq_progress"))
        with waiting(self.sql.conn, CALLER_SECONDS):
            self.sql.write(f"LOCK TABLES {locks}")
            try:
                self._remove(tables)
            finally:
                self.sql.write("UNLOCK TABLES")
        self._drop_ids(queue.table)
        with self.sql.conn.transaction():
            self._forget(queue.number)

    def _drop_ids(self, live: str) -> None:
        self.sql.write(self._flavour.drop_ids.format(live=live))

    def _script(self, text: str) -> None:
        for statement in re.sub(r"[ \t]*--.*", "", text).split(";\n"):
            if statement.strip():
                try:
                    self.sql.write(re.sub(r"\{ids (\w+)\}", self._ids, statement))
                except pymysql.Error as error:
                    if number_of(error) not in _THERE:
                        raise

    def _ids(self, found: re.Match[str]) -> str:
        return self._flavour.make_ids.format(live=found[1])

    def count_from(self, table: str, column: str, last: int) -> None:
        self.sql.write(f"ALTER TABLE {table} AUTO_INCREMENT = {max(self._last(table, column), last) + 1}")

    def _last(self, table: str, column: str) -> int:  # noqa: ARG002
        query = (
            "SELECT auto_increment FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name = :table"
        )
        ((following,),) = self.sql.rows_of(query, table=table)
        return int(following or 1) - 1

    def ids_from(self, live: str, last: int) -> None:
        self.sql.write(self._flavour.move_ids.format(live=live, to=last))

    def _last_id(self, live: str) -> int:
        ((last,),) = self.sql.rows_of(self._flavour.last_id.format(live=live))
        return int(last or 0)

    def forbidden(self, error: Exception) -> str:
        return str(error.args[1]) if number_of(error) in _MAY_NOT else ""
