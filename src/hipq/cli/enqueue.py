"""`hipq enqueue`: add one job."""

from __future__ import annotations

from datetime import datetime
from typing import IO, Any

import click

from hipq.cli.commands import command
from hipq.cli.complain import others
from hipq.cli.inputs import Duration, Moment, Retries, TimeWindow, Units, Whole, data_argument, given_data
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target, announced
from hipq.errors import Invalid
from hipq.job.names import FACTOR_MAX, FACTOR_MIN
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.retries import Strategy
from hipq.job.windows import Window


@command(
    "enqueue",
    """hipq enqueue shop:app orders charge '{"amount": 5}' --key order-17""",
    "hipq enqueue shop:app orders receipt --data-file receipt.json --delay 12h",
    "hipq enqueue shop:app orders reindex --window 22:00-05:00@Europe/Rome",
    cls=AppCommand,
    db=False,
)
@click.argument("queue")
@click.argument("job_type", metavar="TYPE")
@data_argument
@click.option("--key", help="At most one live job of a type has it.")
@click.option("--at", type=Moment(), help="Not before this moment, like 2027-01-15T08:00:00+01:00.")
@click.option("--delay", type=Duration("delay"), help="Not before so long from now: seconds, or 90s, 5m, 12h, 30d.")
@click.option(
    "--priority", type=Whole("priority", PRIORITY_MIN, PRIORITY_MAX), help="Lower goes first; may be negative."
)
@click.option("--lane", help="The lane it belongs to; without it, what the queue's lane_by says.")
@click.option("--throttle-factor", type=Units("throttle_factor", FACTOR_MIN, FACTOR_MAX),
              help="How many units it counts as: 2, or 0.5.")  # fmt: skip
@click.option("--window", "windows", type=TimeWindow(), multiple=True,
              help="Start only then: 22:00-05:00@Europe/Rome. As often as wanted.")  # fmt: skip
@click.option("--timeout", type=Duration("timeout", 0.001), help="How long an attempt may take.")
@click.option("--retry", type=Retries(), help="What becomes of it if it fails, whatever its type says: backoff:5 "
              "(attempts), fixed:60s:3 (delay, attempts), schedule:1s,5m,1h (delays), none, or the name of a "
              "registered strategy.")  # fmt: skip
@click.option("--on-duplicate", type=click.Choice(["raise", "return"]), default="raise", show_default=True,
              help="When a live job has the key: refuse, or print that one's id.")  # fmt: skip
@click.option("--force", is_flag=True, help="Add it although nobody knows a job type of this name.")
def enqueue(
    target: Target, queue: str, job_type: str, data: str | None, data_file: IO[bytes] | None, at: datetime | None,
    windows: tuple[Window, ...], retry: Strategy | str | None, force: bool, **options: Any,
) -> None:  # fmt: skip
    """Add a job to QUEUE and print its id. Without data it is null."""
    value = given_data(data, data_file)
    target.declared([queue])
    announced(target.program)
    found = next(one for one in target.program.queues if one.name == queue)
    if not force and not found.is_known(job_type):
        declared = [one.name for one in found.job_types]
        raise Invalid(
            f"queue {queue} has no job type {job_type!r:.60}{others(job_type, declared)}; to add the job for a program "
            "that has code for it, say --force"
        )
    options |= {"at": at, "windows": windows or None} | ({} if retry is None else {"retry": retry})
    job_id = found.enqueue(job_type, value, **options)
    say({"id": job_id, "queue": queue, "type": job_type}, str(job_id))
