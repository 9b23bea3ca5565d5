"""`hipq enqueue`: add one job."""

from __future__ import annotations

from datetime import datetime
from typing import IO, Any

import click

from hipq.cli.commands import command
from hipq.cli.complain import others
from hipq.cli.inputs import Duration, Moment, data_argument, given_data, given_options, job_options
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target, announced
from hipq.errors import Invalid


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
@click.option("--key", help="The job's key. No two live jobs of a type have the same.")
@click.option("--at", type=Moment(), help="Not before this moment, like 2027-01-15T08:00:00+01:00.")
@click.option("--delay", type=Duration("delay"), help="Not before so long from now: seconds, or 90s, 5m, 12h, 30d.")
@job_options
@click.option("--on-duplicate", type=click.Choice(["raise", "return"]), default="raise", show_default=True,
              help="When a live job has the key: refuse, or print that one's id.")  # fmt: skip
@click.option("--force", is_flag=True, help="Add it although nobody knows a job type of this name.")
def enqueue(
    target: Target, queue: str, job_type: str, data: str | None, data_file: IO[bytes] | None, at: datetime | None,
    force: bool, **options: Any,
) -> None:  # fmt: skip
    """Add a job to QUEUE and print its id. Without data it is null."""
    value = given_data(data, data_file)
    target.declared([queue])
    announced(target.program)
    found = next(one for one in target.program.queues if one.name == queue)
    if not force and not found.is_known(job_type):
        declared = [one.name for one in found.job_types]
        raise Invalid(
            f"queue {queue} has no job type {job_type!r:.60} (--force adds the job for a program that has code for it)"
            f"{others(job_type, declared)}"
        )
    job_id = found.enqueue(job_type, value, at=at, **given_options(options))
    say({"id": job_id, "queue": queue, "type": job_type}, str(job_id))
