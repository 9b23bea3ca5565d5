"""`hipq cron`: list cron schedules, add some, change them and those in code, pause them, add a job of one now."""

from __future__ import annotations

from datetime import datetime
from typing import IO, Any
from zoneinfo import ZoneInfo

import click

from hipq import Hipq
from hipq.cli.audited import audited
from hipq.cli.commands import group, together
from hipq.cli.inputs import data_argument, given_data, given_options, job_options
from hipq.cli.show import print_lines, print_table, say
from hipq.cli.table import text_of
from hipq.cli.target import AppCommand, Target
from hipq.cron import CronSchedule
from hipq.job.schedule import MISSED

_queue_argument = click.argument("queue", metavar="QUEUE")
_name_argument = click.argument("schedule", metavar="NAME")
_tick_options = together(
    click.option("--tz", help="The time zone of the expression, like Europe/Rome; UTC without it."),
    click.option("--missed", type=click.Choice(MISSED),
                 help="For ticks while no engine ran: one job for all of them, a job for each, or none."),
    click.option("--overlap/--no-overlap", default=None,
                 help="Whether a tick adds a job while that of the tick before is not final."),
    job_options,
)  # fmt: skip


@group(
    "cron",
    "hipq cron list shop:app",
    """hipq cron add shop:app orders report "0 6 * * *" '{"region": "east"}' --tz Europe/Rome""",
    'hipq cron change shop:app orders report "30 6 * * *"',
    of=AppCommand,
)
def cron() -> None:
    """List and change cron schedules, whether code or an operator made them."""


@cron.command("list", "hipq cron list shop:app", "hipq cron list --db sqlite:///shop.db --queue orders --json")
@click.option("-q", "--queue", help="Only this queue.")
def list_schedules(target: Target, queue: str | None) -> None:
    """List cron schedules with their last and next ticks. Those in code are there once an engine has started.

    The state is ticking; paused; code gone, if engines run that have the code of the job type, and none has the
    schedule in its code; or no engine, if none runs that has the code of the job type."""
    if queue is None:
        rows = [_row(app, one) for app in target.apps for one in app.cron.list()]
    else:
        app, found = target.queue(queue)
        rows = [_row(app, one) for one in app.cron.list(found.name)]
    say(rows, lambda: _print_rows(rows))


@cron.command(
    "add",
    """hipq cron add shop:app orders report "0 6 * * *" '{"region": "east"}' --tz Europe/Rome --name report-east""",
    'hipq cron add --db sqlite:///shop.db orders tidy "*/5 * * * *" --missed skip --lane chores',
)
@_queue_argument
@click.argument("job_type", metavar="TYPE")
@click.argument("expression", metavar="EXPRESSION")
@data_argument
@click.option("--name", help="The schedule's name, unique in the queue; by default the job type.")
@_tick_options
@audited
def add(
    target: Target, queue: str, job_type: str, expression: str, data: str | None, data_file: IO[bytes] | None,
    **options: Any,
) -> None:  # fmt: skip
    """Add a cron schedule to QUEUE: at each tick of EXPRESSION a job of this TYPE, once for all engines."""
    value = given_data(data, data_file)
    app, found = target.queue(queue)
    _say(app, app.cron.add(found.name, job_type, expression, value, **given_options(options)))


@cron.command(
    "change",
    'hipq cron change shop:app orders report "30 6 * * *" --tz Europe/Rome',
    """hipq cron change shop:app orders report --data '{"region": "west"}'""",
    "hipq cron change shop:app orders report --default",
)
@_queue_argument
@_name_argument
@click.argument("expression", metavar="[EXPRESSION]", required=False)
@click.option("--data", help="The data of its jobs, as JSON.")
@click.option("--data-file", type=click.File("rb"), help="Read the JSON from a file; - is standard input.")
@_tick_options
@click.option("--default", is_flag=True, help="Back to what the code says.")
@audited
def change(
    target: Target, queue: str, schedule: str, expression: str | None, data: str | None,
    data_file: IO[bytes] | None, default: bool, **options: Any,
) -> None:  # fmt: skip
    """Change a cron schedule of QUEUE: what you give, and nothing else. The change wins over the code, until --default.
    A new EXPRESSION or time zone counts from now."""
    changes = given_options(options) | ({} if expression is None else {"expression": expression})
    if data is not None or data_file is not None:
        changes["data"] = given_data(data, data_file)
    app, found = target.queue(queue)  # which may be what was forgotten
    if bool(changes) == default:
        raise click.UsageError("say what is to change, or --default to go back to what the code says")
    _say(app, app.cron.reset(found.name, schedule) if default else app.cron.change(found.name, schedule, **changes))


