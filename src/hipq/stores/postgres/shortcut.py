"""A statement for one row, sent by libpq's own calls: to go through a cursor costs a program that adds a job more than
all else that hipq does for the job.

A connection prepares the statement at its second use. The first time, and always behind a pooler, a cursor runs it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Any, Final

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from hipq.stores.postgres.session import Session

_VALUE: Final = re.compile(rb"%\((\w+)\)s")
_numbers = count(1)


class Shortcut:
    """`query` has its values as psycopg takes them, `%(name)s`, and `types` has their types. One row comes back, or
    none."""

    def __init__(self, query: bytes, types: Mapping[str, str]) -> None:
        self._query = query
        self._order = [name.decode() for name in dict.fromkeys(_VALUE.findall(query))]
        self._types = [psycopg.adapters.types[types[name]].oid for name in self._order]
        self._name = b"hipq_%d" % next(_numbers)

    def number(self, conn: psycopg.Connection[Any], values: Mapping[str, Any]) -> int | None:
        """The first column of the row, which is a number."""
        if not isinstance(conn, Session) or conn.pooled or not self._is_prepared(conn):
            row = conn.execute(self._query, values, prepare=False).fetchone()
            return row[0] if row else None
        given = [_in_text(values[name], conn.text_encoding) for name in self._order]
        try:
            found = self._run(conn, given)
        except psycopg.errors.InvalidSqlStatementName:  # psycopg drops all that is prepared when a table is altered
            self._prepare(conn)
            found = self._run(conn, given)
        cell = found.get_value(0, 0) if found.ntuples else None
        return None if cell is None else int(cell)

    def _is_prepared(self, conn: Session) -> bool:
        """Whether the statement is prepared: it is from its second use on."""
        uses = conn.shortcut_uses.get(self._name, 0)
        if uses == 1:
            self._prepare(conn)
        if uses < 2:
            conn.shortcut_uses[self._name] = uses + 1
        return uses > 0

    def _prepare(self, conn: Session) -> None:
        numbered = _VALUE.sub(lambda found: b"$%d" % (self._order.index(found[1].decode()) + 1), self._query)
        conn.pgconn.send_prepare(self._name, numbered, self._types)
        _answer(conn)

    def _run(self, conn: Session, given: list[bytes | None]) -> PGresult:
        conn.pgconn.send_query_prepared(self._name, given)
        return _answer(conn)


def _answer(conn: Session) -> PGresult:
    found: PGresult = conn.wait(generators.execute(conn.pgconn))[-1]
    if found.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise psycopg.errors.error_from_result(found, conn.text_encoding)
    return found


def _in_text(value: Any, encoding: str) -> bytes | None:
    """A value as libpq takes it, for which a null byte ends a text."""
    if isinstance(value, str):
        if "\0" in value:
            raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return value.encode(encoding)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    return None if value is None else str(value).encode()
