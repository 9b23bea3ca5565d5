"""What happens in each cell while jobs are added: the kinds of the public arena, without containers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Protocol

import psycopg
from tests.servers import OwnPostgres

Connection = psycopg.Connection[tuple[object, ...]]


class Field(Protocol):
    """What a cell may disturb."""

    server: OwnPostgres
    seconds: float
    """How long the disturbance lasts."""
    rate: float

    def offer(self, rate: float) -> None:
        """Add so many jobs a second from now on."""

    def kill(self, number: int) -> None:
        """SIGKILL for a worker, which starts again after a second."""


class Cell(NamedTuple):
    name: str
    about: str
    disturb: Callable[[Field], None]


def _clean(field: Field) -> None:
    time.sleep(field.seconds)


def _idle_transaction(field: Field) -> None:
    """With a transaction id of its own, so that nothing dead can be removed meanwhile."""
    with _connected(field) as conn:
        conn.execute("BEGIN")
        conn.execute("SELECT txid_current()")
        time.sleep(field.seconds)


def _readers(field: Field) -> None:
    """Four that read all of the largest tables again and again, each in one long transaction."""
    over = threading.Event()
    threads = [threading.Thread(target=_read, args=[field, over]) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(field.seconds)
    over.set()
    for thread in threads:
        thread.join()


def _read(field: Field, over: threading.Event) -> None:
    with _connected(field) as conn:
        conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        query = "SELECT relid::regclass::text FROM pg_stat_user_tables ORDER BY n_live_tup + n_dead_tup DESC LIMIT 3"
        tables = [str(row[0]) for row in conn.execute(query).fetchall()]
        while not over.is_set():
            for table in tables:
                conn.execute(f"SELECT count(*), max(length(t::text)) FROM {table} AS t".encode())


def _burst(field: Field) -> None:
    field.offer(field.rate * 5)
    time.sleep(field.seconds)
    field.offer(field.rate)


def _killed(field: Field) -> None:
    field.kill(0)
    time.sleep(field.seconds)


def _killed_again_and_again(field: Field) -> None:
    for _ in range(5):
        field.kill(0)
        time.sleep(field.seconds / 5)


def _restarted(field: Field) -> None:
    field.server.stop(immediate=False)
    time.sleep(field.seconds / 3)
    field.server.start()
    time.sleep(field.seconds * 2 / 3)


def _backends(field: Field) -> None:
    """Two connections a second, whichever they are."""
    with _connected(field) as conn:
        until = time.monotonic() + field.seconds
        while time.monotonic() < until:
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                " AND backend_type = 'client backend' AND application_name <> 'arena' ORDER BY random() LIMIT 1"
            )
            time.sleep(0.5)


def _full_pool(field: Field) -> None:
    """Idle connections until the server takes no more: whoever needs another one has to wait."""
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(psycopg.connect(field.server.url, autocommit=True, application_name="arena"))
            except psycopg.OperationalError:
                break
        time.sleep(field.seconds)


@contextmanager
def _connected(field: Field) -> Iterator[Connection]:
    conn = psycopg.connect(field.server.url, autocommit=True, application_name="arena")
    try:
        yield conn
    finally:
        with suppress(psycopg.Error):
            conn.close()


CELLS = (
    Cell("clean", "nothing happens", _clean),
    Cell("idle transaction", "a transaction with an id is left open", _idle_transaction),
    Cell("readers", "four read the tables in long transactions", _readers),
    Cell("burst", "five times as many jobs are added", _burst),
    Cell("killed", "one of two workers is killed, and starts again", _killed),
    Cell("killed again and again", "the same five times", _killed_again_and_again),
    Cell("PostgreSQL restarted", "it stops for a third of the time", _restarted),
    Cell("backends terminated", "two connections a second are cut", _backends),
    Cell("pool full", "idle connections take all that the server has", _full_pool),
)