@cron.command("pause", "hipq cron pause shop:app orders report")
@_queue_argument
@_name_argument
@audited
def pause(target: Target, queue: str, schedule: str) -> None:
    """Let a cron schedule add nothing until it is resumed. Jobs it has added run."""
    app, found = target.queue(queue)
    _say(app, app.cron.pause(found.name, schedule))


@cron.command("resume", "hipq cron resume shop:app orders report")
@_queue_argument
@_name_argument
@audited
def resume(target: Target, queue: str, schedule: str) -> None:
    """Go on with the next tick: those that came while the schedule was paused add nothing."""
    app, found = target.queue(queue)
    _say(app, app.cron.resume(found.name, schedule))


@cron.command("remove", "hipq cron remove shop:app orders report-east")
@_queue_argument
@_name_argument
@audited
def remove(target: Target, queue: str, schedule: str) -> None:
    """Delete a cron schedule that an operator added, or that no code has any more. One in code can be paused."""
    app, found = target.queue(queue)
    app.cron.remove(found.name, schedule)
    say({"app": app.name, "queue": found.name, "removed": schedule}, f"removed {schedule} from {found.name}")


@cron.command("run-now", "hipq cron run-now shop:app orders report")
@_queue_argument
@_name_argument
@audited
def run_now(target: Target, queue: str, schedule: str) -> None:
    """Add one job of a cron schedule now, and print its id. The next tick stays where it is."""
    app, found = target.queue(queue)
    job_id = app.cron.run_now(found.name, schedule)
    say({"id": job_id, "queue": found.name, "schedule": schedule}, str(job_id))


# -- printing --------------------------------------------------------------------------------------------------------
def _row(app: Hipq, one: CronSchedule) -> dict[str, Any]:
    return {
        "app": app.name, "queue": one.queue, "name": one.name, "type": one.type, "expression": one.expression,
        "tz": one.tz, "data": one.data, "missed": one.missed, "overlap": one.overlap, "options": one.options,
        "origin": one.origin, "changed": list(one.changed), "state": one.state, "last": one.last, "next": one.next,
        "last_local": _local(one.last, one.tz), "next_local": _local(one.next, one.tz),
    }  # fmt: skip


def _local(tick: datetime | None, tz: str) -> datetime | None:
    """The same moment as the clocks of the schedule's zone show it."""
    try:
        return tick and tick.astimezone(ZoneInfo(tz))
    except (LookupError, ValueError, OSError):  # this machine does not know the zone, or has no files of zones
        return tick


def _print_rows(rows: list[dict[str, Any]]) -> None:
    shown = [row | {"next_local": _clock(row["next_local"]), "changed": ", ".join(row["changed"])} for row in rows]
    columns = ("queue", "name", "type", "expression", "tz", "origin", "changed", "state", "last", "next", "next_local")
    print_table(columns, shown, none="schedules", spare=("last", "type", "next", "changed"))


def _clock(tick: datetime | None) -> str:
    return f"{tick:%Y-%m-%d %H:%M %Z}" if tick else ""


def _say(app: Hipq, one: CronSchedule) -> None:
    row = _row(app, one)
    say(row, lambda: _print_row(row))


def _print_row(row: dict[str, Any]) -> None:
    made_by = "code" if row["origin"] == "code" else "an operator"
    changed = f", changed by an operator: {', '.join(row['changed'])}" if row["changed"] else ""
    print_lines({
        "queue": row["queue"], "schedule": row["name"], "type": row["type"],
        "expression": f"{row['expression']} {row['tz']}", "made by": made_by + changed, "state": row["state"],
        "last tick": text_of(row["last"]) or "none",
        "next tick": f"{text_of(row['next'])}, {_clock(row['next_local'])}" if row["next"] else "none",
    })  # fmt: skip
