"""An open SQS queue: its URL, its visibility time-out, and the clients that talk to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from hipq.errors import HipqError
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.outage import Outage

CONNECT_SECONDS: Final = 10.0
"""Seconds that an answer may take beyond the time SQS was asked to wait for messages."""
USUAL: Final = 30
"""Seconds that a queue hides received messages by default."""


class QueueConnection:
    def __init__(
        self, queue: str, patient: Any, quick: Any, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Look the queue up; raises if there is no such queue or SQS does not answer. `patient` is a client whose
        time-out exceeds SQS's wait for messages, `quick` one with a short time-out; many threads use both. `errors`
        translates boto3's errors."""
        self.queue = queue
        self.patient, self.quick = patient, quick
        self.errors = errors
        self.outage = Outage(queue)
        with self.errors():
            self.url = str(self.quick.get_queue_url(QueueName=queue)["QueueUrl"])
        self.visibility = self._asked()

    def _asked(self) -> int:
        """The queue's visibility time-out. A program that may receive and delete need not be allowed to read it:
        then the default."""
        try:
            with self.errors():
                answer = self.quick.get_queue_attributes(QueueUrl=self.url, AttributeNames=["VisibilityTimeout"])
        except HipqError:
            return USUAL
        return int(answer.get("Attributes", {}).get("VisibilityTimeout", USUAL)) or USUAL


def connector(clients: AwsClients, wait: int) -> Callable[[str], QueueConnection]:
    """A function that opens a queue by name and waits `wait` seconds for messages. All these queues share their
    clients."""
    made: list[Any] = []

    def connect(queue: str) -> QueueConnection:
        if not made:
            made.extend((clients.impatient_sqs(wait + CONNECT_SECONDS), clients.impatient_sqs(CONNECT_SECONDS)))
        return QueueConnection(queue, made[0], made[1], lambda: errors(AwsTarget("sqs", queue)))

    return connect
