"""`manage.py hipq_worker`: run tasks. Its options are those of `hipq worker`, but for what Django says already."""

from __future__ import annotations

import logging
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import click
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from hipq.cli.worker import metrics_at
from hipq.cli.worker import worker as hipq_worker
from hipq.django.base import TaskBackend, WorkerSettings
from hipq.django.tasks import DEFAULT_TASK_BACKEND_ALIAS, PACKAGE, InvalidTaskBackend, task_backends
from hipq.errors import HipqError, Invalid, SchemaError
from hipq.job.names import whole
from hipq.observe import logs
from hipq.reload import changes
from hipq.supervisor import FAILED, USAGE, Supervisor, WorkerSlot, end_with

LEVELS: Final = ("error", "info", "debug", "debug")
"""By Django's --verbosity, where --log-level says nothing."""
_ELSEWHERE: Final = ("lifeline", "only_check", "log_level", "log_format")
"""Options that are added by hand, or mean nothing here."""


class Command(BaseCommand):
    help = (
        "Run tasks until SIGINT or SIGTERM: the first lets running tasks finish, a second gives them back. "
        "Start as many of these as you like, on as many machines."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--backend", metavar="A,B", default=DEFAULT_TASK_BACKEND_ALIAS,
                            help="Which of TASKS (default: default); each has processes of its own.")  # fmt: skip
        parser.add_argument("--batch", dest="until_empty", action="store_true", help=SUPPRESS)
        for option in hipq_worker.params:
            if isinstance(option, click.Option) and option.name not in _ELSEWHERE:
                _add(parser, option)
        parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"],
                            help="Of hipq's log, if LOGGING does not say (info; with -v 2 debug).")  # fmt: skip
        parser.add_argument("--log-format", choices=["text", "json"],
                            help="json: for what collects logs, where LOGGING does not say how.")  # fmt: skip
        parser.add_argument("--lifeline", type=int, help=SUPPRESS)

    def handle(self, *, backend: str, verbosity: int, lifeline: int | None, **given: Any) -> None:
        found = [_backend(alias) for alias in backend.split(",")]
        self._configure_logs(given["log_level"] or LEVELS[verbosity], given["log_format"])
        queues = None if given["queues"] is None else _checked(found, given["queues"].split(","))
        if verbosity and lifeline is None:
            for one in found:
                self.stderr.write(f"tasks of {', '.join(queues or sorted(one.queues)) or 'all queues'} in {one}")
        try:
            self._work(found, queues, lifeline, given)
        except SchemaError as error:
            raise CommandError(found[0].lacking(error)) from error
        except (HipqError, ImproperlyConfigured) as error:
            is_usage = isinstance(error, (Invalid, ImproperlyConfigured))  # else a supervisor tries again
            raise CommandError(str(error), returncode=USAGE if is_usage else FAILED) from error

    def _work(
        self, found: list[TaskBackend], queues: list[str] | None, lifeline: int | None, given: dict[str, Any]
    ) -> None:
        whole(given["processes"], "--processes", 1, 1_000)
        if given["reload"] and given["until_empty"]:
            raise Invalid("--reload goes on until it is stopped: leave --until-empty out")
        if lifeline is None and (given["processes"] > 1 or given["reload"] or len(found) > 1):
            for one in found:
                one.usable()
            self._supervise([one.alias for one in found], given)
            return
        if lifeline is not None:
            end_with(lifeline)
        _refuse_a_transaction(found[0])
        where = metrics_at(given["metrics"], 1) if given["metrics"] else None
        names = ("concurrency", "until_empty", "lease", "wait", "drain", "listens", "log_success")
        found[0].work(WorkerSettings(queues=queues, metrics=where, **{name: given[name] for name in names}))

    def _configure_logs(self, level: str, form: str | None) -> None:
        if not logs.LOGGER.hasHandlers():  # LOGGING says nothing of it
            logs.configure(level, form or "text")
            logging.getLogger(PACKAGE).setLevel(logging.CRITICAL)  # it tells of the same failures, in another form
        elif form is not None and not any(isinstance(one.formatter, logs.Formatter) for one in logs.LOGGER.handlers):
            self.stderr.write(
                f"--log-format {form} changes nothing: LOGGING has a handler for hipq's log. Give it the formatter "
                f"{{'()': 'hipq.observe.logs.Formatter', 'form': '{form}'}}"
            )

    def _supervise(self, aliases: Sequence[str], given: dict[str, Any]) -> None:
        """Processes with the same command line as this one; of words that are repeated the last ones count."""
        if not self._called_from_command_line:
            raise Invalid("several processes are for the command line: in a program, start as many as you like")
        places = [["--backend", alias] for alias in aliases for _ in range(given["processes"])]
        if given["metrics"]:
            host, port = metrics_at(given["metrics"], len(places))
            places = [[*words, "--metrics", f"{host}:{port + number}"] for number, words in enumerate(places)]
        command, slots = [sys.executable, *sys.orig_argv[1:]], [WorkerSlot(words) for words in places]
        with changes(_code()) if given["reload"] else nullcontext() as changed:
            status = Supervisor(command, slots, changes=changed, until_empty=given["until_empty"]).run()
        if status:
            raise CommandError("a worker failed, and has said why", returncode=status)


def _add(parser: ArgumentParser, option: click.Option) -> None:
    """An option of `hipq worker` as argparse has them."""
    about = (option.help or "").replace("%", "%%")
    if option.secondary_opts:
        parser.add_argument(option.opts[0], dest=option.name, action=BooleanOptionalAction, default=option.default,
                            help=about)  # fmt: skip
    elif option.is_flag:
        parser.add_argument(*option.opts, dest=option.name, action="store_true", help=about)
    else:
        default = option.default if isinstance(option.default, int | float) else None
        shown = "" if default is None else f" (default: {default:g})"

        def parsed(text: str) -> Any:
            try:
                return option.type.convert(text, option, None)
            except Invalid as error:
                raise ArgumentTypeError(str(error)) from None

        parser.add_argument(*option.opts, dest=option.name, type=parsed, default=default,
                            metavar=option.metavar, help=about + shown)  # fmt: skip


def _code() -> list[Path]:
    """Where code may change: the current folder, and apps that are elsewhere but in no environment."""
    here = Path.cwd()
    elsewhere = {Path(app.path) for app in apps.get_app_configs() if not Path(app.path).is_relative_to(here)}
    return [here, *sorted(path for path in elsewhere if not path.is_relative_to(sys.prefix))]


def _refuse_a_transaction(backend: TaskBackend) -> None:
    location = backend.location
    if location is not None and location.alias in connections and location.in_transaction:
        raise Invalid(
            "a worker has connections of its own, and sees nothing of what this transaction has added: call it outside "
            "of atomic(), in a test in a TransactionTestCase (transactional_db)"
        )


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


def _checked(backends: Sequence[TaskBackend], queues: list[str]) -> list[str]:
    if len(backends) > 1:
        raise CommandError("--queues is for one backend: start a worker for each, or leave it out")
    (backend,) = backends
    for name in queues:
        if backend.queues and name not in backend.queues:
            raise CommandError(
                f"{backend.named()} has no queue {name!r}: QUEUES has {', '.join(sorted(backend.queues))}"
            )
    return queues
