"""The protocol of a transport: a sender of messages, and a source of messages.

A transport is a module that the package imports when it is first used, because it imports its client library. It has

- `check(address)`, which refuses an address that can never work, without connecting;
- `sender(address) -> Sender`, safe to use from many threads at once;
- `source(address, group, checkpoints) -> Source`, used by one thread. Sources of one group share the messages.

All transports promise, and `tests/transports` checks against the real servers:

- `send` returns when the server has confirmed the message. It is sent at most once: if that cannot be known, `send`
  raises TransportUnavailable and never sends it again by itself.
- `receive` returns messages that no source of the group has acknowledged, in the order of each partition, and nothing
  is acknowledged before `done`. An unacknowledged message is delivered again, to any source of the group: after
  `close`, a crash, or a broken connection.
- Errors are TransportUnavailable (a new object may succeed later) or Invalid (it never will), each one sentence,
  without passwords.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, unquote

import msgspec

from hipq.job import payload
from hipq.transports.cloud_events import event_in

if TYPE_CHECKING:
    from hipq.job.view import Job

KEY_HEADER = "hipq-key"
"""The job's key, in ASCII: see `quoted`."""
JOB_HEADER = "hipq-job"
ATTEMPT_HEADER = "hipq-attempt"
CALLBACK_HEADER = "hipq-callback"
ERROR_HEADER = "hipq-error"
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
"""The names of headers that HTTP has."""

_ASCII = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")


def quoted(key: str) -> str:
    """A key as headers carry it: printable ASCII without spaces at its ends, as HTTP and NATS want it, and the rest
    as %XX."""
    return quote(key, safe=_ASCII + " ") if key == key.strip() else quote(key, safe=_ASCII)


def key_in(headers: Mapping[str, str]) -> str:
    """The key in these headers; "" if there is none."""
    return unquote(headers.get(KEY_HEADER, ""))


def headers_of(job: Job[Any]) -> dict[str, str]:
    """The headers that name the job a request belongs to. Its key is printable ASCII with the rest as %XX, as HTTP
    wants it."""
    trace = {"traceparent": job.traceparent} if job.traceparent else {}
    return {KEY_HEADER: quoted(job.key), JOB_HEADER: str(job.id), ATTEMPT_HEADER: str(job.attempt), **trace}


def unreachable(error: BaseException | None, where: str) -> str:
    """Why there is no connection with the server `where`; "" if neither the error nor its cause is about that."""
    match error:
        case None:
            return ""
        case socket.gaierror():
            return f"there is no host {where}, or its name cannot be looked up now"
        case OSError() if f"[Errno {errno.ECONNREFUSED}]" in str(error):
            return f"nobody listens at {where} (connection refused)"
        case ssl.SSLError():
            return f"{where} and this program cannot agree on TLS ({error.reason or error})"
    return unreachable(error.__cause__ or error.__context__, where)


class Outgoing:
    """A message to send."""

    __slots__ = ("body", "headers", "key")

    def __init__(self, body: bytes, key: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.key = key
        """The key by which a stream orders the message and its answer is found: Kafka's and Kinesis's key, AMQP's
        correlation id."""
        self.headers = dict(headers or {})


class Message:
    """A received message, as `app.listen`'s `key`, `error` and `answer_id` see it."""

    def __init__(
        self,
        body: bytes,
        message_id: str,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        subject: str = "",
        handle: Any = None,
        is_quoted: bool = False,
    ) -> None:
        """`is_quoted`: the attributes of a CloudEvent are percent-encoded in these headers."""
        self.body = body
        self.id = message_id
        """The message's identity within its stream, the same at every delivery."""
        self.key = key
        """Kafka's or Kinesis's key, AMQP's correlation id; "" if the message has none."""
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        """The headers, by their names in lower case."""
        self.subject = subject
        """The topic, queue, subject or routing key on which the message arrived."""
        self.handle = handle
        """The value with which the transport acknowledges the message."""
        self._is_quoted = is_quoted
        self.written = ""
        """The body's JSON as it can be stored, set when `json` is first read; "" before that."""

    @cached_property
    def text(self) -> str:
        return self.body.decode()

    @cached_property
    def event(self) -> dict[str, Any] | None:
        """The CloudEvent that the message is: its attributes and its `data`; None if it is none."""
        return event_in(self.headers, self.body, is_quoted=self._is_quoted)

    @cached_property
    def json(self) -> Any:
        """The JSON of the body; of a CloudEvent its envelope, also where its attributes came as headers."""
        if self.event is not None:
            return self.event
        if not self.body:
            return None
        try:
            value = msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return payload.parse(self.body, "the message")  # raises with a better message
        written = payload.encode(value, "the message")
        if self.body.count(b'"') != written.count('"') or b"\\u0022" in self.body:
            return payload.parse(self.body, "the message")  # quotes are missing: perhaps a key was there twice
        self.written = written
        return value

    def __repr__(self) -> str:
        return f"<Message {self.id} on {self.subject}, {len(self.body)} bytes>"


class Reply:
    """The immediate reply to a request; only HTTP has one."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status = status
        self.body = body
        self.headers = {name.lower(): value for name, value in headers.items()}


class Sender(Protocol):
    def send(self, message: Outgoing, seconds: float) -> Reply | None:
        """Send a message and wait until the server has it, for `seconds` at most."""

    def close(self) -> None: ...


class Source(Protocol):
    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        """Return messages as soon as there are any, or none after `seconds`. At most `most` are in memory,
        acknowledged or not, and no more are requested before they are dealt with."""

    def done(self, messages: Sequence[Message]) -> None:
        """Acknowledge the messages of the last `receive`, all together, after they were stored."""

    def lag(self) -> int | None:
        """About how many messages this source has not acknowledged; None if the server does not say. It is called
        every few seconds, so it costs one request at most."""

    def close(self) -> None:
        """Close the source. Unacknowledged messages go to other sources of the group."""


class Checkpoints(Protocol):
    """What the sources of a group agree on where the server has no such thing: which source reads which part, and
    how far. It is kept in hipq's database. A claim lasts some seconds and is renewed by `keep`; two sources may both
    have one for a moment after a pause, which must do no harm."""

    def take(self, part: str) -> str | None:
        """Claim a part if no source has it, and return the position to read on from ("" = the start); None if
        another source has it."""

    def keep(self, part: str, position: str) -> bool:
        """Save how far the part was read and renew the claim; False: another source has it now."""

    def read(self) -> Mapping[str, str]:
        """How far each part was read that any source of the group ever had."""

    def leave(self, part: str) -> None:
        """Release a part, so that another source may claim it."""
