"""The facts about a MariaDB server and what it keeps: settings, connections, rights, indexes, and who holds what back.

All of it is what the server has counted already: no table is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pymysql

from hipq.stores.health.facts import Holdback, Part, ServerHealth, TableHealth
from hipq.stores.health.reading import ServerReading
from hipq.stores.mariadb.connection import number_of

_SETTINGS: Final = (
    "innodb_flush_log_at_trx_commit", "innodb_doublewrite", "log_bin", "sync_binlog", "binlog_format", "sql_mode",
    "max_allowed_packet", "wait_timeout", "wsrep_on",
)  # fmt: skip
_FEW: Final = 10
_DENIED: Final = (1142, 1143)
"""A table or a column that is none of this user's."""
_NOT_SHOWN: Final = 1227
_HERE: Final = "table_schema = DATABASE() AND table_name IN %(tables)s"


class MariaServer(ServerReading):
    """What is read of the server beside the database."""

    def server(self) -> ServerHealth:
        names = {"names": ["max_connections", "read_only", *_SETTINGS]}
        settings = dict(self.conn.run("SHOW GLOBAL VARIABLES WHERE variable_name IN %(names)s", names).fetchall())
        counts = {"names": ["Threads_connected", "Innodb_history_list_length"]}
        status = dict(self.conn.run("SHOW GLOBAL STATUS WHERE variable_name IN %(names)s", counts).fetchall())
        kept = {name: settings[name] for name in _SETTINGS if name in settings}
        if "Innodb_history_list_length" in status:
            kept["history"] = status["Innodb_history_list_length"]
        connections, most = int(status["Threads_connected"]), int(settings["max_connections"])
        return ServerHealth(settings["read_only"] != "OFF", kept, connections, most, self._sees_all())

    def _sees_all(self) -> bool:
        try:
            self.conn.run("SELECT 1 FROM information_schema.innodb_trx LIMIT 1")
        except pymysql.Error as error:
            if number_of(error) != _NOT_SHOWN:
                raise
            return False
        return True

    def denied(self) -> tuple[str, ...]:
        """What this user may not do. To explain a statement takes the same rights as to run it, and changes nothing."""
        found = []
        for table in ("hipq_queues", *(queue.table for queue in self.schema.registered())):
            some = "number" if table == "hipq_queues" else "id"
            for right, query in {
                "INSERT": f"INSERT INTO {table} ({some}) VALUES (0)",
                "UPDATE": f"UPDATE {table} SET {some} = {some} WHERE false",
                "DELETE": f"DELETE FROM {table} WHERE false",
            }.items():
                try:
                    self.conn.run(f"EXPLAIN {query}")
                except pymysql.Error as error:
                    if number_of(error) not in _DENIED:
                        raise
                    found.append(f"{right} on {table}")
        return tuple(found)

    def holdbacks(self) -> list[Holdback]:
        """The oldest transactions, whoever else has them, and those that were prepared and left."""
        if not self.health.server or not self.health.server.sees_all:
            return []
        return [*self._transactions(), *self._prepared()]

    def _transactions(self) -> Iterator[Holdback]:
        query = f"""
            SELECT CAST(t.trx_mysql_thread_id AS CHAR),
              concat_ws(', ', concat(p.user, '@', substring_index(p.host, ':', 1)), concat('in ', p.db), p.command),
              timestampdiff(SECOND, t.trx_started, sysdate()),
              (SELECT count(*) FROM ({self.conn.flavour.lock_waits}) AS w WHERE w.trx = t.trx_id)
            FROM information_schema.innodb_trx t
            LEFT JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
            WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID()) ORDER BY t.trx_started LIMIT {_FEW}"""
        for process, who, age, blocks in self.conn.run(query).fetchall():
            yield Holdback("transaction", process, who, float(age), 0, blocks=blocks, end=f"KILL {process}")

    def _prepared(self) -> Iterator[Holdback]:
        """The list says names and no ages: each may be as old as the oldest transaction that has no session."""
        if not self.conn.flavour.prepared:
            return
        query = """
            SELECT coalesce(timestampdiff(SECOND, min(trx_started), sysdate()), 0)
            FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0"""
        ((age,),) = self.conn.run(query).fetchall()
        for *_, name in self.conn.run(self.conn.flavour.prepared).fetchmany(_FEW):
            yield Holdback("prepared", name, "XA", float(age), 0, end=f"XA ROLLBACK {name}")

    def tables(self, names: Sequence[str]) -> list[TableHealth]:
        query = f"""
            SELECT table_name, coalesce(table_rows, 0), coalesce(data_length + index_length + data_free, 0)
            FROM information_schema.tables WHERE {_HERE} ORDER BY table_name"""
        found = self.conn.run(query, {"tables": list(names)}).fetchall()
        return [TableHealth(name, rows, 0, size, 0.0, True) for name, rows, size in found]

    def parts(self) -> list[Part]:
        """Tables of these names; their checks and indexes, which have names of their own in each table."""
        wanted = {(part.kind, part.table, part.name) for part in self.health.expected}
        tables = {"tables": [part.name for part in self.health.expected if part.kind == "table"]}
        query = f"SELECT table_name FROM information_schema.tables WHERE {_HERE}"
        found = [Part("table", name, name) for (name,) in self.conn.run(query, tables).fetchall()]
        found += [Part("check", name, table) for name, table in self.conn.run(self.conn.flavour.checks).fetchall()]
        query = f"""
            SELECT index_name, table_name, group_concat(column_name ORDER BY seq_in_index), min(non_unique) = 0
            FROM information_schema.statistics WHERE {_HERE} GROUP BY table_name, index_name"""
        for name, table, columns, unique in self.conn.run(query, tables).fetchall():
            found.append(Part("index", name, table, tuple(columns.split(",")), bool(unique)))
        return [part for part in found if (part.kind, part.table, part.name) in wanted]
