"""`HipqBackend`: a task is a job of hipq, added in Django's own transaction."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from hipq import running
from hipq.app import Hipq
from hipq.django import diagnosis
from hipq.django.base import TaskBackend, WorkerSettings
from hipq.django.database import DjangoDatabase, Guest, GuestDatabase, make_tables
from hipq.django.known_tasks import KnownTasks
from hipq.django.location import Location, close_connections
from hipq.django.options import BackendOptions, options_of
from hipq.django.results import MIDDLE, data_of, is_task, moment_of, result_of
from hipq.django.tasks import InvalidTask, TaskResultDoesNotExist, task_enqueued
from hipq.engine.loop import Engine
from hipq.errors import Invalid, SchemaError
from hipq.job import names
from hipq.job.model import blank, queue_of
from hipq.job.view import Job
from hipq.observe import logs
from hipq.queue import Queue
from hipq.stores.open import without_password

_clients: dict[tuple[str, ...], Hipq] = {}
"""Instances that programs add jobs with. Django makes a backend for every thread; these serve all of them."""
_lock = threading.RLock()


class HipqBackend(TaskBackend):
    supports_get_result = True
    supports_priority = True
    _options: BackendOptions

    def _read(self, options: dict[str, Any]) -> None:
        self._options = BackendOptions()
        self._options = options_of(options)

    @property
    def location(self) -> Location | None:
        """Django's database that has the jobs, if they are in one."""
        if self._options.app:
            database = _imported(self._options.app).database
            return database.location if isinstance(database, DjangoDatabase | GuestDatabase) else None
        return Location(self._options.database) if self._options.database else None

    # -- what Django asks of a backend ------------------------------------------------------------------------------
    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        try:
            _queue_name(task.queue_name)
            names.job_type(task.module_path, "the path of a task")
        except Invalid as error:
            raise InvalidTask(str(error)) from None

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Add a task. In a transaction of Django's on the database that has the jobs, the job exists when that
        commits."""
        self.validate_task(task)
        data = data_of(task, self.alias, args, kwargs)
        at = None if task.run_after is None else moment_of(task.run_after)
        with self._client() as app:
            job_type = self._queue(app, task.queue_name).job_type(task.module_path)
            priority, timeout = MIDDLE - int(task.priority), self._options.timeout
            wanted = job_type._wanted(data, None, {"at": at, "priority": priority, "timeout": timeout})
            with job_type.adding() as adding:
                new = job_type._new(*wanted, adding.trace)
                stored = app.store.enqueue([new], all_or_nothing=True)
                adding.added(stored)
            app.added([new], stored)
        KnownTasks.learn_everywhere(task.module_path)
        result = result_of(Job(blank(new, stored[0].id)), task.queue_name, task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The task's result; in a transaction, including jobs that were added in it."""
        text = str(result_id)
        if not text.isdecimal() or not text.isascii() or len(text) > 19:
            raise TaskResultDoesNotExist(result_id)
        with self._client() as app:
            row = app.store.get(int(text))
            if row is None or not is_task(Job(row).data):
                raise TaskResultDoesNotExist(result_id)
            found = [queue for queue in app.store.queues(app.name) if queue.number == queue_of(row.id)]
            if not found:
                raise TaskResultDoesNotExist(result_id)
        return result_of(Job(row), found[0].name)

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        yield from super().check(**kwargs)
        yield from diagnosis.queue_names(self, _queue_name)
        if self._wrong:
            return
        if self._options.app:
            yield from diagnosis.application(self, lambda: _imported(self._options.app))
        elif location := self.location:
            yield from diagnosis.database(self, location)

    # -- its instances ----------------------------------------------------------------------------------------------
    @contextmanager
    def _client(self) -> Iterator[Hipq]:
        """The instance to add and look at jobs with."""
        self.usable()
        try:
            yield self._found()
        except SchemaError as error:
            raise ImproperlyConfigured(self.lacking(error)) from error

    def _found(self) -> Hipq:
        location = self.location
        if location is not None and location.alias not in connections:
            raise ImproperlyConfigured(f"{self.named()}: there is no database {location.alias!r} in DATABASES")
        identity = (self._options.name, self._options.app, self._options.url, location.identity if location else "")
        with _lock:
            if identity not in _clients:
                _clients[identity] = self._guest() or self._own()
            return _clients[identity]

    def _queue(self, app: Hipq, name: str) -> Queue:
        """A queue with its tables. In a transaction of Django's none are created, because a rollback would remove
        them while others rely on them. On another connection they can be created, where two may write at a time."""
        queue, location = declared(app, name), self.location
        try:
            _ = queue.number
        except SchemaError as missing:
            if self._options.app or location is None or not location.in_transaction:
                raise
            if location.kind == "sqlite":
                raise SchemaError(f"{missing}: name it in QUEUES, or add its first task outside of atomic()") from None
            with closing(self._own()) as own:
                _ = declared(own, name).number
        return queue

    def _guest(self) -> Hipq | None:
        """An instance on Django's connection, if this is about a database of Django's and no application of yours."""
        location = self.location
        return Guest(self._options.name, location) if location and not self._options.app else None

    def _own(self) -> Hipq:
        """An instance with its own connections, for a worker."""
        options = self._options
        if options.app:
            return _imported(options.app)
        location = self.location
        return Hipq(options.name, location.url() if location else options.url)

    # -- working ----------------------------------------------------------------------------------------------------
    def work(self, wanted: WorkerSettings) -> None:
        from hipq.cli.worker import patiently  # programs that add tasks need not load the command line

        self.usable()
        app = self._own()
        logs.subscribe(app.events, successes=wanted.log_success)
        try:
            known, engine = patiently(app, wanted.wait, lambda: self._engine(app, wanted))
            running.run(engine, _beside(app, known, wanted), wanted.until_empty)
        finally:
            if not self._options.app:
                app.close()

    def worker(self) -> Hipq:
        """An instance with the queues to work on, for an engine."""
        self.usable()
        app = self._own()
        self._declare_queues(app)
        return app

    def _declare_queues(self, app: Hipq) -> None:
        for name in sorted(self.queues) or [queue.name for queue in app.store.queues(app.name)]:
            declared(app, name)

    def _engine(self, app: Hipq, wanted: WorkerSettings) -> tuple[KnownTasks, Engine]:
        self._declare_queues(app)
        known = KnownTasks(app, type(self), self._options)
        close_connections()  # an engine forks
        return known, app.engine(wanted.queues, wanted.concurrency, lease=wanted.lease, drain=wanted.drain)

    def migrate(self) -> list[str]:
        """Create hipq's tables or migrate them to this version; returns what was applied."""
        self.usable()
        app = self._own()
        for name in sorted(self.queues):
            declared(app, name)
        try:
            return app.migrate()
        finally:
            if not self._options.app:
                app.close()

    def migrate_through_django(self) -> None:
        """The same over Django's connection: a test's database may be in memory, and a database that is dropped must
        have no other connection."""
        self.usable()
        app, location = self._guest() or self._own(), self.location
        assert location is not None
        for name in sorted(self.queues):
            declared(app, name)
        make_tables(app, location)

    def __str__(self) -> str:
        options = self._options
        return options.app or (Location(options.database).shown if options.database else without_password(options.url))


@contextmanager
def _beside(app: Hipq, known: KnownTasks, wanted: WorkerSettings) -> Iterator[None]:
    """What goes on beside an engine once that has forked."""
    from hipq.cli.worker import answering_metrics

    listening = wanted.queues if wanted.listens and not wanted.until_empty else []
    answering = answering_metrics(app, *wanted.metrics) if wanted.metrics else nullcontext()
    with answering, app.streams.listening(listening), known.kept_up_to_date():
        yield


def _queue_name(name: str) -> str:
    return names.name(name, "a queue's name")


def declared(app: Hipq, name: str) -> Queue:
    """The queue of this name; one that the application has not declared goes by priority, as Django's do."""
    with _lock:
        found = next((queue for queue in app.queues if queue.name == name), None)
        return found or app.queue(name, order="priority")


def _imported(where: str) -> Hipq:
    module, colon, name = where.partition(":")
    if not colon:
        raise Invalid(f"OPTIONS['app'] must be MODULE:APP, not {where!r:.60}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise Invalid(f"OPTIONS['app'] cannot be imported: {error}") from error
    if not isinstance(found, Hipq):
        raise Invalid(f"{where} is not a Hipq, but {type(found).__name__}")
    return found
