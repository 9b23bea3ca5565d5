"""How PostgreSQL runs the statements that all SQL stores share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from psycopg.rows import args_row

from hipq.job.answer import KEPT
from hipq.stores.postgres.connection import Connection
from hipq.stores.sql.activity import PARTS
from hipq.stores.sql.dialect import Read, Sql
from hipq.stores.sql.statements import WITH_PAYLOAD, Statements
from hipq.stores.values import QueueTables

_PARENT: Final = "(substring(meta, '[0-9]+')::numeric)"
"""The parent of a child, as in the indexes _parent."""


def statements(look: Callable[[], Iterable[QueueTables]]) -> Statements[bytes]:
    return Statements(
        "hipq.stores.postgres", look, spelled, columns=WITH_PAYLOAD, kept=", ".join(KEPT), by_early="",
        strategy="coalesce(CASE WHEN phase = {DECIDING} THEN meta::jsonb #>> '{retry,registered}' END, '')",
        **PARTS,
    )  # fmt: skip


def spelled(text: str) -> bytes:
    text = re.sub(r"\{in text (\w+)\}", r"= ANY (:\1::text[])", text.replace("{contains}", "strpos"))
    text = text.replace("{parent}", _PARENT)
    text = re.sub(r"\{in (\w+)\}", r"= ANY (:\1::bigint[])", text)
    return re.sub(r"(?<![:\w]):([a-z]\w*)", r"%(\1)s", text).encode()


class PostgresSql(Sql):
    conn: Connection

    def run(self, query: bytes, values: Mapping[str, Any], *, once: bool = False) -> list[Any]:
        return self.conn.execute(query, values, prepare=False if once else None, binary=True).fetchall()

    def do(self, query: bytes, values: Mapping[str, Any], *, once: bool = False) -> int:
        return self.conn.execute(query, values, prepare=False if once else None).rowcount

    def read(self, kind: type[Read], query: bytes, values: Mapping[str, Any], *, once: bool = False) -> list[Read]:
        cursor = self.conn.cursor(row_factory=args_row(kind))
        return cursor.execute(query, values, prepare=False if once else None, binary=True).fetchall()

    def of_each(self, name: str, queues: Sequence[int]) -> list[bytes]:
        return [b" UNION ALL ".join(b"(%s)" % self.statements.of(name, queue) for queue in queues)] if queues else []
