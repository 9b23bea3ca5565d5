"""Which answers a command means: the options that say so, and the answers themselves, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import click

from hipq import Hipq
from hipq.cli.commands import filters
from hipq.cli.inputs import Duration, Whole
from hipq.cli.show_answers import described
from hipq.cli.target import Target
from hipq.errors import NotFound
from hipq.job import names
from hipq.job.answer import BUFFERED, LATE, STATES, Answer
from hipq.job.when import to_datetime
from hipq.stores.filters import AnswerFilter

_PAGE: Final = 200
Rows = list[dict[str, Any]]
Filters = dict[str, Any]
Chosen = list[tuple[Hipq, dict[str, Any]]]


answer_filters = filters(
    click.option("--type", "type", help="Only to jobs of this type."),
    click.option("--key", help="Only to this key."),
    click.option("--state", type=click.Choice(list(STATES)), help="`answers count` says what each means."),
    click.option("--job", type=Whole("a job id", 1, (1 << 63) - 1), help="Only those that belong to this job."),
    click.option("--tenant", help="Only to jobs of this tenant of a daemon."),
    click.option("--older-than", type=Duration("older-than"), help="Only answers older than this: 90s, 30d."),
)
"""The options that say which answers."""
_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "type": names.job_type, "key": names.key, "tenant": names.tenant, "job": int,
}  # fmt: skip


def page(target: Target, queue_name: str | None, wanted: Filters, after: int, limit: int) -> Chosen:
    """The first ones above a number, with their instance."""
    fields = {name: check(wanted[name]) for name, check in _CHECKS.items() if name in wanted}  # refuses bad names
    found: Chosen = []
    for app, queue in target.queues(queue_name):
        rows = _in_state(app, queue.name, wanted.get("state", ""), after, limit, fields)
        if "older_than" in wanted:  # they are in the order they came: what is too young is at the end
            before = to_datetime(app.store.now()) - timedelta(seconds=wanted["older_than"])
            rows = [row for row in rows if row["arrived"] <= before]
        found += [(app, row) for row in rows]
    return sorted(found, key=lambda pair: number_of(pair[1]))[:limit]


def every(target: Target, queue: str | None, wanted: Filters) -> Iterator[tuple[Hipq, dict[str, Any]]]:
    after = 0
    while found := page(target, queue, wanted, after, _PAGE):
        yield from found
        after = number_of(found[-1][1])


def number_of(row: dict[str, Any]) -> int:
    return int(row["number"])


def find_answer(apps: list[Hipq], number: int) -> tuple[Hipq, str, Answer]:
    """The instance that has the answer, the name of its queue, the answer."""
    for app in apps:
        queues = {queue.number: queue.name for queue in app.queues}
        for kept in app.store.answers(AnswerFilter(id=number)):
            if kept.queue in queues:
                return app, queues[kept.queue], Answer(kept)
    raise NotFound(f"there is no answer {number} here")


def _in_state(app: Hipq, queue: str, state: str, after: int, limit: int, wanted: dict[str, Any]) -> Rows:
    if state != LATE:
        return _kept_as(app, queue, state, state, after, limit, wanted)
    found = [row for kept in (LATE, BUFFERED) for row in _kept_as(app, queue, kept, LATE, after, limit, wanted)]
    return sorted(found, key=number_of)


def _kept_as(app: Hipq, queue: str, kept: str, state: str, after: int, limit: int, wanted: dict[str, Any]) -> Rows:
    """The first ones that the inbox keeps in one state and that are in another: page by page, since it may be all of
    them, or none."""
    size = max(limit, _PAGE) if kept == BUFFERED else limit
    found: Rows = []
    while len(found) < limit:
        page = app.answers.list(queue, state=kept, after=after, limit=size, **wanted)
        found += [row for row in described(app, queue, page) if state in ("", row["state"])]
        if len(page) < size:
            break
        after = page[-1].id
    return found[:limit]
