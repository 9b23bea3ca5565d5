"""A connection that is somebody else's: what we do is part of their transaction, and all else stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hipq.errors import SchemaError
from hipq.job.model import New
from hipq.stores.clock import Clock
from hipq.stores.mariadb.borrowed import borrowed
from hipq.stores.mariadb.connection import Connections
from hipq.stores.mariadb.store import MariaStore
from hipq.stores.values import QueueTables, Stored

Lend = Callable[[], Any]


class Lent(Connections):
    """In the place of a pool of our own."""

    def __init__(self, lend: Lend) -> None:
        self.lend = lend
        self._flavour = None

    def check_fork(self) -> None:
        """Whoever lends it knows about forks."""

    @contextmanager
    def using(self, answer_seconds: float = 0) -> Iterator[Any]:  # noqa: ARG002
        """What makes tables is committed at once, with whatever was done before: so there is no savepoint around it."""
        with borrowed(self.lend()) as conn:
            yield conn

    def close(self) -> None:
        """It is not ours to close."""


class GuestStore(MariaStore):
    """For a program that adds jobs and looks at them through its own connection. No engine can work on it."""

    def __init__(self, lend: Lend, url: str, clock: Clock | None = None, for_a_test: bool = False) -> None:
        self._lent, self._for_a_test = Lent(lend), for_a_test
        super().__init__("mariadb://", clock, self._lent)
        self.url = url

    def enqueue(self, jobs: Sequence[New], *, all_or_nothing: bool = False, conn: Any = None) -> list[Stored]:
        return super().enqueue(jobs, all_or_nothing=all_or_nothing, conn=conn or self._lent.lend())

    def queue(self, app: str, name: str, table: str) -> QueueTables:
        """In a transaction of theirs no tables are made: that would commit it."""
        with self._using() as conn:
            if not conn.begins and not self.schema(self._sql(conn)).complete(app, name, table):
                raise SchemaError(f"{self.url} has no tables yet for the queue {app}.{name}")
        return super().queue(app, name, table)
