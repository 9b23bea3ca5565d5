"""`hipq answers`: look at the answers that came, give them another chance, throw them away."""

from __future__ import annotations

from typing import Any, Final

import click

from hipq import Hipq
from hipq.answers.inbox import Count
from hipq.cli.inputs import Whole
from hipq.cli.show import print_json
from hipq.cli.show_answers import described, print_answer, print_answers, print_counts, print_replayed, replayed
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option, of_name
from hipq.errors import NotFound
from hipq.job import names
from hipq.job.answer import BUFFERED, LATE, STATES, Answer
from hipq.stores.base import AnswerFilter

_PAGE: Final = 200
_NUMBER = Whole("the number of an answer", 1, (1 << 63) - 1)
_number_argument = click.argument("number", metavar="NUMBER", type=_NUMBER)


@click.group(no_args_is_help=False)
def answers() -> None:
    """Look at the answers that came, give them another chance, throw them away."""


# -- looking ---------------------------------------------------------------------------------------------------------
@answers.command("list", cls=AppCommand)
@app_argument
@click.option("-q", "--queue", help="Only to jobs of this queue.")
@click.option("--type", "job_type", help="Only to jobs of this type.")
@click.option("--key", help="Only to this key.")
@click.option("--state", type=click.Choice(list(STATES)), help="`answers count` says what each means.")
@click.option("--job", type=Whole("a job id", 1, (1 << 63) - 1), help="Only those that belong to this job.")
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: numbers above it.")
@click.option("--limit", type=Whole("limit", 1, 10_000), default=100, show_default=True)
@db_option
@json_option
def list_answers(
    app: str,
    queue: str | None,
    job_type: str | None,
    key: str | None,
    state: str | None,
    job: int | None,
    after: int,
    limit: int,
    db: str | None,
    as_json: bool,
) -> None:
    """Answers in the order they came."""
    wanted = {
        "type": names.job_type(job_type) if job_type is not None else "",
        "key": names.key(key) if key is not None else "",
        "job": job or 0,
    }
    found = [
        row
        for one, each in of_name(instances(app, db), queue)
        for row in _in_state(one, each.name, state or "", after, limit, wanted)
    ]
    found = sorted(found, key=_number)[:limit]
    if as_json:
        print_json(found)
    else:
        print_answers(found)


def _in_state(
    app: Hipq, queue: str, state: str, after: int, limit: int, wanted: dict[str, Any]
) -> list[dict[str, Any]]:
    if state != LATE:
        return _kept_as(app, queue, state, state, after, limit, wanted)
    found = [row for kept in (LATE, BUFFERED) for row in _kept_as(app, queue, kept, LATE, after, limit, wanted)]
    return sorted(found, key=_number)


def _kept_as(
    app: Hipq, queue: str, kept: str, state: str, after: int, limit: int, wanted: dict[str, Any]
) -> list[dict[str, Any]]:
    """The first ones that the inbox keeps in one state and that are in another: page by page, since it may be all of
    them, or none."""
    size = max(limit, _PAGE) if kept == BUFFERED else limit
    found: list[dict[str, Any]] = []
    while len(found) < limit:
        page = app.inbox.list(queue, state=kept, after=after, limit=size, **wanted)
        found += [row for row in described(app, queue, page) if state in ("", row["state"])]
        if len(page) < size:
            break
        after = page[-1].id
    return found[:limit]


def _number(row: dict[str, Any]) -> int:
    return int(row["number"])


@answers.command("show", cls=AppCommand)
@app_argument
@_number_argument
@db_option
@json_option
def show(app: str, number: int, db: str | None, as_json: bool) -> None:
    """An answer, what it says, and what its state means."""
    target, queue, found = _find(instances(app, db), number)
    (row,) = described(target, queue, [found])
    row["meaning"] = STATES[row["state"]]
    if as_json:
        print_json(row)
    else:
        print_answer(row)


@answers.command("count", cls=AppCommand)
@app_argument
@click.option("-q", "--queue", help="Only to jobs of this queue.")
@db_option
@json_option
def count(app: str, queue: str | None, db: str | None, as_json: bool) -> None:
    """How many answers there are in each state, and how often they came. One that was kept for a job which ended
    without it may still count as buffered."""
    total = dict.fromkeys(STATES, Count(0, 0))
    for one, each in of_name(instances(app, db), queue):
        for state, more in one.inbox.counts(each.name).items():
            before = total[state]
            total[state] = Count(before.answers + more.answers, before.copies + more.copies)
    rows = [{"state": state, **total[state]._asdict(), "meaning": STATES[state]} for state in STATES]
    if as_json:
        print_json(rows)
    else:
        print_counts(rows)


# -- changing --------------------------------------------------------------------------------------------------------
@answers.command("replay", cls=AppCommand)
@app_argument
@_number_argument
@db_option
@json_option
def replay(app: str, number: int, db: str | None, as_json: bool) -> None:
    """Let an unused answer come again. It is for the job that has its key now, and gets another number."""
    target, queue, found = _find(instances(app, db), number)
    done = target.inbox.replay(number)
    if as_json:
        print_json(replayed(done, queue, found.type, found.key))
    else:
        print_replayed(done)


@answers.command("rekey", cls=AppCommand)
@app_argument
@_number_argument
@click.argument("key")
@click.option("--type", "job_type", help="The job type it is an answer to, if that was wrong too.")
@db_option
@json_option
def rekey(app: str, number: int, key: str, job_type: str | None, db: str | None, as_json: bool) -> None:
    """Let an unused answer come again, with another key. For one that named the wrong job."""
    names.key(key)
    target, queue, found = _find(instances(app, db), number)
    done = target.inbox.rekey(number, key, type=job_type)
    if as_json:
        print_json(replayed(done, queue, job_type or found.type, key))
    else:
        print_replayed(done)


@answers.command("drop", cls=AppCommand)
@app_argument
@_number_argument
@db_option
@json_option
def drop(app: str, number: int, db: str | None, as_json: bool) -> None:
    """Delete an answer. One that a job has, and has not looked at yet, stays."""
    target, _, _ = _find(instances(app, db), number)
    target.inbox.drop(number)
    if as_json:
        print_json({"dropped": number})
    else:
        click.echo(f"dropped answer {number}")


def _find(apps: list[Hipq], number: int) -> tuple[Hipq, str, Answer]:
    """The instance that has the answer, the name of its queue, the answer."""
    for app in apps:
        queues = {queue.number: queue.name for queue in app.queues}
        for kept in app.store.answers(AnswerFilter(id=number)):
            if kept.queue in queues:
                return app, queues[kept.queue], Answer(kept)
    raise NotFound(f"there is no answer {number} here")
