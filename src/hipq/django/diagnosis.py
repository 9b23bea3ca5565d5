"""What `manage.py check` says about a backend's settings, with what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core import checks
from django.db import connections

from hipq.django.location import KINDS, Location
from hipq.errors import HipqError, Invalid
from hipq.stores.open import open_guest

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.django.backend import HipqBackend
    from hipq.django.base import TaskBackend


def queue_names(backend: TaskBackend, check: Callable[[Any], object]) -> Iterator[checks.CheckMessage]:
    for name in sorted(backend.queues, key=str):
        try:
            check(name)
        except Invalid as error:
            yield checks.Error(f"{backend.named()}: {error}", hint="Change QUEUES.", id="hipq.E004")


def database(backend: TaskBackend, location: Location) -> Iterator[checks.CheckMessage]:
    if location.alias not in connections:
        yield checks.Error(
            f"{backend.named()}: there is no database {location.alias!r} in DATABASES.",
            hint=f"OPTIONS['database'] must be one of {', '.join(sorted(connections))}.",
            id="hipq.E002",
        )
    elif location.kind not in KINDS:
        yield checks.Error(
            f"{backend.named()}: hipq has no tables in {location.kind} databases, and {location.alias!r} is one.",
            hint="Give OPTIONS a 'database' that is SQLite, PostgreSQL or MariaDB, or a 'url' of one that hipq has for "
            "itself.",
            id="hipq.E002",
        )
    elif location.kind == "postgresql" and not _has_psycopg():
        yield checks.Error(
            f"{backend.named()}: hipq needs psycopg 3, and a pool of its connections, for the database "
            f"{location.alias!r}.",
            hint="pip install 'hipq[postgres]'; Django prefers it to psycopg2 once it is there.",
            id="hipq.E003",
        )


def application(backend: HipqBackend, load: Callable[[], Hipq]) -> Iterator[checks.CheckMessage]:
    try:
        app = load()
        location = backend.location
    except Invalid as error:
        yield checks.Error(f"{backend.named()}: {error}", id="hipq.E001")
        return
    if location is not None:
        yield from database(backend, location)
    if unknown := sorted(backend.queues - {queue.name for queue in app.queues}):
        yield checks.Warning(
            f"{backend.named()}: QUEUES has {', '.join(unknown)}, and the application declares no such queue.",
            hint=f"It has {', '.join(queue.name for queue in app.queues)}. What only QUEUES names is made, too.",
            id="hipq.W003",
        )


def _has_psycopg() -> bool:
    return find_spec("psycopg") is not None and find_spec("psycopg_pool") is not None


def tables(backend: HipqBackend, wanted: set[str]) -> Iterator[checks.CheckMessage]:
    """Check that hipq's tables exist. This asks the database, so it is done only where Django was told to."""
    try:
        location = backend.location
    except Invalid:
        return  # which `application` says
    if location is None or location.alias not in wanted or list(database(backend, location)):
        return
    if "django_migrations" not in connections[location.alias].introspection.table_names():
        return  # the database is empty, and whoever migrates it creates hipq's tables
    app = backend._guest() or backend._own()
    store = open_guest(location.kind, location.lend, location.shown)
    try:
        there = {queue.name for queue in store.queues(app.name)}
        wanted = {*backend.queues, *(queue.name for queue in app.queues)}
        for name in sorted(wanted & there)[:1]:
            store.queue(app.name, name, app.declared.table(name))
        missing = sorted(wanted - there)
        wrong = f"there are no tables for {', '.join(missing)}" if missing else ""
    except HipqError as error:
        wrong = str(error)
    finally:
        store.close()
    if wrong:
        yield checks.Warning(
            f"{backend.named()}: hipq's tables are not ready in {location.shown}: {wrong}.",
            hint="Run manage.py migrate: it makes them with those of Django.",
            id="hipq.W001",
        )


def old_sqlite(backend: HipqBackend) -> Iterator[checks.CheckMessage]:
    import sqlite3

    from hipq.stores.sqlite.connection import SAFE_VERSION

    try:
        location = backend.location
    except Invalid:
        return
    if location is None or location.alias not in connections or location.kind != "sqlite":
        return
    if sqlite3.sqlite_version_info < SAFE_VERSION:
        safe = ".".join(map(str, SAFE_VERSION))
        yield checks.Warning(
            f"{backend.named()}: before SQLite {safe} (here {sqlite3.sqlite_version}) a file in WAL mode can be "
            "damaged by two processes that write at the same moment, and Django's connections do not take hipq's lock.",
            hint="Use PostgreSQL, or a newer SQLite, or give the jobs a file of their own: OPTIONS['url'].",
            id="hipq.W002",
        )
