"""Something done to jobs: to those with these ids, or, asked about first, to all that the filters find."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import click

from hipq import Hipq, Job
from hipq.cli.audited import audited
from hipq.cli.commands import asked, filters, quiet_option, together, yes_option
from hipq.cli.complain import note
from hipq.cli.inputs import Duration, JobId, Moment
from hipq.cli.progress import confirm, progress
from hipq.cli.show import described, print_json, say, some
from hipq.cli.target import Target
from hipq.errors import HipqError
from hipq.job.states import CODES, PHASES, TRANSITIONS
from hipq.job.when import to_datetime
from hipq.jobs import JobFilters
from hipq.observe.logs import escaped
from hipq.operate import Changed

_PHASES = list(dict.fromkeys(phase for phases in PHASES.values() for phase in phases))
_COUNTED = 1_000_000
"""Jobs are counted up to here before a question; more are "more than"."""


# -- which jobs ------------------------------------------------------------------------------------------------------
job_filters = filters(
    click.option("--type", "type", help="Only this job type."),
    click.option("--key", help="Only this key."),
    click.option("--state", type=click.Choice(list(TRANSITIONS)), help="Only those in this state;"),
    click.option("--phase", type=click.Choice(_PHASES), help="or, more exactly, in this phase."),
    click.option("--lane", help="Only this lane."),
    click.option("--tenant", help="Only this tenant of a daemon."),
    click.option("--code", type=click.Choice(CODES[1:]), help="How it ended, or went wrong the last time."),
    click.option("--error", metavar="TEXT", help="Its error contains this, as ConnectionError."),
    click.option("--since", type=Moment("since"), help="Added at this moment or later."),
    click.option("--before", type=Moment("before"), help="Added before this moment."),
    click.option(
        "--newer-than", type=Duration("newer-than"), help="Added not longer ago than this: 90s, 5m, 12h, 30d."
    ),
    click.option("--older-than", type=Duration("older-than"), help="Added longer ago than this."),
)
"""The options that say which jobs, as the library takes them."""


# -- what is done to them --------------------------------------------------------------------------------------------
class JobChange(NamedTuple):
    """What a command does to jobs."""

    verb: str
    one: Callable[[Hipq, int], int | None]
    """Do it to the job with this id; the id of another job, if that is what came of it."""
    many: Callable[..., Changed]
    """Do it to all jobs of a queue that filters find."""
    live: bool = True
    """Whether it can be done to live jobs only."""


def changing(command: Callable[..., JobChange]) -> Callable[..., Any]:
    """A command that does something to jobs: takes ids or filters, and says what it does by what it returns."""

    @wraps(command)
    def changes(target: Target, ids: tuple[int, ...], queue: str | None, wanted: JobFilters, **options: Any) -> int:
        change = command(**options)
        if bool(ids) == (queue is not None or bool(wanted)):
            said = (
                "give ids or filters, not both" if ids else "say which jobs: ids, or filters like --queue and --state"
            )
            raise click.UsageError(said, click.get_current_context())
        if not ids:
            return _to_found(target, queue, wanted, change)
        return _to_one(target, ids[0], change) if len(ids) == 1 else _to_each(target, ids, change)

    ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=JobId())
    return together(ids_argument, job_filters, yes_option, quiet_option)(audited(changes))


def whole_job(app: Hipq, job: Job[Any]) -> dict[str, Any]:
    """A job as JSON can have it, with the name of its queue."""
    return described(app.name, app.declared.of_job(job.id).name, job)


def _to_one(target: Target, job_id: int, change: JobChange) -> int:
    app, _ = target.job(job_id)
    job = app.job(change.one(app, job_id) or job_id)
    if asked("json"):
        print_json(whole_job(app, job))
    else:
        like = "" if job.id == job_id else f", like {job_id}"
        click.echo(f"job {job.id} is {job.state} ({job.phase}) now{like}")
    return 0


def _to_each(target: Target, ids: tuple[int, ...], change: JobChange) -> int:
    """One after the other; what cannot be done to one does not keep the others from it, and the exit status is 1."""
    failed: dict[int, str] = {}
    for job_id in dict.fromkeys(ids):
        try:
            change.one(target.job(job_id)[0], job_id)
        except HipqError as error:
            failed[job_id] = str(error)
    done = len(dict.fromkeys(ids)) - len(failed)
    for why in failed.values() if not asked("json") else ():
        note(f"hipq: {escaped(why)}")
    said = {"changed": done, "failed": [{"id": job_id, "error": why} for job_id, why in failed.items()]}
    say(said, f"{change.verb}: {done} done, {len(failed)} not")
    return 1 if failed else 0


def _to_found(target: Target, queue_name: str | None, wanted: JobFilters, change: JobChange) -> int:
    queues = target.queues(queue_name)
    now = max((to_datetime(app.store.now()) for app in target.apps), default=None)
    if now is not None:  # what is added while the question is on the screen is not meant
        wanted["before"] = min(now, wanted.get("before") or now)
    counts = [app.jobs.count(queue.name, most=_COUNTED, live=change.live, **wanted) for app, queue in queues]
    total, where = sum(counts), ", ".join(queue.name for (_, queue), count in zip(queues, counts, strict=True) if count)
    if total:
        more = "more than " if max(counts) >= _COUNTED else ""
        confirm(f"This will {change.verb} {more}{some(total, 'job')} in {where}. Go on?")
    done = Changed()
    with progress(change.verb, total) as bar:
        for (app, queue), count in zip(queues, counts, strict=True):
            if count:
                done += change.many(app, queue.name, progress=lambda step: bar.advance(sum(step)), **wanted)
    skipped = f"; {done.skipped:,} were at a point where it cannot be done" if done.skipped else ""
    text = f"{change.verb}: {done.changed:,} of {total:,} done{skipped}"
    found = {"found": total, "changed": done.changed, "skipped": done.skipped}
    say(found, text if total else "no job is like that: nothing was changed")
    return 0
