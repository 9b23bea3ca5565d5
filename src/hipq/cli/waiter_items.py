"""`hipq waiter list`, `cancel`, `reschedule`, `send`: messages that wait in the tables, and new ones."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from hipq.cli.commands import examples
from hipq.cli.complain import note
from hipq.cli.inputs import Duration, Moment, Whole
from hipq.cli.progress import confirm, yes_option
from hipq.cli.show import next_page, print_json, print_table
from hipq.cli.table import moment
from hipq.cli.target import json_option
from hipq.cli.waiter_target import WaiterCommand, found, queue_argument, which
from hipq.errors import Invalid

if TYPE_CHECKING:
    from hipq.waiter import Scheduled

LARGEST: Final = 1 << 20
"""Bytes that SQS takes at most."""

_id_argument = click.argument("item_id", metavar="ID")
_at_option = click.option("--at", type=Moment(), help="A moment with its time zone: 2027-01-15T08:00:00+01:00.")
_ATTRIBUTE: Final = re.compile(r"(?P<name>[^:=]+)(:(?P<type>[^=]+))?=(?P<value>.*)", re.DOTALL)


# -- looking ---------------------------------------------------------------------------------------------------------
@click.command(
    "list",
    cls=WaiterCommand,
    epilog=examples(
        "hipq waiter list mailers",
        "hipq waiter list shop:waiter mailers --limit 20",
        "hipq waiter list mailers --table scheduled --json",
    ),
)
@which
@queue_argument
@click.option("--limit", "most", type=Whole("limit", 1, 10_000), default=100, show_default=True,
              help="At most so many.")  # fmt: skip
@click.option("--after", metavar="CURSOR", help="The next page: those after the last one of this.")
@json_option
def list_items(app: str, queue: str, most: int, after: str | None, as_json: bool, **where: Any) -> None:
    """Messages for QUEUE that wait in its table, the next one first. Those within 15 minutes may be in SQS already."""
    there = found(app, (queue,), **where).list(queue, limit=most + 1, after=after)
    rows = [described(one) for one in there[:most]]
    if as_json:
        print_json(rows)
    else:
        columns = ("id", "at", "body", "group", "error")
        print_table(columns, rows, none="messages", spare=("group",))
    if len(there) > most:
        next_page(there[most - 1].cursor)


def described(one: Scheduled) -> dict[str, Any]:
    """A message as JSON can have it, whole."""
    return {
        "id": one.job_id,
        "queue": one.queue,
        "at": one.at,
        "body": one.body,
        "attributes": {name: _plain(value) for name, value in one.attributes.items()},
        "group": one.group,
        "dedup": one.dedup,
        "claimed_by": one.claimed_by,
        "failures": one.failures,
        "error": one.error,
        "cursor": one.cursor,
    }


def _plain(attribute: Any) -> dict[str, str]:
    """Bytes as base64, as SQS itself writes them in JSON."""
    return {
        name: base64.b64encode(bytes(value)).decode() if name == "BinaryValue" else value
        for name, value in attribute.items()
    }


# -- changing --------------------------------------------------------------------------------------------------------
@click.command(
    "cancel",
    cls=WaiterCommand,
    epilog=examples(
        "hipq waiter cancel mailers 5f3a9c01", "hipq waiter cancel shop:waiter mailers 5f3a9c01 --yes --json"
    ),
)
@which
@queue_argument
@_id_argument
@yes_option
@json_option
def cancel(app: str, queue: str, item_id: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Delete a message that waits in the table of QUEUE. One that SQS has already cannot be called off."""
    target = found(app, (queue,), **where)
    confirm(f"Delete the message {item_id} for {queue}?", yes)
    gone = target.cancel(queue, item_id)
    if gone.maybe_sent:
        note("a poller died while it sent this message: it may arrive all the same")
    if as_json:
        print_json(described(gone) | {"maybe_sent": gone.maybe_sent})
    else:
        click.echo(f"cancelled {gone.job_id}, which was for {moment(gone.at)}")


