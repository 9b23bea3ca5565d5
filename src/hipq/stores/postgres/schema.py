"""The schema of a PostgreSQL database. Whoever changes it has one advisory lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

import psycopg

from hipq.errors import SchemaError
from hipq.stores.postgres.connection import in_transaction
from hipq.stores.sql.pool import CALLER_SECONDS
from hipq.stores.sql.schema import Engines, ServerSchema, Version
from hipq.stores.values import QueueTables

T = TypeVar("T")
OLDEST_SERVER: Final = 13
_LOCK: Final = 0x68697071  # "hipq"


class PostgresSchema(ServerSchema):
    package = "hipq.stores.postgres"
    errors = psycopg.Error
    there = "SELECT name FROM unnest(CAST(:names AS text[])) AS name WHERE to_regclass(name) IS NOT NULL"
    # After initdb, after a restore to a point in time, in another database, after pg_restore.
    places = {  # noqa: RUF012
        "system": "SELECT system_identifier FROM pg_control_system()",
        "timeline": "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)",
        "database": "SELECT CAST(oid AS bigint) FROM pg_database WHERE datname = current_database()",
        "table": "SELECT CAST(CAST('hipq_meta' AS regclass) AS bigint)",
    }

    def version(self) -> Version:
        if self.sql.conn.info.server_version < OLDEST_SERVER * 10_000:
            raise SchemaError(f"hipq needs PostgreSQL {OLDEST_SERVER} or later")
        return super().version()

    def alone(self, work: Callable[[], T], seconds: float) -> T:
        """In a transaction: nobody else changes the schema meanwhile."""

        def locked() -> T:
            self.lock(seconds)
            return work()

        return in_transaction(self.sql.conn, locked)

    def lock(self, seconds: float) -> None:
        """Until the transaction ends. Locks are waited for so long, or, with 0, however long."""
        self._patience(seconds)
        self.sql.rows_of(f"SELECT pg_advisory_xact_lock({_LOCK})")

    def _patience(self, seconds: float) -> None:
        self.sql.write(f"SET LOCAL lock_timeout = '{seconds}s'")

    def _apart(self) -> AbstractContextManager[Any]:
        return self.sql.conn.transaction()  # type: ignore[no-any-return]

    def _lock_out(self, queue: QueueTables, engines: Engines) -> None:
        """Before anything is read: who is adding a job or bringing an answer ends first, or fails."""
        self._patience(CALLER_SECONDS)  # everybody else waits behind us
        self.sql.write(f"LOCK TABLE {queue.table}, {queue.table}_final IN ACCESS EXCLUSIVE MODE")
        self._check_left(queue, engines)

    def _drop_ids(self, live: str) -> None:
        self.sql.write(f"DROP SEQUENCE IF EXISTS {live}_ids")

    def _script(self, text: str) -> None:
        self.sql.conn.execute(text.encode(), prepare=False)

    def count_from(self, table: str, column: str, last: int) -> None:
        own = "(SELECT CAST(pg_get_serial_sequence(:table, :column) AS regclass) AS own) AS sequence"
        query = f"SELECT setval(own, greatest(nextval(own), :last)) FROM {own}"
        self.sql.rows_of(query, table=table, column=column, last=last)

    def _last(self, table: str, column: str) -> int:
        query = "SELECT nextval(CAST(pg_get_serial_sequence(:table, :column) AS regclass))"
        return int(self.sql.rows_of(query, table=table, column=column)[0][0])

    def ids_from(self, live: str, last: int) -> None:
        self.sql.rows_of(f"SELECT setval('{live}_ids', :last)", last=last)

    def _last_id(self, live: str) -> int:
        return int(self.sql.rows_of(f"SELECT nextval('{live}_ids')")[0][0])

    def clash(self, error: Exception) -> str:
        return error.diag.message_primary or "" if isinstance(error, psycopg.errors.DuplicateTable) else ""

    def forbidden(self, error: Exception) -> str:
        return error.diag.message_primary or "" if isinstance(error, psycopg.errors.InsufficientPrivilege) else ""
