"""`manage.py hipq_worker`: run tasks."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from hipq.django.base import TaskBackend
from hipq.django.tasks import DEFAULT_TASK_BACKEND_ALIAS, InvalidTaskBackend, task_backends
from hipq.engine.timetable import LEASE
from hipq.errors import HipqError
from hipq.observe import logs

LEVELS = ("error", "info", "debug", "debug")


class Command(BaseCommand):
    help = (
        "Run tasks until SIGINT or SIGTERM: the first lets running tasks finish, a second gives them back. "
        "Start as many of these as you like, on as many machines."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="Which of TASKS (default: default).")
        parser.add_argument("-q", "--queues", metavar="A,B", help="Only these queues (default: all of QUEUES).")
        parser.add_argument(
            "-c", "--concurrency", type=int, default=10, help="Tasks at once, in threads (default: 10)."
        )
        parser.add_argument("--until-empty", "--batch", action="store_true",
                            help="End when nothing is due and nothing executes.")  # fmt: skip
        parser.add_argument("--lease", type=float, default=LEASE,
                            help="Seconds it may be silent before its tasks are given to others.")  # fmt: skip
        parser.add_argument("--log-format", choices=["text", "json"], default="text",
                            help="json: for what collects logs.")  # fmt: skip

    def handle(
        self,
        *,
        backend: str,
        queues: str | None,
        concurrency: int,
        until_empty: bool,
        lease: float,
        log_format: str,
        verbosity: int,
        **_: Any,
    ) -> None:
        try:
            found = task_backends[backend]
        except InvalidTaskBackend as error:
            names = sorted(task_backends.settings)
            raise CommandError(
                str(error) if backend in names else f"TASKS has no {backend!r}: it has {', '.join(names)}"
            ) from None
        if not isinstance(found, TaskBackend):
            raise CommandError(f"TASKS[{backend!r}] is not a backend of hipq: it is a {type(found).__name__}")
        if not logs.LOGGER.hasHandlers():  # LOGGING says nothing of it
            logs.configure(LEVELS[verbosity], log_format)
        wanted = None if queues is None else queues.split(",")
        for name in wanted or ():
            if found.queues and name not in found.queues:
                raise CommandError(
                    f"TASKS[{backend!r}] has no queue {name!r}: QUEUES has {', '.join(sorted(found.queues))}"
                )
        if verbosity:
            self.stderr.write(f"tasks of {', '.join(wanted or sorted(found.queues)) or 'all queues'} in {found}")
        try:
            found.work(wanted, concurrency=concurrency, until_empty=until_empty, lease=lease)
        except (HipqError, ImproperlyConfigured) as error:
            raise CommandError(str(error)) from error
