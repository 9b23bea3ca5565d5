"""`hipq queue`: list the queues of an application or of a database, pause them, change their limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from hipq import Hipq, Queue, limit
from hipq.cli.audited import audited, did
from hipq.cli.commands import group, together
from hipq.cli.complain import note
from hipq.cli.inputs import Units, Whole, number_option
from hipq.cli.show import next_page, print_lines, print_table, say, with_filled
from hipq.cli.target import AppCommand, Target
from hipq.job import names
from hipq.job.units import number
from hipq.job.when import SECOND
from hipq.limits.base import LEAST, MOST
from hipq.limits.rules import AnyLimit, Rules
from hipq.limits.tenants import BETWEEN
from hipq.limits.written import percentages, written
from hipq.looking.counts import COUNTED, COUNTED_TO, named, up_to
from hipq.looking.lanes import lanes_of

_queue_argument = click.argument("name", metavar="QUEUE")


@group(
    "queue",
    "hipq queue list shop:app",
    "hipq queue pause shop:app orders",
    "hipq queue limit shop:app orders 5",
    of=AppCommand,
)
def queue() -> None:
    """List queues, set their limits, pause and resume them."""


# -- list ------------------------------------------------------------------------------------------------------------
@queue.command("list", "hipq queue list shop:app", "hipq queue list --db sqlite:///shop.db --json")
@click.option("--after", type=Whole("after", 0, 65_535), default=0, help="The next page: queues with higher numbers.")
@number_option("--limit most", 1, 10_000, 100, "List at most this number of queues.")
def list_queues(target: Target, after: int, most: int) -> None:
    """List queues, with their job types, limits, pauses and numbers of jobs.

    Each number is counted up to 10,000. Running jobs include those whose answer or error is being decided on; retrying
    jobs are ready or scheduled, too; failed are the jobs that ended without success in the last hour, without the
    cancelled ones. Job types are those that this program has code for.
    """
    found = sorted(each.number for _, each in target.queues(None) if each.number > after)
    numbers = found[:most]
    pages = [(app, [each for each in app.queues if each.number in numbers]) for app in target.apps]
    rows = sorted((row for app, page in pages if page for row in _rows(app, page)), key=lambda row: int(row["number"]))
    say(rows, lambda: _print_queues(rows))
    if len(found) > most:
        next_page(numbers[-1])


def _print_queues(rows: list[dict[str, Any]]) -> None:
    shown = [
        row | {"types": ", ".join(row["types"]), "limits": _text(row["limits"]), "paused": ", ".join(_pauses(row))}
        for row in rows
    ]
    shown = [row | {name: up_to(row[name]) for name in COUNTED} for row in shown]
    columns = ("app", "queue", "types", "limits", "paused", *COUNTED, "next_start", "next_timeout")
    spare = ("app", "next_timeout", "next_start", "types", "limits")
    print_table(with_filled(columns, shown, ("paused", "parked")), shown, none="queues", spare=spare)


def _rows(app: Hipq, queues: list[Queue]) -> list[dict[str, Any]]:
    served = {one.number: tuple(each.name for each in one.job_types if each.spec.fn) for one in queues}
    tables = {known.number: known.table for known in app.store.queues(app.name)}
    hour_ago = app.store.now() - 3600 * SECOND
    return [
        {
            "app": app.name,
            "queue": one.name,
            "number": one.number,
            "table": tables[one.number],
            "types": list(served[one.number]),
            "limits": list(rules.in_force),
            "limits_changed": rules.changed is not None,
            **_paused(rules),
            **named(app.store.counts(one.number, COUNTED_TO, hour_ago, hour_ago)),
        }
        for one in queues
        for rules in [app.store.rules(one.number)]
    ]


# -- pause, resume ---------------------------------------------------------------------------------------------------
_part_options = together(
    click.option("--lane", help="Only this lane of the queue."),
    click.option("--type", "job_type", help="Only this job type of the queue."),
    click.option("--tenant", help="With --type: only this tenant of a daemon, whose lane is TENANT/TYPE."),
)


@queue.command(
    "pause",
    "hipq queue pause shop:app orders",
    "hipq queue pause shop:app orders --type charge",
    "hipq queue pause --db sqlite:///daemon.db jobs --tenant acme --type mail",
)
@_queue_argument
@_part_options
@audited
def pause(target: Target, name: str, lane: str | None, job_type: str | None, tenant: str | None) -> None:
    """Start nothing more of QUEUE, of one of its lanes, of one job type, or of one job type of a daemon's tenant. What
    runs goes on."""
    lane, job_type = _paused_part(lane, job_type, tenant)
    app, found = target.queue(name)
    app.pause(found.name, lane=lane, type=job_type)
    _note_unmatched(app, found, [lane or ""])
    _print_pauses(app, found)


@queue.command("resume", "hipq queue resume shop:app orders", "hipq queue resume shop:app orders --type charge")
@_queue_argument
@_part_options
@audited
def resume(target: Target, name: str, lane: str | None, job_type: str | None, tenant: str | None) -> None:
    """Take back a pause that was given with the same options."""
    lane, job_type = _paused_part(lane, job_type, tenant)
    app, found = target.queue(name)
    before = _paused(app.store.limits(found.number).rules)
    app.resume(found.name, lane=lane, type=job_type)
    if before == _paused(app.store.limits(found.number).rules):
        note("there was no such pause: nothing was changed")
    _print_pauses(app, found)


def _paused_part(lane: str | None, job_type: str | None, tenant: str | None) -> tuple[str | None, str | None]:
    """The lane or the type that is meant."""
    if tenant is None:
        return lane, job_type
    if lane is not None or job_type is None:
        raise click.UsageError("--tenant goes with --type, and not with --lane: a tenant's lane is TENANT/TYPE")
    return f"{names.tenant(tenant)}{BETWEEN}{names.job_type(job_type)}", None


def _note_unmatched(app: Hipq, found: Queue, lanes: Iterable[str]) -> None:
    """A misspelt lane is a rule that nothing comes under: say so."""
    for lane in filter(None, lanes):
        if not app.jobs.count(found.name, most=1, live=True, lane=lane):
            note(f"no job in {found.name} has the lane {lane} now; the rule is kept for jobs to come")


def _print_pauses(app: Hipq, found: Queue) -> None:
    state = {"app": app.name, "queue": found.name, **_paused(app.store.limits(found.number).rules)}
    say(state, f"paused in {found.name}: {', '.join(_pauses(state)) or 'nothing'}")


def _paused(rules: Rules) -> dict[str, Any]:
    lanes, types = list(rules.paused_lanes), list(rules.paused_types)
    return {"paused": rules.paused, "paused_lanes": lanes, "paused_types": types}


def _pauses(state: dict[str, Any]) -> list[str]:
    everything = ["everything"] if state["paused"] else []
    lanes = [f"lane {lane or '(none)'}" for lane in state["paused_lanes"]]
    return everything + lanes + [f"type {job_type}" for job_type in state["paused_types"]]


# -- limit -----------------------------------------------------------------------------------------------------------
@queue.command(
    "limit",
    "hipq queue limit shop:app orders",
    "hipq queue limit shop:app orders 100 --share east=40,west=60 --rate 50/1",
    "hipq queue limit shop:app orders --default",
)
@_queue_argument
@click.argument("n", metavar="[N]", required=False, type=Units("the limit", 0, MOST))
@click.option("--per-lane", type=Units("per-lane", LEAST, MOST), help="At most this number of units of each lane.")
@click.option("--share", "shares", metavar="L=P,L=P", help="Parts of the limit, in percent: east=40,west=60.")
@click.option("--other", type=Units("other", LEAST, 100), help="The part of all lanes that --share does not name.")
@click.option("--rate", "rates", metavar="N/S", multiple=True, help="N units start in any S seconds: 50/1, or 1000/1h.")
@click.option("--none", "unlimited", is_flag=True, help="No limit of the whole queue; its other limits stay.")
@click.option("--only", is_flag=True, help="All other limits are removed.")
@click.option("--default", is_flag=True, help="Back to what the code says.")
def set_limit(
    target: Target, name: str, n: float | None, per_lane: float | None, shares: str | None, other: float | None,
    rates: tuple[str, ...], unlimited: bool, only: bool, default: bool,
) -> None:  # fmt: skip
    """Show the limits of QUEUE, or change them while it runs. Each replaces the limits of its kind: N that of the whole
    queue, --rate all rates. The others stay, but with --only."""
    given = written(n, per_lane, shares, other, rates)
    _check_one_way(n, bool(given), unlimited, only, default)
    app, found = target.queue(name)
    if default or unlimited:
        app.rules.set_limit(found.name, "none" if unlimited else None)
    elif given:
        app.rules.set_limit(found.name, given, only=only)
        _note_unmatched(app, found, percentages(shares) if shares is not None else ())
    elif n is not None:
        app.rules.set_limit(found.name, [limit(n)] if only else n)
    if default or unlimited or given or n is not None:
        did(app.store)
    _print_limits(app, found)


def _check_one_way(n: float | None, is_given: bool, unlimited: bool, only: bool, default: bool) -> None:
    """Refuse a command line that says several things at once, or nothing of what it is about."""
    if n is not None and n <= 0:
        raise click.UsageError(
            "a limit of 0 lets nothing run: say --none to remove the limit, or use `hipq queue pause`"
        )
    has_limits = is_given or n is not None
    if sum((has_limits or only, unlimited, default)) > 1:
        raise click.UsageError("give limits, --none to remove one, or --default to go back to the code's: one of these")
    if only and not has_limits:
        raise click.UsageError("--only goes with the limits that are to be there")


def _print_limits(app: Hipq, found: Queue) -> None:
    limits = app.store.limits(found.number)
    rules = limits.rules
    code = found.declared.limits or rules.limits  # this program may be newer than the last engine that started
    state = {
        "app": app.name, "queue": found.name, "limits": list(rules.in_force), "changed": rules.changed is not None,
        "code": list(code), "code_is_newer": code != rules.limits, "used": number(sum(limits.held.values())),
        "lanes": lanes_of(limits), "throttled": rules.throttled,
        "throttler_error": limits.note if rules.throttled else "",
    }  # fmt: skip
    say(state, lambda: _print_state(state))


def _print_state(state: dict[str, Any]) -> None:
    newer = " (once an engine has started with it)" if state["code_is_newer"] else ""
    print_lines({
        "queue": state["queue"],
        "limits in force": _text(state["limits"]),
        "the code says": _text(state["code"]) + newer if state["changed"] or newer else None,
        "throttler": state["throttler_error"] or "decides too" if state["throttled"] else None,
        "units used": state["used"],
    })  # fmt: skip
    if any(one["lane"] or one["most"] is not None for one in state["lanes"]):
        print_table(("lane", "used", "most"), [one | {"lane": one["lane"] or "(none)"} for one in state["lanes"]])


def _text(limits: Sequence[AnyLimit]) -> str:
    return ", ".join(map(str, limits)) or "none"
