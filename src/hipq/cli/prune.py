"""`hipq prune`: delete old final jobs, and answers that need not be kept any longer."""

from __future__ import annotations

import click

from hipq.cli.audited import audited
from hipq.cli.commands import command, is_typed, quiet_option, yes_option
from hipq.cli.inputs import Duration, Whole
from hipq.cli.progress import confirm, progress
from hipq.cli.show import say, some
from hipq.cli.target import AppCommand, Target
from hipq.job.states import CODES


@command(
    "prune",
    "hipq prune shop:app --older-than 30d",
    "hipq prune shop:app --queue orders --keep 100000 --yes",
    "hipq prune --db sqlite:///shop.db --older-than 7d --code ok",
    cls=AppCommand,
)
@click.option("--older-than", type=Duration("older-than"), help="Ended longer ago than this: 90s, 12h, 30d.")
@click.option("--keep", type=Whole("keep", 0, (1 << 31) - 1), help="Keep this number in each queue, the newest.")
@click.option("-q", "--queue", help="Only this queue.")
@click.option("--type", "job_type", help="Only this job type.")
@click.option("--tenant", help="Only this tenant of a daemon.")
@click.option("--code", type=click.Choice(CODES[1:]), help="Only jobs that ended in this way.")
@yes_option
@quiet_option
@audited
def prune(
    target: Target, older_than: float | None, keep: int | None, queue: str | None, job_type: str | None,
    tenant: str | None, code: str | None,
) -> None:  # fmt: skip
    """Delete jobs that have ended: by age, by number, or both.

    Without filters, answers that need not be kept any longer are deleted, too. How long they are kept is in the code of
    each queue (answer_ttl).
    """
    if is_typed("older_than") != is_typed("keep"):  # what a file says beside it would delete more than is typed
        older_than, keep = (older_than, None) if is_typed("older_than") else (None, keep)
    if older_than is None and keep is None:
        raise click.UsageError("say what to delete: --older-than 30d, or --keep 100000", click.get_current_context())
    queues = target.queues(queue)
    everything = queue is job_type is tenant is code is None
    whose = f"of the tenant {tenant}" if tenant is not None else ""
    which = [f"ended longer ago than {_age(older_than)}" if older_than is not None else "",
             f"are not among the last {keep:,} of their queue" if keep is not None else ""]  # fmt: skip
    jobs = " ".join(filter(None, (code, "jobs", whose)))
    confirm(f"This will delete {jobs} that {' or '.join(filter(None, which))}. Go on?")
    deleted = 0
    with progress("deleting") as bar:
        for app, each in queues:
            deleted += app.jobs.prune(
                older_than, each.name, keep=keep, type=job_type, code=code, tenant=tenant, progress=bar.advance
            )
    answers = sum(app.answers.prune() for app in target.apps) if everything else 0
    text = f"deleted {some(deleted, 'job')}" + (f" and {some(answers, 'answer')}" if everything else "")
    say({"deleted": deleted, "answers": answers}, text)


def _age(seconds: float) -> str:
    """As it is typed: 30d."""
    for unit, size in (("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
