"""Amazon SQS: `sqs://QUEUE?region=eu-west-1`, or `sqs://123456789012/QUEUE` for the queue of another account.

All readers of a queue share its messages, whatever their group. A message that was received and not acknowledged is
hidden from others for `visibility` seconds, so after a crash it is delivered again when these are over.

Headers are message attributes, of which SQS allows ten. A body that is not text as SQS wants it travels as base64 and
is restored byte for byte.

Waiting costs requests: SQS waits for whole seconds, and a listener, which must be able to stop, asks it for one at a
time. That makes 2.6 million requests a month for each listener, however few messages there are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain
from typing import Any, Final
from uuid import uuid4

from hipq.transports import aws
from hipq.transports.address import Address
from hipq.transports.base import KEY_HEADER, Checkpoints, Message, Outgoing, key_in, quoted
from hipq.transports.sqs_batch import BATCH, delete, hide, tens

LONGEST_POLL: Final = 2
"""Seconds of a long poll. SQS allows 20, but then a frozen server would not be noticed for so long."""
READ_SLACK: Final = 4
"""Seconds that an answer may be late; after that the client library asks once more."""
GATHER_SECONDS: Final = 0.5
"""How long a source looks for more messages while it already has some."""

ENCODING_HEADER: Final = "hipq-encoding"
NO_GROUP: Final = "hipq"
"""The group of messages without a key in a FIFO queue."""

_NOT_TEXT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ATTRIBUTE: Final = re.compile(r"(?!aws\.|amazon\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.IGNORECASE)
_GROUP: Final = re.compile(r"[!-~]{1,128}")
_QUEUE: Final = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


def check(address: Address) -> None:
    rule = "the name of a queue has up to 80 letters, digits, - and _, and may end with .fifo"
    aws.check(address, frozenset({"visibility", "pollers"}), _QUEUE, rule)
    address.number("visibility", 60, 1, 43_200)
    address.number("pollers", 4, 1, 64)


def _queue_url(client: Any, address: Address) -> str:
    account = {"QueueOwnerAWSAccountId": address.hosts} if address.hosts else {}
    return str(client.get_queue_url(QueueName=address.name, **account)["QueueUrl"])


class SqsSender(aws.AwsSender):
    _queue = ""

    def send(self, message: Outgoing, seconds: float) -> None:
        parts = outgoing(self._address, message)
        until = time.monotonic() + seconds
        with aws.errors(self._address):
            queue = self._queue or _queue_url(self._within(seconds), self._address)
            self._queue = queue  # several threads may look the queue up at once: they find the same
            self._within(until - time.monotonic()).send_message(QueueUrl=queue, **parts)


class SqsSource(aws.AwsSource):
    """Waits with a single long poll. Only when that returns a well-filled batch all pollers look for more, for a
    moment: so a lone message arrives at once, many are fetched in parallel, and no poll goes on that nobody waits
    for."""

    def __init__(self, address: Address, _group: str, _checkpoints: Checkpoints) -> None:
        self._pollers = address.number("pollers", 4, 1, 64)
        super().__init__(address, self._pollers)
        self._visibility = address.number("visibility", 60, 1, 43_200)
        self._queue = ""
        self._held: dict[str, str] = {}
        """The receipts of unacknowledged messages, by message id."""

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        until = time.monotonic() + seconds
        room = most - len(self._held)
        if room < 1:
            time.sleep(seconds)
            return []
        found = self._poll(min(BATCH, room), seconds)
        while not found and (left := until - time.monotonic()) >= 1:
            found = self._poll(min(BATCH, room), left)
        return found + self._more(room - len(found), len(found))

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

    def _poll(self, most: int, seconds: float) -> list[Message]:
        whole = min(LONGEST_POLL, math.ceil(seconds))  # SQS waits for whole seconds
        fifo = {"ReceiveRequestAttemptId": uuid4().hex} if self._address.name.endswith(".fifo") else {}
        with aws.errors(self._address):
            answer = self._opened().receive_message(
                QueueUrl=self._queue, MaxNumberOfMessages=most, WaitTimeSeconds=whole,
                VisibilityTimeout=self._visibility, AttributeNames=["MessageGroupId"], MessageAttributeNames=["All"],
                **fifo,
            )  # fmt: skip
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
            if not (left := [left[place] for place in refused.now]):
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
        super().close()

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

    def _opened(self) -> Any:
        if self._client is None:
            self._client = aws.client(self._address, connect=5, read=LONGEST_POLL + READ_SLACK, attempts=2)
        if not self._queue:
            with aws.errors(self._address):
                self._queue = _queue_url(self._client, self._address)
        return self._client


sender, source = SqsSender, SqsSource


# -- messages as SQS carries them --------------------------------------------------------------------------------------
def outgoing(address: Address, message: Outgoing) -> dict[str, Any]:
    """The arguments of SQS's call for this message."""
    headers = dict(message.headers)
    if message.key and KEY_HEADER not in (name.lower() for name in headers):
        headers[KEY_HEADER] = quoted(message.key)
    body, encoding = _encoded(message.body)
    if encoding:
        headers[ENCODING_HEADER] = encoding
    if len(headers) > 10:
        raise address.invalid(f"SQS takes ten headers, with those of hipq, and this message has {len(headers)}")
    parts: dict[str, Any] = {"MessageBody": body}
    if headers:
        parts["MessageAttributes"] = {name: _attribute(address, name, value) for name, value in headers.items()}
    if address.name.endswith(".fifo"):
        parts["MessageGroupId"] = _group(message.key)
        parts["MessageDeduplicationId"] = _digest(message)
    return parts


