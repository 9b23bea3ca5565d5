"""Connections to one database, and its errors as hipq's own. What a connection itself does about a silent server is in
`session.py`."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from uuid import uuid4
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from hipq.errors import Invalid, StoreBroken, StoreBusy, StoreDefect, StoreError, StoreRefused, StoreUnavailable
from hipq.stores.postgres.session import LOCK_SECONDS, Session
from hipq.stores.sql.pool import ANSWER_SECONDS, CALLER_SECONDS, POOL_SECONDS, ConnectionPool

T = TypeVar("T")
Connection = psycopg.Connection[TupleRow]

TRIES: Final = 3
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


class Connections(ConnectionPool[Session]):
    server = "PostgreSQL"
    errors = (psycopg.Error, UnicodeError, OverflowError)

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
        self._on_silence = on_silence
        super().__init__(on_fork, answer_seconds)

    def _start(self) -> None:
        super()._start()
        self._made: WeakSet[Session] = WeakSet()
        self._vain = threading.local()

    def is_own(self, process: int) -> bool:
        """Whether that process of the server serves a connection of this pool."""
        with self._lock:
            return any(conn.info.backend_pid == process for conn in self._made if not conn.closed)

    def connect(self, began: float = 0.0) -> Session:
        conn = self._connected(self._url, self._options, began)
        with self._lock:
            self._made.add(conn)
        return conn

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

    def _taken(self, began: float) -> Session:
        error, until = getattr(self._vain, "found", (None, 0.0))
        if error and began < until:
            raise StoreUnavailable(str(error))
        return super()._taken(began)

    def _lend(self, conn: Session, began: float, answer_seconds: float) -> None:
        conn.asked_at, conn.answer_seconds = began, answer_seconds

    def _is_gone(self, conn: Session) -> bool:
        return _gone(conn)

    def _is_broken(self, conn: Session) -> bool:
        if conn.unanswered:
            self._on_silence()
        return conn.closed

    def _is_clean(self, conn: Session) -> bool:
        return conn.info.transaction_status == TransactionStatus.IDLE

    def _cut(self, conn: Session) -> None:
        conn.close()

    def translated(self, error: Exception) -> StoreError:
        return translated(error)
