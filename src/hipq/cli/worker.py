"""`hipq worker`: run the jobs of an application, in this process or, with --processes, in several."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import click

from hipq import Hipq
from hipq.answers.listening import Listener, listening
from hipq.cli.commands import command, log_options, success_option
from hipq.cli.complain import complain, show_trace
from hipq.cli.inputs import Duration, number_option
from hipq.cli.target import AppCommand, Target, announced
from hipq.engine.loop import Engine
from hipq.engine.timetable import LEASE
from hipq.errors import Invalid, StoreUnavailable
from hipq.job.event_names import EngineEvent
from hipq.observe import logs
from hipq.signals import on_stop
from hipq.supervisor import Supervisor

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
@log_options("one line for every change of a job.")
@success_option
@click.option("--metrics", metavar="[HOST]:PORT", help="Answer Prometheus there; without HOST, on 127.0.0.1. With "
              "--processes each process has a port of its own, from this one on.")  # fmt: skip
@click.option("--lifeline", type=int, hidden=True, help="A pipe that closes when the supervisor dies.")
def worker(
    target: Target, queues: str | None, concurrency: int, processes: int, lease: float, wait: float | None,
    drain: float | None, listens: bool, until_empty: bool, log_level: str, log_format: str, log_success: bool,
    metrics: str | None, lifeline: int | None,
) -> int:  # fmt: skip
    """Run jobs until SIGINT or SIGTERM. The first lets running handlers finish, a second gives their jobs back.

    Exit 0: asked to stop, or empty. 1: failed. 3: the process must be replaced: every thread is held by a handler past
    its run_timeout, no child process can be started, or a handler closed the worker's own file descriptors.
    """
    logs.configure(log_level, log_format)
    wanted = queues.split(",") if queues is not None else None
    where = None if metrics is None else _metrics_at(metrics, processes)
    if processes > 1:
        _check_apart(target, wanted)
        words = [target.app, "-c", str(concurrency), "--lease", str(lease)]
        words += ["--processes", "1"]  # hipq.toml may say otherwise, and each of them would start as many
        words += ["--log-level", log_level, "--log-format", log_format]
        values = {"-q": queues, "--wait": wait, "--drain": drain}
        words += [word for name, value in values.items() if value is not None for word in (name, str(value))]
        flags = {"--until-empty": until_empty, "--log-success": log_success, "--no-listen": not listens}
        words += [name for name, is_given in flags.items() if is_given]
        apart = [["--metrics", f"{where[0]}:{where[1] + number}"] if where else [] for number in range(processes)]
        return Supervisor(words, apart, until_empty).run()
    found = _checked(target, wanted)
    logs.subscribe(found.events, successes=log_success)
    answering = _answering(found, *where) if where else nullcontext()
    if lifeline is None and log_format == "text":
        announced(found)  # supervised, it has been said; in JSON, "engine started" says it
    engine = _patiently(found, wait, lambda: found.engine(wanted, concurrency, lease=lease, drain=drain))
    listeners = found.streams.listeners(wanted) if listens and not until_empty else []
    return _work(engine, until_empty, lifeline, listeners, answering)


def _metrics_at(text: str, processes: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) <= 65_536 - processes:
        raise Invalid(f"--metrics is [HOST]:PORT like :9100 or 0.0.0.0:9100, not {text!r:.60}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _answering(app: Hipq, host: str, port: int) -> AbstractContextManager[None]:
    """The listener begins where this is entered, after the engine has forked."""
    try:
        from hipq.observe.prometheus import serve
    except ImportError as error:
        raise Invalid(str(error)) from None
    return serve(app, host, port)


def _patiently(app: Hipq, wait: float | None, make: Callable[[], Engine]) -> Engine:
    """Try until the database is there, and say so."""
    until = None if wait is None else time.monotonic() + wait
    said = ""
    while True:
        try:
            return make()
        except StoreUnavailable as error:
            app.close()  # its threads must not be there when the next engine forks
            if app.url.startswith("sqlite") or (until is not None and time.monotonic() >= until):
                raise  # a file that cannot be opened is not away: somebody must mend that
            if said != str(error):
                said = str(error)
                logs.LOGGER.warning(logs.LogLine(EngineEvent.STORE_DOWN, {"error": said, "waiting": "to start"}))
            time.sleep(PAUSE)


def _checked(target: Target, wanted: list[str] | None) -> Hipq:
    if not target.declared(wanted or ()):
        raise Invalid(f"{target.app} declares no queue: there is nothing to work on")
    return target.program


def _check_apart(target: Target, wanted: list[str] | None) -> None:
    """Say what is wrong once, not once a process; in a copy of us, so that a supervisor has no user code in it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            announced(_checked(target, wanted))
        except (Invalid, click.UsageError) as error:
            show_trace(error)
            status = complain(str(error), 2)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        sys.exit(status if status > 0 else 1)


def _work(
    engine: Engine, until_empty: bool, lifeline: int | None, listeners: list[Listener],
    answering: AbstractContextManager[None],
) -> int:  # fmt: skip
    """Drive an engine made just before: it has forked its fork server, so threads may start from here on."""

    def stop() -> None:
        engine.stop()
        if engine.stopping > 2:
            os._exit(1)  # they do not even wait for jobs to be given back: their lease runs out

    on_stop(stop)
    if lifeline is not None:
        _end_with(lifeline)
    try:
        with answering, listening(listeners):
            engine.run(until_empty)
    finally:
        if not engine.torn:
            engine.executor.close()
    if engine.torn:
        complain(f"{engine.unfit}: this process ends, and its jobs run again once its lease has run out", STUCK)
    if engine.stopping > 1 or engine.unfit:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(STUCK if engine.unfit else 1 if engine.in_flight else 0)  # handlers still run, and nobody waits
    return 0


def _end_with(lifeline: int) -> None:
    """Stop as for a signal when the other end of this pipe closes: a supervisor that was killed cannot say so."""
    os.set_inheritable(lifeline, False)

    def watch() -> None:
        os.read(lifeline, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="hipq-lifeline", daemon=True).start()
