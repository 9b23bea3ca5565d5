"""A small pool of connections to one database, made anew after a fork, and its errors as hipq's own.

- A connection that broke, or that the server cut (`wait_timeout`), is noticed before it is used.
- Every call has a deadline on this side: a server that takes connections and never answers costs so much and no more.
- A connection must not cross a fork: a child opens its own and leaves the parent's untouched.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import pymysql
from pymysql.constants import CLIENT, ER, FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor

from hipq.errors import StoreBusy, StoreDefect, StoreError, StoreRefused, StoreUnavailable
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.flavour import Flavour, flavour_of
from hipq.stores.sql.pool import ANSWER_SECONDS, CALLER_SECONDS, POOL_SECONDS, POOL_SIZE

T = TypeVar("T")

LOCK_SECONDS: Final = 2
"""How long an engine waits for somebody's lock: below a third of a lease. The sessions' settings say so, too."""
TRIES: Final = 8
"""How often a transaction begins that was a deadlock's victim."""
PROCESS: Final = "CONNECTION_ID() * @@auto_increment_increment + @@auto_increment_offset - 1"
"""What tells a connection from all others: each node of a cluster counts its own, and has an offset of its own."""
_CONNECT_SECONDS: Final = 4
_CLOSED: Final = "MariaDB: this store was closed"
_DEADLOCKS: Final = (ER.LOCK_DEADLOCK, 1020)  # the second: a row changed between its read and its lock
BUSY: Final = (*_DEADLOCKS, ER.LOCK_WAIT_TIMEOUT, 3572)
_REFUSED: Final = (1153, 1264, 1265, 1292, 1300, 1366, 1406, 1048, 4025, 3819, 4036, 4037, 4038, 1367, 1690, 1062, 3988)
"""Too large a packet, numbers out of range, texts too long or not UTF-8, NULL, checks that say no, duplicates."""
_numbers: Final = {
    FIELD_TYPE.TINY: int, FIELD_TYPE.SHORT: int, FIELD_TYPE.LONG: int, FIELD_TYPE.LONGLONG: int, FIELD_TYPE.INT24: int,
    FIELD_TYPE.DOUBLE: float, FIELD_TYPE.NEWDECIMAL: int,
}  # fmt: skip


def number_of(error: BaseException | None) -> int:
    """What the server or the driver calls an error; 0 = nothing."""
    return error.args[0] if isinstance(error, Exception) and error.args and isinstance(error.args[0], int) else 0


def is_deadlock(error: BaseException) -> bool:
    """The server has undone the transaction, which may be begun again. So has one node of Galera, at the commit."""
    return number_of(error) in _DEADLOCKS


def translated(error: Exception) -> StoreError:
    """A database error as one of ours: it may pass, or it never will."""
    number = number_of(error)
    text = str(error.args[1] if number and len(error.args) > 1 else error).strip().partition("\n")[0]
    if isinstance(error, (UnicodeError, OverflowError)) or number in _REFUSED:
        return StoreRefused(f"MariaDB will not store this: {text}")
    if number in BUSY:
        return StoreBusy(f"MariaDB: another transaction holds a row this write needs ({text})")
    if number == ER.PARSE_ERROR:
        return StoreDefect(f"a defect of hipq's, and no outage: MariaDB does not understand a statement: {text}")
    return StoreUnavailable(f"MariaDB: {text}")


