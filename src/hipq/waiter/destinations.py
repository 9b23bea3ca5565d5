"""The SQS queues messages go to, and what each takes."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from hipq.errors import HipqError
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.limits import LARGEST, queue_name

FRESH: Final = 300.0
"""Seconds after which a queue is asked again what it takes."""


@dataclass(frozen=True, slots=True)
class Destination:
    name: str
    url: str
    largest: int = LARGEST
    """Bytes of a message that this queue takes."""
    content_dedup: bool = False
    """A FIFO queue that knows a message sent twice by its body."""

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


class Destinations:
    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Destination]] = {}

    def of(self, name: str) -> Destination:
        """Asks SQS the first time, and when it has not for a while."""
        with self._lock:
            seen, known = self._known.get(name, (0.0, None))
            if known is not None:
                if time.monotonic() - seen <= FRESH:
                    return known
                self._known[name] = time.monotonic(), known  # others go on with what is known while we ask
        found = self._asked(queue_name(name))  # without the lock: one queue that does not answer must not stop others
        with self._lock:
            self._known[name] = time.monotonic(), found
        return found

    def forget(self, name: str) -> None:
        """It is not where it was."""
        with self._lock:
            self._known.pop(name, None)

    def _asked(self, name: str) -> Destination:
        sqs, wanted = self._clients.sqs, ["MaximumMessageSize"]
        if name.endswith(".fifo"):
            wanted.append("ContentBasedDeduplication")
        with errors(AwsTarget("sqs", name)):
            url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        try:
            with errors(AwsTarget("sqs", name)):
                said = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=wanted).get("Attributes", {})
        except HipqError as error:
            if not code(error).startswith("AccessDenied"):
                raise
            said = {}  # who may send need not be allowed to ask; SQS itself refuses what it does not take
        return Destination(
            name, url, int(said.get("MaximumMessageSize", LARGEST)), said.get("ContentBasedDeduplication") == "true"
        )
