"""Amazon SQS: `sqs://QUEUE?region=eu-west-1`, or `sqs://123456789012/QUEUE` for the queue of another account.

All readers of a queue share its messages, whatever their group. A message that was received and not acknowledged is
hidden from others for `visibility` seconds, so after a crash it is delivered again when these are over.

Waiting costs requests: SQS waits for whole seconds, and a listener, which must be able to stop, asks it for one at a
time. That makes 2.6 million requests a month for each listener, however few messages there are.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from itertools import chain
from typing import Any, Final, TypeVar
from uuid import uuid4

from hipq.errors import HipqError
from hipq.transports import aws
from hipq.transports.address import Address
from hipq.transports.base import Checkpoints, Message, Outgoing
from hipq.transports.sqs_batch import BATCH, delete, hide, tens
from hipq.transports.sqs_message import incoming, outgoing

LONGEST_POLL: Final = 2
"""Seconds of a long poll. SQS allows 20, but then a frozen server would not be noticed for so long."""
READ_SLACK: Final = 4
"""Seconds that an answer may be late; after that the client library asks once more."""
GATHER_SECONDS: Final = 0.5
"""How long a source looks for more messages while it already has some."""

_QUEUE: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")

T = TypeVar("T")


def check(address: Address) -> None:
    rule = "the name of a queue has up to 80 letters, digits, - and _, and may end with .fifo"
    aws.check(address, frozenset({"visibility", "pollers"}), _QUEUE, rule)
    address.number("visibility", 60, 1, 43_200)
    address.number("pollers", 4, 1, 64)


def _queue_url(client: Any, address: Address) -> str:
    account = {"QueueOwnerAWSAccountId": address.hosts} if address.hosts else {}
    return str(client.get_queue_url(QueueName=address.name, **account)["QueueUrl"])


class SqsSender:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._clients = aws.SenderClients(address)
        self._queue = ""

    def send(self, message: Outgoing, seconds: float) -> None:
        parts = outgoing(self._address, message)
        until = time.monotonic() + seconds
        with aws.errors(self._address):
            queue = self._queue or _queue_url(self._clients.within(seconds), self._address)
            self._queue = queue  # several threads may look the queue up at once: they find the same
            self._clients.within(until - time.monotonic()).send_message(QueueUrl=queue, **parts)

    def close(self) -> None:
        self._clients.close()


class SqsSource:
    """Waits with a single long poll. Only when that returns a well-filled batch all pollers look for more, for a
    moment: so a lone message arrives at once, many are fetched in parallel, and no poll goes on that nobody waits
    for."""

    def __init__(self, address: Address, _group: str, _checkpoints: Checkpoints) -> None:
        self._address = address
        self._pollers = address.number("pollers", 4, 1, 64)
        self._visibility = address.number("visibility", 60, 1, 43_200)
        self._client: Any = None
        self._queue = ""
        self._threads: ThreadPoolExecutor | None = None
        self._held: dict[str, str] = {}
        """The receipts of unacknowledged messages, by message id."""

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        until = time.monotonic() + seconds
        room = most - len(self._held)
        if room < 1:
            time.sleep(seconds)
            return []
        found = self._poll(min(BATCH, room), _whole(seconds))
        while not found and (left := until - time.monotonic()) >= 1:
            found = self._poll(min(BATCH, room), _whole(left))
        found += self._more(room - len(found), len(found))
        return found

    def _more(self, room: int, latest: int) -> list[Message]:
        """Further messages, as long as they arrive in batches at least half full."""
        found: list[Message] = []
        asked, until = 1, time.monotonic() + GATHER_SECONDS
        while 2 * latest >= asked * BATCH and room > len(found) and time.monotonic() < until:
            left = room - len(found)
            asked = min(self._pollers, math.ceil(left / BATCH))
            polls = self._each(lambda most: self._poll(most, 0), [min(BATCH, left - n * BATCH) for n in range(asked)])
            # A poll that failed is ignored: the messages already here must be returned.
            good = [poll.result() for poll in polls if poll.exception() is None]
            latest = sum(map(len, good))
            found += chain.from_iterable(good)
        return found

    def _poll(self, most: int, seconds: int) -> list[Message]:
        fifo = {"ReceiveRequestAttemptId": uuid4().hex} if self._address.name.endswith(".fifo") else {}
        with aws.errors(self._address):
            answer = self._opened().receive_message(
                QueueUrl=self._queue,
                MaxNumberOfMessages=most,
                WaitTimeSeconds=seconds,
                VisibilityTimeout=self._visibility,
                AttributeNames=["MessageGroupId"],
                MessageAttributeNames=["All"],
                **fifo,
            )
        found = [incoming(one, self._address.name) for one in answer.get("Messages", ())]
        self._held.update((message.id, message.handle) for message in found)
        return found

    def done(self, messages: Sequence[Message]) -> None:
        for deleted in self._each(self._delete, tens(messages)):
            deleted.result()
        for message in messages:
            self._held.pop(message.id, None)

    def _delete(self, messages: Sequence[Message]) -> None:
        """Delete messages. One that SQS fails to delete is delivered again: that is a duplicate, and no reason to
        stop."""
        left = list(messages)
        for pause in (0.05, 0.2, 0.0):
            with aws.errors(self._address):
                refused = delete(self._opened(), self._queue, [one.handle for one in left])
            left = [left[place] for place in refused.now]
            if not left:
                return
            time.sleep(pause)

    def lag(self) -> int | None:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        with aws.errors(self._address):
            answer = self._opened().get_queue_attributes(QueueUrl=self._queue, AttributeNames=names)
        return sum(int(answer["Attributes"].get(name, 0)) for name in names)

    def close(self) -> None:
        with suppress(Exception):  # on an error they are delivered again when their hiding time is over
            self._release()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        if self._client is not None:
            with suppress(Exception):
                self._client.close()

    def _release(self) -> None:
        """Release unacknowledged messages at once, but without waiting for a server that does not answer."""
        if not self._held:
            return
        until = time.monotonic() + 2
        quick = aws.client(self._address, connect=1, read=2, attempts=1)

        def show(some: Sequence[str]) -> None:
            if time.monotonic() > until:
                raise TimeoutError
            hide(quick, self._queue, [(one, 0) for one in some])

        with closing(quick):
            self._each(show, tens(list(self._held.values())))

    # -- how --------------------------------------------------------------------------------------------------------
    def _opened(self) -> Any:
        if self._client is None:
            made = aws.client(self._address, connect=5, read=LONGEST_POLL + READ_SLACK, attempts=2)
            try:
                with aws.errors(self._address):
                    self._queue = _queue_url(made, self._address)
            except HipqError:
                made.close()
                raise
            self._client = made
        return self._client

    def _each(self, work: Callable[[T], Any], items: Iterable[T]) -> list[Future[Any]]:
        """Do all of the work in parallel, and wait until none of it runs any more. After one failure no other item
        begins, so that a dead server is waited for once."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._pollers, thread_name_prefix="hipq-sqs")
        failed = threading.Event()

        def one(item: T) -> Any:
            if failed.is_set():
                raise CancelledError
            try:
                return work(item)
            except BaseException:
                failed.set()
                raise

        futures = [self._threads.submit(one, item) for item in items]
        wait(futures)
        return futures


sender, source = SqsSender, SqsSource


def _whole(seconds: float) -> int:
    """The time in whole seconds, as SQS waits."""
    return min(LONGEST_POLL, math.ceil(seconds))
