"""`hipq listen`: keep the answers that come as messages, and do nothing else."""

from __future__ import annotations

import os
import signal
import threading

import click

from hipq.answers.listening import listening
from hipq.cli.commands import examples
from hipq.cli.complain import note
from hipq.cli.show import some
from hipq.cli.target import AppCommand, announced, app_argument, load, others
from hipq.errors import Invalid
from hipq.observe import logs
from hipq.signals import each_meant


@click.command(
    cls=AppCommand,
    epilog=examples(
        "hipq listen shop:app",
        "hipq listen shop:app -q orders --log-level debug",
        "hipq listen shop:app --log-format json",
    ),
)
@app_argument
@click.option("-q", "--queues", metavar="A,B", help="Only answers to jobs of these queues.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
              show_default=True, help="debug: one line for every answer.")  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
              help="json: for what collects logs.")  # fmt: skip
def listen(app: str, queues: str | None, log_level: str, log_format: str) -> None:
    """Keep answers that come as messages, until SIGINT or SIGTERM. Several of these share what comes.

    Workers do so too while they run, unless they are told --no-listen.
    """
    logs.configure(log_level, log_format)
    found = load(app)
    wanted = queues.split(",") if queues is not None else None
    there = [queue.name for queue in found.queues]
    for name in wanted or ():
        if name not in there:
            raise Invalid(f"{app} declares no queue {name!r:.60}{others(name, there)}")
    announced(found)
    listeners = found.streams.listeners(wanted)
    if not listeners:
        raise Invalid(f"{app} listens to nothing: declare a stream with app.listen(...)")
    _ = found.store.now()  # a database that cannot be opened is said now, in one sentence
    logs.subscribe(found.events)
    note(f"listening to {some(len(listeners), 'stream')}: {', '.join(one.name for one in listeners)}")
    stopped = threading.Event()

    def stop() -> None:
        if stopped.is_set():
            os._exit(1)  # twice: they do not wait for a connection either, and nothing is lost
        stopped.set()

    heard = each_meant(stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)
    with listening(listeners):
        while not stopped.wait(1.0):
            for one in listeners:
                if one.broken:
                    raise one.broken
