"""`hipq waiter create-table` and `hipq waiter check`: the tables that keep what is far out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hipq.cli.commands import examples
from hipq.cli.complete import WaiterQueueName
from hipq.cli.show import print_json, print_table
from hipq.cli.target import json_option
from hipq.cli.waiter_target import WaiterCommand, found, needs_queues, queue_argument, which
from hipq.errors import HipqError, TransportUnavailable

if TYPE_CHECKING:
    from hipq.waiter import Waiter


@click.command(
    "create-table",
    cls=WaiterCommand,
    epilog=examples(
        "hipq waiter create-table mailers",
        "hipq waiter create-table mailers --table scheduled --region eu-west-1",
        "hipq waiter create-table shop:waiter mailers --json",
    ),
)
@which
@queue_argument
@click.option("--keys-only", is_flag=True, help="No second copy of each message in the index: for large ones.")
@json_option
def create_table(app: str, queue: str, keys_only: bool, as_json: bool, **where: Any) -> None:
    """Make the table that keeps messages for QUEUE until they are due, and wait until it can be used.

    It is billed by request. One that is there already, and as it should be, is left as it is.
    """
    made = found(app, (queue,), **where).tables.create(queue, projection="KEYS_ONLY" if keys_only else "ALL")
    if as_json:
        print_json({"queue": queue, "table": made})
    else:
        click.echo(f"table {made} keeps what is for {queue}")


@click.command(
    "check",
    cls=WaiterCommand,
    epilog=examples(
        "hipq waiter check", "hipq waiter check mailers --region eu-west-1", "hipq waiter check shop:waiter"
    ),
)
@which
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, type=WaiterQueueName())
@json_option
def check(app: str, queues: tuple[str, ...], as_json: bool, **where: Any) -> int:
    """Say what is wrong with queues and their tables. Exit 1: something is."""
    target = found(app, queues, **where)
    rows = [_looked_at(target, queue) for queue in queues or needs_queues(target).queues]
    if as_json:
        print_json(rows)
    else:
        shown = [{**row, "problem": problem} for row in rows for problem in row["problems"] or ["none"]]
        print_table(("queue", "table", "problem"), shown)
    return 1 if any(row["problems"] for row in rows) else 0


def _looked_at(target: Waiter, queue: str) -> dict[str, Any]:
    problems = []
    try:
        target.destinations.of(queue)
    except TransportUnavailable as error:
        problems.append(str(error))
    try:
        problems += target.tables.check(queue)
    except HipqError as error:
        if not problems:  # if nobody answers, once is enough
            problems.append(str(error))
    return {"queue": queue, "table": target.tables.name(queue), "problems": problems}
