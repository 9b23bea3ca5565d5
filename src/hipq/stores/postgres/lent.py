"""A connection that is somebody else's: what hipq does is part of their transaction, and everything else stays as it
was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from hipq.errors import SchemaError, StoreError, StoreUnavailable
from hipq.job.model import New
from hipq.stores.clock import Clock
from hipq.stores.postgres.adding import usable
from hipq.stores.postgres.connection import Connections, translated
from hipq.stores.postgres.session import Session
from hipq.stores.postgres.store import PostgresStore
from hipq.stores.values import QueueTables, Stored

Lend = Callable[[], Any]


class Lent(Connections):
    """Takes the place of hipq's own pool."""

    def __init__(self, lend: Lend) -> None:
        self.lend = lend

    def is_own(self, process: int) -> bool:  # noqa: ARG002
        return False

    def check_fork(self) -> None:
        """Does nothing: whoever lends the connection knows about forks."""

    def in_vain(self, error: StoreError, began: float) -> None:
        """Does nothing: whoever lends the connection has settings of their own for a server that is silent."""

    def connect(self, began: float = 0.0) -> Session:  # noqa: ARG002
        raise StoreUnavailable("PostgreSQL: a connection that is lent has no second one beside it")

    @contextmanager
    def using(self, answer_seconds: float = 0) -> Iterator[Any]:  # noqa: ARG002
        """In a savepoint of their transaction, if they have one: an error of hipq's must not end it."""
        conn = usable(self.lend())
        kept = conn.cursor_factory, conn.row_factory
        conn.cursor_factory, conn.row_factory = psycopg.Cursor, tuple_row  # theirs may bind or read in another way
        try:
            if not conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
                conn.execute("SELECT")  # begins their transaction, which is theirs to commit
            with conn.transaction():
                yield conn
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            raise translated(error) from error
        finally:
            conn.cursor_factory, conn.row_factory = kept

    def close(self) -> None:
        """Does nothing: it is theirs to close."""


class GuestStore(PostgresStore):
    """The store of a program that adds jobs and looks at them through its own connection. No engine can work on it."""

    def __init__(self, lend: Lend, url: str, clock: Clock | None = None, for_a_test: bool = False) -> None:
        self._lent, self._for_a_test = Lent(lend), for_a_test
        super().__init__("postgresql://", clock, self._lent)
        self.url = url

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        """Adds each job with its notice, which their commit sends: one that was sent before might be undone with its
        job."""
        return super().enqueue(jobs, all_or_nothing=all_or_nothing, conn=conn or self._lent.lend())

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        """Makes no tables in a transaction of theirs: it may be undone, and what was learned would be wrong."""
        conn = usable(self._lent.lend())
        in_theirs = not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE
        if in_theirs and not self._for_a_test:
            with self._using() as theirs:
                if not self.schema(self._sql(theirs)).complete(app, name, table):
                    raise SchemaError(f"{self.url} has no tables yet for the queue {app}.{name}")
        return super().queue(app, name, table)
