"""Which tasks a worker has code for. Each task is a job type of its own, named by its import path, and an engine claims
jobs of the types that it knows."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakSet

from django.utils.module_loading import autodiscover_modules, import_string

from hipq.django.perform import TaskHandler
from hipq.django.tasks import Task
from hipq.errors import HipqError, Invalid
from hipq.job import names

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.django.options import BackendOptions
    from hipq.queue import Queue

LOOK: Final = 5.0
"""Seconds between looks for jobs of tasks that are in modules which nobody has imported here."""
_log: Final = logging.getLogger("hipq")


class KnownTasks:
    """The tasks of a worker: those that are imported when it starts, with the `tasks` modules of all installed apps;
    and those of which it finds jobs, if their paths can be imported. A job of a task that this code does not have, as
    that of a newer release, is left to workers that have it."""

    _all: ClassVar[WeakSet[KnownTasks]] = WeakSet()

    def __init__(self, app: Hipq, sender: type, options: BackendOptions) -> None:
        self._app, self._options = app, options
        self._handlers = {queue.name: TaskHandler(sender, queue.name, options.retry) for queue in app.queues}
        self._without_code: set[str] = set()
        self._lock = threading.Lock()
        autodiscover_modules("tasks")
        for path in imported_tasks():
            self.learn(path)
        for queue in app.queues:
            queue.find_type = self.learn

    @classmethod
    def learn_everywhere(cls, path: str) -> None:
        """A task was added in this process, which therefore has its code: a worker that runs here need not look."""
        for known in list(cls._all):
            known.learn(path)

    def learn(self, path: str) -> None:
        with self._lock:
            for queue in self._app.queues:
                self._declare(queue, path)

    def look(self) -> None:
        """Import the tasks of which there are jobs to run and that are not known yet."""
        found = False
        for queue in self._app.queues:
            for path in set(self._app.store.waiting_types(queue.number)) - self._without_code:
                known = queue.known(path)
                if known is None or known.fn is None:
                    if _is_task(path):
                        self.learn(path)
                        found = True
                    else:
                        self._without_code.add(path)
                        _log.warning("jobs of %s in queue %s wait: no task of that name is here", path, queue.name)
        if found:
            self._app.store.waker.notify()

    def _declare(self, queue: Queue, path: str) -> None:
        known = queue.known(path)
        if known is None or known.fn is None:
            handler = self._handlers[queue.name]
            timeout, run_timeout = self._options.timeout, self._options.run_timeout
            declare = queue.job(path, timeout=timeout, run_timeout=run_timeout, retry=handler.retry_handler)
            declare(handler.perform)

    @contextmanager
    def kept_up_to_date(self) -> Iterator[None]:
        """Look now, and now and then while the worker works."""
        self.look()
        self._all.add(self)
        done = threading.Event()

        def keep() -> None:
            while not done.wait(LOOK):
                try:
                    self.look()
                except HipqError:
                    pass  # the database is away, which the engine says; the next look will do

        thread = threading.Thread(target=keep, name="hipq-known-tasks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._all.discard(self)


def imported_tasks() -> list[str]:
    """The import paths of all tasks in modules that are imported here."""
    found = set()
    for module in list(sys.modules.values()):
        for value in list(getattr(module, "__dict__", {}).values()):
            # Not isinstance: that makes Django's lazy objects, which have not been asked for.
            if issubclass(type(value), Task) and _is_name(value.module_path):
                found.add(value.module_path)
    return sorted(found)


def _is_name(path: str) -> bool:
    try:
        names.job_type(path)
    except Invalid:
        return False
    return True


def _is_task(path: str) -> bool:
    try:
        return isinstance(import_string(path), Task)
    except Exception:  # whatever a module raises
        _log.debug("no task can be imported from %s", path, exc_info=True)
        return False
