"""Sending one message: now, or kept in a table until it is due."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from hipq.errors import Conflict, HipqError, Invalid, NoTable
from hipq.job.when import LONGEST, SECOND, later, moment, seconds
from hipq.transports.base import Outgoing
from hipq.transports.recording import recorder
from hipq.waiter import limits
from hipq.waiter.claims import found
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.clock import AwsClock
from hipq.waiter.destinations import Destination, Destinations
from hipq.waiter.item import Item, Scheduled, from_item, number, to_item
from hipq.waiter.message import Attributes
from hipq.waiter.tables import MessageTable, MessageTables

Fallback = Callable[[Scheduled], Any] | Literal["sqs"]
"""The way out for a message that is due too far ahead and has no table: a function that takes it, or "sqs", which
sends it with SQS's longest delay, so that it arrives early."""


@dataclass(frozen=True, slots=True)
class Sent:
    id: str
    """SQS's MessageId, the job_id of the item in the table, or the return value of `fallback`."""
    where: Literal["sqs", "dynamodb", "fallback"]


def due(now: int, at: datetime | None, delay: float | timedelta | None) -> int:
    """When the message shall arrive, in microseconds since 1970. A past time or a negative delay means now."""
    if at is not None and delay is not None:
        raise Invalid("give at= or delay=, not both")
    if at is not None:
        return max(moment(at), now)
    return later(now, max(0.0, 0.0 if delay is None else seconds(delay, "delay", least=-LONGEST)))


class MessageSender:
    def __init__(
        self, clients: AwsClients, destinations: Destinations, tables: MessageTables, clock: AwsClock, scheduler: str
    ) -> None:
        self._clients, self._destinations, self._tables = clients, destinations, tables
        self._clock, self._scheduler = clock, scheduler

    def send(
        self,
        queue: str,
        body: str,
        attributes: Attributes | None,
        at: datetime | None,
        delay: float | timedelta | None,
        group: str | None,
        dedup: str | None,
        fallback: Fallback | None,
        own_id: str | None = None,
    ) -> Sent:
        due(0, at, delay)  # refuse bad input before AWS is asked anything
        limits.text(body, "the body")
        attributes = limits.attributes(attributes)
        if fallback is not None and fallback != "sqs" and not callable(fallback):
            raise Invalid(f'fallback must be a function or "sqs", not {type(fallback).__name__}')
        queue = limits.queue_name(queue)
        group, dedup = _ordering(queue, group, dedup)
        job_id = str(uuid.uuid4()) if own_id is None else limits.identifier(own_id, "job_id")
        if taker := recorder():
            texts = {name: str(value.get("StringValue", "")) for name, value in attributes.items()}
            taker.record("", f"sqs://{queue}", Outgoing(body.encode(), headers=texts))
            return Sent(job_id, "sqs")
        destination = self._destinations.of(queue)
        _fits(destination, body, attributes)
        if destination.fifo and not dedup and not destination.content_dedup:
            dedup = job_id  # so that a message sent twice within five minutes arrives once
        now = self._clock.now()  # after SQS's answer, which has set the clock
        when = due(now, at, delay)
        message = Scheduled(queue, job_id, number(when), body, attributes, group, dedup)
        wait = math.ceil((when - now) / SECOND)
        if wait <= (0 if destination.fifo else limits.HORIZON):
            return self._now(destination, message, None if at is None and delay is None else wait)
        return self._keep(destination, message, wait, fallback)

    def _now(self, destination: Destination, message: Scheduled, wait: int | None) -> Sent:
        with errors(AwsTarget("sqs", destination.name)):
            try:
                answer = self._clients.sqs.send_message(
                    QueueUrl=destination.url, **parts(message, None if destination.fifo else wait)
                )
            except Exception as error:
                if "NonExistentQueue" in code(error) or code(error) == "QueueDoesNotExist":
                    self._destinations.forget(destination.name)
                raise
            return Sent(answer["MessageId"], "sqs")

    def _keep(self, destination: Destination, message: Scheduled, wait: int, fallback: Fallback | None) -> Sent:
        table = self._tables.of(message.queue)
        if table is not None and self._put(table, message):
            return Sent(message.job_id, "dynamodb")
        if fallback == "sqs":
            return self._now(destination, message, limits.HORIZON)
        if fallback is not None:
            return Sent(str(fallback(message)), "fallback")
        reach = "a FIFO queue delays no single message" if destination.fifo else "SQS delays at most 900 s"
        raise NoTable(
            f"queue {message.queue}: {wait} s ahead needs a DynamoDB table, since {reach}, and there is none "
            f"named {self._tables.name(message.queue)}; make it with `{self._tables.making(message.queue)}`, "
            "or, in a program, pass fallback="
        )

    def _put(self, table: MessageTable, message: Scheduled) -> bool:
        """Put the message into the table. False: the table does not exist any more."""
        item = to_item(message, self._scheduler, self._clock.now())
        _fits_item(table, item)
        try:
            with errors(AwsTarget("dynamodb", table.name)):
                answer = self._clients.dynamodb.put_item(
                    TableName=table.name, Item=item, ConditionExpression="attribute_not_exists(job_id)",
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )  # fmt: skip
                _ = answer["ResponseMetadata"]["RequestId"]  # raises if the answer is not DynamoDB's
        except HipqError as error:
            if code(error) == "ConditionalCheckFailedException":
                if _same(found(error), item):
                    return True  # the caller repeated the call, or boto3 did because it got no answer the first time
                raise Conflict(f"another message waits in the table {table.name} as {message.job_id}") from None
            if code(error) == "ItemCollectionSizeLimitExceededException":
                raise NoTable(
                    f"table {table.name} is full: with a local index DynamoDB keeps 10 GB for one scheduler; "
                    "use another scheduler= or table="
                ) from error
            if code(error) != "ResourceNotFoundException":
                raise
            self._tables.forget(table.name)
            return False
        return True


