"""Names of queues and job types for a shell's completion: looked up quickly, and without any effect.

No code of the application runs: its source is read, not imported. A database is opened to read only, never made, and
given up after a second. Whatever goes wrong, nothing is printed and nothing is completed.
"""

from __future__ import annotations

import ast
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from hipq import config
from hipq.cli.source import calls, parsed
from hipq.cli.target import usual_app, usual_database

SECONDS: Final = 1.0
_NEWEST: Final = 500
"""Jobs of a queue that are looked at for their types."""
_SQLITE: Final = "sqlite:///"


class Known(NamedTuple):
    queues: set[str]
    types: set[str]


# -- where names are wanted ------------------------------------------------------------------------------------------
class Name(click.types.StringParamType):
    """A name that a shell completes; with `several`, names with commas between them."""

    def __init__(self, name: str, names: Callable[[click.Context], set[str]], *, several: bool = False) -> None:
        self.name, self._names, self._several = name, names, several

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, _ = incomplete.rpartition(",") if self._several else ("", "", "")
        found = sorted(f"{before}{comma}{name}" for name in self._names(ctx) - {"", *before.split(",")})
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def complete_names(command: click.Command) -> None:
    """Let parameters that stand for queues and job types know it, by their names, in all commands."""
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        complete_names(one)
    for parameter in command.params:
        if parameter.type is click.STRING:
            if parameter.name == "queue" or parameter.metavar == "QUEUE":
                parameter.type = Name("queue", lambda ctx: known(ctx).queues)
            elif parameter.name == "queues":
                parameter.type = Name("queues", lambda ctx: known(ctx).queues, several=True)
            elif parameter.name in ("type", "job_type"):
                parameter.type = Name("type", lambda ctx: known(ctx).types)


# -- looking them up -------------------------------------------------------------------------------------------------
def known(ctx: click.Context) -> Known:
    """What the application's source names, and what is in its database."""
    found = Known(set(), set())

    def look() -> None:
        with suppress(Exception):
            _look(ctx.params.get("app") or "", ctx.params.get("db") or "", found)

    looking = threading.Thread(target=look, daemon=True)  # a server that does not answer is left alone
    looking.start()
    looking.join(SECONDS)
    return Known(set(found.queues), set(found.types))


def _look(app: str, db: str, found: Known) -> None:
    url, instances = db or usual_database(), set[str]()
    if not db:
        instances = _read_source(app or usual_app(), found)
    for one in [url] if url else [f"{_SQLITE}{name}.db" for name in instances]:
        with suppress(Exception), _rows(one) as rows:
            _read_database(rows, instances, found)


def _read_source(app: str, found: Known) -> set[str]:
    """The names of instances in a module; its queues and job types are added to what is found."""
    instances: set[str] = set()
    for node, called in calls(app):
        into = {"Hipq": instances, "queue": found.queues, "job": found.types}.get(called)
        if into is not None and (text := _first_text(node)):
            into.add(text)
    functions = [one for one in ast.walk(parsed(app)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        for mark in function.decorator_list:
            of = mark.func if isinstance(mark, ast.Call) else mark
            named = isinstance(mark, ast.Call) and getattr(of, "attr", "") == "job" and _first_text(mark)
            if getattr(of, "attr", "") in ("job", "cron") and not named:
                found.types.add(function.name)
    return instances


def _waiters_queues(app: str) -> Iterator[str]:
    """What is given to `Waiter(...)` and to `@waiter.handle(...)`."""
    for node, called in calls(app):
        if called == "handle":
            yield _first_text(node)
        if called == "Waiter":
            lists = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "queues")]
            yield from (text for one in lists for text in ast.literal_eval(one))


def _of_waiters(ctx: click.Context) -> set[str]:
    """The SQS queues that hipq.toml or the source of a waiter names. AWS itself is not asked."""
    found: set[str] = set()
    with suppress(Exception):
        found.update(config.read().settings.waiter.queues or ())
    with suppress(Exception):
        found.update(_waiters_queues(ctx.params.get("app") or ""))
    return found


WAITER_QUEUE: Final = Name("queue", _of_waiters)


def _first_text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


# -- in a database ---------------------------------------------------------------------------------------------------
def _read_database(rows: Callable[[str], list[Any]], instances: set[str], found: Known) -> None:
    queues = rows('SELECT app, name, "table" FROM hipq_queues ORDER BY number')
    names = [name for app, name, _ in queues if not instances or app in instances]
    found.queues.update(names if len(set(names)) == len(names) else [f"{app}.{name}" for app, name, _ in queues])
    for (serves,) in rows("SELECT serves FROM hipq_engines"):
        found.types.update(name.lstrip("!") for types in json.loads(serves).values() for name in types)
    for app, _, table in queues:
        if not instances or app in instances:
            for one in (table, f"{table}_final"):
                newest = f'SELECT job_type FROM "{one}" ORDER BY id DESC LIMIT {_NEWEST}'
                found.types.update(job_type for (job_type,) in rows(f"SELECT DISTINCT job_type FROM ({newest}) newest"))


@contextmanager
def _rows(url: str) -> Iterator[Callable[[str], list[Any]]]:
    """What reads from a database, and can do nothing else to it."""
    if url.startswith(_SQLITE):
        import sqlite3

        path = os.path.abspath(url.removeprefix(_SQLITE))
        alone = "" if os.path.exists(f"{path}-wal") else "&immutable=1"  # otherwise reading would make that file
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro{alone}", uri=True, timeout=SECONDS / 2)) as file:
            yield lambda query: file.execute(query).fetchall()
    else:
        import psycopg

        options = "-c default_transaction_read_only=on -c statement_timeout=800"
        with psycopg.connect(url, connect_timeout=2, options=options) as server:
            yield lambda query: server.execute(query.encode()).fetchall()
