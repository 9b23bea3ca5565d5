"""`hipq enqueue`: add one job."""

from __future__ import annotations

from datetime import datetime
from typing import IO, Any

import click

from hipq.cli.commands import examples
from hipq.cli.inputs import (
    Duration,
    Moment,
    Retries,
    TimeWindow,
    Units,
    Whole,
    data_argument,
    data_file_option,
    given_data,
)  # fmt: skip
from hipq.cli.show import print_json
from hipq.cli.target import AppCommand, announced, app_argument, json_option, load, others
from hipq.errors import Invalid
from hipq.job.names import FACTOR_MAX, FACTOR_MIN
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.retries import Strategy
from hipq.job.windows import Window


@click.command(
    cls=AppCommand,
    epilog=examples(
        """hipq enqueue shop:app orders charge '{"amount": 5}' --key order-17""",
        "hipq enqueue shop:app orders receipt --data-file receipt.json --delay 12h",
        "hipq enqueue shop:app orders reindex --window 22:00-05:00@Europe/Rome",
    ),
)
@app_argument
@click.argument("queue")
@click.argument("job_type", metavar="TYPE")
@data_argument
@data_file_option
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
@json_option
def enqueue(
    app: str,
    queue: str,
    job_type: str,
    data: str | None,
    data_file: IO[bytes] | None,
    key: str | None,
    at: datetime | None,
    delay: float | None,
    priority: int | None,
    lane: str | None,
    throttle_factor: float | None,
    windows: tuple[Window, ...],
    timeout: float | None,
    retry: Strategy | str | None,
    on_duplicate: str,
    force: bool,
    as_json: bool,
) -> None:
    """Add a job to QUEUE and print its id. Without data it is null."""
    value = given_data(data, data_file)
    loaded = load(app)
    target = next((one for one in loaded.queues if one.name == queue), None)
    if target is None:
        there = [one.name for one in loaded.queues]
        raise Invalid(f"{app} declares no queue {queue!r:.60}{others(queue, there)}")
    announced(loaded)
    options: dict[str, Any] = {"key": key, "at": at, "delay": delay, "priority": priority, "timeout": timeout}
    options |= {"lane": lane, "throttle_factor": throttle_factor, "windows": windows or None}
    if retry is not None:
        options["retry"] = retry
    if not force and not target.is_known(job_type):
        declared = [one.name for one in target.job_types]
        raise Invalid(
            f"queue {queue} has no job type {job_type!r:.60}{others(job_type, declared)}; to add the job for a program "
            "that has code for it, say --force"
        )
    job_id = target.enqueue(job_type, value, on_duplicate=on_duplicate, **options)
    if as_json:
        print_json({"id": job_id, "queue": queue, "type": job_type})
    else:
        click.echo(job_id)
