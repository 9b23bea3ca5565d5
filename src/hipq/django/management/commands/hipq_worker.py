"""`manage.py hipq_worker`: run tasks."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from hipq.django.base import TaskBackend
from hipq.django.tasks import DEFAULT_TASK_BACKEND_ALIAS, InvalidTaskBackend, task_backends
from hipq.engine.timetable import LEASE
from hipq.errors import HipqError, Invalid
from hipq.job.names import whole
from hipq.observe import logs
from hipq.supervisor import FAILED, USAGE, Supervisor, WorkerSlot, end_with

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
        parser.add_argument("--processes", type=int, default=1, help="One that dies is replaced (default: 1).")
        parser.add_argument("--until-empty", "--batch", action="store_true",
                            help="End when nothing is due and nothing executes.")  # fmt: skip
        parser.add_argument("--lease", type=float, default=LEASE,
                            help="Seconds it may be silent before its tasks are given to others.")  # fmt: skip
        parser.add_argument("--log-format", choices=["text", "json"], default="text",
                            help="json: for what collects logs.")  # fmt: skip
        parser.add_argument("--lifeline", type=int, help=SUPPRESS)

    def handle(
        self,
        *,
        backend: str,
        queues: str | None,
        concurrency: int,
        processes: int,
        until_empty: bool,
        lease: float,
        log_format: str,
        lifeline: int | None,
        verbosity: int,
        **_: Any,
    ) -> None:
        found = _backend(backend)
        if not logs.LOGGER.hasHandlers():  # LOGGING says nothing of it
            logs.configure(LEVELS[verbosity], log_format)
        wanted = None if queues is None else _checked(found, queues.split(","))
        if verbosity and lifeline is None:
            self.stderr.write(f"tasks of {', '.join(wanted or sorted(found.queues)) or 'all queues'} in {found}")
        try:
            whole(processes, "--processes", 1, 1_000)
            if processes > 1:
                found.usable()
                status = self._supervisor(processes, until_empty).run()
                if status:
                    raise CommandError("a worker failed, and has said why", returncode=status)
                return
            if lifeline is not None:
                end_with(lifeline)
            found.work(wanted, concurrency=concurrency, until_empty=until_empty, lease=lease)
        except (HipqError, ImproperlyConfigured) as error:
            is_usage = isinstance(error, (Invalid, ImproperlyConfigured))  # else a supervisor tries again
            raise CommandError(str(error), returncode=USAGE if is_usage else FAILED) from error

    def _supervisor(self, processes: int, until_empty: bool) -> Supervisor:
        """Of processes with the same command line as this one; of words that are repeated the last ones count."""
        if not self._called_from_command_line:
            raise Invalid("--processes is for the command line: in a program, start as many as you like")
        places = [WorkerSlot(["--processes", "1"]) for _ in range(processes)]
        return Supervisor([sys.executable, *sys.orig_argv[1:]], places, until_empty=until_empty)


def _backend(alias: str) -> TaskBackend:
    try:
        found = task_backends[alias]
    except InvalidTaskBackend as error:
        names = sorted(task_backends.settings)
        raise CommandError(
            str(error) if alias in names else f"TASKS has no {alias!r}: it has {', '.join(names)}"
        ) from None
    if not isinstance(found, TaskBackend):
        raise CommandError(f"TASKS[{alias!r}] is not a backend of hipq: it is a {type(found).__name__}")
    return found


def _checked(backend: TaskBackend, queues: list[str]) -> list[str]:
    for name in queues:
        if backend.queues and name not in backend.queues:
            raise CommandError(
                f"{backend.named()} has no queue {name!r}: QUEUES has {', '.join(sorted(backend.queues))}"
            )
    return queues
