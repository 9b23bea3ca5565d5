"""`hipq waiter list`, `cancel`, `reschedule`, `send`: messages that wait in the tables, and new ones."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from hipq.cli.commands import command, together, yes_option
from hipq.cli.complain import note
from hipq.cli.inputs import Duration, Moment, number_option
from hipq.cli.progress import confirm
from hipq.cli.show import next_page, say, say_table
from hipq.cli.table import moment
from hipq.cli.waiter_target import WaiterCommand, WaiterTarget, queue_argument
from hipq.errors import Invalid

if TYPE_CHECKING:
    from hipq.waiter import Scheduled

LARGEST: Final = 1 << 20
"""Bytes that SQS takes at most."""

_id_argument = click.argument("item_id", metavar="ID")
_when_options = together(
    click.option("--at", type=Moment(), help="A moment with its time zone: 2027-01-15T08:00:00+01:00."),
    click.option("--delay", type=Duration("delay"), help="Or so long from now: 90s, 5m, 12h or 30d."),
)
_ATTRIBUTE: Final = re.compile(r"(?P<name>[^:=]+)(:(?P<type>[^=]+))?=(?P<value>.*)", re.DOTALL)


# -- looking ---------------------------------------------------------------------------------------------------------
@command(
    "list",
    "hipq waiter list mailers",
    "hipq waiter list shop:waiter mailers --limit 20",
    "hipq waiter list mailers --table scheduled --json",
    cls=WaiterCommand,
)
@queue_argument
@number_option("--limit most", 1, 10_000, 100, "List at most this number.")
@click.option("--after", metavar="CURSOR", help="The next page: those after the last one of this.")
def list_items(target: WaiterTarget, queue: str, most: int, after: str | None) -> None:
    """Messages for QUEUE that wait in its table, the next one first. Those within 15 minutes may be in SQS already."""
    there = target.waiter((queue,)).list(queue, limit=most + 1, after=after)
    rows = [described(one) for one in there[:most]]
    say_table(rows, "id", "at", "body", "group", "error", none="messages", spare=("group",))
    if len(there) > most:
        next_page(there[most - 1].cursor)


def described(one: Scheduled) -> dict[str, Any]:
    """A message as JSON can have it, whole."""
    attributes = {name: _plain(value) for name, value in one.attributes.items()}
    more = ("group", "dedup", "claimed_by", "failures", "error", "cursor")
    found = {"id": one.job_id, "queue": one.queue, "at": one.at, "body": one.body, "attributes": attributes}
    return found | {name: getattr(one, name) for name in more}


def _plain(attribute: Any) -> dict[str, str]:
    """Bytes as base64, as SQS itself writes them in JSON."""
    return {
        name: base64.b64encode(bytes(value)).decode() if name == "BinaryValue" else value
        for name, value in attribute.items()
    }


# -- changing --------------------------------------------------------------------------------------------------------
@command(
    "cancel",
    "hipq waiter cancel mailers 5f3a9c01",
    "hipq waiter cancel shop:waiter mailers 5f3a9c01 --yes --json",
    cls=WaiterCommand,
)
@queue_argument
@_id_argument
@yes_option
def cancel(target: WaiterTarget, queue: str, item_id: str) -> None:
    """Delete a message that waits in the table of QUEUE. One that SQS has already cannot be called off."""
    waiter = target.waiter((queue,))
    confirm(f"Delete the message {item_id} for {queue}?")
    gone = waiter.cancel(queue, item_id)
    if gone.maybe_sent:
        note("a poller died while it sent this message: it may arrive all the same")
    text = f"cancelled {gone.job_id}, which was for {moment(gone.at)}"
    say(described(gone) | {"maybe_sent": gone.maybe_sent}, text)


@command(
    "reschedule",
    "hipq waiter reschedule mailers 5f3a9c01 --at 2027-01-15T08:00:00+01:00",
    "hipq waiter reschedule shop:waiter mailers 5f3a9c01 --delay 12h",
    cls=WaiterCommand,
)
@queue_argument
@_id_argument
@_when_options
def reschedule(target: WaiterTarget, queue: str, item_id: str, at: datetime | None, delay: float | None) -> None:
    """Give a message that waits in the table of QUEUE another time."""
    if (at is None) == (delay is None):
        raise click.UsageError("say when: --at or --delay")
    changed = target.waiter((queue,)).reschedule(queue, item_id, at=at, delay=delay)
    say(described(changed), f"{changed.job_id} is for {moment(changed.at)} now")


# -- sending ---------------------------------------------------------------------------------------------------------
@command(
    "send",
    'hipq waiter send mailers \'{"to": "ann@example.com"}\' --delay 30d',
    "hipq waiter send reports.fifo monthly --at 2027-01-01T06:00:00+01:00 --group reports",
    "hipq waiter send shop:waiter mailers hello --attribute source=console --attribute tries:Number=3",
    cls=WaiterCommand,
)
@queue_argument
@click.argument("body", required=False)
@click.option("--body-file", type=click.File("rb"), help="Read the body from a file; - is standard input.")
@_when_options
@click.option("--attribute", "attributes", metavar="NAME=VALUE", multiple=True,
              help="May be given ten times; NAME:Number=5, or NAME:Binary=BASE64, for other types.")  # fmt: skip
@click.option("--group", help="The MessageGroupId: FIFO queues need one.")
@click.option("--dedup", help="The MessageDeduplicationId, for FIFO queues.")
def send(
    target: WaiterTarget, queue: str, body: str | None, body_file: IO[bytes] | None, at: datetime | None,
    delay: float | None, attributes: tuple[str, ...], group: str | None, dedup: str | None,
) -> None:  # fmt: skip
    """Send a message to QUEUE, now or at any time ahead, and print its id. What is further out than 15 minutes, which
    SQS cannot delay, waits in the table of QUEUE."""
    if at is not None and delay is not None:
        raise click.UsageError("say --at or --delay, not both")
    text, given = _body(body, body_file), dict(map(_attribute, attributes))
    if len(given) < len(attributes):
        raise Invalid("an attribute is given twice")
    sent = target.waiter((queue,)).send(queue, text, given, at=at, delay=delay, group=group, dedup=dedup)
    say({"queue": queue, "id": sent.id, "where": sent.where}, sent.id)


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
