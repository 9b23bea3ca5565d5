"""Connections to one database, and its errors as hipq's own."""

from __future__ import annotations

import select
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final, TypeVar

import pymysql
from pymysql.constants import CLIENT, ER, FIELD_TYPE
from pymysql.converters import encoders
from pymysql.cursors import Cursor

from hipq.errors import StoreBusy, StoreDefect, StoreError, StoreRefused, StoreUnavailable
from hipq.stores.mariadb.address import options_of
from hipq.stores.mariadb.flavour import Flavour, flavour_of
from hipq.stores.sql.pool import ANSWER_SECONDS, CALLER_SECONDS, ConnectionPool

T = TypeVar("T")

LOCK_SECONDS: Final = 2
"""How long an engine waits for somebody's lock: below a third of a lease. The sessions' settings say so, too."""
TRIES: Final = 8
"""How often a transaction begins that was a deadlock's victim."""
PROCESS: Final = "CONNECTION_ID() * @@auto_increment_increment + @@auto_increment_offset - 1"
"""What tells a connection from all others: each node of a cluster counts its own, and has an offset of its own."""
_CONNECT_SECONDS: Final = 4
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


class Transactions:
    """Transactions in each other: the inner ones are savepoints, and an error undoes what was done in one, and no more.
    On a user's connection the outermost may be a savepoint, too."""

    begins = True
    """Whether the outermost is none."""
    _depth = 0

    @contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[None]:
        name = f"hipq_{self._depth}"
        begin, end, undo = f"SAVEPOINT {name}", f"RELEASE SAVEPOINT {name}", f"ROLLBACK TO SAVEPOINT {name}"
        if self.begins and not self._depth:
            begin, end, undo = "BEGIN", "COMMIT", "ROLLBACK"
        self.run(begin)
        self._depth += 1
        try:
            yield
            self.run(undo if force_rollback else end)
        except BaseException:
            with suppress(Exception):  # a deadlock has undone all of it
                self.run(undo)
            raise
        finally:
            self._depth -= 1

    def run(self, query: str, values: Mapping[str, Any] | None = None) -> Any:
        raise NotImplementedError


@cache
def _any_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Session(Transactions, pymysql.Connection):  # type: ignore[misc]  # it has no types
    """One connection of hipq's own."""

    flavour: Flavour
    largest = 1 << 30
    """Bytes that a statement may have: the server's `max_allowed_packet`."""
    process = 0
    """A number that no other connection has, on whatever node of a cluster."""

    def _create_ssl_ctx(self, given: Any) -> ssl.SSLContext:
        """Where the URL says nothing of TLS, one for all connections: PyMySQL's own reads the system's certificates for
        each, which takes 20 ms of a processor, and checks the server's by none of them."""
        return super()._create_ssl_ctx(given) if given else _any_server()

    def settle_in(self) -> None:
        """Settings that the texts of our statements rely on, whatever the server has by default."""
        self.flavour = flavour_of(self.get_server_info())
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self.run(f"SET NAMES utf8mb4 COLLATE {self.flavour.collation}")
        self.run(self.flavour.settings)
        ((self.largest, self.process),) = self.run(f"SELECT @@max_allowed_packet, {PROCESS}").fetchall()

    def run(self, query: str, values: Mapping[str, Any] | Sequence[Any] | None = None) -> Any:
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


class Connections(ConnectionPool[Session]):
    server = "MariaDB"
    errors = (pymysql.Error, OSError, UnicodeError, OverflowError)

    def __init__(self, url: str, on_fork: Callable[[], None], *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._options = {"connect_timeout": _CONNECT_SECONDS, **options_of(url)}
        self._flavour: Flavour | None = None
        super().__init__(on_fork, answer_seconds)

    @property
    def flavour(self) -> Flavour:
        if not self._flavour:
            with self.using() as conn:
                self._flavour = conn.flavour
        return self._flavour

    def connect(self, began: float = 0.0) -> Session:
        conn = Session(
            **self._options, charset="utf8mb4", autocommit=True, conv={**encoders, **_numbers},
            client_flag=CLIENT.FOUND_ROWS | CLIENT.MULTI_STATEMENTS,
            read_timeout=min(_CONNECT_SECONDS, self._answer_seconds), write_timeout=self._answer_seconds,
            program_name="hipq",
        )  # fmt: skip
        self._lend(conn, began, self._answer_seconds)
        try:
            conn.settle_in()
        except BaseException:
            conn._force_close()
            raise
        self._flavour = conn.flavour
        return conn

    def _lend(self, conn: Session, began: float, answer_seconds: float) -> None:  # noqa: ARG002
        conn._read_timeout = answer_seconds

    def _is_gone(self, conn: Session) -> bool:
        return _has_news(conn)

    def _is_broken(self, conn: Session) -> bool:
        return not conn.open

    def _is_clean(self, conn: Session) -> bool:
        return not conn.in_transaction and conn._result is not None and not conn._result.has_next

    def _cut(self, conn: Session) -> None:
        conn._force_close()

    def translated(self, error: Exception) -> StoreError:
        return translated(error)
