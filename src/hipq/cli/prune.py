"""`hipq prune`: delete old final jobs."""

from __future__ import annotations

import click

from hipq.cli.inputs import Duration
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option
from hipq.errors import Invalid


@click.command(cls=AppCommand)
@app_argument
@click.option("--older-than", type=Duration("older-than"), required=True, help="Final for so long: 90s, 12h, 30d.")
@click.option("-q", "--queue", help="Only this queue.")
@db_option
@json_option
def prune(app: str, older_than: float, queue: str | None, db: str | None, as_json: bool) -> None:
    """Delete jobs that have been final for longer than this."""
    apps = [one for one in instances(app, db) if queue is None or queue in {each.name for each in one.queues}]
    if not apps and queue is not None:
        raise Invalid(f"there is no queue {queue!r:.60}")
    deleted = sum(one.prune(older_than, queue) for one in apps)
    if as_json:
        print_json({"deleted": deleted})
    else:
        click.echo(f"deleted {deleted}")