class Session(pymysql.Connection):  # type: ignore[misc]  # it has no types
    """One connection of hipq's own."""

    flavour: Flavour
    largest = 1 << 30
    """Bytes that a statement may have: the server's `max_allowed_packet`."""
    process = 0
    """A number that no other connection has, on whatever node of a cluster."""
    _read_timeout: float

    def settle_in(self) -> None:
        """Settings that the texts of our statements rely on, whatever the server has by default."""
        self.flavour = flavour_of(self.get_server_info())
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.run(f"SET NAMES utf8mb4 COLLATE {self.flavour.collation}")
        self.run(self.flavour.settings)
        ((self.largest, self.process),) = self.run(f"SELECT @@max_allowed_packet, {PROCESS}").fetchall()

    def run(self, query: str, values: Mapping[str, Any] | Sequence[Any] | None = None) -> Cursor:
        cursor = Cursor(self)
        text = (query if values is None else cursor.mogrify(query, values)).encode()
        if len(text) + 1024 > self.largest:
            raise StoreRefused(
                f"MariaDB takes no statement of {len(text)} bytes: set max_allowed_packet on the server, which is "
                f"{self.largest}, to 64M"
            )
        cursor.execute(text)  # bytes: it need not encode them then
        return cursor

    def run_committed(self, queries: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
        """What some statements find, in a transaction of their own, in one round trip."""
        cursor = self.run("; ".join(["BEGIN", *queries, "COMMIT"]) if len(queries) > 1 else queries[0], values)
        found: list[Any] = []
        while True:
            found += cursor.fetchall()
            if not cursor.nextset():
                return found

    @property
    def in_transaction(self) -> bool:
        return bool(self.server_status & 1)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at its end, undone if it raises."""
        self.run("BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(pymysql.Error, OSError):
                self.run("ROLLBACK")
            raise

    @contextmanager
    def answering(self, seconds: float) -> Iterator[None]:
        before, self._read_timeout = self._read_timeout, seconds
        try:
            yield
        finally:
            self._read_timeout = before


def in_transaction(conn: Session, work: Callable[[], T]) -> T:
    """Do it in a transaction, committed or undone. Whoever is a deadlock's victim begins again."""
    for n in range(TRIES):
        try:
            with conn.transaction():
                return work()
        except pymysql.Error as error:
            # On a cluster a row of another node may come between our look and our write: then it is a duplicate.
            if not is_deadlock(error) and number_of(error) != ER.DUP_ENTRY:
                raise
            time.sleep(0.001 * n * n)
    with conn.transaction():
        return work()


def patiently(conn: Session, work: Callable[[], T]) -> T:
    """The same for a program that is no engine: no lease ends meanwhile, so it may wait longer for somebody's lock."""
    try:
        return in_transaction(conn, work)
    except pymysql.Error as error:
        if number_of(error) != ER.LOCK_WAIT_TIMEOUT:
            raise
    with waiting(conn, CALLER_SECONDS - LOCK_SECONDS):
        return in_transaction(conn, work)


@contextmanager
def waiting(conn: Session, seconds: int) -> Iterator[None]:
    """Meanwhile a statement waits so long for somebody's lock."""
    both = "SET SESSION lock_wait_timeout = {0}, innodb_lock_wait_timeout = {0}"
    conn.run(both.format(seconds))
    try:
        yield
    finally:
        with suppress(pymysql.Error, OSError):
            conn.run(both.format(LOCK_SECONDS))


def _has_news(conn: Session) -> bool:
    """Whether an idle connection has something to read: then that is its end."""
    poll = select.poll()
    try:
        poll.register(conn._sock.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return True


class Connections:
    def __init__(self, url: str, on_fork: Callable[[], None], *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._options = {"connect_timeout": _CONNECT_SECONDS, **options_of(url)}
        self._on_fork = on_fork
        self._answer_seconds = answer_seconds
        self._flavour: Flavour | None = None
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._idle: list[Session] = []
        self._open = 0
        self._closed = False

    def check_fork(self) -> None:
        """In a child of the process that opened the connections, start without any."""
        if self._pid != os.getpid():
            self._abandoned = self._idle  # kept, not closed: they are the parent's
            self._start()
            self._on_fork()

    @property
    def flavour(self) -> Flavour:
        if not self._flavour:
            with self.using() as conn:
                self._flavour = conn.flavour
        return self._flavour

    def connect(self) -> Session:
        conn = Session(
            **self._options, charset="utf8mb4", autocommit=True, conv={**encoders, **_numbers},
            client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
            read_timeout=min(_CONNECT_SECONDS, self._answer_seconds), write_timeout=self._answer_seconds,
            program_name="hipq",
        )  # fmt: skip
        conn._read_timeout = self._answer_seconds
        try:
            conn.settle_in()
        except BaseException:
            conn._force_close()
            raise
        return conn

    @contextmanager
    def using(self, answer_seconds: float = 0) -> Iterator[Session]:
        """A connection in autocommit mode. `answer_seconds`: for what may take the server longer than most calls."""
        self.check_fork()
        conn: Session | None = None
        try:
            conn = self._taken()
            with conn.answering(max(answer_seconds, self._answer_seconds)):
                yield conn
        except (pymysql.Error, OSError, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        finally:
            if conn:
                self._given_back(conn)

    def _taken(self) -> Session:
        until = time.monotonic() + POOL_SECONDS
        with self._lock:
            while True:
                if self._closed:
                    raise StoreUnavailable(_CLOSED)
                while self._idle:
                    conn = self._idle.pop()
                    if not _has_news(conn):
                        return conn
                    self._open -= 1
                    conn._force_close()
                if self._open < POOL_SIZE:
                    self._open += 1
                    break
                if not self._lock.wait(until - time.monotonic()) and time.monotonic() >= until:
                    raise StoreUnavailable(f"MariaDB: all {POOL_SIZE} connections are busy")
        try:
            return self.connect()
        except BaseException:
            with self._lock:
                self._open -= 1
                self._lock.notify()
            raise

    def _given_back(self, conn: Session) -> None:
        """One that is in the middle of something goes: whoever came next would be in it, too."""
        broke = not conn.open
        is_good = not broke and not conn.in_transaction and conn._result is not None and not conn._result.has_next
        with self._lock:
            if is_good and not self._closed:
                self._idle.append(conn)
            else:
                self._open -= 1
                conn._force_close()
                if broke:  # so may the others be, or as silent: each would cost as long again
                    self._open -= len(self._idle)
                    for one in self._idle:
                        one._force_close()
                    self._idle.clear()
            self._lock.notify()

    def close(self) -> None:
        self.check_fork()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
            self._lock.notify_all()
        for conn in idle:
            conn._force_close()
