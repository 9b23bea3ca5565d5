"""Numbered SQL files, expand first and contract a release later: program N-1 runs on schema N.

A file has a part for the database and, after `-- :each-queue`, one for each queue's tables. The schema *is* its
migrations: a new queue gets every file's queue part, an old one the files it has not had. The first line of a file may
say `-- :accepts N`: the oldest program (schema number it was written for) that still works on the schema it leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

from hipq.errors import Conflict, NameClash, NotFound, SchemaError
from hipq.stores.values import EngineSeen, QueueTables


class Migration(NamedTuple):
    number: int
    name: str
    accepts: int
    database: str
    queue: str


def migrations(package: str) -> list[Migration]:
    found = []
    for file in sorted(files(package).joinpath("migrations").iterdir(), key=lambda file: file.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name):
            text = file.read_text("utf-8")
            database, _, queue = text.partition("-- :each-queue\n")
            accepts = re.match(r"-- :accepts (\d+)\n", text)
            found.append(Migration(int(match[1]), match[0], int(accepts[1]) if accepts else 1, database, queue))
    return found


def lacking(known: list[Migration], level: int) -> list[Migration]:
    """The migrations that a queue's tables have not had. A program older than the schema makes queues at its own
    number."""
    return [migration for migration in known if migration.number > level]


def tables(template: str, queue: QueueTables) -> str:
    """The SQL for one queue, with {live}, {final} and {number} filled in. Names were validated when the queue was
    registered."""
    return (
        template.replace("{live}", queue.table)
        .replace("{final}", f"{queue.table}_final")
        .replace("{number}", str(queue.number))
    )


_LIVE = (
    "",
    "_ids",
    "_key",
    "_owner",
    "_parent",
    "_parked",
    "_pkey",
    "_ready",
    "_retry",
    "_stage",
    "_tenant",
    "_todo",
    "_turns",
    "_wait",
    "_waited",
)
_FINAL = ("", "_code", "_failed", "_key", "_named", "_parent", "_pkey", "_tenant", "_time", "_waited")


def relations(table: str) -> frozenset[str]:
    """Every name that a queue with this table takes in its database: of its tables, their indexes, and a sequence."""
    return frozenset([*(table + one for one in _LIVE), *(f"{table}_final{one}" for one in _FINAL)])


def owner(queues: list[QueueTables], app: str, name: str, table: str) -> QueueTables | None:
    """This queue, if it is registered. The registry owns the names: two queues never share a table."""
    for queue in queues:
        if (queue.app, queue.name) == (app, name):
            if queue.table != table:
                raise NameClash(
                    f"queue {app}.{name} lives in the table {queue.table}; the naming strategy here says {table}"
                )
            return queue
        check_apart(f"{app}.{name}", table, f"{queue.app}.{queue.name}", queue.table)
    return None


def check_apart(queue: str, table: str, other: str, their_table: str) -> None:
    """Raise if the tables and indexes of two queues cannot be in one database."""
    related = table.startswith(their_table) or their_table.startswith(table)
    if related and (clash := relations(table) & relations(their_table)):
        raise NameClash(
            f"queue {queue} wants the table {table}, and queue {other} has the table {their_table}: each would have "
            f"something named {min(clash)}; give one of them another name"
        )


def next_number(queues: Iterable[QueueTables], dropped: int) -> int:
    """The next number for a queue, above all that there are and ever were: an id of a dropped queue must not find
    another queue's job."""
    return max([dropped, *(queue.number for queue in queues)]) + 1


def numbered(queues: Iterable[QueueTables], number: int) -> QueueTables:
    for queue in queues:
        if queue.number == number:
            return queue
    raise NotFound(f"no queue has the number {number}")


def check_left(queue: QueueTables, engines: Iterable[EngineSeen], owners: set[int]) -> None:
    """Raise if an engine that is alive serves the queue, or is among the owners of its jobs: it would go on trying."""
    for engine in engines:
        if str(queue.number) in engine.serves or engine.engine_id in owners:
            raise Conflict(
                f"queue {queue.app}.{queue.name} cannot be dropped: "
                f"engine {engine.engine_id} ({engine.label}) works on it"
            )


QUEUES_LOST = 16
"""How many numbers of queues to skip in a restored database: for queues that were added after the copy was made."""


def check_stopped(engines: Iterable[EngineSeen]) -> None:
    for engine in engines:
        raise Conflict(f"engine {engine.engine_id} ({engine.label}) is alive: stop the programs that use this database")


def check_version(found: int, accepts: int, known: list[Migration], url: str) -> None:
    """Raise unless this program can work on a database at that schema."""
    mine = known[-1].number
    if found < mine:
        what = "has no hipq tables yet" if found == 0 else f"is at schema {found}, this program needs {mine}"
        raise SchemaError(
            f"{url} {what}; run `hipq migrate` once, with --db URL or your MODULE:APP", is_empty=found == 0
        )
    if mine < accepts:
        raise SchemaError(
            f"{url} is at schema {found} and takes programs of schema {accepts} or later; this one is {mine}: "
            "upgrade hipq here"
        )
