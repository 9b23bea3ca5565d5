"""One connection of hipq's own: its settings, what it does when the server is silent, and how it works behind a pooler.

A pooler such as PgBouncer may hand every transaction to another session of the server. So behind one nothing is left
in a session: settings are made anew in each transaction, and no statement is prepared. On a direct connection both are
made once, which saves two round trips a statement. Nobody needs to say which it is: a pooler makes up the process id
that it tells its clients, and the server knows better.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.abc import Params, PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from hipq.stores.sql.pool import ANSWER_SECONDS

T = TypeVar("T")

LOCK_SECONDS: Final = 1.5
"""Seconds that a statement waits for somebody's lock: well below a third of a lease, or a turn that waits would end it;
and above the server's deadlock_timeout (1 s), or a deadlock would not be told from waiting."""
_LOOK_SECONDS: Final = 0.1
"""Seconds between two looks at the clock of a call that waits. A deadline is kept with this precision."""
_SETTINGS: Final = {
    # Whatever the role or the database has by default. A claim must see what was committed while it waited.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",  # the deadline on our side is enough, and knows which statements take long
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
_PER_TRANSACTION: Final = "; ".join([
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    *(f"SET LOCAL {name} = '{value}'" for name, value in _SETTINGS.items() if not name.startswith("default_")),
]).encode()  # fmt: skip


class Session(psycopg.Connection[TupleRow]):
    pooled = False
    """Whether a pooler is in between."""
    answer_seconds = ANSWER_SECONDS
    asked_at = 0.0
    """When the caller of the next statement began to wait, if that was before it."""
    unanswered = False
    """The server was silent for too long, and the connection has been cut."""
    text_encoding: str
    """How texts are sent, by Python's name for it. To ask psycopg each time costs as much as to encode some."""
    shortcut_uses: dict[bytes, int]
    """How often each shortcut was used here: never, once, or more often; then it is prepared."""

    def settle_in(self) -> None:
        """Find out if a pooler is in between, and make our settings; behind one they end with this statement."""
        self.text_encoding = self.info.encoding
        self.shortcut_uses = {}
        pid = self.info.backend_pid
        query = "SELECT pg_backend_pid() <> %s" + ", set_config(%s, %s, pg_backend_pid() <> %s)" * len(_SETTINGS)
        values = [pid, *(value for name, text in _SETTINGS.items() for value in (name, text, pid))]
        found = self.execute(query.encode(), values, prepare=False).fetchone()
        if found and found[0]:
            self.pooled = True
            self.prepare_threshold = None
            self.cursor_factory = PooledCursor

    def wait(self, gen: PQGen[T], interval: float = _LOOK_SECONDS, timeout: float | None = None) -> T:
        """All that psycopg does on a connection waits here."""
        return super().wait(self._while_answered(gen), min(interval, _LOOK_SECONDS), *([timeout] if timeout else []))

    def _while_answered(self, gen: PQGen[T]) -> Generator[Any, Any, T]:
        heard, self.asked_at = self.asked_at or time.monotonic(), 0.0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() + _LOOK_SECONDS >= heard + self.answer_seconds:
                    self._cut()
                wanted = gen.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value

    def _cut(self) -> None:
        self.unanswered = True
        self.pgconn.finish()
        raise psycopg.OperationalError(
            f"the server takes connections and has not answered for {self.answer_seconds:g} s"
        )

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[psycopg.Transaction]:
        outermost = self.info.transaction_status == TransactionStatus.IDLE
        with super().transaction(savepoint_name, force_rollback) as transaction:
            if self.pooled and outermost:
                self.execute(_PER_TRANSACTION)
            yield transaction


class PooledCursor(psycopg.Cursor[T]):
    """Behind a pooler a statement that is in no transaction gets one, for the settings to be in."""

    def execute(
        self, query: Any, params: Params | None = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Self:
        if self.connection.info.transaction_status != TransactionStatus.IDLE:
            return super().execute(query, params, prepare=prepare, binary=binary)
        with self.connection.transaction():
            return super().execute(query, params, prepare=prepare, binary=binary)
