"""Queues and tables in moto's server for the waiter's tests, and what passes between them and a waiter."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3

from hipq.waiter import Waiter
from hipq.waiter.item import Scheduled, number, to_item
from hipq.waiter.waiter import SCHEDULER
from tests.brokers.aws import CREDENTIALS, REGION, client

HOUR = 3600.0


class Clock:
    """The time, and some."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Call:
    operation: str
    params: dict[str, Any]


class Crash(BaseException):
    """The process is no more: nothing may catch this."""


@dataclass
class Calls:
    """What a waiter asks of AWS. After the call with the number `crash_after` (from 0) nothing more happens."""

    made: list[Call] = field(default_factory=list)
    crash_after: int | None = None
    answers: list[Any] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, operation: str) -> list[dict[str, Any]]:
        return [call.params for call in self.made if call.operation == operation]

    def counts(self) -> Counter[str]:
        return Counter(call.operation for call in self.made)

    def watch(self, waiter: Waiter) -> Calls:
        for one in (waiter.clients.sqs, waiter.clients.dynamodb):
            service = one.meta.service_model.service_name
            one.meta.events.register(f"provide-client-params.{service}", self._before)
            one.meta.events.register(f"after-call.{service}", self._after)
        return self

    def _before(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        with self._lock:
            if self.crash_after is not None and len(self.made) > self.crash_after:
                raise Crash
            self.made.append(Call(model.name, params))

    def _after(self, parsed: Any, **_: Any) -> None:
        with self._lock:
            self.answers.append(parsed)
            if self.crash_after is not None and len(self.answers) > self.crash_after:
                raise Crash


@cache
def _session() -> Any:
    """One for all: it reads the descriptions of the services, which takes a while."""
    return boto3.session.Session(
        CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"], region_name=REGION
    )


class Cloud:
    """Names are new for each test: all share one server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.sqs, self.dynamodb = client("sqs", endpoint), client("dynamodb", endpoint)

    def name(self, fifo: bool = False) -> str:
        return f"q-{uuid.uuid4().hex[:12]}" + (".fifo" if fifo else "")

    def queue(self, *, fifo: bool = False, **attributes: str) -> str:
        name = self.name(fifo)
        wanted = {"VisibilityTimeout": "3600", **({"FifoQueue": "true"} if fifo else {}), **attributes}
        self.sqs.create_queue(QueueName=name, Attributes=wanted)
        return name

    def waiter(self, *queues: str, endpoint: str | None = None, **more: Any) -> Waiter:
        return Waiter(list(queues), session=_session(), endpoint_url=endpoint or self.endpoint, **more)

    def with_table(self, *, fifo: bool = False, clock: Clock | None = None, **more: Any) -> tuple[str, Waiter]:
        """A queue that has a table, and a waiter for it."""
        queue = self.queue(fifo=fifo)
        waiter = self.waiter(queue, clock=clock, **more)
        waiter.tables.create(queue)
        return queue, waiter

    def fill(self, table: str, messages: Iterable[Scheduled]) -> None:
        """As `send` would, but faster."""
        now = int(time.time() * 1e6)
        requests = [{"PutRequest": {"Item": to_item(one, SCHEDULER, now)}} for one in messages]
        for start in range(0, len(requests), 25):
            self.dynamodb.batch_write_item(RequestItems={table: requests[start : start + 25]})

    def received(self, queue: str) -> list[dict[str, Any]]:
        """All that can be received now."""
        url = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found: list[dict[str, Any]] = []
        while batch := self._batch(url):
            found += batch
            self.sqs.delete_message_batch(
                QueueUrl=url,
                Entries=[{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(batch)],
            )
        return found

    def _batch(self, url: str) -> list[dict[str, Any]]:
        answer = self.sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=["All"],
            AttributeNames=["All"],
            WaitTimeSeconds=0,
        )
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    def bodies(self, queue: str) -> Counter[str]:
        return Counter(one["Body"] for one in self.received(queue))

    def delayed(self, queue: str) -> int:
        url = self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        said = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesDelayed"])
        return int(said["Attributes"]["ApproximateNumberOfMessagesDelayed"])

    def count(self, table: str) -> int:
        """How many wait there; moto knows it at every moment, beside what pollers say of themselves."""
        notes = self.dynamodb.query(
            TableName=table, Select="COUNT", KeyConditionExpression="scheduler = :hash",
            ExpressionAttributeValues={":hash": {"S": f"{SCHEDULER} pollers"}},
        )  # fmt: skip
        return int(self.dynamodb.describe_table(TableName=table)["Table"]["ItemCount"]) - int(notes["Count"])

    def items(self, table: str, **which: Any) -> list[dict[str, Any]]:
        """All messages that are in a table, as they are."""
        found: list[dict[str, Any]] = []
        more = dict(which)
        while True:
            answer = self.dynamodb.scan(TableName=table, **more)
            found += [one for one in answer["Items"] if not one["scheduler"]["S"].endswith(" pollers")]
            if "LastEvaluatedKey" not in answer:
                return found
            more["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


def message(queue: str, body: str, ahead: float, **more: Any) -> Scheduled:
    """One that is due so many seconds from now."""
    return Scheduled(
        queue, more.pop("job_id", str(uuid.uuid4())), number(int((time.time() + ahead) * 1e6)), body, **more
    )
