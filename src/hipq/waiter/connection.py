"""One queue of SQS, opened: its URL, how long it hides what it gives out, and clients to talk to it with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from hipq.errors import HipqError
from hipq.waiter.clients import AwsClients, AwsTarget, errors
from hipq.waiter.outage import Outage

CONNECT_SECONDS: Final = 10.0
"""Seconds that an answer may take, beside what SQS was told to wait for messages."""
USUAL: Final = 30
"""Seconds that a queue hides what it gives out, if nobody has said otherwise."""


class QueueConnection:
    def __init__(
        self, queue: str, patient: Any, quick: Any, errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """`patient` is a client that waits longer than SQS does for messages, `quick` one that does not; both are used
        from many threads. `errors` makes the library's errors ours. Looks for the queue: an error says that there is
        none, or that nobody answers."""
        self.queue = queue
        self.patient, self.quick = patient, quick
        self.errors = errors
        self.outage = Outage(queue)
        with self.errors():
            self.url = str(self.quick.get_queue_url(QueueName=queue)["QueueUrl"])
        self.visibility = self._asked()

    def _asked(self) -> int:
        """Who may receive and delete need not be allowed to look at the queue's settings."""
        try:
            with self.errors():
                answer = self.quick.get_queue_attributes(QueueUrl=self.url, AttributeNames=["VisibilityTimeout"])
        except HipqError:
            return USUAL
        return int(answer.get("Attributes", {}).get("VisibilityTimeout", USUAL)) or USUAL


def connector(clients: AwsClients, wait: int) -> Callable[[str], QueueConnection]:
    """What opens a queue by its name, to wait so long for messages. All of them share their clients."""
    made: list[Any] = []

    def connect(queue: str) -> QueueConnection:
        if not made:
            made.extend((clients.impatient_sqs(wait + CONNECT_SECONDS), clients.impatient_sqs(CONNECT_SECONDS)))
        return QueueConnection(queue, made[0], made[1], lambda: errors(AwsTarget("sqs", queue)))

    return connect
