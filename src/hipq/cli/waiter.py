"""`hipq waiter`: messages for SQS, any time ahead. The poller, the consumer, and what there is to see and change."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from hipq.cli.commands import asked, group, log_options
from hipq.cli.complain import note, others
from hipq.cli.dashboard_serving import DashboardOptions, dashboard_options, serve
from hipq.cli.inputs import Duration, number_option
from hipq.cli.show import say, some
from hipq.cli.waiter_items import cancel, list_items, reschedule, send
from hipq.cli.waiter_tables import check, create_table
from hipq.cli.waiter_target import WaiterCommand, WaiterTarget, queues_argument
from hipq.errors import HipqError, Invalid
from hipq.observe import logs
from hipq.signals import on_stop

if TYPE_CHECKING:
    from hipq.waiter import Waiter

DEFAULTS: Final = {"delay": 300, "scheduler": "shoryuken-waiter"}
"""What holds unless an option or hipq.toml says otherwise: as in hipq.waiter, which is not loaded for every command."""
LOOK: Final = 0.1
"""Seconds between looks at whether a signal came. The main thread never waits for an event: a signal's handler, which
runs in it, would wait for it in turn."""


@group(
    "waiter",
    "hipq waiter create-table mailers",
    "hipq waiter send mailers 'hello' --delay 30d",
    "hipq waiter work shop:waiter",
    of=WaiterCommand,
)
def waiter() -> None:
    """Send messages to SQS any time ahead, and handle them.

    MODULE:APP is where your Waiter object is, as in shop:waiter. Left out, one is made of the options and of [waiter]
    in hipq.toml. Credentials and region are found where boto3 always looks.
    """


_delay_option = click.option("--delay", type=Duration("delay", 0.1),
                             help="Seconds between looks at the tables.  [default: 300]")  # fmt: skip


# -- run -------------------------------------------------------------------------------------------------------------
@waiter.command(
    "run",
    "hipq waiter run mailers reports.fifo",
    "hipq waiter run shop:waiter --delay 60",
    "hipq waiter run --once --json",
)
@queues_argument
@_delay_option
@click.option("--once", is_flag=True, help="Look once, say what was sent, and end. Exit 1: something was not sent.")
@log_options("one line for every message.")
def run(
    target: WaiterTarget, queues: tuple[str, ...], delay: float | None, once: bool, log_level: str, log_format: str
) -> int:
    """Hand messages whose time comes from the tables to SQS, until SIGINT or SIGTERM. Several of these may run.

    Consumers do so too while they run. Without QUEUE and MODULE:APP it is for the queues of hipq.toml.
    """
    if target.app and queues:
        raise click.UsageError(f"{target.app} says itself which queues: leave QUEUE out")
    logs.configure(log_level, log_format)
    found = _with_delay(target.with_queues(queues), delay)
    if once:
        return _look_once(found)
    if asked("json"):
        raise click.UsageError("--json is for what --once prints")
    _announce(found)
    stop = threading.Event()
    _stopped_by_signals(stop)
    _supervised(found, stop)
    return 0


def _look_once(target: Waiter) -> int:
    polled = target.poll()
    _say_missing(target)
    names = ("sent", "failed", "lost", "taken", "pages", "read_units", "problems")
    text = f"sent {some(polled.sent, 'message')}, {polled.failed:,} could not be sent"
    say({name: getattr(polled, name) for name in names}, text)
    for problem in polled.problems if not asked("json") else ():
        note(problem)
    return 1 if polled.failed or polled.problems else 0


def _announce(target: Waiter) -> None:
    """Also the first question to AWS: if it does not answer, that is said now, in one sentence."""
    problems: list[str] = []
    tables = [table.name for table in target.tables.usable(problems)]
    if problems and not tables:
        raise HipqError(problems[0])
    for problem in problems:
        note(problem)
    _say_missing(target)
    note(f"looking every {target.delay:g} s at: {', '.join(tables) or 'no table; none is there yet'}")


def _say_missing(target: Waiter) -> None:
    """A queue whose name is not right has no table either, and nothing else would say so."""
    for table, queue in {target.tables.name(queue): queue for queue in target.queues}.items():
        with suppress(HipqError):  # that was said before
            if target.tables.of(queue) is None:
                note(f"there is no table {table} in this account and region; `{target.tables.making(queue)}` makes it")


def _supervised(target: Waiter, stop: threading.Event) -> None:
    from hipq.waiter.supervised import Supervised

    poller = Supervised("poller", target.run)
    while not stop.is_set():
        poller.ensure_running(time.monotonic())
        time.sleep(LOOK)
    poller.stop()
    while poller.is_alive:
        time.sleep(LOOK)


# -- work ------------------------------------------------------------------------------------------------------------
@waiter.command(
    "work",
    "hipq waiter work shop:waiter",
    "hipq waiter work shop:waiter -q mailers -c 20",
    "hipq waiter work shop:waiter --no-poller --log-format json",
    made=False,
    json=False,
)
@click.option("-q", "--queues", metavar="A,B", help="Only these queues.")
@number_option("-c --concurrency", 1, 1_000, 10, "Handlers at once, over all queues.")
@number_option("--wait", 0, 20, 20, "Seconds that SQS waits for messages, and that a stop may take; less costs more.")
@click.option("--poller/--no-poller", default=True, show_default=True,
              help="Also hand messages from the tables to SQS, as `hipq waiter run` does.")  # fmt: skip
@_delay_option
@log_options("one line for every message.")
def work(
    target: WaiterTarget, queues: str | None, concurrency: int, wait: int, poller: bool, delay: float | None,
    log_level: str, log_format: str,
) -> int:  # fmt: skip
    """Handle messages of SQS until SIGINT or SIGTERM. The first lets handlers finish and gives back what none has begun
    with; a second gives back what they work on, too.

    Exit 0: asked to stop. 1: failed, or handlers still ran at the end.
    """
    logs.configure(log_level, log_format)
    found = _with_delay(target.loaded(), delay)
    wanted = _chosen(target.app, found, queues)
    consumer = found.consumer(wanted, concurrency=concurrency, wait=wait, poller=poller)
    stop, stop_now = threading.Event(), threading.Event()
    _stopped_by_signals(stop, stop_now)
    left = consumer.run(stop, stop_now)
    if left:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(1)  # handlers still run, and nobody waits
    return 0


def _chosen(app: str, target: Waiter, queues: str | None) -> list[str]:
    there = list(target.handlers)
    if not there:
        raise Invalid(f"{app} handles nothing: give a queue its handler with @{app.rpartition(':')[2]}.handle(QUEUE)")
    wanted = queues.split(",") if queues is not None else there
    for name in wanted:
        if name not in there:
            raise Invalid(f"{app} has no handler for the queue {name!r:.60}{others(name, there)}")
    return wanted


# -- dashboard -------------------------------------------------------------------------------------------------------
@waiter.command(
    "dashboard",
    "hipq waiter dashboard mailers reports.fifo",
    "hipq waiter dashboard shop:waiter --role view --mask card",
)
@queues_argument
@dashboard_options
def dashboard(target: WaiterTarget, queues: tuple[str, ...], options: DashboardOptions) -> None:
    """See in a browser what waits until when, and which pollers are at work, until SIGINT or SIGTERM.

    It prints a URL that logs in whoever has it. `hipq dashboard` shows this page, too, beside those of a database.
    """
    options.check()
    serve(options, (), target.with_queues(queues), None)


# -- what they share -------------------------------------------------------------------------------------------------
def _with_delay(target: Waiter, delay: float | None) -> Waiter:
    if delay is not None:
        target.delay = delay
    return target


def _stopped_by_signals(*events: threading.Event) -> None:
    """Each SIGINT or SIGTERM sets the next of them; after the last, another ends the process."""
    left = list(events)

    def told() -> None:
        if not left:
            os._exit(1)  # they do not wait for anything: what is in hand comes again when its time is over
        left.pop(0).set()

    on_stop(told)


for command in (create_table, check, list_items, cancel, reschedule, send):
    waiter.add_command(command)
