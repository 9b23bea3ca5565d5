"""What every transport is: something that sends a message, and something that messages are read from.

A transport is one small file. It imports its client library when it is first used, takes an `Address`, and has

- `sender(address) -> Sender`, safe to use from many threads at once;
- `source(address, group, checkpoints) -> Source`, used by one thread. Sources of one group share what comes.

What all of them promise, and `tests/transports` checks against the real servers:

- `send` returns when the server has confirmed the message. It is sent at most once: if that cannot be known, `send`
  raises TransportUnavailable and never sends it again by itself.
- `receive` returns messages that nobody of the group has acknowledged, in the order of each partition, and nothing
  is acknowledged before `done`. What was received and not acknowledged comes again to somebody: after `close`, after a
  crash, after a connection that broke.
- Errors are TransportUnavailable (it may be back: try again with a new object) or Invalid (it never will), each one
  sentence, without passwords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol
from urllib.parse import quote, unquote

import msgspec

from hipq.job import payload

KEY_HEADER = "hipq-key"
"""A job's key, in ASCII: see `quoted`."""
JOB_HEADER = "hipq-job"
ATTEMPT_HEADER = "hipq-attempt"
CALLBACK_HEADER = "hipq-callback"
ERROR_HEADER = "hipq-error"


_ASCII = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def quoted(key: str) -> str:
    """A key as headers have it: of printable ASCII without spaces at its ends, as HTTP and NATS want it; the rest as
    %XX."""
    return quote(key, safe=_ASCII + " ") if key == key.strip() else quote(key, safe=_ASCII)


def key_in(headers: Mapping[str, str]) -> str:
    """The key that headers have; "" if they have none."""
    return unquote(headers.get(KEY_HEADER, ""))


class Outgoing:
    """A message to send."""

    __slots__ = ("body", "headers", "key")

    def __init__(self, body: bytes, key: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.key = key
        """By which a stream orders it and its answer is found: Kafka's and Kinesis's key, AMQP's correlation id."""
        self.headers = dict(headers or {})


class Message:
    """A message that came, as `app.listen`'s `key`, `error` and `answer_id` see it."""

    def __init__(
        self,
        body: bytes,
        message_id: str,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        subject: str = "",
        handle: Any = None,
    ) -> None:
        self.body = body
        self.id = message_id
        """What tells it from all others of its stream, the same at every delivery."""
        self.key = key
        """Kafka's or Kinesis's key, AMQP's correlation id; "" if it has none."""
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        """By their names in lower case."""
        self.subject = subject
        """The topic, queue, subject or routing key it came on."""
        self.handle = handle
        """What its transport acknowledges it with."""
        self.written = ""
        """Its JSON as it can be stored, once `json` was looked at; "" if nobody has checked that yet."""

    @cached_property
    def text(self) -> str:
        return self.body.decode()

    @cached_property
    def json(self) -> Any:
        if not self.body:
            return None
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return payload.parse(self.body, "the message")  # it says better what is wrong
        written = payload.encode(value, "the message")
        if self.body.count(b'"') != written.count('"') or b"\\u0022" in self.body:
            return payload.parse(self.body, "the message")  # there are quotes missing: a key was there twice, maybe
        self.written = written
        return value

    def __repr__(self) -> str:
        return f"<Message {self.id} on {self.subject}, {len(self.body)} bytes>"


class Reply:
    """What a request was replied with at once; only HTTP has that."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = {name.lower(): value for name, value in headers.items()}


class Sender(Protocol):
    def send(self, message: Outgoing, seconds: float) -> Reply | None:
        """Send it and wait until the server has it, for so long at most."""

    def close(self) -> None: ...


class Source(Protocol):
    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Some messages, as soon as there are any; none, if none came for so long. Not more than `most` are in memory,
        acknowledged or not, and no more are asked for before these are dealt with."""

    def done(self, messages: Sequence[Message]) -> None:
        """They are kept: acknowledge them. The ones the last `receive` returned, all of them together."""

    def lag(self) -> int | None:
        """How many messages there are that this source has not acknowledged, about; None if the server does not say.
        Costs a question at most: it is called every few seconds."""

    def close(self) -> None:
        """What was not acknowledged is somebody else's."""


class Checkpoints(Protocol):
    """What sources of one group agree on where the server has nothing for it: who reads which part, and how far. Kept
    in hipq's database. A claim lasts some seconds and is renewed by `keep`; that two have one at once, for a moment
    after a pause, must do no harm."""

    def take(self, part: str) -> str | None:
        """Claim this part, if nobody has it; where to read on ("" = from the start). None if somebody has it."""

    def keep(self, part: str, position: str) -> bool:
        """Save how far it was read, and go on having it; whether it is still ours."""

    def read(self) -> Mapping[str, str]:
        """Of all parts that anybody of the group ever had, how far they were read."""

    def leave(self, part: str) -> None:
        """Somebody else may have it now."""
