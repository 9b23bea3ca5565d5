"""Which tables, indexes and checks the migrations make: read from the same SQL that makes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from hipq.stores import migrations
from hipq.stores.health.facts import Part
from hipq.stores.values import QueueTables

_MADE: Final = re.compile(
    r"CREATE TABLE (?P<table>\w+)"
    r"|CONSTRAINT (?P<check>\w+) CHECK \(.*\)(?=,?\n)"
    r"|CREATE (?P<unique>UNIQUE )?INDEX (?P<index>\w+) ON (?P<on>\w+) \((?P<columns>[^)]*)\)(?P<where> WHERE [^;]*)?;"
    r"|^ +(?P<only>UNIQUE )?KEY (?P<key>\w+) \((?P<parts>[^)]*)\)"
    r"|DROP (?:TABLE|INDEX|CONSTRAINT) (?:IF EXISTS )?(?P<gone>\w+)",
    re.MULTILINE,
)


def expected(
    known: Sequence[migrations.Migration], found: int, queues: Iterable[tuple[QueueTables, int]]
) -> list[Part]:
    """What a database at schema `found` has, with these queues, each at the number its tables have had."""
    texts = [one.database for one in known if one.number <= found]
    for queue, level in queues:
        texts += [migrations.tables(one.queue, queue) for one in known if one.number <= level]
    parts: dict[str, Part] = {}
    for text in texts:
        _follow(re.sub(r"--.*", "", text), parts)
    return list(parts.values())


def _follow(text: str, parts: dict[str, Part]) -> None:
    table = ""
    for match in _MADE.finditer(text):
        if name := match["table"]:
            table = name
            parts[name] = Part("table", name, name)
        elif name := match["check"]:
            parts[name] = Part("check", name, table, sql=match[0])
        elif name := match["index"]:
            columns = tuple(column.strip() for column in match["columns"].split(","))
            parts[name] = Part(
                "index", name, match["on"], columns, bool(match["unique"]), bool(match["where"]), sql=match[0]
            )
        elif name := match["key"]:  # as MariaDB has it: in its table, and words of SQL may be columns
            columns = tuple(column.strip('" ') for column in match["parts"].split(","))
            quoted = ", ".join(f"`{column}`" for column in columns)
            sql = f"CREATE {match['only'] or ''}INDEX {name} ON {table} ({quoted})"
            parts[name] = Part("index", name, table, columns, bool(match["only"]), sql=sql)
        else:
            parts.pop(match["gone"], None)
