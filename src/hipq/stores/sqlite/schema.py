"""The schema of a SQLite file. Whoever changes it holds the write lock."""

from __future__ import annotations

import sqlite3

from hipq.stores import migrations
from hipq.stores.sql.schema import Engines, Schema, Version
from hipq.stores.sqlite.place import place
from hipq.stores.values import QueueTables


class SqliteSchema(Schema):
    package = "hipq.stores.sqlite"
    errors = sqlite3.Error
    there = "SELECT name FROM sqlite_master WHERE name {in text names}"
    note = "hipq_place"

    def version(self) -> Version:
        """Both numbers are kept together in the file's header."""
        ((found,),) = self.sql.rows_of("PRAGMA user_version")
        return Version(found >> 8, found & 0xFF)

    def _note_version(self, migration: migrations.Migration, *, is_first: bool) -> None:  # noqa: ARG002
        self.sql.write(f"PRAGMA user_version = {migration.number << 8 | migration.accepts}")

    def place(self) -> dict[str, str]:
        """That of a database in memory is nowhere."""
        paths = [path for _, name, path in self.sql.rows_of("PRAGMA database_list") if name == "main"]
        return place(paths[0]) if paths[0] else {}

    def _lock_out(self, queue: QueueTables, engines: Engines) -> None:
        self._check_left(queue, engines)

    def _script(self, text: str) -> None:
        """Several statements in the open transaction (executescript would commit it)."""
        statement = ""
        for line in text.splitlines(keepends=True):
            statement += line
            if sqlite3.complete_statement(statement):
                self.sql.conn.execute(statement)
                statement = ""

    def count_from(self, table: str, column: str, last: int) -> None:  # noqa: ARG002
        query = "UPDATE sqlite_sequence SET seq = max(seq, :last) WHERE name = :table"
        if self.sql.write(query, table=table, last=last) == 0:
            self.sql.write("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)", table=table, last=last)

    def _last(self, table: str, column: str) -> int:  # noqa: ARG002
        found = self.sql.rows_of("SELECT seq FROM sqlite_sequence WHERE name = :table", table=table)
        return int(found[0][0]) if found else 0

    def ids_from(self, live: str, last: int) -> None:
        self.sql.write('UPDATE hipq_queues SET last_id = :last WHERE "table" = :live', live=live, last=last)

    def _last_id(self, live: str) -> int:
        ((last,),) = self.sql.rows_of('SELECT last_id FROM hipq_queues WHERE "table" = :live', live=live)
        return int(last)

    def clash(self, error: Exception) -> str:
        return str(error) if isinstance(error, sqlite3.OperationalError) and "already" in str(error) else ""
