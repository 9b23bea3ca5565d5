"""Redis Streams: `redis://user:password@server:6379/STREAM`, or `redis://server/2/STREAM` in its database 2.

Options: `group`; `maxlen`: the approximate number of entries to which each send trims the stream, read or not; `idle`:
the seconds after which another source takes over messages that were received and not acknowledged (30). A closed source
hands its messages over at once. Messages that were taken over arrive out of order.

A message is an entry with the fields `body`, `key` and `headers` (a JSON object). An entry without `body` comes from
another program: its body is a JSON object of all its fields.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import uuid4

from redis import exceptions

from hipq.errors import HipqError
from hipq.transports.address import Address
from hipq.transports.base import Checkpoints, Message, Outgoing
from hipq.transports.redis_connection import SOCKET_SECONDS, RedisConnection, failure, target_of

IDLE: Final = 30
TOGETHER: Final = 500
TOGETHER_SIZE: Final = 4 << 20
"""The most messages, and the most bytes, that are written together."""
LOOK_SECONDS: Final = 1.0
"""How often a source looks for messages that others have left behind."""
RELEASED: Final = "hipq-released"
"""The consumer that gets the unacknowledged messages of closed sources."""
LONG_AGO: Final = 7 * 86_400_000
"""Milliseconds, more than any `idle`: a message released with this idle time may be taken by any source."""


def check(address: Address) -> None:
    address.allow({"group", "idle", "maxlen"})
    address.number("idle", IDLE, 1, 86_400)
    address.number("maxlen", 1, 1, 10**9)
    target_of(address)


class _Unsent(NamedTuple):
    command: Sequence[Any]
    size: int
    sent: Future[None]


class RedisSender:
    """Sends at most once, for many threads: one connection, and one thread that writes to it. Messages that arrive
    while that thread waits for a reply are written together next."""

    def __init__(self, address: Address) -> None:
        self._address = address
        cut = ["MAXLEN", "~", address.options["maxlen"]] if "maxlen" in address.options else []
        self._add = ["XADD", target_of(address).stream, *cut, "*"]
        self._connection = RedisConnection(address)
        self._waiting: queue.SimpleQueue[_Unsent | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def send(self, message: Outgoing, seconds: float) -> None:
        fields = ["body", message.body, "key", message.key.encode(), "headers", json.dumps(message.headers)]
        waiting = _Unsent([*self._add, *fields], len(message.body), Future())
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="hipq-redis", daemon=True)
                self._thread.start()
            self._waiting.put(waiting)
        try:
            waiting.sent.result(seconds)
        except TimeoutError:
            never = waiting.sent.cancel()  # cancels the message, unless the thread has already taken it
            known = "the message was not sent" if never else "whether it has the message is not known"
            raise self._address.unavailable(f"no reply within {seconds:g} seconds; {known}") from None

    def close(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._waiting.put(None)
        if thread is not None:
            thread.join(SOCKET_SECONDS)

    def _serve(self) -> None:
        last = False
        while not last:
            first = self._waiting.get()
            some, size = [first], first.size if first else 0
            while some[-1] and len(some) < TOGETHER and size < TOGETHER_SIZE and not self._waiting.empty():
                some.append(another := self._waiting.get())
                size += another.size if another else 0
            last = some[-1] is None
            self._write([one for one in some if one])
        self._connection.close()

    def _write(self, some: Sequence[_Unsent]) -> None:
        if not some:
            return
        taken: Sequence[_Unsent] = ()
        try:
            self._connection.open()
            taken = [one for one in some if one.sent.set_running_or_notify_cancel()]
            replies = self._connection.ask(*(one.command for one in taken)) if taken else []
        except Exception as error:
            for one in taken or [one for one in some if one.sent.set_running_or_notify_cancel()]:
                one.sent.set_exception(_again(self._address, error))
            return
        for one, reply in zip(taken, replies, strict=True):
            if isinstance(reply, exceptions.ResponseError):
                one.sent.set_exception(failure(self._address, reply))
            else:
                one.sent.set_result(None)


def _again(address: Address, error: Exception) -> Exception:
    """A copy of the error for another thread: an exception that several threads raise collects all their tracebacks."""
    if isinstance(error, HipqError):
        return type(error)(str(error))
    return address.unavailable(type(error).__name__)


class RedisSource:
    """A consumer of a group, with a name of its own."""

    def __init__(self, address: Address, group: str, _checkpoints: Checkpoints) -> None:
        self._address = address
        self._stream, self._group = target_of(address).stream, group
        self._name = f"{socket.gethostname()[:60]}-{os.getpid()}-{uuid4().hex[:12]}"
        self._idle = address.number("idle", IDLE, 1, 86_400) * 1000
        self._connection = RedisConnection(address)
        self._held: set[str] = set()
        self._look_at = 0.0
        self._was_there = False

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        self._connection.open()
        now = time.monotonic()
        until = now + seconds
        while True:
            room = most - len(self._held)
            if room <= 0:
                time.sleep(seconds)
                return []
            messages: Sequence[Message] = ()
            if now >= self._look_at:
                messages = self._left_behind(room)
                if not messages:
                    self._look_at = now + LOOK_SECONDS
            messages = messages or self._news(room, min(until, self._look_at) - now)
            now = time.monotonic()
            if messages or now >= until:
                self._held.update(message.id for message in messages)
                return messages

    def done(self, messages: Sequence[Message]) -> None:
        if messages:
            self._connection.get("XACK", self._stream, self._group, *(message.handle for message in messages))
            self._held.difference_update(message.id for message in messages)

    def lag(self) -> int | None:
        self._connection.open()
        length, groups = self._connection.ask(("XLEN", self._stream), ("XINFO", "GROUPS", self._stream))
        if isinstance(groups, exceptions.ResponseError):
            if "no such key" in str(groups):
                return 0
            raise failure(self._address, groups) from None
        for flat in groups:
            group = dict(zip(flat[::2], flat[1::2], strict=True))
            if group[b"name"] == self._group.encode():
                # Redis 6 does not know the lag, nor does a later one after entries were deleted
                behind = group.get(b"lag")
                return None if behind is None else int(behind) + int(group[b"pending"])
        return int(length)

    def close(self) -> None:
        """Release unacknowledged messages to other sources. Only then the consumer is deleted: it would take its
        messages along."""
        where, ask = (self._stream, self._group), self._connection.get
        with suppress(HipqError):  # on an error other sources take them after `idle`
            if self._was_there:
                self._connection.open()
                while rows := ask("XPENDING", *where, "-", "+", 1000, self._name):
                    ask("XCLAIM", *where, RELEASED, 0, *(row[0] for row in rows), "IDLE", LONG_AGO, "JUSTID")
                ask("XGROUP", "DELCONSUMER", *where, self._name)
        self._connection.close()

    # -- how --------------------------------------------------------------------------------------------------------
    def _news(self, room: int, seconds: float) -> Sequence[Message]:
        block = ("BLOCK", int(seconds * 1000)) if seconds >= 0.001 else ()  # BLOCK 0 would wait for ever
        how = ("GROUP", self._group, self._name, "COUNT", room, *block)
        reply = self._of_group("XREADGROUP", *how, "STREAMS", self._stream, ">")
        return self._messages(reply[0][1]) if reply else []

    def _left_behind(self, room: int) -> Sequence[Message]:
        """Take over unacknowledged messages of a source that died, hangs or was closed."""
        cursor: Any = "0-0"
        while True:
            what = ("XAUTOCLAIM", self._stream, self._group, self._name, self._idle, cursor, "COUNT", room)
            if not (reply := self._of_group(*what)):
                return []
            cursor, entries = reply[0], [one for one in reply[1] if one and one[1] is not None]
            if found := self._messages([one for one in entries if one[0].decode() not in self._held]):
                return found
            if cursor == b"0-0":
                return []

    def _of_group(self, *command: Any) -> Any:
        """The reply to a command of the group, or None after creating the group: it does not exist at first, nor
        after a server lost its memory."""
        (reply,) = self._connection.ask(command)
        self._was_there = True
        if not isinstance(reply, exceptions.ResponseError):
            return reply
        if not str(reply).startswith(("NOGROUP", "UNBLOCKED")):
            raise failure(self._address, reply) from None
        (made,) = self._connection.ask(("XGROUP", "CREATE", self._stream, self._group, "0", "MKSTREAM"))
        if isinstance(made, exceptions.ResponseError) and not str(made).startswith("BUSYGROUP"):
            raise failure(self._address, made) from None
        return None

    def _messages(self, entries: Sequence[Any]) -> list[Message]:
        return [_message(self._stream, message_id, flat) for message_id, flat in entries]


sender, source = RedisSender, RedisSource


def _message(stream: str, message_id: bytes, flat: Sequence[bytes]) -> Message:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    body = fields.pop(b"body", None)
    if body is None:
        whole = {_text(name): _text(value) for name, value in fields.items()}
        return Message(json.dumps(whole).encode(), message_id.decode(), subject=stream, handle=message_id)
    key = _text(fields.pop(b"key", b""))
    headers = _headers(fields.pop(b"headers", b""))
    for name, value in fields.items():
        headers[_text(name)] = _text(value)
    return Message(body, message_id.decode(), key=key, headers=headers, subject=stream, handle=message_id)


def _headers(raw: bytes) -> dict[str, str]:
    if not raw or raw == b"{}":
        return {}
    try:
        found = json.loads(raw)
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    # another program's entry, and no JSON object: it is still delivered
    except (ValueError, AttributeError, RecursionError):
        return {"headers": _text(raw)}


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
