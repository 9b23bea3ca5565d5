"""`hipq job`: look at jobs, ask why they do not run, end them, hurry them."""

from __future__ import annotations

from typing import Any

import click

from hipq import Hipq, Job
from hipq.cli.inputs import Whole
from hipq.cli.show import described, print_job, print_jobs, print_json
from hipq.cli.show_answers import answers_of
from hipq.cli.target import AppCommand, app_argument, db_option, find, instances, json_option, of_name
from hipq.job import names
from hipq.job.model import queue_of
from hipq.job.states import MOVES, PHASES
from hipq.observe.logs import escaped

_ID = Whole("a job id", 1, (1 << 63) - 1)
_PHASES = list(dict.fromkeys(phase for phases in PHASES.values() for phase in phases))


@click.group(no_args_is_help=False)
def job() -> None:
    """Look at jobs, ask why they do not run, end them, hurry them."""


@job.command("show", cls=AppCommand)
@app_argument
@click.argument("id", type=_ID)
@db_option
@json_option
def show(app: str, id: int, db: str | None, as_json: bool) -> None:
    """A job, what has happened to it, and the answers that came for it."""
    target, found = find(instances(app, db), id)
    _print(target, found, as_json, answers_of(target, id))


@job.command("list", cls=AppCommand)
@app_argument
@click.option("-q", "--queue", help="Only this queue.")
@click.option("--type", "job_type", help="Only this job type.")
@click.option("--key", help="Only this key.")
@click.option("--state", type=click.Choice(list(MOVES)))
@click.option("--phase", type=click.Choice(_PHASES))
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: ids above this one.")
@click.option("--limit", type=Whole("limit", 1, 10_000), default=100, show_default=True)
@db_option
@json_option
def list_jobs(
    app: str,
    queue: str | None,
    job_type: str | None,
    key: str | None,
    state: str | None,
    phase: str | None,
    after: int,
    limit: int,
    db: str | None,
    as_json: bool,
) -> None:
    """Jobs in the order they were added, live and final."""
    wanted = {
        "type": names.job_type(job_type) if job_type is not None else "",
        "key": names.key(key) if key is not None else "",
        "state": state or "",
        "phase": phase or "",
    }
    found = [
        described(one.name, each.name, job)
        for one, each in of_name(instances(app, db), queue)
        for job in one.jobs(each.name, after=after, limit=limit, **wanted)
    ]
    found = sorted(found, key=lambda each: int(each["id"]))[:limit]
    if as_json:
        print_json(found)
    else:
        print_jobs(found)


@job.command("why", cls=AppCommand)
@app_argument
@click.argument("id", type=_ID)
@db_option
@json_option
def why(app: str, id: int, db: str | None, as_json: bool) -> None:
    """Why a job does not run now, or what it is doing, in one sentence."""
    target, _ = find(instances(app, db), id)
    found = target.why(id)
    if as_json:
        print_json({"id": id, "reason": found.reason, "sentence": found.sentence, "details": found.details})
    else:
        click.echo(escaped(found.sentence))


@job.command("cancel", cls=AppCommand)
@app_argument
@click.argument("id", type=_ID)
@click.option("--reason", default="cancelled", show_default=True, help="Kept on the job as its error.")
@db_option
@json_option
def cancel(app: str, id: int, reason: str, db: str | None, as_json: bool) -> None:
    """End a job that is not final."""
    names.reason(reason)
    target, _ = find(instances(app, db), id)
    target.cancel(id, reason)
    _print(target, target.job(id), as_json)


@job.command("retry", cls=AppCommand)
@app_argument
@click.argument("id", type=_ID)
@db_option
@json_option
def retry(app: str, id: int, db: str | None, as_json: bool) -> None:
    """Let a job that waits for its time, first or again, run now."""
    target, _ = find(instances(app, db), id)
    target.retry_now(id)
    _print(target, target.job(id), as_json)


def _print(app: Hipq, found: Job[Any], as_json: bool, more: dict[str, Any] | None = None) -> None:
    queue = next(one.name for one in app.queues if one.number == queue_of(found.id))
    shown = described(app.name, queue, found) | (more or {})
    if as_json:
        print_json(shown)
    else:
        print_job(shown)
