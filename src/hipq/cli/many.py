"""Something done to jobs: to those with these ids, or, asked about first, to all that the filters find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, NamedTuple

import click

from hipq import Hipq, Job
from hipq.cli.inputs import Duration, JobId, Moment
from hipq.cli.progress import confirm, progress
from hipq.cli.show import print_json
from hipq.cli.target import find, of_name
from hipq.errors import HipqError
from hipq.job.states import CODES, PHASES, TRANSITIONS
from hipq.job.when import to_datetime
from hipq.jobs import JobFilters
from hipq.observe.logs import escaped
from hipq.operate import Changed

_PHASES = list(dict.fromkeys(phase for phases in PHASES.values() for phase in phases))
_COUNTED = 1_000_000
"""Jobs are counted up to here before a question; more are "more than"."""

ids_argument = click.argument("ids", metavar="[ID]...", nargs=-1, type=JobId())


class Chosen(NamedTuple):
    """The filters of a command line."""

    queue: str | None
    type: str | None
    key: str | None
    state: str | None
    phase: str | None
    lane: str | None
    tenant: str | None
    code: str | None
    error: str | None
    since: datetime | None
    before: datetime | None
    newer_than: float | None
    older_than: float | None

    def __bool__(self) -> bool:
        return any(value is not None for value in self)

    def wanted(self) -> JobFilters:
        """As the library takes them."""
        found: Any = {name: value for name, value in self._asdict().items() if value is not None}
        found.pop("queue", None)
        wanted: JobFilters = found
        return wanted


_FILTERS = (
    click.option("-q", "--queue", help="Only this queue."),
    click.option("--type", "job_type", help="Only this job type."),
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


def filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which jobs, handed to the command as `chosen`."""

    @wraps(command)
    def with_chosen(**options: Any) -> Any:
        options["type"] = options.pop("job_type")
        given = Chosen(**{name: options.pop(name) for name in Chosen._fields})
        return command(chosen=given, **options)

    for option in reversed(_FILTERS):
        with_chosen = option(with_chosen)
    return with_chosen


def done_to(
    apps: list[Hipq],
    ids: tuple[int, ...],
    chosen: Chosen,
    verb: str,
    *,
    one: Callable[[Hipq, int], int | None],
    many: Callable[..., Changed],
    yes: bool,
    quiet: bool,
    as_json: bool,
    show: Callable[[Hipq, Job[Any], bool], None],
    live: bool = True,
) -> int:
    """Do it; the exit status: 1, if there were ids and it could not be done to one of them."""
    if ids and chosen:
        raise click.UsageError("give ids or filters, not both", click.get_current_context())
    if not ids and not chosen:
        raise click.UsageError("say which jobs: ids, or filters like --queue and --state", click.get_current_context())
    if not ids:
        return _to_found(apps, chosen, verb, many, yes, quiet or as_json, as_json, live)
    if len(ids) == 1:
        target, _ = find(apps, ids[0])
        job = target.job(one(target, ids[0]) or ids[0])
        if as_json:
            show(target, job, as_json)
        else:
            like = "" if job.id == ids[0] else f", like {ids[0]}"
            click.echo(f"job {job.id} is {job.state} ({job.phase}) now{like}")
        return 0
    return _to_each(apps, ids, verb, one, as_json)


def _to_each(
    apps: list[Hipq], ids: tuple[int, ...], verb: str, one: Callable[[Hipq, int], int | None], as_json: bool
) -> int:
    """One after the other; what cannot be done to one does not keep the others from it."""
    failed: dict[int, str] = {}
    for job_id in dict.fromkeys(ids):
        try:
            one(find(apps, job_id)[0], job_id)
        except HipqError as error:
            failed[job_id] = str(error)
    done = len(dict.fromkeys(ids)) - len(failed)
    if as_json:
        print_json({"changed": done, "failed": [{"id": job_id, "error": why} for job_id, why in failed.items()]})
    else:
        for why in failed.values():
            click.echo(f"hipq: {escaped(why)}", err=True)
        click.echo(f"{verb}: {done} done, {len(failed)} not")
    return 1 if failed else 0


def _to_found(
    apps: list[Hipq],
    chosen: Chosen,
    verb: str,
    many: Callable[..., Changed],
    yes: bool,
    quiet: bool,
    as_json: bool,
    live: bool,
) -> int:
    wanted, queues = chosen.wanted(), of_name(apps, chosen.queue)
    now = max((to_datetime(app.store.now()) for app in apps), default=None)
    if now is not None:  # what is added while the question is on the screen is not meant
        wanted["before"] = min(now, wanted.get("before") or now)
    counts = [app.jobs.count(queue.name, most=_COUNTED, live=live, **wanted) for app, queue in queues]
    total, where = sum(counts), ", ".join(queue.name for (_, queue), count in zip(queues, counts, strict=True) if count)
    if total:
        more = "more than " if max(counts) >= _COUNTED else ""
        confirm(f"This will {verb} {more}{total:,} job{'s' if total != 1 else ''} in {where}. Go on?", yes)
    done = Changed()
    with progress(verb, total, quiet=quiet) as bar:
        for (app, queue), count in zip(queues, counts, strict=True):
            if count:
                done += many(app, queue.name, progress=lambda step: bar.advance(sum(step)), **wanted)
    if as_json:
        print_json({"found": total, "changed": done.changed, "skipped": done.skipped})
    elif not total:
        click.echo("no job is like that: nothing was changed")
    else:
        skipped = f"; {done.skipped:,} were at a point where it cannot be done" if done.skipped else ""
        click.echo(f"{verb}: {done.changed:,} of {total:,} done{skipped}")
    return 0
