"""`hipq audit`: who did what by hand, and was refused what."""

from __future__ import annotations

import click
import msgspec

from hipq.cli.commands import command
from hipq.cli.inputs import Duration, Whole, number_option
from hipq.cli.show import next_page, say_table
from hipq.cli.target import AppCommand, Target
from hipq.job.when import SECOND, to_datetime


@command(
    "audit",
    "hipq audit shop:app --since 7d",
    "hipq audit --db sqlite:///shop.db --json",
    cls=AppCommand,
)
@click.option("--since", type=Duration("since"), help="Only of this last time: 90s, 12h, 30d.")
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: numbers below it.")
@number_option("--limit", 1, 10_000, 100, "At most so many.")
def audit(target: Target, since: float | None, after: int, limit: int) -> None:
    """Who did what in the dashboard, and was refused what, the newest first. It is kept for 400 days."""
    found = []
    for app in target.apps[:1]:  # all apps of a database have one audit log
        least = 0 if since is None else app.store.now() - round(since * SECOND)
        found = [entry for entry in app.store.audit_log(after, limit + 1) if entry.at >= least]
    rows = [
        {
            "number": entry.id,
            "at": to_datetime(entry.at),
            **{name: getattr(entry, name) for name in ("who", "role", "address", "action", "target")},
            "details": msgspec.json.decode(entry.details),
        }
        for entry in found[:limit]
    ]
    say_table(rows, "number", "at", "who", "role", "address", "action", "target", "details", none="entries")
    if len(found) > limit:
        next_page(found[limit - 1].id)
