"""The SQS queues that messages go to, and what each of them accepts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Final

from hipq.errors import HipqError
from hipq.waiter.clients import AwsClients, AwsTarget, code, errors
from hipq.waiter.limits import LARGEST, queue_name

FRESH: Final = 300.0
"""Seconds after which a queue's attributes are read again."""


@dataclass(frozen=True, slots=True)
class Destination:
    name: str
    url: str
    largest: int = LARGEST
    """The largest message the queue accepts, in bytes."""
    content_dedup: bool = False
    """Whether this FIFO queue recognises a message sent twice by its body."""

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")


class Destinations:
    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Destination]] = {}

    def of(self, name: str) -> Destination:
        """The queue of this name; SQS is asked the first time and when the answer is old."""
        with self._lock:
            seen, known = self._known.get(name, (0.0, None))
            if known is not None:
                if time.monotonic() - seen <= FRESH:
                    return known
                # other threads go on with the old answer while this one asks
                self._known[name] = time.monotonic(), known
        found = self._asked(queue_name(name))  # without the lock, so that one silent queue does not stop the others
        with self._lock:
            self._known[name] = time.monotonic(), found
        return found

    def forget(self, name: str) -> None:
        """Forget a queue that is not at its URL any more."""
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
            said = {}  # a program that may send need not be allowed to ask; SQS itself refuses what it does not accept
        return Destination(
            name, url, int(said.get("MaximumMessageSize", LARGEST)), said.get("ContentBasedDeduplication") == "true"
        )
