"""A consumer under way in a thread, for tests; and what is in a queue, seen behind its back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hipq.waiter import Waiter
from tests.waiter.cloud import Cloud

PATIENCE = 60.0
"""Seconds after which what should come true has failed, on a machine however busy."""


def eventually(true: Callable[[], Any]) -> Any:
    """Wait until this is true, and what it was; fail after so long."""
    until = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.01)
    return found


class Working:
    def __init__(self, waiter: Waiter, **options: Any) -> None:
        self.stop, self.stop_now = threading.Event(), threading.Event()
        self.consumer = waiter.consumer(**{"wait": 1, "poller": False, **options})
        self.left: int | None = None
        """How many handlers still ran when it ended."""
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.left = self.consumer.run(self.stop, self.stop_now)
        except BaseException as error:
            self.error = error

    def end(self) -> int:
        """Tell it to stop, and wait until it has; how many handlers still run."""
        self.stop.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error
        assert self.left is not None
        return self.left


@contextmanager
def working(waiter: Waiter, **options: Any) -> Iterator[Working]:
    """Until the end of the block messages are handled."""
    found = Working(waiter, **options)
    found.thread.start()
    try:
        yield found
    finally:
        found.end()


def put(cloud: Cloud, queue: str, *bodies: str, **more: Any) -> None:
    url = cloud.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    for body in bodies:
        unique = {"MessageDeduplicationId": f"{body}-{time.monotonic_ns()}"} if queue.endswith(".fifo") else {}
        cloud.sqs.send_message(QueueUrl=url, MessageBody=body, **unique, **more)


def counted(cloud: Cloud, queue: str) -> tuple[int, int]:
    """How many messages a queue has that can be received, and that somebody has in hand."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    url = cloud.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    said = cloud.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    return int(said[names[0]]), int(said[names[1]])


def is_empty(cloud: Cloud, queue: str) -> bool:
    return counted(cloud, queue) == (0, 0)
