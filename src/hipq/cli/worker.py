"""`hipq worker`: run the jobs of an application, in this process or, with --processes, in several."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeVar

import click

from hipq import Hipq
from hipq.answers.listening import Listener, listening
from hipq.cli.commands import command, lifeline_option, log_options, success_option
from hipq.cli.complain import complain
from hipq.cli.inputs import Duration, number_option
from hipq.cli.target import AppCommand, Target, announced, said
from hipq.engine.timetable import LEASE
from hipq.errors import Invalid, StoreDefect, StoreUnavailable
from hipq.job.event_names import EngineEvent
from hipq.observe import logs
from hipq.reload import changes, code_of
from hipq.signals import on_stop
from hipq.supervisor import HIPQ, Supervisor, WorkerSlot, end_with

if TYPE_CHECKING:
    from hipq.running import AnyEngine

T = TypeVar("T")
STUCK: Final = 3
"""Exit status of a process that must be replaced: of no use any more, as the engine's `unfit` says."""

PAUSE: Final = 1.0
"""Seconds between looks whether the database is there."""


@command(
    "worker",
    "hipq worker shop:app",
    "hipq worker shop:app -q orders,mails -c 20 --processes 4",
    "hipq worker shop:app --until-empty --log-level debug --log-format json",
    cls=AppCommand,
    db=False,
    json=False,
)
@click.option("-q", "--queues", metavar="A,B", help="Only these queues.")
@click.option("--shards", metavar="A,B", help="Only these shards, where the application has several databases.")
@number_option("-c --concurrency", 1, 10_000, 10, "Handlers at once, in each process.")
@number_option("--processes", 1, 1_000, 1, "One that dies, or whose threads are all stuck, is replaced.")
@click.option("--lease", type=Duration("lease", 0.1), default=LEASE, show_default=True,
              help="Seconds a process may be silent before its jobs are given to others.")  # fmt: skip
@click.option("--wait", type=Duration("wait"), show_default="as long as it takes",
              help="Seconds to wait for a database that is away when it starts; 0 = fail at once.")  # fmt: skip
@click.option("--drain", type=Duration("drain"), show_default="until handlers end; 30 if the database is away",
              help="Seconds a stop may take: then handlers that still run are given back.")  # fmt: skip
@click.option("--listen/--no-listen", "listens", default=True, show_default=True,
              help="Also keep answers that come as messages (app.listen); not with --until-empty.")  # fmt: skip
@click.option("--until-empty", is_flag=True, help="End when nothing is due and nothing executes.")
@click.option("--reload", is_flag=True, help="Start again when code changes, once running handlers have ended.")
@log_options("one line for every change of a job.")
@success_option
@click.option("--metrics", metavar="[HOST]:PORT", help="Answer Prometheus there; without HOST, on 127.0.0.1. With "
              "--processes each process has a port of its own, from this one on.")  # fmt: skip
@lifeline_option
@click.option("--only-check", is_flag=True, hidden=True, help="Say what is wrong with the command line, and end.")
def worker(
    target: Target, queues: str | None, shards: str | None, concurrency: int, processes: int, lease: float,
    wait: float | None, drain: float | None, listens: bool, until_empty: bool, reload: bool, log_level: str,
    log_format: str, log_success: bool, metrics: str | None, lifeline: int | None, only_check: bool,
) -> int:  # fmt: skip
    """Run jobs until SIGINT or SIGTERM. The first lets running handlers finish, a second gives their jobs back.

    Exit 0: asked to stop, or empty. 1: failed. 3: the process must be replaced: every thread is held by a handler past
    its run_timeout, no child process can be started, or a handler closed the worker's own file descriptors.
    """
    logs.configure(log_level, log_format)
    wanted = queues.split(",") if queues is not None else None
    some = shards.split(",") if shards is not None else None
    where = None if metrics is None else metrics_at(metrics, processes)
    if reload and until_empty:
        raise click.UsageError("--reload goes on until it is stopped: leave --until-empty out")
    if (processes > 1 or reload) and not only_check:
        return _supervise(target, _apart(where, processes), reload, until_empty)
    found = _checked(target, wanted)
    if only_check:
        announced(found)
        return 0
    logs.subscribe(found.events, successes=log_success)
    answering = answering_metrics(found, *where) if where else nullcontext()
    if lifeline is None and log_format == "text":
        announced(found)  # supervised, it has been said; in JSON, "engine started" says it
    engine = patiently(found, wait, lambda: found.worker(wanted, concurrency, lease=lease, drain=drain, shards=some))
    listeners = found.streams.listeners(wanted) if listens and not until_empty else []
    return _work(engine, until_empty, lifeline, listeners, answering)