def _encoded(body: bytes) -> tuple[str, str]:
    """The body as text that SQS accepts, and how it was encoded."""
    if not body:
        return "-", "empty"  # SQS refuses messages without a body
    with suppress(UnicodeDecodeError):
        text = body.decode()
        if not _NOT_TEXT.search(text):
            return text, ""
    return base64.b64encode(body).decode(), "base64"


def _attribute(address: Address, name: str, value: str) -> dict[str, str]:
    if len(name) > 256 or not _ATTRIBUTE.fullmatch(name):
        raise address.invalid(f"SQS takes no header named {name!r:.60}: letters, digits, - _ and single dots only")
    if not value or _NOT_TEXT.search(value):
        raise address.invalid(f"SQS takes no empty header and no control characters, but {name} is {value!r:.60}")
    return {"DataType": "String", "StringValue": value}


def _group(key: str) -> str:
    """The message group of a key, which keeps messages of one key in order. A key that SQS does not accept is
    replaced by its digest."""
    if not key:
        return NO_GROUP
    return key if _GROUP.fullmatch(key) else hashlib.sha256(key.encode(errors="replace")).hexdigest()


def _digest(message: Outgoing) -> str:
    """The deduplication id. It is the same for the same message sent again, so that a FIFO queue drops it; another
    attempt is another message."""
    parts = [message.body, message.key.encode(errors="replace")]
    parts += [f"{name}={value}".encode(errors="replace") for name, value in sorted(message.headers.items())]
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.hexdigest()


def incoming(said: dict[str, Any], queue: str) -> Message:
    """The message in SQS's answer."""
    headers = {}
    for name, value in said.get("MessageAttributes", {}).items():
        binary = value.get("BinaryValue")
        headers[name] = value.get("StringValue", "") if binary is None else bytes(binary).decode(errors="replace")
    body = said.get("Body", "").encode(errors="replace")
    encoding = headers.get(ENCODING_HEADER)
    if encoding == "empty":
        body = b""
    elif encoding == "base64":
        with suppress(binascii.Error):  # a body that is not the base64 it claims to be stays as it is
            body = base64.b64decode(body, validate=True)
    headers.pop(ENCODING_HEADER, None)
    group = said.get("Attributes", {}).get("MessageGroupId", "")
    message = Message(body, said["MessageId"], headers=headers, subject=queue, handle=said["ReceiptHandle"])
    message.key = key_in(message.headers) or ("" if group == NO_GROUP else group)
    return message
