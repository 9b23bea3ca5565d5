"""A MariaDB server for the tests: the one named, or one that all processes of a run share, its data in memory."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pymysql
import pytest

from hipq.stores.mariadb.address import options_of
from tests.ending import at_the_end
from tests.servers import MEMORY, START_SECONDS, _has_room, free_port, of_this_run

_FOLDERS: Final = ("/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/libexec", "/opt/mariadb/bin")
FAST: Final = {
    "innodb_flush_log_at_trx_commit": "0", "innodb_buffer_pool_size": "64M", "innodb_log_file_size": "48M",
    "max_connections": "300", "performance_schema": "OFF", "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "innodb_doublewrite": "OFF", "aria_pagecache_buffer_size": "8M", "key_buffer_size": "1M",
}  # fmt: skip


def program(*names: str) -> str:
    """The first of these programs that is here, or ""."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *_FOLDERS])
    return next((found for name in names if (found := shutil.which(name, path=path))), "")


NONE_HERE: Final = "no MariaDB here: install the package mariadb-server, or set HIPQ_TEST_MARIADB_URL"


def installed() -> bool:
    return bool(program("mariadbd", "mysqld") and program("mariadb-install-db", "mysql_install_db"))


@cache
def mariadb_url() -> str:
    """A server on which databases may be created: HIPQ_TEST_MARIADB_URL, else the one of this run of tests."""
    if url := os.environ.get("HIPQ_TEST_MARIADB_URL"):
        return url
    if not installed():
        pytest.skip(NONE_HERE)
    return of_this_run("maria-", lambda: OwnMariaDB(in_memory=True, **FAST), signal.SIGKILL)


@contextmanager
def fresh_maria() -> Iterator[str]:
    """The URL of an empty database with a name nobody has heard of. Whoever is connected at the end is thrown out."""
    name = f"hipq_test_{uuid4().hex}"
    with admin() as conn:
        conn.cursor().execute(f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(mariadb_url())._replace(path=f"/{name}"))
    finally:
        _dropped(name)


@contextmanager
def clean_maria() -> Iterator[str]:
    """The URL of an empty database: the same for all tests of a process."""
    url = _reused()
    name = urlsplit(url).path[1:]
    with admin() as conn:
        drop(conn, name)
        conn.cursor().execute(f"CREATE DATABASE {name}")
    yield url


@cache
def _reused() -> str:
    url = urlunsplit(urlsplit(mariadb_url())._replace(path=f"/hipq_test_{uuid4().hex}"))
    at_the_end(lambda: _dropped(urlsplit(url).path[1:]))
    return url


@contextmanager
def admin(url: str = "") -> Iterator[pymysql.Connection]:
    conn = pymysql.connect(autocommit=True, ssl_disabled=True, **{**options_of(url or mariadb_url()), "database": None})
    try:
        yield conn
    finally:
        conn.close()


def _dropped(name: str) -> None:
    with admin() as conn:
        drop(conn, name)


def drop(conn: pymysql.Connection, name: str) -> None:
    """Whoever is connected to it is thrown out first."""
    cursor = conn.cursor()
    cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
    for (process,) in cursor.fetchall():
        with suppress(pymysql.Error):
            cursor.execute(f"KILL {process}")
    cursor.execute(f"DROP DATABASE IF EXISTS {name}")


def dumped(url: str) -> bytes:
    """A backup of a database, as docs/backup.md makes it."""
    options = ("--single-transaction", options_of(url)["database"])
    command = [program("mariadb-dump", "mysqldump"), "--no-defaults", *_where(url), *options]
    return subprocess.run(command, check=True, capture_output=True).stdout


def load(url: str, dump: bytes) -> None:
    """Restore a backup into a database that is empty."""
    command = [program("mariadb", "mysql"), "--no-defaults", *_where(url), options_of(url)["database"]]
    subprocess.run(command, check=True, input=dump)


def _where(url: str) -> list[str]:
    given = options_of(url)
    words = [f"--host={given['host']}", f"--port={given['port']}", f"--user={given['user']}"]
    return [*words, f"--password={given['password']}"] if given.get("password") else words


class OwnMariaDB:
    """A server of one's own, for tests that freeze and kill it. Its data are synced unless it is told otherwise."""

    def __init__(self, *, in_memory: bool = False, **settings: str) -> None:
        if not installed():
            pytest.skip(NONE_HERE)
        self.settings = {"bind_address": "127.0.0.1", "innodb_buffer_pool_size": "32M"} | settings
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self.folder = Path(
            tempfile.mkdtemp(prefix="hipq-maria-", dir=MEMORY if in_memory and _has_room(MEMORY) else "/tmp")
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        done = subprocess.run(
            [
                program("mariadb-install-db", "mysql_install_db"), "--no-defaults", f"--datadir={self.folder / 'data'}",
                "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M",
                "--innodb-flush-log-at-trx-commit=0", "--skip-log-bin",
            ],
            cwd=self.folder, capture_output=True, text=True, check=False, **self._as,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    @property
    def url(self) -> str:
        return f"mariadb://root@127.0.0.1:{self._port}/mysql"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers. The port stays the same from the first start on."""
        for _ in range(5):
            port = self._port or free_port()
            if self._started(port):
                self._port = port
                return
        raise RuntimeError(f"MariaDB did not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """At once: whatever was in its memory is gone."""
        assert self._process
        self._process.kill()
        self._process.wait(START_SECONDS)
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def freeze(self) -> None:
        """From now on the kernel takes connections and bytes, and nobody answers."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> OwnMariaDB:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _started(self, port: int) -> bool:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in self.settings.items()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    program("mariadbd", "mysqld"), "--no-defaults", f"--datadir={self.folder / 'data'}",
                    f"--port={port}", f"--socket={self.folder / 'socket'}", f"--pid-file={self.folder / 'pid'}",
                    f"--tmpdir={self.folder}",  # a server that starts deletes the temporary tables it finds in /tmp
                    *options,
                ],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=3, ssl_disabled=True).close()
                return self._process.poll() is None
            except pymysql.Error:
                time.sleep(0.02)
        if self._process.poll() is None:
            self.kill()
        self._process = None
        return False