def _same(there: Item, item: Item) -> bool:
    """Whether both items are the same message for the same time, whatever a poller has noted on the stored one."""
    names = ("perform_at", "queue", "body", "attributes", "group", "dedup")
    one, other = from_item(there, ""), from_item(item, "")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def parts(message: Scheduled, wait: int | None) -> dict[str, Any]:
    """The message as arguments of SQS's call. `wait` None: the queue's own delay."""
    found: dict[str, Any] = {"MessageBody": message.body}
    if wait is not None:
        found["DelaySeconds"] = min(max(wait, 0), limits.HORIZON)
    if message.attributes:
        found["MessageAttributes"] = {name: dict(value) for name, value in message.attributes.items()}
    if message.group:
        found["MessageGroupId"] = message.group
    if message.dedup:
        found["MessageDeduplicationId"] = message.dedup
    return found


def _ordering(queue: str, group: str | None, dedup: str | None) -> tuple[str, str]:
    fifo = queue.endswith(".fifo")
    if fifo and group is None:
        raise Invalid(
            f"queue {queue}: messages for a FIFO queue need group=… (--group): those of one group stay in order"
        )
    if not fifo and dedup is not None:
        raise Invalid(f"queue {queue}: only FIFO queues take dedup=")
    return (
        "" if group is None else limits.identifier(group, "group"),
        "" if dedup is None else limits.identifier(dedup, "dedup"),
    )


def _fits(destination: Destination, body: str, attributes: Attributes) -> None:
    size = limits.message_size(body, attributes)
    if size > destination.largest:
        raise Invalid(
            f"queue {destination.name} takes messages of {destination.largest} bytes, with their attributes, "
            f"and this one has {size}; put it somewhere else and send where it is"
        )


def _fits_item(table: MessageTable, item: Item) -> None:
    size = limits.item_size(item) + limits.ROOM
    copies = 2 if table.local and table.whole else 1
    if size * copies > limits.LARGEST_ITEM:
        raise Invalid(
            f"table {table.name} takes items of {limits.LARGEST_ITEM} bytes, with their copies in its local index, "
            f"and this message takes {size * copies}; put it somewhere else and send where it is"
            + (", or make the table with an index of KEYS_ONLY" if copies == 2 else "")
        )
