"""Messages as DynamoDB keeps them. Pure.

The keys, the index and the names of body and attributes are those of shoryuken-waiter, so hipq understands the items in
its tables. In such an item the body is a map, the job as Active Job serialised it, and names the queue.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any, Final

from hipq.errors import Invalid
from hipq.job.when import LATEST, SECOND, to_datetime
from hipq.waiter.message import Attributes

HASH: Final = "scheduler"
RANGE: Final = "job_id"
TIME: Final = "perform_at"
INDEX: Final = "scheduler-perform_at-index"

Item = dict[str, dict[str, Any]]
"""An item as DynamoDB's own client has it: name -> {type: value}."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A message that waits in a table."""

    queue: str
    job_id: str
    perform_at: str
    """Seconds since 1970, digit by digit as the table has them: a write names this text, so it misses an item that
    was rescheduled."""
    body: str
    attributes: Attributes = field(default_factory=dict)
    group: str = ""
    dedup: str = ""
    claimed_by: str = ""
    """The poller that is sending the message, or one that died while sending if `claimed_until` is over."""
    claimed_until: int = 0
    error: str = ""
    """Why the message could not be sent, or cannot be read."""
    failures: int = 0
    retry_at: int = 0
    """The message is not tried again before this time, in microseconds since 1970."""

    @property
    def due(self) -> int:
        """When the message is due, in microseconds since 1970, rounded up so that it is never early."""
        return _micros(self.perform_at)

    @property
    def at(self) -> datetime:
        return to_datetime(self.due)

    @property
    def cursor(self) -> str:
        """The item's position in a list, for `after=`."""
        return f"{self.perform_at}/{self.job_id}"

    @property
    def maybe_sent(self) -> bool:
        """Whether a poller died between claiming and deleting the item, so that the message may be in SQS already."""
        return bool(self.claimed_by)

    @property
    def fifo(self) -> bool:
        return self.queue.endswith(".fifo")


def number(micros: int) -> str:
    """Seconds since 1970, as DynamoDB keeps them."""
    whole, rest = divmod(micros, SECOND)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def key(scheduler: str, job_id: str) -> Item:
    return {HASH: {"S": scheduler}, RANGE: {"S": job_id}}


def to_item(message: Scheduled, scheduler: str, now: int) -> Item:
    item: Item = {
        **key(scheduler, message.job_id),
        TIME: {"N": message.perform_at},
        "sqs_message_body": {"S": message.body},
        "queue_name": {"S": message.queue},
        "created_at": {"N": number(now)},
    }
    if message.attributes:
        item["sqs_message_attributes"] = {"M": {name: _kept(value) for name, value in message.attributes.items()}}
    if message.group:
        item["message_group_id"] = {"S": message.group}
    if message.dedup:
        item["message_deduplication_id"] = {"S": message.dedup}
    return item


def _kept(value: Any) -> dict[str, Any]:
    content = {"string_value": {"S": value["StringValue"]}} if "StringValue" in value else {}
    if "BinaryValue" in value:
        content = {"binary_value": {"B": value["BinaryValue"]}}
    return {"M": {"data_type": {"S": value["DataType"]}, **content}}


def from_item(item: Item, table: str) -> Scheduled:
    """The message in an item, as far as it can be read; `error` says why the rest cannot. An item without a queue's
    name belongs to the queue named like the table."""
    seen: dict[str, Any] = {
        "job_id": item[RANGE]["S"],
        "perform_at": item[TIME]["N"],
        "claimed_by": item.get("claimed_by", {}).get("S", ""),
        "claimed_until": _micros(item.get("claimed_until", {}).get("N", "0")),
        "error": item.get("error", {}).get("S", ""),
        "failures": _micros(item.get("failures", {}).get("N", "0")) // SECOND,
        "retry_at": _micros(item.get("retry_at", {}).get("N", "0")),
        "group": item.get("message_group_id", {}).get("S", ""),
        "dedup": item.get("message_deduplication_id", {}).get("S", ""),
    }
    try:
        body = item.get("sqs_message_body", {})
        queue = item.get("queue_name") or body.get("M", {}).get("queue_name") or {"S": table}
        return Scheduled(queue=_string(queue, "queue_name"), body=_body(body), attributes=_attributes(item), **seen)
    except Invalid as error:
        return Scheduled(queue=item.get("queue_name", {}).get("S", table), body="", **{**seen, "error": str(error)})


def readable(message: Scheduled) -> bool:
    return bool(message.body)


def _body(value: dict[str, Any]) -> str:
    if value.get("S"):
        return str(value["S"])
    if "M" in value:
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    raise Invalid("this item has no sqs_message_body that is text or a map")


def _plain(value: dict[str, Any]) -> Any:
    """A DynamoDB value as JSON has it."""
    match value:
        case {"S": str() as found} | {"BOOL": bool() as found}:
            return found
        case {"NULL": _}:
            return None
        case {"N": str() as digits}:
            exact = Decimal(digits)
            return int(exact) if exact == exact.to_integral_value() else float(exact)
        case {"L": list() as values}:
            return [_plain(one) for one in values]
        case {"M": dict() as values}:
            return {name: _plain(one) for name, one in values.items()}
    raise Invalid(f"its sqs_message_body has a value of the type {next(iter(value), '?')}, which JSON has not")


def _attributes(item: Item) -> dict[str, dict[str, Any]]:
    found = item.get("sqs_message_attributes", {}).get("M", {})
    return {name: _attribute(name, value.get("M", {})) for name, value in found.items()}


def _attribute(name: str, value: dict[str, Any]) -> dict[str, Any]:
    kind = {"DataType": _string(value.get("data_type", {}), f"the data_type of its attribute {name}")}
    if "B" in value.get("binary_value", {}):
        return {**kind, "BinaryValue": bytes(value["binary_value"]["B"])}
    return {**kind, "StringValue": _string(value.get("string_value", {}), f"the value of its attribute {name}")}


def _string(value: dict[str, Any], what: str) -> str:
    if not isinstance(value.get("S"), str):
        raise Invalid(f"{what} is no text")
    return str(value["S"])


def _micros(digits: str) -> int:
    try:
        micros = int((Decimal(digits) * SECOND).to_integral_value(ROUND_CEILING))
    except InvalidOperation:
        return LATEST
    return min(max(micros, 0), LATEST)
