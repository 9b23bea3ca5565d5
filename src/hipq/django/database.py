"""A database of Django's as that of a `Hipq`: inside of `atomic()` its jobs are part of Django's transaction."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

from hipq.app import Hipq
from hipq.database import Database, MakeDatabase
from hipq.django.location import Location
from hipq.errors import Invalid
from hipq.stores.open import located, open_guest, open_store, url_of

if TYPE_CHECKING:
    from hipq.stores.clock import Clock
    from hipq.stores.protocols import Store


def django_database(alias: str = DEFAULT_DB_ALIAS) -> MakeDatabase:
    """`Hipq("payments", django_database())`: one of DATABASES, found when it is first used, so that in Django's tests
    it is the test database. What is done inside of `atomic()` on it is done on Django's connection: it is part of that
    transaction, also without `conn=`. Everything else, as what a worker does, has connections of its own."""
    return partial(DjangoDatabase, location=Location(alias))


class DjangoDatabase(Database):
    def __init__(self, app: Hipq, clock: Clock | None, location: Location) -> None:
        super().__init__(app, "sqlite://", clock)
        self.location = location
        self._guest: Store | None = None

    @property
    def url(self) -> str:
        try:
            return url_of(self.location.url())
        except ImproperlyConfigured as error:
            raise Invalid(
                f"{self.location.shown} is not known here ({str(error).rstrip('.')}): work with manage.py hipq_worker, "
                "or let the module call django.setup() first, with DJANGO_SETTINGS_MODULE set"
            ) from None

    @property
    def store(self) -> Store:
        return self.guest if self.location.in_transaction else self.own

    @property
    def guest(self) -> Store:
        """The database on Django's connection of whoever calls."""
        if self._guest is None:
            self._guest = open_guest(self.location.kind, self.location.lend, self.location.shown, self.clock)
        return self._guest

    def _open(self) -> Store:
        return open_store(located(self.url), self.clock)

    def in_tests(self, app: Hipq, clock: Clock) -> Database:
        if not hasattr(mail, "outbox"):
            raise Invalid(
                f"{app.name} is on {self.location.shown}, and no test of Django's runs: use Django's test runner or "
                "pytest-django, or say which database is meant: harness(app, db=...)"
            )
        return EmptiedDatabase(app, clock, self.location)

    def close(self) -> None:
        super().close()
        if self._guest is not None:
            self._guest.close()
            self._guest = None


class GuestDatabase(Database):
    """Everything is done on Django's connection."""

    def __init__(self, app: Hipq, clock: Clock | None, location: Location) -> None:
        super().__init__(app, "sqlite://", clock)
        self.location = location

    @property
    def url(self) -> str:
        return self.location.shown

    @property
    def kind(self) -> str:
        return self.location.kind

    def _open(self) -> Store:
        return open_guest(self.location.kind, self.location.lend, self.location.shown)


def make_tables(app: Hipq, location: Location) -> None:
    """Make hipq's tables over Django's connection, and those of the queues that this application declares."""
    store = open_guest(location.kind, location.lend, location.shown)
    try:
        store.migrate()
        for queue in app.queues:
            store.queue(app.name, queue.name, app.declared.table(queue.name))
    finally:
        store.close()


class EmptiedDatabase(GuestDatabase):
    """Django's test database, in which the application's queues are empty: those of a `TransactionTestCase` stay, and
    the next test would find its jobs."""

    def _open(self) -> Store:
        store = open_guest(self.location.kind, self.location.lend, self.location.shown, self.clock, for_a_test=True)
        store.migrate()
        with connections[self.location.alias].cursor() as cursor:
            for queue in store.queues(self._app.name):
                for table in (queue.table, f"{queue.table}_final"):
                    for beside in ("hipq_payloads", "hipq_progress"):
                        cursor.execute(f"DELETE FROM {beside} WHERE id IN (SELECT id FROM {table})")
                    cursor.execute(f"DELETE FROM {table}")
                for table in ("hipq_answers", "hipq_tickets", "hipq_crons"):
                    cursor.execute(f"DELETE FROM {table} WHERE queue = %s", [queue.number])
                kept = "rules = '{}', admission = '{}'"
                cursor.execute(f"UPDATE hipq_queues SET {kept} WHERE number = %s", [queue.number])
        return store


class Guest(Hipq):
    """An instance that uses Django's connection: its jobs commit with Django's transaction."""

    def __init__(self, name: str, location: Location) -> None:
        super().__init__(name, partial(GuestDatabase, location=location))
