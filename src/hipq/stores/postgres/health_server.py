"""The facts about a PostgreSQL server and what it keeps: settings, connections, indexes, dead rows and who keeps them.

All of it is what the server has counted already: no table is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hipq.stores.health.facts import Holdback, Part, ServerHealth, TableHealth
from hipq.stores.health.reading import ServerReading

_SETTINGS: Final = ("autovacuum", "track_counts", "fsync", "full_page_writes", "synchronous_commit")
_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")
_FEW: Final = 10


class PostgresServer(ServerReading):
    """What is read of the server beside the database."""

    def server(self) -> ServerHealth:
        names = ["max_connections", *_RESERVED, *_SETTINGS]
        query = "SELECT name, setting FROM pg_settings WHERE name = ANY (%s)"
        settings: dict[str, str] = dict(self.conn.execute(query, (names,)).fetchall())
        ((standby, used, sees_all),) = self.conn.execute(
            "SELECT pg_is_in_recovery(), "
            "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), "
            "pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
        ).fetchall()
        most = int(settings["max_connections"]) - sum(int(settings.get(name, 0)) for name in _RESERVED)
        return ServerHealth(standby, {name: settings[name] for name in _SETTINGS}, used, most, sees_all)

    def holdbacks(self) -> list[Holdback]:
        """What may keep dead rows from being removed: the oldest transactions, prepared ones, replication slots."""
        return [*self._transactions(), *self._prepared(), *self._slots()]

    def _transactions(self) -> list[Holdback]:
        query = """
            SELECT pid::text, concat_ws(', ', usename, nullif(application_name, ''), state, client_addr::text),
              extract(epoch FROM clock_timestamp() - xact_start)::float8,
              coalesce(greatest(age(backend_xmin), age(backend_xid)), 0)
            FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL
              AND (datname = current_database() AND backend_type = 'client backend' OR backend_type = 'walsender')
              AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state LIKE 'idle in transaction%%')
            ORDER BY xact_start LIMIT %s"""
        return [Holdback("transaction", *row) for row in self.conn.execute(query, (_FEW,)).fetchall()]

    def _prepared(self) -> list[Holdback]:
        query = """
            SELECT gid, owner::text, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
            FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT %s"""
        return [Holdback("prepared", *row) for row in self.conn.execute(query, (_FEW,)).fetchall()]

    def _slots(self) -> list[Holdback]:
        """Of a standby server they are not told: it has another log."""
        query = """
            SELECT slot_name::text, concat_ws(', ', slot_type, plugin::text, database::text), NULL::float8,
              coalesce(age(xmin), 0),
              coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, active
            FROM pg_replication_slots WHERE NOT pg_is_in_recovery() ORDER BY restart_lsn LIMIT %s"""
        return [Holdback("slot", *row) for row in self.conn.execute(query, (_FEW,)).fetchall()]

    def tables(self, names: Sequence[str]) -> list[TableHealth]:
        query = """
            SELECT c.relname::text, s.n_live_tup, s.n_dead_tup, pg_relation_size(c.oid),
              extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
              coalesce((SELECT o.option_value::boolean FROM pg_options_to_table(c.reloptions) o
                        WHERE o.option_name = 'autovacuum_enabled'), true)
            FROM pg_class c JOIN pg_stat_all_tables s ON s.relid = c.oid
            WHERE c.oid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)::oid[])
            ORDER BY c.relname"""
        return [TableHealth(*row) for row in self.conn.execute(query, (list(names),)).fetchall()]

    def parts(self) -> list[Part]:
        """Tables and checks of these names; indexes of these names, wherever they are, and all of these tables."""
        names = {
            kind: [part.name for part in self.health.expected if part.kind == kind]
            for kind in ("table", "index", "check")
        }
        query = "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NOT NULL"
        found = [Part("table", name, name) for (name,) in self.conn.execute(query, (names["table"],)).fetchall()]
        query = """
            SELECT conname::text, c.relname::text, convalidated FROM pg_constraint JOIN pg_class c ON c.oid = conrelid
            WHERE contype = 'c' AND conname = ANY (%s)
              AND conrelid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)::oid[])"""
        for name, table, valid in self.conn.execute(query, (names["check"], names["table"])).fetchall():
            found.append(Part("check", name, table, valid=valid))
        query = """
            SELECT i.relname::text, t.relname::text,
              ARRAY(SELECT a.attname::text FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (number, place)
                    JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.number ORDER BY k.place),
              x.indisunique, x.indpred IS NOT NULL, x.indisvalid AND x.indisready
            FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
            WHERE x.indexrelid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)::oid[])
              OR x.indrelid = ANY (ARRAY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)::oid[])"""
        for name, table, columns, *rest in self.conn.execute(query, (names["index"], names["table"])).fetchall():
            found.append(Part("index", name, table, tuple(columns), *rest))
        return found
