"""`hipq answers`: look at the answers that came, give them another chance, throw them away."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from hipq import Hipq
from hipq.answers.inbox import Count
from hipq.answers.reports import as_rows, streams
from hipq.cli.commands import Commands, examples
from hipq.cli.complain import complain, note
from hipq.cli.inputs import Whole
from hipq.cli.progress import confirm, progress, yes_option
from hipq.cli.show import next_page, print_json, some
from hipq.cli.show_answers import (
    described,
    print_answer,
    print_answers,
    print_counts,
    print_listeners,
    print_replayed,
    replayed,
)
from hipq.cli.target import AppCommand, app_argument, db_option, instances, json_option, of_name
from hipq.cli.which_answers import Wanted, every, find_answer, number_of, page, which_answers
from hipq.errors import Conflict, NotFound
from hipq.job import names
from hipq.job.answer import STATES, Answered

_NUMBER = Whole("the number of an answer", 1, (1 << 63) - 1)
_number_argument = click.argument("number", metavar="NUMBER", type=_NUMBER)
_numbers_argument = click.argument("numbers", metavar="[NUMBER]...", type=_NUMBER, nargs=-1)


@click.group(
    cls=Commands,
    no_args_is_help=False,
    epilog=examples(
        "hipq answers list shop:app --state buffered",
        "hipq answers rekey shop:app 12 order-17",
        "hipq answers drop shop:app --state late --older-than 30d",
    ),
)
def answers() -> None:
    """Look at the answers that came, give them another chance, throw them away."""


# -- looking ---------------------------------------------------------------------------------------------------------
@answers.command(
    "list",
    cls=AppCommand,
    epilog=examples(
        "hipq answers list shop:app --state buffered",
        "hipq answers list shop:app --key order-17 --json",
        "hipq answers list --db sqlite:///shop.db --older-than 7d --limit 20",
    ),
)
@app_argument
@which_answers
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: numbers above it.")
@click.option("--limit", type=Whole("limit", 1, 10_000), default=100, show_default=True, help="At most so many.")
@db_option
@json_option
def list_answers(app: str, wanted: Wanted, after: int, limit: int, db: str | None, as_json: bool) -> None:
    """Answers in the order they came."""
    apps = instances(app, db)
    found = [row for _, row in page(apps, wanted, after, limit)]
    if as_json:
        print_json(found)
    else:
        print_answers(found)
    if len(found) == limit and page(apps, wanted, number_of(found[-1]), 1):
        next_page(number_of(found[-1]))


@answers.command("show", cls=AppCommand, epilog=examples("hipq answers show shop:app 12"))
@app_argument
@_number_argument
@db_option
@json_option
def show(app: str, number: int, db: str | None, as_json: bool) -> None:
    """An answer, what it says, and what its state means."""
    target, queue, found = find_answer(instances(app, db), number)
    (row,) = described(target, queue, [found])
    row["meaning"] = STATES[row["state"]]
    if as_json:
        print_json(row)
    else:
        print_answer(row)


@answers.command(
    "count",
    cls=AppCommand,
    epilog=examples("hipq answers count shop:app", "hipq answers count shop:app -q orders --json"),
)
@app_argument
@click.option("-q", "--queue", help="Only to jobs of this queue.")
@click.option("--tenant", help="Only to jobs of this tenant of a daemon.")
@db_option
@json_option
def count(app: str, queue: str | None, tenant: str | None, db: str | None, as_json: bool) -> None:
    """How many answers there are in each state, and how often they came. One that was kept for a job which ended
    without it may still count as buffered."""
    whose = "" if tenant is None else names.tenant(tenant)
    total = dict.fromkeys(STATES, Count(0, 0))
    for one, each in of_name(instances(app, db), queue):
        for state, more in one.answers.counts(each.name, tenant=whose).items():
            before = total[state]
            total[state] = Count(before.answers + more.answers, before.copies + more.copies)
    rows = [{"state": state, **total[state]._asdict(), "meaning": STATES[state]} for state in STATES]
    if as_json:
        print_json(rows)
    else:
        print_counts(rows)


@answers.command(
    "listeners",
    cls=AppCommand,
    epilog=examples("hipq answers listeners shop:app", "hipq answers listeners --db sqlite:///shop.db --json"),
)
@app_argument
@db_option
@json_option
def listeners(app: str, db: str | None, as_json: bool) -> None:
    """The streams that answers come on: how many listen now, how many messages are behind, what became of those that
    came since the first was listened to."""
    rows = [row for one in instances(app, db) for row in as_rows(streams(one.store, one.name), list(Answered))]
    if as_json:
        print_json(rows)
    else:
        print_listeners(rows)


# -- changing --------------------------------------------------------------------------------------------------------
@answers.command(
    "replay",
    cls=AppCommand,
    epilog=examples(
        "hipq answers replay shop:app 12",
        "hipq answers replay shop:app --state late --type charge",
    ),
)
@app_argument
@_numbers_argument
@which_answers
@yes_option
@db_option
@json_option
def replay(app: str, numbers: tuple[int, ...], wanted: Wanted, yes: bool, db: str | None, as_json: bool) -> int:
    """Let unused answers come again: those with these NUMBERs, or all that the options name. Each is for the job that
    has its key now, and gets another number."""
    chosen = _chosen(instances(app, db), numbers, wanted)
    if not numbers and chosen:
        confirm(f"Let {some(len(chosen), 'answer')} come again?", yes)
    done, refused = [], []
    with progress("replaying", len(chosen), quiet=as_json or len(chosen) == 1) as bar:
        for target, row in chosen:
            try:
                outcome = target.answers.replay(number_of(row))
                done.append((outcome, replayed(outcome, row["queue"], row["type"], row["key"])))
            except (Conflict, NotFound) as error:
                refused.append(str(error))
            bar.advance()
    if as_json:
        rows = [row for _, row in done]
        print_json(rows[0] if len(numbers) == 1 and rows else rows)
    elif numbers:
        for outcome, _ in done:
            print_replayed(outcome)
    else:
        counted = Counter(str(outcome.outcome) for outcome, _ in done)
        click.echo(f"replayed {some(len(done), 'answer')}{_listed(counted)}")
    return _refused(refused, numbers)


@answers.command(
    "rekey",
    cls=AppCommand,
    epilog=examples("hipq answers rekey shop:app 12 order-17", "hipq answers rekey shop:app 12 order-17 --type charge"),
)
@app_argument
@_number_argument
@click.argument("key")
@click.option("--type", "job_type", help="The job type it is an answer to, if that was wrong too.")
@db_option
@json_option
def rekey(app: str, number: int, key: str, job_type: str | None, db: str | None, as_json: bool) -> None:
    """Let an unused answer come again, with another key. For one that named the wrong job."""
    names.key(key)
    target, queue, found = find_answer(instances(app, db), number)
    done = target.answers.rekey(number, key, type=job_type)
    if as_json:
        print_json(replayed(done, queue, job_type or found.type, key))
    else:
        print_replayed(done)


@answers.command(
    "drop",
    cls=AppCommand,
    epilog=examples(
        "hipq answers drop shop:app 12",
        "hipq answers drop shop:app --state buffered --older-than 30d --yes",
    ),
)
@app_argument
@_numbers_argument
@which_answers
@yes_option
@db_option
@json_option
def drop(app: str, numbers: tuple[int, ...], wanted: Wanted, yes: bool, db: str | None, as_json: bool) -> int:
    """Delete answers: those with these NUMBERs, or all that the options name. One that a job has, and has not looked at
    yet, stays. `answers list` with the same options shows them first."""
    chosen = _chosen(instances(app, db), numbers, wanted)
    if chosen:
        which = f"answer {numbers[0]}" if len(numbers) == 1 else some(len(chosen), "answer")
        confirm(f"Delete {which}?", yes)
    dropped, refused = [], []
    with progress("deleting", len(chosen), quiet=as_json or len(chosen) == 1) as bar:
        for target, row in chosen:
            try:
                target.answers.drop(number_of(row))
                dropped.append(number_of(row))
            except (Conflict, NotFound) as error:
                refused.append(str(error))
            bar.advance()
    if as_json:
        print_json({"dropped": dropped})
    elif dropped or not numbers:
        click.echo(f"dropped answer {dropped[0]}" if len(numbers) == 1 else f"dropped {some(len(dropped), 'answer')}")
    return _refused(refused, numbers)


def _chosen(apps: list[Hipq], numbers: tuple[int, ...], wanted: Wanted) -> list[tuple[Hipq, dict[str, Any]]]:
    """All that are meant, read before the first is changed: one that is replayed comes back with a higher number."""
    if bool(numbers) == wanted.is_anything:
        raise click.UsageError("say which answers: by their numbers, or by options like --state and --older-than")
    if not numbers:
        return list(every(apps, wanted))
    found = []
    for number in dict.fromkeys(numbers):
        target, queue, answer = find_answer(apps, number)
        found += [(target, row) for row in described(target, queue, [answer])]
    return found


def _refused(refused: list[str], numbers: tuple[int, ...]) -> int:
    """What could not be done. It is a failure if it was asked for by number."""
    if refused and numbers:
        return complain(f"{refused[0]}{f' (and {len(refused) - 1} more like it)' if refused[1:] else ''}", 1)
    if refused:
        note(f"left alone: {some(len(refused), 'answer')}; the first: {refused[0]}")
    return 0


def _listed(counted: Counter[str]) -> str:
    return f": {', '.join(f'{count} {outcome}' for outcome, count in sorted(counted.items()))}" if counted else ""
