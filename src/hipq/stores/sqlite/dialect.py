"""How SQLite runs the statements that all SQL stores share."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hipq.job.answer import KEPT
from hipq.stores.sql.activity import PARTS
from hipq.stores.sql.dialect import Read, Sql
from hipq.stores.sql.statements import Statements
from hipq.stores.sqlite.batch import NAMES, read
from hipq.stores.values import QueueTables

_GATHERED: Final = "gathered"
"""The column of a statement that gives all its rows as one JSON array, in one step: see batch.py."""
_MANY_QUEUES: Final = 100
"""SQLite joins at most 500 SELECTs in one statement."""
_PARENT: Final = "CAST(substr(meta, 11) AS INTEGER)"
"""As in the indexes _parent."""
_rows = msgspec.json.Decoder(list[Any])


def statements(look: Callable[[], Iterable[QueueTables]]) -> Statements[str]:
    return Statements(
        "hipq.stores.sqlite", look, spelled, columns=NAMES, kept=", ".join(KEPT),
        by_early=" INDEXED BY hipq_answers_early",
        strategy="coalesce(CASE WHEN phase = {DECIDING} THEN json_extract(meta, '$.retry.registered') END, '')",
        **PARTS,
    )  # fmt: skip


def spelled(text: str) -> str:
    """SQLite has no arrays: a list is one JSON parameter."""
    return re.sub(
        r"\{in (?:text )?(\w+)\}",
        r"IN (SELECT value FROM json_each(:\1))",
        text.replace("{contains}", "instr").replace("{parent}", _PARENT),
    )


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: msgspec.json.encode(one).decode() if isinstance(one, list) else one for key, one in values.items()}


class SqliteSql(Sql):
    conn: sqlite3.Connection

    def run(self, query: str, values: Mapping[str, Any], *, once: bool = False) -> list[Any]:  # noqa: ARG002
        cursor = self.conn.execute(query, given(values))
        found = cursor.fetchall()
        return _rows.decode(found[0][0]) if cursor.description[0][0] == _GATHERED else found

    def do(self, query: str, values: Mapping[str, Any], *, once: bool = False) -> int:  # noqa: ARG002
        return self.conn.execute(query, given(values)).rowcount

    def read(self, kind: type[Read], query: str, values: Mapping[str, Any], *, once: bool = False) -> list[Read]:  # noqa: ARG002
        return read(self.conn, query, given(values), kind)

    def of_each(self, name: str, queues: Sequence[int]) -> list[str]:
        parts = [f"SELECT * FROM ({self.statements.of(name, queue)})" for queue in queues]
        return [" UNION ALL ".join(parts[n : n + _MANY_QUEUES]) for n in range(0, len(parts), _MANY_QUEUES)]
