"""`hipq audit`: who did what by hand, and was refused what."""

from __future__ import annotations

import click

from hipq.cli.commands import command
from hipq.cli.inputs import Duration, Whole, number_option
from hipq.cli.show import next_page, say_table
from hipq.cli.target import AppCommand, Target
from hipq.job.when import SECOND
from hipq.stores.audit import audit_json


@command(
    "audit",
    "hipq audit shop:app --since 7d",
    "hipq audit --db sqlite:///shop.db --json",
    cls=AppCommand,
)
@click.option("--since", type=Duration("since"), help="Only of this last time: 90s, 12h, 30d.")
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: numbers below it.")
@number_option("--limit", 1, 10_000, 100, "List at most this number.")
def audit(target: Target, since: float | None, after: int, limit: int) -> None:
    """List who changed what, or was refused: by commands, over HTTP and in the dashboard, the newest first. It is kept
    for 400 days."""
    store = target.store
    least = 0 if since is None else store.now() - round(since * SECOND)
    found = [entry for entry in store.audit_log(after, limit + 1) if entry.at >= least]
    rows = [audit_json(entry) for entry in found[:limit]]
    say_table(rows, "number", "at", "who", "role", "via", "address", "action", "target", "details", none="entries")
    if len(found) > limit:
        next_page(found[limit - 1].id)
