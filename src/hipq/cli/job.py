"""`hipq job`: look at jobs, ask why they do not run, end them, run them now, put them elsewhere, add them again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from hipq.cli.commands import asked, group
from hipq.cli.inputs import Duration, JobId, Moment, Places, Whole, number_option
from hipq.cli.job_list import page, print_list, whole
from hipq.cli.many import JobChange, changing, job_filters, whole_job
from hipq.cli.show import next_page, print_job, print_json_list, say
from hipq.cli.show_answers import answers_of
from hipq.cli.target import AppCommand, Target
from hipq.job import names
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.jobs import JobFilters
from hipq.observe.logs import escaped

_id_argument = click.argument("job_id", metavar="ID", type=JobId())


@group(
    "job",
    "hipq job list shop:app --phase waiting",
    "hipq job why shop:app 65537",
    "hipq job cancel shop:app --queue orders --older-than 2d",
    of=AppCommand,
)
def job() -> None:
    """List jobs, say why they wait, cancel, change or requeue them, run them now."""


@job.command("show", "hipq job show shop:app 65537", "hipq job show --db sqlite:///shop.db 65537 --json")
@_id_argument
def show(target: Target, job_id: int) -> None:
    """A job, what has happened to it, and the answers that came for it."""
    app, found = target.job(job_id)
    said = found.progress
    progress = {"fraction": said.fraction, "message": said.message, "at": said.at} if said.at else None
    traceback = (found.fault.traceback or None) if found.fault else None
    whole = whole_job(app, found) | {"progress": progress, "traceback": traceback} | answers_of(app, job_id)
    say(whole, lambda: print_job(whole))


@job.command(
    "list",
    "hipq job list shop:app --queue orders --phase waiting",
    "hipq job list shop:app --code error --error ConnectionError --newer-than 1h",
    "hipq job list --db postgresql://host/database --state final --limit 1000 --json",
)
@job_filters
@click.option("--oldest", is_flag=True, help="The oldest first.")
@click.option(
    "--after",
    type=Places(),
    default={},
    metavar="ID[,ID]",
    help="The next page: behind these, each the last that was shown of its queue.",
)
@number_option("--limit", 1, 9_999, 100, "How many a page.")
def list_jobs(
    target: Target, queue: str | None, wanted: JobFilters, oldest: bool, after: dict[int, int], limit: int
) -> None:
    """Jobs, live and final, the newest first. Of one that has ended, the duration is the time from when it was due."""
    found = page(target.queues(queue), wanted, after, limit, oldest)
    if asked("json"):
        print_json_list(whole(found.jobs))
        return
    print_list(found.jobs)
    if found.after:
        next_page(",".join(map(str, found.after.values())))


@job.command("why", "hipq job why shop:app 65537")
@_id_argument
def why(target: Target, job_id: int) -> None:
    """Why a job does not run now, or what it is doing, in one sentence."""
    found = target.job(job_id)[0].why(job_id)
    row = {"id": job_id, "reason": found.reason, "sentence": found.sentence, "details": found.details}
    say(row, escaped(found.sentence))


@job.command(
    "cancel",
    'hipq job cancel shop:app 65537 --reason "ordered twice"',
    "hipq job cancel shop:app --queue orders --type charge --phase waiting --older-than 2d",
)
@changing
@click.option("--reason", default="cancelled", show_default=True, help="Kept on each job as its error.")
def cancel(reason: str) -> JobChange:
    """Cancel jobs that have not ended: those with these ids, or all that the filters find.

    Handlers that are running are told, and what they come to is not kept. Jobs that wait for an answer and have a
    cancel handler end when an engine has run that.
    """
    names.reason(reason)
    return JobChange(
        "cancel",
        lambda app, job_id: app.cancel(job_id, reason),
        lambda app, queue, **wanted: app.jobs.cancel_all(queue, reason, **wanted),
    )


@job.command(
    "retry", "hipq job retry shop:app 65537", "hipq job retry shop:app --queue orders --error ConnectionError --yes"
)
@changing
def retry() -> JobChange:
    """Run jobs now that are scheduled or to be retried later: those with these ids, or all that the filters
    find."""
    return JobChange(
        "run now",
        lambda app, job_id: app.retry_now(job_id),
        lambda app, queue, **wanted: app.jobs.retry_all(queue, **wanted),
    )


@job.command(
    "change",
    "hipq job change shop:app 65537 --priority 1",
    "hipq job change shop:app --queue orders --type receipt --delay 2h",
)
@changing
@click.option("--at", type=Moment(), help="Not before this moment, like 2027-01-15T08:00:00+01:00.")
@click.option("--delay", type=Duration("delay"), help="Not before so long from now: seconds, or 90s, 5m, 12h, 30d.")
@click.option(
    "--priority", type=Whole("priority", PRIORITY_MIN, PRIORITY_MAX), help="Lower goes first; may be negative."
)
def change(at: datetime | None, delay: float | None, priority: int | None) -> JobChange:
    """Give jobs that have not started another time, or another priority: those with these ids, or all that the filters
    find."""
    if at is None and delay is None and priority is None:
        raise click.UsageError("say what to change: --at, --delay or --priority", click.get_current_context())
    if at is not None and delay is not None:
        raise click.UsageError("give --at or --delay, not both", click.get_current_context())
    new: dict[str, Any] = {"at": at, "delay": delay, "priority": priority}
    return JobChange(
        "change",
        lambda app, job_id: app.jobs.change(job_id, **new),
        lambda app, queue, **wanted: app.jobs.change_all(queue, **new, **wanted),
    )


@job.command(
    "requeue",
    "hipq job requeue shop:app 65537",
    "hipq job requeue shop:app --queue orders --code error --newer-than 1h",
)
@changing
def requeue() -> JobChange:
    """Add jobs like those that have ended: those with these ids, or all that the filters find. What has ended stays as
    it is. Where a live job has the same key, none is added."""
    return JobChange(
        "add again",
        lambda app, job_id: app.jobs.requeue(job_id),
        lambda app, queue, **wanted: app.jobs.requeue_all(queue, **wanted),
        live=False,
    )
