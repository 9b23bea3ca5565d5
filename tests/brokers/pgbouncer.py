"""PgBouncer in front of the tests' PostgreSQL: Debian's program, of one's own, in transaction or in session mode."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.brokers.server import Server

PLACES: Final = ("/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer")
SESSIONS: Final = 3
"""Of the server, for all clients together: fewer than a program has connections."""


class OwnPgBouncer(Server):
    name = "PgBouncer"
    url_form = "postgresql://hipq@127.0.0.1:{port}"

    def __init__(self, mode: str, database: str) -> None:
        """`database`: the URL of the one that is behind it."""
        program = shutil.which("pgbouncer") or next(filter(os.path.exists, PLACES), None)
        if not program:
            pytest.skip("no PgBouncer here: install Debian's pgbouncer")
        super().__init__()
        self._program, self._mode = program, mode
        self._behind = conninfo_to_dict(database)
        self.folder.chmod(0o755)  # it becomes another user

    @property
    def database(self) -> str:
        return f"{self.url}/{self._behind['dbname']}"

    def command(self, port: int) -> Sequence[str | Path]:
        names = ("host", "port", "user", "password", "dbname")
        target = " ".join(f"{name}={self._behind[name]}" for name in names if self._behind.get(name))
        file = self.folder / "pgbouncer.ini"
        file.write_text(
            f"[databases]\n{self._behind['dbname']} = {target}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {self._mode}\n"
            f"default_pool_size = {SESSIONS if self._mode == 'transaction' else 50}\n"
        )
        return [self._program, *(["-u", "nobody"] if os.geteuid() == 0 else []), file]

    def left_behind(self) -> list[str]:
        """What those who had a session of the server before have left in it."""
        query = """
            SELECT name FROM pg_prepared_statements
            UNION ALL SELECT name FROM pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction_%%'
              AND name NOT IN ('client_encoding', 'application_name', 'DateStyle', 'TimeZone')
            UNION ALL SELECT pg_listening_channels()"""
        with psycopg.connect(self.database, autocommit=True, prepare_threshold=None) as conn:
            return [name for (name,) in conn.execute(query, ()).fetchall()]
