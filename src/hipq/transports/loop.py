"""Senders and sources of client libraries that have only an asynchronous interface.

Each has an event loop in a thread of its own. The loop runs all the time, so that heartbeats are answered while the
caller's transaction takes its time.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

from hipq.transports.address import Address
from hipq.transports.base import Message, Outgoing

SECONDS: Final = 5.0
"""Seconds that a server may take to answer a request."""

T = TypeVar("T")


class Loop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=f"hipq-{name}", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine on the loop and wait for it. After `seconds` it is cancelled, and TimeoutError is raised."""
        if not self._thread.is_alive():
            work.close()
            raise TimeoutError("the event loop has ended")
        try:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop).result()
        except CancelledError:  # asyncio has a CancelledError of its own
            raise TimeoutError("it was cancelled") from None

    def close(self) -> None:
        """Cancel what still runs on the loop, and end it."""

        async def end() -> None:
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.stop()

        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(end(), self._loop)
            self._thread.join(timeout=5)


class LoopSender(ABC):
    """Sends by one connection for all threads. A connection that broke is never reconnected, so that messages in its
    buffers are not sent later: the next message has a new one."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = Loop(f"{address.scheme}-send")
        self._opening = asyncio.Lock()
        self._connection: Any = None

    def send(self, message: Outgoing, seconds: float) -> None:
        try:
            self._loop.call(self._send(message), seconds)
        except TimeoutError:
            raise self._address.unavailable(
                f"not confirmed within {seconds:g} s; whether the message was stored is not known"
            ) from None

    def close(self) -> None:
        with suppress(Exception):
            if self._connection:
                self._loop.call(self._connection.close(), 3)
        self._loop.close()

    async def _connected(self) -> Any:
        async with self._opening:
            if self._connection is None or self._connection.is_lost:
                self._connection = await self._open()
            return self._connection

    @abstractmethod
    async def _open(self) -> Any: ...
    @abstractmethod
    async def _send(self, message: Outgoing) -> None: ...


class LoopSource(ABC):
    """Receives messages on the loop, into a deque."""

    errors: ClassVar[tuple[type[BaseException], ...]]
    """The errors of the network and of the client library."""

    def __init__(self, address: Address, connection: Any) -> None:
        self._address = address
        self._connection = connection
        self._ready: deque[Any] = deque()
        self._held: dict[Any, None] = {}
        """The handles of unacknowledged messages, the ready ones included, in the order of their arrival."""
        self._news = asyncio.Event()
        self._loop = Loop(f"{address.scheme}-listen")
        try:
            self._call(self._open(), 4 * SECONDS)
        except BaseException:
            self.close()
            raise

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        return [self._message(found) for found in self._call(self._receive(most, seconds), seconds + 2 * SECONDS)]

    def done(self, messages: Sequence[Message]) -> None:
        self._call(self._acknowledge([message.handle for message in messages]), 2 * SECONDS)

    def lag(self) -> int | None:
        return self._call(self._lag(), SECONDS)

    def close(self) -> None:
        with suppress(Exception):
            self._loop.call(self._leave(), 3)
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        try:
            return self._loop.call(work, seconds)
        except self.errors as error:
            raise self._connection.unavailable(error) from None

    async def _wait(self, seconds: float) -> bool:
        """Wait for news; False if there are none within `seconds`."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self._news.wait()
        except TimeoutError:
            return False

    def _taken(self, most: int) -> list[Any]:
        """The ready messages, as many as may be held: an earlier call may have asked the server for more."""
        room = most - (len(self._held) - len(self._ready))
        return [self._ready.popleft() for _ in range(min(room, len(self._ready)))]

    @abstractmethod
    def _message(self, found: Any) -> Message: ...
    @abstractmethod
    async def _open(self) -> None: ...
    @abstractmethod
    async def _receive(self, most: int, seconds: float) -> list[Any]: ...
    @abstractmethod
    async def _acknowledge(self, handles: Sequence[Any]) -> None: ...
    @abstractmethod
    async def _lag(self) -> int: ...
    @abstractmethod
    async def _leave(self) -> None: ...


def cut(writer: asyncio.StreamWriter | None) -> None:
    """Abort a connection at once: bytes that the server does not have yet are never sent."""
    if writer is None:
        return
    with suppress(OSError):
        linger = struct.pack("ii", 1, 0)  # otherwise the kernel goes on sending its buffer
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
