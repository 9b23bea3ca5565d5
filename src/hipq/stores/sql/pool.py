"""A small pool of connections to one server, made anew after a fork.

- A broken connection leaves the pool, and those that broke with it are noticed before they are used: after a restart
  of the server the first call works.
- Without a server a call fails within seconds and says why. So it does if the server accepts connections and never
  answers: every call has a deadline on this side.
- A connection must not cross a fork: a child opens its own and leaves the parent's untouched.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, Generic, TypeVar

from hipq.errors import StoreError, StoreUnavailable

C = TypeVar("C")

ANSWER_SECONDS: Final = 15.0
"""Seconds that a server may leave a statement without any answer. Then the connection is cut: the process at the other
end is stopped, or a balancer in between hangs. Longer than any statement of hipq's waits for a lock."""
LONG_SECONDS: Final = 600.0
"""The same for statements that may have to read much: lists, counts, pruning."""
MIGRATION_SECONDS: Final = 24 * 3600.0
"""The same for statements that may have to write every row: migrations, and a move from another database."""
CALLER_SECONDS: Final = 10
"""Seconds that a program which adds a job, or brings an answer, waits for a transaction that has taken its key."""
POOL_SIZE: Final = 10
POOL_SECONDS: Final = 1.5
"""Seconds that a thread waits for a connection of the pool."""
IDLE_SECONDS: Final = 600.0
"""A connection that nobody has used for so long is closed."""


class ConnectionPool(ABC, Generic[C]):
    """`on_fork`: told in a child. `answer_seconds`: how long the server may be silent before a connection is given
    up."""

    server: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]]
    """What the driver raises, about the server or about what it was given."""

    def __init__(self, on_fork: Callable[[], None], answer_seconds: float) -> None:
        self._on_fork = on_fork
        self._answer_seconds = answer_seconds
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Condition()
        self._idle: list[tuple[float, C]] = []
        """Those that nobody uses, each since when."""
        self._open = 0
        self._closed = False

    def check_fork(self) -> None:
        """In a child of the process that opened the connections, start without any."""
        if self._pid != os.getpid():
            self._abandoned = self._idle  # kept, not closed: they are the parent's
            self._start()
            self._on_fork()

    # -- what drivers do otherwise ----------------------------------------------------------------------------------
    @abstractmethod
    def connect(self, began: float = 0.0) -> C:
        """A connection apart from the pool. `began`: when the caller began to wait, if that was before."""

    @abstractmethod
    def _lend(self, conn: C, began: float, answer_seconds: float) -> None:
        """Tell a connection how long the server may be silent, to somebody who has waited since then."""

    @abstractmethod
    def _is_gone(self, conn: C) -> bool:
        """Whether the server has closed this idle connection."""

    @abstractmethod
    def _is_broken(self, conn: C) -> bool: ...

    @abstractmethod
    def _is_clean(self, conn: C) -> bool:
        """Whether this open connection is in the middle of nothing: whoever came next would be in it, too."""

    @abstractmethod
    def _cut(self, conn: C) -> None: ...

    @abstractmethod
    def translated(self, error: Exception) -> StoreError: ...

    # -- the pool ---------------------------------------------------------------------------------------------------
    @contextmanager
    def using(self, answer_seconds: float = 0) -> Iterator[C]:
        """A connection in autocommit mode. `answer_seconds`: for what may take the server longer than most calls."""
        began = time.monotonic()
        self.check_fork()
        conn: C | None = None
        try:
            conn = self._taken(began)
            self._lend(conn, began, max(answer_seconds, self._answer_seconds))
            yield conn
        except self.errors as error:
            raise self.translated(error) from error
        finally:
            if conn is not None:
                self._given_back(conn)

    def _taken(self, began: float) -> C:
        with self._lock:
            while True:
                if self._closed:
                    raise StoreUnavailable(f"{self.server}: this store was closed")
                while self._idle and self._idle[0][0] < began - IDLE_SECONDS:
                    self._drop(self._idle.pop(0)[1])
                while self._idle:
                    _, conn = self._idle.pop()
                    if not self._is_gone(conn):
                        return conn
                    self._drop(conn)
                if self._open < POOL_SIZE:
                    self._open += 1
                    break
                left = began + POOL_SECONDS - time.monotonic()
                if not self._lock.wait(left) and left <= 0:
                    raise StoreUnavailable(f"{self.server}: all {POOL_SIZE} connections are busy")
        try:
            return self.connect(began)
        except BaseException:
            with self._lock:
                self._open -= 1
                self._lock.notify()
            raise

    def _given_back(self, conn: C) -> None:
        is_broken = self._is_broken(conn)
        with self._lock:
            if not is_broken and not self._closed and self._is_clean(conn):
                self._idle.append((time.monotonic(), conn))
            else:
                self._drop(conn)
            while is_broken and self._idle:  # so may the others be, or as silent: each would cost as long again
                self._drop(self._idle.pop()[1])
            self._lock.notify()

    def _drop(self, conn: C) -> None:
        self._open -= 1
        self._cut(conn)

    def close(self) -> None:
        self.check_fork()
        with self._lock:
            self._closed = True
            while self._idle:
                self._drop(self._idle.pop()[1])
            self._lock.notify_all()
