"""`hipq listen`: keep the answers that come as messages, and do nothing else."""

from __future__ import annotations

import os
import threading

import click

from hipq.answers.listening import listening
from hipq.cli.commands import command, log_options
from hipq.cli.complain import note
from hipq.cli.show import some
from hipq.cli.target import AppCommand, Target, announced
from hipq.errors import Invalid
from hipq.observe import logs
from hipq.signals import on_stop


@command(
    "listen",
    "hipq listen shop:app",
    "hipq listen shop:app -q orders --log-level debug",
    "hipq listen shop:app --log-format json",
    cls=AppCommand,
    db=False,
    json=False,
)
@click.option("-q", "--queues", metavar="A,B", help="Only answers to jobs of these queues.")
@log_options("one line for every answer.")
def listen(target: Target, queues: str | None, log_level: str, log_format: str) -> None:
    """Receive answers from streams such as Kafka and SQS, until SIGINT or SIGTERM. Several of these share what comes.

    Workers do so too while they run, unless they are told --no-listen.
    """
    logs.configure(log_level, log_format)
    wanted = queues.split(",") if queues is not None else None
    target.declared(wanted or ())
    app = announced(target.program)
    listeners = app.streams.listeners(wanted)
    if not listeners:
        webhooks = ", and leave its webhooks to `hipq callbacks`" if app.streams.webhooks else ""
        raise Invalid(f"{target.app} listens to nothing: declare a stream with app.listen(...){webhooks}")
    _ = app.store.now()  # a database that cannot be opened is said now, in one sentence
    logs.subscribe(app.events)
    note(f"listening to {some(len(listeners), 'stream')}: {', '.join(one.name for one in listeners)}")
    stopped = threading.Event()

    def stop() -> None:
        if stopped.is_set():
            os._exit(1)  # twice: they do not wait for a connection either, and nothing is lost
        stopped.set()

    on_stop(stop)
    with listening(listeners):
        while not stopped.wait(1.0):
            for one in listeners:
                if one.broken:
                    raise one.broken