def _apart(metrics: tuple[str, int] | None, processes: int) -> list[list[str]]:
    """The words that each process has of its own."""
    if metrics is None:
        return [[] for _ in range(processes)]
    host, port = metrics
    return [["--metrics", f"{host}:{port + number}"] for number in range(processes)]


def _supervise(target: Target, apart: Sequence[Sequence[str]], reload: bool, until_empty: bool) -> int:
    """Processes that do what this command line says, each with some words of its own."""
    app = said(target.app)
    command = [*HIPQ, "worker", app, *_repeated("processes", "reload", "metrics")]
    command += ["--processes", "1"]  # hipq.toml may say otherwise, and each of them would start as many
    places, check = [WorkerSlot(words) for words in apart], WorkerSlot(["--only-check"])
    with changes(code_of(app)) if reload else nullcontext() as changed:
        return Supervisor(command, places, check=check, changes=changed, until_empty=until_empty).run()


def _repeated(*without: str) -> list[str]:
    """The options of this command, as the command line and hipq.toml have given them, but for some."""
    context, words = click.get_current_context(), list[str]()
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if option.name in without or not isinstance(option, click.Option) or value is None:
            continue
        if option.is_flag:
            words += option.opts if value else option.secondary_opts
        else:
            words += [option.opts[-1], str(value)]
    return words


def metrics_at(text: str, processes: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) <= 65_536 - processes:
        raise Invalid(f"--metrics is [HOST]:PORT like :9100 or 0.0.0.0:9100, not {text!r:.60}")
    return host.strip("[]") or "127.0.0.1", int(port)


def answering_metrics(app: Hipq, host: str, port: int) -> AbstractContextManager[None]:
    """The listener begins where this is entered, after the engine has forked."""
    try:
        from hipq.observe.prometheus import serve
    except ImportError as error:
        raise Invalid(str(error)) from None
    return serve(app, host, port)


def patiently(app: Hipq, wait: float | None, make: Callable[[], T]) -> T:
    """Try until the database is there, and say so."""
    until = None if wait is None else time.monotonic() + wait
    said = ""
    while True:
        try:
            return make()
        except StoreUnavailable as error:
            app.close()  # its threads must not be there when the next engine forks
            is_away = app.database.kind != "sqlite" and not isinstance(error, StoreDefect)
            if not is_away or (until is not None and time.monotonic() >= until):
                raise  # a file that cannot be opened is not away: somebody must mend that
            if said != str(error):
                said = str(error)
                logs.LOGGER.warning(logs.LogLine(EngineEvent.STORE_DOWN, {"error": said, "waiting": "to start"}))
            time.sleep(PAUSE)


def _checked(target: Target, wanted: list[str] | None) -> Hipq:
    if not target.declared(wanted or ()):
        raise Invalid(f"{target.app} declares no queue: there is nothing to work on")
    return target.program


def _work(
    engine: AnyEngine, until_empty: bool, lifeline: int | None, listeners: list[Listener],
    answering: AbstractContextManager[None],
) -> int:  # fmt: skip
    """Drive an engine made just before: it has forked its fork server, so threads may start from here on."""

    def stop() -> None:
        engine.stop()
        if engine.stopping > 2:
            os._exit(1)  # they do not even wait for jobs to be given back: their lease runs out

    on_stop(stop)
    if lifeline is not None:
        end_with(lifeline)
    try:
        with answering, listening(listeners):
            engine.run(until_empty)
    finally:
        engine.close()
    if engine.torn:
        complain(f"{engine.unfit}: this process ends, and its jobs run again once its lease has run out", STUCK)
    if engine.stopping > 1 or engine.unfit:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(STUCK if engine.unfit else 1 if engine.in_flight else 0)  # handlers still run, and nobody waits
    return 0
