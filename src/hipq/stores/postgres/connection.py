"""A small pool of connections to one database, made anew after a fork, and its errors as hipq's own.

- A broken connection leaves the pool, and those that broke with it are noticed before they are used: after a restart
  of the server the first call works.
- Without a server a call fails within seconds and says why. So it does if the server accepts connections and never
  answers: what a connection itself does about that is in `session.py`.
- A connection must not cross a fork: a child opens its own and leaves the parent's untouched.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from uuid import uuid4
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from hipq.errors import Invalid, StoreBroken, StoreBusy, StoreDefect, StoreError, StoreRefused, StoreUnavailable
from hipq.stores.postgres.session import LOCK_SECONDS, Session
from hipq.stores.sql.pool import ANSWER_SECONDS, CALLER_SECONDS, POOL_SECONDS, POOL_SIZE

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]

TRIES: Final = 3
_CLOSED: Final = "PostgreSQL: this store was closed"
IN_VAIN_SECONDS: Final = 0.5
"""Seconds for which the calls of a thread fail at once, after a look that failed and was not needed. See `in_vain`."""
_DEFAULTS: Final = {
    "application_name": "hipq",
    "connect_timeout": 2,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
HEARD_SECONDS: Final = 5.0
"""Seconds that a notice may take to the connection that LISTENs: a busy server is slow."""
LISTEN_VARIABLE: Final = "HIPQ_LISTEN_URL"
_STATEMENT_MODE: Final = (
    "PostgreSQL: the pooler in between is in statement mode, which has no transactions, and hipq needs them: "
    "set pool_mode = transaction, or session"
)
_DEFECTS: Final = frozenset({"42601", "42702", "42725", "42803", "42804", "42846", "42P02", "42P10", "42P18"})
"""What no schema, right or setting could make good: syntax, ambiguous names, grouping, types, parameters."""
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # else the pool's warnings go to stderr


def translated(error: Exception) -> StoreError:
    """A database error as one of hipq's: it may pass, or it never will."""
    text = _first_line(error)
    if "statement pooling" in text:
        return StoreBroken(_STATEMENT_MODE)
    too_large = isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("54")
    if too_large or isinstance(error, (psycopg.DataError, psycopg.IntegrityError, UnicodeError, OverflowError)):
        return StoreRefused(f"PostgreSQL will not store this: {text}")
    if isinstance(error, (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)):
        return StoreBusy(f"PostgreSQL: another transaction holds a row this write needs ({text})")
    if isinstance(error, psycopg.Error) and error.sqlstate in _DEFECTS:
        return StoreDefect(f"a defect of hipq's, and no outage: PostgreSQL does not understand a statement: {text}")
    return StoreUnavailable(f"PostgreSQL: {text}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class CannotListen(Exception):
    """No notice comes by the address that is meant for LISTEN. `later`: seconds until another try may be worth it."""

    def __init__(self, reason: str, later: float) -> None:
        super().__init__(f"{LISTEN_VARIABLE}: {reason}")
        self.later = later


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


def _hears(conn: Session, channel: str) -> bool:
    """Whether a notice arrives on this channel."""
    until = time.monotonic() + HEARD_SECONDS
    while (left := until - time.monotonic()) > 0:
        select.select([conn.fileno()], [], [], left)
        conn.pgconn.consume_input()
        while notice := conn.pgconn.notifies():
            if notice.relname == channel.encode():
                return True
    return False


def in_transaction(conn: Connection, work: Callable[[], T]) -> T:
    """Run `work` in a transaction, committed or undone. Two that free and take each other's keys may deadlock: then
    once more."""
    for _ in range(TRIES):
        try:
            with conn.transaction():
                return work()
        except psycopg.errors.DeadlockDetected:
            pass
    with conn.transaction():
        return work()


def patiently(conn: Connection, work: Callable[[], T]) -> T:
    """Run `work` in a transaction for a program that is no engine: no lease ends meanwhile, so it may wait longer for
    somebody's lock."""

    def slowly() -> T:
        seconds = CALLER_SECONDS - LOCK_SECONDS
        if isinstance(conn, Session):
            seconds = min(seconds, conn.answer_seconds - LOCK_SECONDS)  # or it would look as if the server were silent
        conn.execute(f"SET LOCAL lock_timeout = '{seconds}s'".encode())
        return work()

    try:
        return in_transaction(conn, work)
    except psycopg.errors.LockNotAvailable:
        return in_transaction(conn, slowly)


def _options(url: str, what: str = "this") -> dict[str, Any]:
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise Invalid(
            f"{what} is not a PostgreSQL URL; it should look like postgresql://user@host:5432/database"
        ) from None
    found: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
    return found | {"autocommit": True, "prepare_threshold": 1}


class Connections:
    def __init__(
        self,
        url: str,
        on_fork: Callable[[], None],
        *,
        listen_url: str = "",
        answer_seconds: float = ANSWER_SECONDS,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        """`listen_url`: where to LISTEN, if that is another address than `url`. `answer_seconds`: how long the server
        may be silent before a connection is given up; then `on_silence` is called, too."""
        self._url = url
        self._options = _options(url)
        self._listen = (listen_url, _options(listen_url, LISTEN_VARIABLE)) if listen_url else None
        self._on_fork = on_fork
        self._answer_seconds = answer_seconds
        self._on_silence = on_silence
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Session] | None = None
        self._made: WeakSet[Session] = WeakSet()
        self._closed = False
        self._vain = threading.local()

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

    def connect(self, began: float = 0.0) -> Session:
        """A connection apart from the pool. `began`: when the caller began to wait, if that was before."""
        return self._connected(self._url, self._options, began)

    def connect_to_listen(self) -> Session | None:
        """A connection that can LISTEN; None if there is none to be had, and never will be. CannotListen, if they have
        named an address that does not lead to one."""
        if self._listen is not None:
            return self._connected_to_hear(*self._listen)
        conn = self.connect()
        if not conn.pooled:
            return conn
        conn.close()
        return None

    def _connected_to_hear(self, url: str, options: Mapping[str, Any]) -> Session:
        """A connection at the address that is meant for LISTEN. Whether that leads to the same database, and to one
        session of it, is tried: a notice from a connection of the pool must arrive there."""
        try:
            conn = self._connected(url, options)
        except psycopg.Error as error:
            raise CannotListen(_first_line(error), later=1.0) from None
        try:
            channel = f"hipq_{uuid4().hex}"
            conn.execute(f"LISTEN {channel}".encode())
            with self.using() as ours:
                ours.execute("SELECT pg_notify(%s, '')", (channel,))
            if _hears(conn, channel):
                conn.execute(f"UNLISTEN {channel}".encode())
                return conn
        except (psycopg.Error, StoreError) as error:
            conn.close()
            raise CannotListen(_first_line(error), later=1.0) from None
        conn.close()
        raise CannotListen(
            "notices of this database are not heard there: it leads to another database, or to a pool in transaction "
            "mode",
            later=60.0,
        )

    def _connected(self, url: str, options: Mapping[str, Any], began: float = 0.0) -> Session:
        conn = Session.connect(url, **options)
        conn.asked_at, conn.answer_seconds = began, self._answer_seconds
        conn.settle_in()
        return conn

    def in_vain(self, error: StoreError, began: float) -> None:
        """This thread has waited in vain for something that it can do without. The server has had its time already: so
        the next call fails at once instead of waiting as long again. But not if there was no wait (a connection was
        broken, and the next one may not be), nor if somebody else had a lock."""
        now = time.monotonic()
        if now - began >= POOL_SECONDS and not isinstance(error, StoreBusy):
            self._vain.found = error, now + IN_VAIN_SECONDS

    @contextmanager
    def using(self, answer_seconds: float = 0) -> Iterator[Connection]:
        """A connection in autocommit mode. `answer_seconds`: for statements that may take the server longer than
        most."""
        began = time.monotonic()
        self.check_fork()
        with self._lock:
            if self._closed:
                raise StoreUnavailable(_CLOSED)
            pool = self._pool = self._pool or self._opened()
        error, until = getattr(self._vain, "found", (None, 0.0))
        if error and began < until:
            raise StoreUnavailable(str(error))
        conn = self._take(pool, began)
        conn.asked_at, conn.answer_seconds = began, max(answer_seconds, self._answer_seconds)
        try:
            yield conn
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        finally:
            pool.putconn(conn)
            if conn.unanswered:
                pool.drain()  # the others may be as silent: each would cost as long again
                self._on_silence()

    def _opened(self) -> ConnectionPool[Session]:
        return ConnectionPool(
            self._url, connection_class=Session, kwargs=self._options, configure=self._configured, min_size=0,
            max_size=POOL_SIZE, open=True, timeout=POOL_SECONDS, reconnect_timeout=1.0, num_workers=2, name="hipq",
        )  # fmt: skip

    def _configured(self, conn: Session) -> None:
        conn.answer_seconds = self._answer_seconds
        conn.settle_in()
        with self._lock:
            self._made.add(conn)

    def _take(self, pool: ConnectionPool[Session], began: float) -> Session:
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
            self.connect(began).close()  # the pool does not say why it has none
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
