"""Which answers a command means: the options that say so, and the answers themselves, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

import click

from hipq import Hipq
from hipq.cli.commands import handed_as
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


class Wanted(NamedTuple):
    """What the options say; None where they say nothing."""

    queue: str | None
    job_type: str | None
    key: str | None
    state: str | None
    job: int | None
    tenant: str | None
    older_than: float | None

    @property
    def is_anything(self) -> bool:
        return any(value is not None for value in self)

    @property
    def fields(self) -> dict[str, Any]:
        """As the inbox takes it; a name that is none is refused."""
        return {
            "type": names.job_type(self.job_type) if self.job_type is not None else "",
            "key": names.key(self.key) if self.key is not None else "",
            "job": self.job or 0,
            "tenant": names.tenant(self.tenant) if self.tenant is not None else "",
        }


which_answers = handed_as(
    "wanted",
    Wanted,
    click.option("-q", "--queue", help="Only to jobs of this queue."),
    click.option("--type", "job_type", help="Only to jobs of this type."),
    click.option("--key", help="Only to this key."),
    click.option("--state", type=click.Choice(list(STATES)), help="`answers count` says what each means."),
    click.option("--job", type=Whole("a job id", 1, (1 << 63) - 1), help="Only those that belong to this job."),
    click.option("--tenant", help="Only to jobs of this tenant of a daemon."),
    click.option("--older-than", type=Duration("older-than"), help="Only those that came so long ago: 90s, 30d."),
)
"""The options that say which answers, handed to the command as `wanted`."""


def page(target: Target, wanted: Wanted, after: int, limit: int) -> list[tuple[Hipq, dict[str, Any]]]:
    """The first ones above a number, with their instance."""
    found, fields = [], wanted.fields  # which refuses names before anything is opened
    for app, queue in target.queues(wanted.queue):
        rows = _in_state(app, queue.name, wanted.state or "", after, limit, fields)
        if wanted.older_than is not None:  # they are in the order they came: what is too young is at the end
            before = to_datetime(app.store.now()) - timedelta(seconds=wanted.older_than)
            rows = [row for row in rows if row["arrived"] <= before]
        found += [(app, row) for row in rows]
    return sorted(found, key=lambda pair: number_of(pair[1]))[:limit]


def every(target: Target, wanted: Wanted) -> Iterator[tuple[Hipq, dict[str, Any]]]:
    after = 0
    while found := page(target, wanted, after, _PAGE):
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
