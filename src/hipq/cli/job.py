"""`hipq job`: look at jobs, ask why they do not run, end them, run them now, put them elsewhere, add them again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from hipq import Hipq, Job
from hipq.cli.commands import Commands, examples
from hipq.cli.inputs import Duration, JobId, Moment, Whole
from hipq.cli.many import Chosen, done_to, filters, ids_argument
from hipq.cli.progress import quiet_option, yes_option
from hipq.cli.show import described, next_page, outlined, print_job, print_jobs, print_json, print_json_list
from hipq.cli.show_answers import answers_of
from hipq.cli.target import AppCommand, app_argument, db_option, find, instances, json_option, of_name
from hipq.errors import NotFound
from hipq.job import names
from hipq.job.model import queue_of
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.observe.logs import escaped


@click.group(
    cls=Commands,
    no_args_is_help=False,
    epilog=examples(
        "hipq job list shop:app --phase waiting",
        "hipq job why shop:app 65537",
        "hipq job cancel shop:app --queue orders --older-than 2d",
    ),
)
def job() -> None:
    """Look at jobs, ask why they do not run, cancel them, run them now, change them, add them again."""


@job.command(
    "show",
    cls=AppCommand,
    epilog=examples(
        "hipq job show shop:app 65537",
        "hipq job show --db sqlite:///shop.db 65537 --json",
    ),
)
@app_argument
@click.argument("job_id", metavar="ID", type=JobId())
@db_option
@json_option
def show(app: str, job_id: int, db: str | None, as_json: bool) -> None:
    """A job, what has happened to it, and the answers that came for it."""
    target, found = find(instances(app, db), job_id)
    more = {"traceback": found.fault.traceback or None} if found.fault else {"traceback": None}
    _print(target, found, as_json, more | answers_of(target, job_id))


@job.command(
    "list",
    cls=AppCommand,
    epilog=examples(
        "hipq job list shop:app --queue orders --phase waiting",
        "hipq job list shop:app --code error --error ConnectionError --newer-than 1h",
        "hipq job list --db postgresql://host/database --state final --limit 1000 --json",
    ),
)
@app_argument
@filters
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: ids above this one.")
@click.option("--limit", type=Whole("limit", 1, 9_999), default=100, show_default=True, help="How many a page.")
@db_option
@json_option
def list_jobs(app: str, chosen: Chosen, after: int, limit: int, db: str | None, as_json: bool) -> None:
    """Jobs by id, live and final: those of one queue in the order they were added."""
    wanted = chosen.wanted()
    found = [
        (one.name, each.name, job)
        for one, each in of_name(instances(app, db), chosen.queue)
        for job in one.jobs(each.name, after=after, limit=limit + 1, **wanted)
    ]
    found = sorted(found, key=lambda each: each[2].id)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        print_json_list(_whole(found))
    else:
        print_jobs([outlined(*each) for each in found])
        if more:
            next_page(found[-1][2].id)


def _whole(found: list[tuple[str, str, Job[Any]]]) -> Iterator[dict[str, Any]]:
    """Each is read when it is its turn, and forgotten then: with all they carry, a list might not fit into memory."""
    found.reverse()
    while found:
        try:
            yield described(*found.pop())
        except NotFound:
            pass  # it has been deleted since


@job.command(
    "why",
    cls=AppCommand,
    epilog=examples(
        "hipq job why shop:app 65537",
    ),
)
@app_argument
@click.argument("job_id", metavar="ID", type=JobId())
@db_option
@json_option
def why(app: str, job_id: int, db: str | None, as_json: bool) -> None:
    """Why a job does not run now, or what it is doing, in one sentence."""
    target, _ = find(instances(app, db), job_id)
    found = target.why(job_id)
    if as_json:
        print_json({"id": job_id, "reason": found.reason, "sentence": found.sentence, "details": found.details})
    else:
        click.echo(escaped(found.sentence))


@job.command(
    "cancel",
    cls=AppCommand,
    epilog=examples(
        'hipq job cancel shop:app 65537 --reason "ordered twice"',
        "hipq job cancel shop:app --queue orders --type charge --phase waiting --older-than 2d",
    ),
)
@app_argument
@ids_argument
@filters
@click.option("--reason", default="cancelled", show_default=True, help="Kept on each job as its error.")
@yes_option
@quiet_option
@db_option
@json_option
def cancel(
    app: str,
    ids: tuple[int, ...],
    chosen: Chosen,
    reason: str,
    yes: bool,
    quiet: bool,
    db: str | None,
    as_json: bool,
) -> int:
    """End jobs that are not final: those with these ids, or all that the filters find.

    Handlers that are running are told, and what they come to is not kept. Jobs that wait for an answer and have a
    cancel handler end when an engine has run that.
    """
    names.reason(reason)
    return done_to(
        instances(app, db), ids, chosen, "cancel",
        one=lambda target, job_id: target.cancel(job_id, reason),
        many=lambda target, queue, **wanted: target.jobs.cancel_all(queue, reason, **wanted),
        yes=yes, quiet=quiet, as_json=as_json, show=_print,
    )  # fmt: skip


@job.command(
    "retry",
    cls=AppCommand,
    epilog=examples(
        "hipq job retry shop:app 65537",
        "hipq job retry shop:app --queue orders --error ConnectionError --yes",
    ),
)
@app_argument
@ids_argument
@filters
@yes_option
@quiet_option
@db_option
@json_option
def retry(app: str, ids: tuple[int, ...], chosen: Chosen, yes: bool, quiet: bool, db: str | None, as_json: bool) -> int:
    """Let jobs that wait for their time, first or again, run now: those with these ids, or all that the filters
    find."""
    return done_to(
        instances(app, db), ids, chosen, "run now",
        one=lambda target, job_id: target.retry_now(job_id),
        many=lambda target, queue, **wanted: target.jobs.retry_all(queue, **wanted),
        yes=yes, quiet=quiet, as_json=as_json, show=_print,
    )  # fmt: skip


@job.command(
    "change",
    cls=AppCommand,
    epilog=examples(
        "hipq job change shop:app 65537 --priority 1",
        "hipq job change shop:app --queue orders --type receipt --delay 2h",
    ),
)
@app_argument
@ids_argument
@filters
@click.option("--at", type=Moment(), help="Not before this moment, like 2027-01-15T08:00:00+01:00.")
@click.option("--delay", type=Duration("delay"), help="Not before so long from now: seconds, or 90s, 5m, 12h, 30d.")
@click.option(
    "--priority", type=Whole("priority", PRIORITY_MIN, PRIORITY_MAX), help="Lower goes first; may be negative."
)
@yes_option
@quiet_option
@db_option
@json_option
def change(
    app: str,
    ids: tuple[int, ...],
    chosen: Chosen,
    at: datetime | None,
    delay: float | None,
    priority: int | None,
    yes: bool,
    quiet: bool,
    db: str | None,
    as_json: bool,
) -> int:
    """Give jobs that have not started another time, or another priority: those with these ids, or all that the filters
    find."""
    if at is None and delay is None and priority is None:
        raise click.UsageError("say what to change: --at, --delay or --priority", click.get_current_context())
    if at is not None and delay is not None:
        raise click.UsageError("give --at or --delay, not both", click.get_current_context())
    return done_to(
        instances(app, db), ids, chosen, "change",
        one=lambda target, job_id: target.jobs.change(job_id, at=at, delay=delay, priority=priority),
        many=lambda target, queue, **wanted: target.jobs.change_all(
            queue, at=at, delay=delay, priority=priority, **wanted
        ),
        yes=yes, quiet=quiet, as_json=as_json, show=_print,
    )  # fmt: skip


@job.command(
    "requeue",
    cls=AppCommand,
    epilog=examples(
        "hipq job requeue shop:app 65537",
        "hipq job requeue shop:app --queue orders --code error --newer-than 1h",
    ),
)
@app_argument
@ids_argument
@filters
@yes_option
@quiet_option
@db_option
@json_option
def requeue(
    app: str, ids: tuple[int, ...], chosen: Chosen, yes: bool, quiet: bool, db: str | None, as_json: bool
) -> int:
    """Add jobs like those that have ended: those with these ids, or all that the filters find. What has ended stays as
    it is. Where a live job has the same key, none is added."""
    return done_to(
        instances(app, db), ids, chosen, "add again",
        one=lambda target, job_id: target.jobs.requeue(job_id),
        many=lambda target, queue, **wanted: target.jobs.requeue_all(queue, **wanted),
        live=False, yes=yes, quiet=quiet, as_json=as_json, show=_print,
    )  # fmt: skip


def _print(app: Hipq, found: Job[Any], as_json: bool, more: dict[str, Any] | None = None) -> None:
    queue = next(one.name for one in app.queues if one.number == queue_of(found.id))
    shown = described(app.name, queue, found) | (more or {})
    if as_json:
        print_json(shown)
    else:
        print_job(shown)
