"""`hipq answer`: bring the answer of a job. `hipq answers`: look at those that came, give them another chance, throw
them away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import IO, Any, TypeVar

import click

from hipq import Hipq
from hipq.answers.inbox import Count
from hipq.answers.reports import as_rows, streams
from hipq.cli.audited import audited
from hipq.cli.commands import asked, command, group, yes_option
from hipq.cli.complain import complain, note
from hipq.cli.inputs import Whole, data_argument, given_data, number_option
from hipq.cli.progress import confirm, progress
from hipq.cli.show import next_page, print_json, say, say_table, some
from hipq.cli.show_answers import described, print_answer, print_answers, replayed, replayed_text
from hipq.cli.target import AppCommand, Target
from hipq.cli.which_answers import Chosen, Filters, answer_filters, every, find_answer, number_of, page
from hipq.errors import Conflict, NotFound
from hipq.job import names
from hipq.job.answer import STATES, Answered

T = TypeVar("T")

_NUMBER = Whole("the number of an answer", 1, (1 << 63) - 1)
_number_argument = click.argument("number", metavar="NUMBER", type=_NUMBER)
_numbers_argument = click.argument("numbers", metavar="[NUMBER]...", type=_NUMBER, nargs=-1)


@command(
    "answer",
    """hipq answer shop:app orders charge order-17 '{"status": "paid"}'""",
    "hipq answer --db sqlite:///daemon.db jobs mail order-17 --data-file answer.json --id evt-1 --tenant acme",
    """hipq answer shop:app orders charge order-17 '"no such card"' --error""",
    cls=AppCommand,
    short_help="Bring the answer that a job waits for.",
)
@click.argument("queue")
@click.argument("job_type", metavar="TYPE")
@click.argument("key")
@data_argument
@click.option("--id", "answer_id", metavar="ANSWER-ID", help="The answer's own id: the same one again is a duplicate.")
@click.option("--error", is_flag=True, help="The answer says that the work failed.")
@click.option("--attempt", type=Whole("attempt", 1, (1 << 31) - 1), help="The attempt that it answers.")
@click.option("--tenant", help="The tenant of a daemon whose job it is.")
def answer(
    target: Target, queue: str, job_type: str, key: str, data: str | None, data_file: IO[bytes] | None,
    answer_id: str | None, error: bool, attempt: int | None, tenant: str | None,
) -> None:  # fmt: skip
    """Bring an answer to the job of TYPE that has KEY, and print what became of the answer, which is always kept:

    \b
    matched    the job goes on with it, or has ended with it
    buffered   it is early: it waits for its job
    duplicate  the same answer came before
    conflict   the job has ended with another answer
    late       the job has ended, or is past that attempt

    With --db, without your code, a worker that has the code goes on with the job.
    """
    value = given_data(data, data_file)
    app, found = target.queue(queue)
    outcome = app.answer(
        found.name, job_type, key, value, answer_id=answer_id, error=error, attempt=attempt, tenant=tenant
    )
    said = {"outcome": outcome, "queue": found.name, "type": job_type, "key": key, "tenant": tenant or ""}
    say(said, str(outcome))


@group(
    "answers",
    "hipq answers list shop:app --state buffered",
    "hipq answers rekey shop:app 12 order-17",
    "hipq answers drop shop:app --state late --older-than 30d",
    of=AppCommand,
)
def answers() -> None:
    """List answers, bring them again, give them to another job, delete them."""


# -- looking ---------------------------------------------------------------------------------------------------------
@answers.command(
    "list",
    "hipq answers list shop:app --state buffered",
    "hipq answers list shop:app --key order-17 --json",
    "hipq answers list --db sqlite:///shop.db --older-than 7d --limit 20",
)
@answer_filters
@click.option("--after", type=Whole("after", 0, (1 << 63) - 1), default=0, help="The next page: numbers above it.")
@number_option("--limit", 1, 10_000, 100, "List at most this number.")
def list_answers(target: Target, queue: str | None, wanted: Filters, after: int, limit: int) -> None:
    """List answers, in the order in which they came."""
    found = [row for _, row in page(target, queue, wanted, after, limit)]
    say(found, lambda: print_answers(found))
    if len(found) == limit and page(target, queue, wanted, number_of(found[-1]), 1):
        next_page(number_of(found[-1]))


@answers.command("show", "hipq answers show shop:app 12")
@_number_argument
def show(target: Target, number: int) -> None:
    """An answer, what it says, and what its state means."""
    app, queue, found = find_answer(target.apps, number)
    (row,) = described(app, queue, [found])
    row["meaning"] = STATES[row["state"]]
    say(row, lambda: print_answer(row))


@answers.command("count", "hipq answers count shop:app", "hipq answers count shop:app -q orders --json")
@click.option("-q", "--queue", help="Only to jobs of this queue.")
@click.option("--tenant", help="Only to jobs of this tenant of a daemon.")
def count(target: Target, queue: str | None, tenant: str | None) -> None:
    """How many answers there are in each state, and how often they came. One that was kept for a job which ended
    without it may still count as buffered."""
    whose = "" if tenant is None else names.tenant(tenant)
    total = dict.fromkeys(STATES, Count(0, 0))
    for app, each in target.queues(queue):
        for state, more in app.answers.counts(each.name, tenant=whose).items():
            before = total[state]
            total[state] = Count(before.answers + more.answers, before.copies + more.copies)
    rows = [{"state": state, **total[state]._asdict(), "meaning": STATES[state]} for state in STATES]
    say_table(rows, "state", "answers", "copies", "meaning")


@answers.command("listeners", "hipq answers listeners shop:app", "hipq answers listeners --db sqlite:///shop.db --json")
def listeners(target: Target) -> None:
    """The streams that answers come on: how many listen now, how many messages are behind, what became of those that
    came since the first was listened to."""
    rows = [row for app in target.apps for row in as_rows(streams(app.store, app.name), list(Answered))]
    failed = ["error"] if any(row["error"] for row in rows) else []
    say_table(rows, "listener", "url", "listening", "lag", *Answered, *failed, none="listeners")


# -- changing --------------------------------------------------------------------------------------------------------
@answers.command("replay", "hipq answers replay shop:app 12", "hipq answers replay shop:app --state late --type charge")
@_numbers_argument
@answer_filters
@yes_option
@audited
def replay(target: Target, numbers: tuple[int, ...], queue: str | None, wanted: Filters) -> int:
    """Bring unused answers again: those with these NUMBERs, or all that the filters find. Each goes to the job that has
    its key now, and gets a new number."""
    chosen = _chosen(target, numbers, queue, wanted)
    if not numbers and chosen:
        confirm(f"Let {some(len(chosen), 'answer')} come again?")
    done, refused = _done_to(chosen, "replaying", lambda app, row: (app.answers.replay(number_of(row)), row))
    rows = [replayed(outcome, row["queue"], row["type"], row["key"]) for outcome, row in done]
    if asked("json"):
        print_json(rows[0] if len(numbers) == 1 and rows else rows)
    elif numbers:
        for outcome, _ in done:
            click.echo(replayed_text(outcome))
    else:
        counted = sorted(Counter(str(outcome.outcome) for outcome, _ in done).items())
        listed = f": {', '.join(f'{count} {outcome}' for outcome, count in counted)}" if counted else ""
        click.echo(f"replayed {some(len(done), 'answer')}{listed}")
    return _refused(refused, numbers)


@answers.command(
    "rekey", "hipq answers rekey shop:app 12 order-17", "hipq answers rekey shop:app 12 order-17 --type charge"
)
@_number_argument
@click.argument("key")
@click.option("--type", "job_type", help="The job type it is an answer to, if that was wrong too.")
@audited
def rekey(target: Target, number: int, key: str, job_type: str | None) -> None:
    """Bring an unused answer again under another key, if it named the wrong job."""
    names.key(key)
    app, queue, found = find_answer(target.apps, number)
    done = app.answers.rekey(number, key, type=job_type)
    say(replayed(done, queue, job_type or found.type, key), replayed_text(done))


@answers.command(
    "drop", "hipq answers drop shop:app 12", "hipq answers drop shop:app --state buffered --older-than 30d --yes"
)
@_numbers_argument
@answer_filters
@yes_option
@audited
def drop(target: Target, numbers: tuple[int, ...], queue: str | None, wanted: Filters) -> int:
    """Delete answers: those with these NUMBERs, or all that the options name. One that a job has, and has not looked at
    yet, stays. `answers list` with the same options shows them first."""

    def drop_one(app: Hipq, row: dict[str, Any]) -> int:
        app.answers.drop(number_of(row))
        return number_of(row)

    chosen = _chosen(target, numbers, queue, wanted)
    if chosen:
        confirm(f"Delete {f'answer {numbers[0]}' if len(numbers) == 1 else some(len(chosen), 'answer')}?")
    dropped, refused = _done_to(chosen, "deleting", drop_one)
    if asked("json"):
        print_json({"dropped": dropped})
    elif dropped or not numbers:
        click.echo(f"dropped answer {dropped[0]}" if len(numbers) == 1 else f"dropped {some(len(dropped), 'answer')}")
    return _refused(refused, numbers)


def _chosen(target: Target, numbers: tuple[int, ...], queue: str | None, wanted: Filters) -> Chosen:
    """All that are meant, read before the first is changed: one that is replayed comes back with a higher number."""
    if bool(numbers) == (queue is not None or bool(wanted)):
        raise click.UsageError("say which answers: by their numbers, or by options like --state and --older-than")
    if not numbers:
        return list(every(target, queue, wanted))
    found = [find_answer(target.apps, number) for number in dict.fromkeys(numbers)]
    return [(app, row) for app, name, answer in found for row in described(app, name, [answer])]


def _done_to(chosen: Chosen, what: str, act: Callable[[Hipq, dict[str, Any]], T]) -> tuple[list[T], list[str]]:
    """What came of each, and why it could not be done to the others."""
    done, refused = [], []
    with progress(what, len(chosen), quiet=len(chosen) == 1) as bar:
        for app, row in chosen:
            try:
                done.append(act(app, row))
            except (Conflict, NotFound) as error:
                refused.append(str(error))
            bar.advance()
    return done, refused


def _refused(refused: list[str], numbers: tuple[int, ...]) -> int:
    """What could not be done. It is a failure if it was asked for by number."""
    if refused and numbers:
        return complain(f"{refused[0]}{f' (and {len(refused) - 1} more like it)' if refused[1:] else ''}", 1)
    if refused:
        note(f"left alone: {some(len(refused), 'answer')}; the first: {refused[0]}")
    return 0