@click.command(
    "reschedule",
    cls=WaiterCommand,
    epilog=examples(
        "hipq waiter reschedule mailers 5f3a9c01 --at 2027-01-15T08:00:00+01:00",
        "hipq waiter reschedule shop:waiter mailers 5f3a9c01 --delay 12h",
    ),
)
@which
@queue_argument
@_id_argument
@_at_option
@click.option("--delay", type=Duration("delay"), help="Or so long from now: 90s, 5m, 12h or 30d.")
@json_option
def reschedule(
    app: str, queue: str, item_id: str, at: datetime | None, delay: float | None, as_json: bool, **where: Any
) -> None:
    """Give a message that waits in the table of QUEUE another time."""
    if (at is None) == (delay is None):
        raise click.UsageError("say when: --at or --delay")
    changed = found(app, (queue,), **where).reschedule(queue, item_id, at=at, delay=delay)
    if as_json:
        print_json(described(changed))
    else:
        click.echo(f"{changed.job_id} is for {moment(changed.at)} now")


# -- sending ---------------------------------------------------------------------------------------------------------
@click.command(
    "send",
    cls=WaiterCommand,
    epilog=examples(
        'hipq waiter send mailers \'{"to": "ann@example.com"}\' --delay 30d',
        "hipq waiter send reports.fifo monthly --at 2027-01-01T06:00:00+01:00 --group reports",
        "hipq waiter send shop:waiter mailers hello --attribute source=console --attribute tries:Number=3",
    ),
)
@which
@queue_argument
@click.argument("body", required=False)
@click.option("--body-file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@_at_option
@click.option("--delay", type=Duration("delay"), help="Or so long from now: 90s, 5m, 12h or 30d.")
@click.option("--attribute", "attributes", metavar="NAME=VALUE", multiple=True,
              help="May be given ten times; NAME:Number=5, or NAME:Binary=BASE64, for other types.")  # fmt: skip
@click.option("--group", help="The MessageGroupId: FIFO queues need one.")
@click.option("--dedup", help="The MessageDeduplicationId, for FIFO queues.")
@json_option
def send(
    app: str,
    queue: str,
    body: str | None,
    body_file: IO[bytes] | None,
    at: datetime | None,
    delay: float | None,
    attributes: tuple[str, ...],
    group: str | None,
    dedup: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Send a message to QUEUE, now or at any time ahead, and print its id. What is further out than 15 minutes, which
    SQS cannot delay, waits in the table of QUEUE."""
    if at is not None and delay is not None:
        raise click.UsageError("say --at or --delay, not both")
    text, given = _body(body, body_file), dict(map(_attribute, attributes))
    if len(given) < len(attributes):
        raise Invalid("an attribute is given twice")
    target = found(app, (queue,), **where)
    sent = target.send(queue, text, given, at=at, delay=delay, group=group, dedup=dedup)
    if as_json:
        print_json({"queue": queue, "id": sent.id, "where": sent.where})
    else:
        click.echo(sent.id)


def _body(body: str | None, file: IO[bytes] | None) -> str:
    if (body is None) == (file is None):
        raise click.UsageError("give BODY or --body-file, one of them")
    if file is None:
        return body or ""
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Invalid(f"the body has more than {LARGEST:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Invalid("the body is not text in UTF-8; send bytes as base64, or as an attribute") from None


def _attribute(text: str) -> tuple[str, dict[str, Any]]:
    match = _ATTRIBUTE.fullmatch(text)
    if not match:
        raise Invalid(f"an attribute is given as NAME=VALUE, or NAME:Number=VALUE, not {text!r:.60}")
    kind, value = match["type"] or "String", match["value"]
    if not kind.startswith("Binary"):
        return match["name"], {"DataType": kind, "StringValue": value}
    try:
        return match["name"], {"DataType": kind, "BinaryValue": base64.b64decode(value, validate=True)}
    except (binascii.Error, ValueError):
        raise Invalid(f"attribute {match['name']!r:.60} is Binary, so its value must be base64") from None
