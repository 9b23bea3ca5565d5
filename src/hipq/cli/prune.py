"""`hipq prune`: delete old final jobs, and answers that need not be kept any longer."""

from __future__ import annotations

import click

from hipq.cli.inputs import Duration
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option, of_name


@click.command(cls=AppCommand)
@app_argument
@click.option("--older-than", type=Duration("older-than"), required=True, help="Final for so long: 90s, 12h, 30d.")
@click.option("-q", "--queue", help="Only this queue.")
@db_option
@json_option
def prune(app: str, older_than: float, queue: str | None, db: str | None, as_json: bool) -> None:
    """Delete jobs that have been final for longer than this; and, unless one queue is named, answers that need not be
    kept any longer (how long that is, each queue's code says)."""
    apps = instances(app, db)
    of_name(apps, queue)
    deleted = sum(one.prune(older_than, queue) for one in apps if queue in (None, *(each.name for each in one.queues)))
    answers = sum(one.inbox.prune() for one in apps) if queue is None else 0
    if as_json:
        print_json({"deleted": deleted, "answers": answers})
    else:
        click.echo(f"deleted {_some(deleted, 'job')}" + (f" and {_some(answers, 'answer')}" if queue is None else ""))


def _some(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
