"""The verbs about the schema and the registry of queues, and the connections to a database that has our tables."""

from __future__ import annotations

from typing import Any, ClassVar

import psycopg

from hipq.errors import SchemaError, WrongConnection
from hipq.stores.postgres import schema
from hipq.stores.postgres.connection import CALLER_SECONDS, Connection, Connections, in_transaction
from hipq.stores.postgres.dialect import PostgresSql
from hipq.stores.postgres.insert import cursor
from hipq.stores.postgres.session import LONG_SECONDS, MIGRATION_SECONDS
from hipq.stores.sql.server_setup import Schema, ServerSetup
from hipq.stores.values import QueueTables


class SetupVerbs(ServerSetup):
    _schema: ClassVar[Schema] = schema
    _db: Connections

    def migrate(self) -> list[str]:
        with self._db.using(MIGRATION_SECONDS) as conn, conn.transaction():
            try:
                applied = schema.migrate(conn, self._known)
            except psycopg.errors.InsufficientPrivilege as error:
                raise _may_not_create(self.url, error) from None
            self._check(conn)
        return applied

    def _check_same(self, conn: psycopg.Connection[Any]) -> None:
        """Refuse a user's connection to another database: a job stored there would never be run."""
        there = cursor(conn).execute("SELECT to_regclass('hipq_meta') IS NOT NULL").fetchone() == (True,)
        found = cursor(conn).execute("SELECT identity FROM hipq_meta").fetchone() if there else None
        with self._using():  # which knows whose database this should be
            pass
        if found != (self._identity,):
            where = cursor(conn).execute("SELECT current_database()").fetchone()
            raise WrongConnection(f"conn is open on the database {where and where[0]!r}, not on {self.url}")

    def _made(self, conn: Connection, app: str, name: str, table: str) -> QueueTables:
        with conn.transaction():
            schema.lock(conn, CALLER_SECONDS)
            self._check(conn)
            try:
                return schema.complete_now(conn, self._known, app, name, table)
            except psycopg.errors.InsufficientPrivilege as error:
                raise _may_not_create(f"{self.url}: queue {app}.{name}", error) from None

    def drop_queue(self, number: int) -> None:
        with self._using(LONG_SECONDS) as conn:
            sql = PostgresSql(conn, self._statements)
            in_transaction(conn, lambda: schema.drop(conn, number, lambda: self._engines(sql)))
        self._statements.forget(number)

    def restored(self, margin: int) -> None:
        with self._using(MIGRATION_SECONDS) as conn:
            sql = PostgresSql(conn, self._statements)
            in_transaction(conn, lambda: schema.restored(conn, margin, lambda: self._engines(sql)))

    def number_above(self, queue: int, answer: int) -> None:
        with self._using(MIGRATION_SECONDS) as conn:
            in_transaction(conn, lambda: schema.number_above(conn, queue, answer))


def _may_not_create(whose: str, error: psycopg.Error) -> SchemaError:
    return SchemaError(
        f"{whose} lacks tables, and this role may not make them ({error.diag.message_primary}): run `hipq migrate "
        "MODULE:APP` as the role that owns the schema"
    )
