"""`hipq answer`: bring the answer of a job."""

from __future__ import annotations

from typing import IO

import click

from hipq.cli.commands import command
from hipq.cli.inputs import Whole, data_argument, given_data
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target


@command(
    "answer",
    """hipq answer shop:app orders charge order-17 '{"status": "paid"}'""",
    "hipq answer --db sqlite:///daemon.db jobs mail order-17 --data-file answer.json --id evt-1 --tenant acme",
    """hipq answer shop:app orders charge order-17 '"no such card"' --error""",
    cls=AppCommand,
    short_help="Bring the answer of a job.",
)
@click.argument("queue")
@click.argument("job_type", metavar="TYPE")
@click.argument("key")
@data_argument
@click.option("--id", "answer_id", metavar="ANSWER-ID", help="What tells it from others to the same key.")
@click.option("--error", is_flag=True, help="It says that the work failed.")
@click.option("--attempt", type=Whole("attempt", 1, (1 << 31) - 1), help="The attempt it is an answer to.")
@click.option("--tenant", help="The tenant of a daemon whose job it is for.")
def answer(
    target: Target, queue: str, job_type: str, key: str, data: str | None, data_file: IO[bytes] | None,
    answer_id: str | None, error: bool, attempt: int | None, tenant: str | None,
) -> None:  # fmt: skip
    """Bring the answer of the job of TYPE that has KEY, and print what became of it. It is kept, whatever that is:

    \b
    matched    its job has it, or has ended with it
    buffered   it is early: kept until its job waits for it
    duplicate  the same one came before
    conflict   its job had ended with another one
    late       its job had ended, or was past that attempt

    Without the code, by --db, an engine that has the code ends the job.
    """
    value = given_data(data, data_file)
    app, found = target.queue(queue)
    outcome = app.answer(
        found.name, job_type, key, value, answer_id=answer_id, error=error, attempt=attempt, tenant=tenant
    )
    say({"outcome": outcome, "queue": found.name, "type": job_type, "key": key}, str(outcome))
