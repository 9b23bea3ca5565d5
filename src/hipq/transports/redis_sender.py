"""Sending to Redis: at most once, by many threads through one connection."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from redis import exceptions

from hipq.errors import HipqError, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import Outgoing
from hipq.transports.redis_connection import SOCKET_SECONDS, RedisConnection, failure, target_of

TOGETHER: Final = 500
TOGETHER_SIZE: Final = 4 << 20
"""The most messages, and the most bytes, that are written together."""


class _Unsent(NamedTuple):
    command: Sequence[Any]
    size: int
    sent: Future[None]


class RedisSender:
    """One connection and a thread that writes to it. Messages that arrive while the thread waits for a reply are
    written together next."""

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
            raise TransportUnavailable(f"{self._address}: no reply within {seconds:g} seconds; {known}") from None

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
    return TransportUnavailable(f"{address}: {type(error).__name__}")
