"""An async connection to PostgreSQL, of psycopg or of asyncpg, as the store uses a plain one: from a thread, while the
connection's event loop carries out each statement."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString, Self, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

T = TypeVar("T")
_PLACE: Final = re.compile(r"%\((\w+)\)s|%s|%%")


class Bridged:
    """The part of psycopg's `Connection` and `Cursor` that adding jobs needs. It is made for one call."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._loop = asyncio.get_running_loop()
        self._is_asyncpg = not isinstance(conn, psycopg.AsyncConnection)
        self._rows: list[tuple[Any, ...]] = []

    @property
    def autocommit(self) -> bool:
        return self._is_asyncpg or bool(self._conn.autocommit)

    @property
    def info(self) -> Self:
        """The place where psycopg has the state of the transaction."""
        return self

    @property
    def transaction_status(self) -> TransactionStatus:
        if not self._is_asyncpg:
            return TransactionStatus(self._conn.info.transaction_status)
        return TransactionStatus.INTRANS if self._conn.is_in_transaction() else TransactionStatus.IDLE

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A savepoint in the transaction that is open, or a transaction of its own."""
        inner = self._conn.transaction()
        self._wait(inner.__aenter__())
        try:
            yield
        except BaseException as error:
            self._wait(inner.__aexit__(type(error), error, error.__traceback__))
            raise
        self._wait(inner.__aexit__(None, None, None))

    def execute(
        self,
        query: bytes | LiteralString,
        values: Mapping[str, Any] | Sequence[Any] = (),
        *,
        binary: bool = False,
        prepare: bool | None = None,  # noqa: ARG002 - as its driver likes
    ) -> Self:
        self._rows = self._wait(self._fetch(query, values, binary))
        return self

    def executemany(self, query: bytes, values: Iterable[Sequence[Any]]) -> None:
        for one in values:
            self.execute(query, one)

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    async def _fetch(
        self, query: bytes | LiteralString, values: Mapping[str, Any] | Sequence[Any], binary: bool
    ) -> list[tuple[Any, ...]]:
        if self._is_asyncpg:
            text, places = _numbered(query if isinstance(query, str) else query.decode(), values)
            return [tuple(row) for row in await self._conn.fetch(text, *places)]
        async with psycopg.AsyncCursor(self._conn, row_factory=tuple_row) as cursor:
            await cursor.execute(query, values or None, binary=binary)
            return await cursor.fetchall() if cursor.description else []

    def _wait(self, step: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(step, self._loop).result()
        except Exception as error:
            state = getattr(error, "sqlstate", None)
            if isinstance(error, psycopg.Error) or not state:
                raise
            raise psycopg.errors.lookup(state)(str(error)) from error


def _numbered(query: str, values: Mapping[str, Any] | Sequence[Any]) -> tuple[str, list[Any]]:
    """The same with asyncpg's placeholders: $1, $2, ..."""
    given: list[Any] = []
    rest = iter(values if not isinstance(values, Mapping) else ())

    def place(found: re.Match[str]) -> str:
        if found.group() == "%%":
            return "%"
        given.append(values[found.group(1)] if isinstance(values, Mapping) else next(rest))
        return f"${len(given)}"

    return _PLACE.sub(place, query), given
