"""A small pool of connections to one database, made anew after a fork, and its errors as hipq's own.

- A broken connection leaves the pool, and those that broke with it are noticed before they are used: after a restart
  of the server the first call works.
- Without a server a call fails within seconds and says why.
- A connection must not cross a fork: a child opens its own and leaves the parent's untouched.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hipq.errors import Invalid, KeyTaken, StoreBusy, StoreError, StoreRefused, StoreUnavailable

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]

TRIES: Final = 3
POOL_SIZE: Final = 10
_CLOSED: Final = "PostgreSQL: this store was closed"
POOL_SECONDS: Final = 1.5
LOCK_SECONDS: Final = 1.5
"""How long a statement waits for somebody's lock: well below a third of a lease, or a turn that waits would end it; and
above the server's deadlock_timeout (1 s), or a deadlock would not be told from waiting."""
CALLER_SECONDS: Final = 10.0
"""How long a program that adds a job, or brings an answer, waits for a transaction that has taken its key."""
_DEFAULTS: Final = {
    "application_name": "hipq",
    "connect_timeout": 2,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_SETTINGS: Final = {
    "default_transaction_isolation": "read committed",  # a claim must see what was committed while it waited
    "lock_timeout": f"{LOCK_SECONDS}s",
    "idle_in_transaction_session_timeout": "5s",  # a process stopped in mid-turn may hold a queue's admission lock
    # A plan is made once and kept. Made while a table was empty it would read all of it, and still do so with a
    # million rows there; every statement here has its index, so it may have no other way. Where rows are joined to a
    # table by its key it says `key = ANY (ARRAY[...])`: a vacuum that found the table empty makes reading all of an
    # index look cheap, which a plain `=` would allow.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    "enable_hashjoin": "off",
    "enable_bitmapscan": "off",  # it reads the entries of jobs that are gone, every time, until the next vacuum
    "max_parallel_workers_per_gather": "0",  # to start one takes longer than any statement here
    "jit": "off",
}
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # else the pool's warnings go to stderr


def translated(error: Exception) -> StoreError:
    """A database error as one of ours: it may pass, or it never will."""
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, psycopg.errors.UniqueViolation):
        return KeyTaken(f"PostgreSQL will not store this: {text}")
    too_large = isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("54")
    if too_large or isinstance(error, (psycopg.DataError, psycopg.IntegrityError, UnicodeError, OverflowError)):
        return StoreRefused(f"PostgreSQL will not store this: {text}")
    if isinstance(error, (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)):
        return StoreBusy(f"PostgreSQL: another transaction holds a row this write needs ({text})")
    return StoreUnavailable(f"PostgreSQL: {text}")


def _settled(conn: Connection) -> None:
    pairs = list(_SETTINGS.items())
    query = "SELECT " + ", ".join(["set_config(%s, %s, false)"] * len(pairs))
    conn.execute(query.encode(), [text for pair in pairs for text in pair], prepare=False)


def _gone(conn: Connection) -> bool:
    """Whether the server has closed this idle connection: then it has something to read, and that is its end."""
    news = select.poll()
    news.register(conn.fileno(), select.POLLIN)
    try:
        while news.poll(0):
            conn.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def in_transaction(conn: Connection, work: Callable[[], T]) -> T:
    """Do it in a transaction, committed or undone. Two that free and take each other's keys may deadlock: once more."""
    for _ in range(TRIES):
        try:
            with conn.transaction():
                return work()
        except psycopg.errors.DeadlockDetected:
            pass
    with conn.transaction():
        return work()


def patiently(conn: Connection, work: Callable[[], T]) -> T:
    """The same for a program that is no engine: no lease ends meanwhile, so it may wait longer for somebody's lock."""

    def slowly() -> T:
        conn.execute(f"SET LOCAL lock_timeout = '{CALLER_SECONDS - LOCK_SECONDS}s'".encode())
        return work()

    try:
        return in_transaction(conn, work)
    except psycopg.errors.LockNotAvailable:
        return in_transaction(conn, slowly)


class Connections:
    def __init__(self, url: str, on_fork: Callable[[], None]) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise Invalid(
                "this is not a PostgreSQL URL; it should look like postgresql://user@host:5432/database"
            ) from None
        self._url = url
        self._on_fork = on_fork
        self._options: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
        self._options |= {"autocommit": True, "prepare_threshold": 1}
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Connection] | None = None
        self._made: WeakSet[Connection] = WeakSet()
        self._closed = False

    def is_own(self, process: int) -> bool:
        """Whether that process of the server serves a connection of this pool."""
        with self._lock:
            return any(conn.info.backend_pid == process for conn in self._made if not conn.closed)

    def check_fork(self) -> None:
        """In a child of the process that opened the pool, start without one."""
        if self._pid != os.getpid():
            self._abandoned = self._pool  # kept, not closed: its connections are the parent's
            self._start()
            self._on_fork()

    def connect(self) -> Connection:
        """A connection apart from the pool."""
        return psycopg.connect(self._url, **self._options)

    @contextmanager
    def using(self) -> Iterator[Connection]:
        """A connection in autocommit mode."""
        self.check_fork()
        with self._lock:
            if self._closed:
                raise StoreUnavailable(_CLOSED)
            pool = self._pool = self._pool or self._opened()
        conn = self._take(pool)
        try:
            yield conn
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        finally:
            pool.putconn(conn)

    def _opened(self) -> ConnectionPool[Connection]:
        return ConnectionPool(
            self._url, kwargs=self._options, configure=self._configured, min_size=1, max_size=POOL_SIZE, open=True,
            timeout=POOL_SECONDS, reconnect_timeout=1.0, num_workers=2, name="hipq",
        )  # fmt: skip

    def _configured(self, conn: Connection) -> None:
        _settled(conn)
        with self._lock:
            self._made.add(conn)

    def _take(self, pool: ConnectionPool[Connection]) -> Connection:
        try:
            conn = pool.getconn()
            if _gone(conn):
                conn.close()
                pool.putconn(conn)
                pool.drain()  # the others went with it; new ones are opened at once
                conn = pool.getconn()
            return conn
        except PoolClosed:
            raise StoreUnavailable(_CLOSED) from None
        except PoolTimeout:
            pass
        try:
            self.connect().close()  # the pool does not say why it has none
            return pool.getconn()  # the server has come back: now it opens one at once
        except PoolTimeout:
            raise StoreUnavailable(f"PostgreSQL: all {POOL_SIZE} connections are busy") from None
        except psycopg.Error as error:
            raise translated(error) from None

    def close(self) -> None:
        self.check_fork()
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool:
            pool.close()  # not under the lock: it waits for threads that are opening connections, which take it
