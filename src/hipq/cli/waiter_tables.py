"""`hipq waiter create-table` and `hipq waiter check`: the tables that keep what is far out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hipq.cli.commands import command
from hipq.cli.show import print_table, say
from hipq.cli.waiter_target import WaiterCommand, WaiterTarget, queue_argument, queues_argument
from hipq.errors import HipqError, TransportUnavailable

if TYPE_CHECKING:
    from hipq.waiter import Waiter


@command(
    "create-table",
    "hipq waiter create-table mailers",
    "hipq waiter create-table mailers --table scheduled --region eu-west-1",
    "hipq waiter create-table shop:waiter mailers --json",
    cls=WaiterCommand,
)
@queue_argument
@click.option("--keys-only", is_flag=True, help="No second copy of each message in the index: for large ones.")
def create_table(target: WaiterTarget, queue: str, keys_only: bool) -> None:
    """Make the table that keeps messages for QUEUE until they are due, and wait until it can be used.

    It is billed by request. One that is there already, and as it should be, is left as it is.
    """
    made = target.waiter((queue,)).tables.create(queue, projection="KEYS_ONLY" if keys_only else "ALL")
    say({"queue": queue, "table": made}, f"table {made} keeps what is for {queue}")


@command(
    "check",
    "hipq waiter check",
    "hipq waiter check mailers --region eu-west-1",
    "hipq waiter check shop:waiter",
    cls=WaiterCommand,
)
@queues_argument
def check(target: WaiterTarget, queues: tuple[str, ...]) -> int:
    """Say what is wrong with queues and their tables. Exit 1: something is."""
    waiter = target.with_queues(queues)
    rows = [_looked_at(waiter, queue) for queue in queues or waiter.queues]
    shown = [{**row, "problem": problem} for row in rows for problem in row["problems"] or ["none"]]
    say(rows, lambda: print_table(("queue", "table", "problem"), shown))
    return 1 if any(row["problems"] for row in rows) else 0


def _looked_at(waiter: Waiter, queue: str) -> dict[str, Any]:
    problems = []
    try:
        waiter.destinations.of(queue)
    except TransportUnavailable as error:
        problems.append(str(error))
    try:
        problems += waiter.tables.check(queue)
    except HipqError as error:
        if not problems:  # if nobody answers, once is enough
            problems.append(str(error))
    return {"queue": queue, "table": waiter.tables.name(queue), "problems": problems}
