"""RabbitMQ and other servers of AMQP 0.9.1: `amqp://user:password@server:5672/QUEUE?prefetch=..`, `amqps://` with TLS.

`amqp://server/VHOST/QUEUE` is on another virtual host than `/`. With `?exchange=NAME` messages are sent to that
exchange, and the name in the URL is the routing key. All listeners of a queue share it, whatever their group.

Built on aiormq and not on aio-pika, which itself is built on aiormq: aio-pika's messages raise on properties that other
programs may well set.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from aiormq.abc import DeliveredMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.amqp_connection import SECONDS, AmqpConnection, server_of
from hipq.transports.amqp_sender import AmqpSender
from hipq.transports.base import Checkpoints, Message, key_in
from hipq.transports.loop import Loop

OPTIONS: Final = {"exchange", "prefetch", "group"}
GATHER_SECONDS: Final = 0.05
"""How long `receive` goes on collecting while messages follow each other closely."""
COUNTERS: Final = {"x-delivery-count", "x-acquired-count"}
"""Headers in which the server counts deliveries: they are not part of the message's identity."""


def check(address: Address) -> None:
    address.allow(OPTIONS)
    server_of(address)
    address.number("prefetch", 1000, 1, 65_535)
    vhost, _, queue = address.name.rpartition("/")
    if not queue:
        raise Invalid(f"{address}: the name of the queue is missing; it looks like amqp://server/QUEUE")
    for what, name in (("queue", queue), ("virtual host", vhost), ("exchange", address.options.get("exchange", ""))):
        if len(name.encode()) > 255:
            raise Invalid(f"{address}: the name of the {what} has 255 bytes at most")


def sender(address: Address) -> AmqpSender:
    check(address)
    return AmqpSender(address)


def source(address: Address, group: str, checkpoints: Checkpoints) -> AmqpSource:  # noqa: ARG001
    check(address)
    return AmqpSource(address)


class AmqpSource:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._queue = address.name.rpartition("/")[2]
        self._limit = address.number("prefetch", 65_535, 1, 65_535)
        self._prefetch = 0
        self._consumer: str | None = None
        self._cancelled = False
        self._ready: deque[DeliveredMessage] = deque()
        self._held: dict[int, None] = {}  # unacknowledged messages by delivery tag, ascending; includes the ready ones
        self._news = asyncio.Event()
        self._connection = AmqpConnection(address)
        self._loop = Loop("amqp-listen")
        try:
            self._call(self._open(), 3 * SECONDS)
        except BaseException:
            self.close()
            raise

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        return [self._message(found) for found in self._call(self._receive(most, seconds), seconds + 2 * SECONDS)]

    def done(self, messages: Sequence[Message]) -> None:
        self._call(self._acknowledge({message.handle for message in messages}), SECONDS)

    def lag(self) -> int | None:
        declared = self._call(self._connection.channel.queue_declare(self._queue, passive=True), SECONDS)
        return int(declared.message_count or 0) + len(self._held)

    def close(self) -> None:
        """Close the connection; the server then returns unacknowledged messages to the queue."""
        with suppress(Exception):
            self._loop.call(self._connection.close(), 3)
        self._loop.close()

    def _call(self, work: Any, seconds: float) -> Any:
        try:
            return self._loop.call(work, seconds)
        except (OSError, AMQPError, ChannelInvalidStateError, asyncio.CancelledError) as error:
            raise self._connection.unavailable(error) from None

    def _message(self, found: DeliveredMessage) -> Message:
        about = found.header.properties
        headers = {str(name): _text(value) for name, value in (about.headers or {}).items()}
        key, name = about.correlation_id or key_in(headers), about.message_id or ""
        if not name or not name.isprintable():  # the delivery tag would differ at every delivery
            mark = hashlib.sha256(found.body)
            kept = sorted((name, value) for name, value in headers.items() if name not in COUNTERS)
            mark.update(repr((found.routing_key, key, about.timestamp, kept)).encode(errors="replace"))
            name = mark.hexdigest()
        return Message(
            found.body, name, key=key, headers=headers, subject=found.routing_key or "", handle=found.delivery_tag
        )

    # -- on the loop ------------------------------------------------------------------------------------------------
    async def _open(self) -> None:
        await self._connection.open(confirms=False)
        try:
            await self._connection.channel.queue_declare(self._queue, passive=True)
        except ChannelNotFoundEntity:
            await self._connection.reopen(confirms=False)
            await self._connection.channel.queue_declare(self._queue, durable=True)
        self._connection.channel.closing.add_done_callback(lambda _: self._news.set())
        self._connection.channel.on_consumer_cancel_callbacks.add(self._was_cancelled)

    async def _consume(self, prefetch: int) -> None:
        """Subscribe with a prefetch: the server sends that many messages and waits for acknowledgements before it
        sends more."""
        channel = self._connection.channel
        if self._consumer:
            await channel.basic_cancel(self._consumer)
        await channel.basic_qos(prefetch_count=prefetch)
        self._consumer = (await channel.basic_consume(self._queue, self._deliver)).consumer_tag
        self._prefetch = prefetch

    async def _was_cancelled(self, _: Any) -> None:
        self._cancelled = True
        self._news.set()

    async def _deliver(self, message: DeliveredMessage) -> None:
        self._ready.append(message)
        self._held[message.delivery_tag or 0] = None
        self._news.set()

    async def _receive(self, most: int, seconds: float) -> list[DeliveredMessage]:
        self._look()
        if self._prefetch != min(most, self._limit):
            await self._consume(min(most, self._limit))
        if not self._ready:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            self._look()
        await self._gather(most)
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def _look(self) -> None:
        if self._connection.channel.is_closed:
            raise self._connection.unavailable(ChannelInvalidStateError())
        if self._cancelled:
            raise TransportUnavailable(
                f"{self._address}: the queue {self._queue} was deleted, or moved to another node"
            )

    async def _gather(self, most: int) -> None:
        """Collect the messages that follow closely: the library delivers them one at a time."""
        until = asyncio.get_running_loop().time() + GATHER_SECONDS
        seen = idle = 0
        while seen < most and idle < 4 and asyncio.get_running_loop().time() < until:
            seen, before = len(self._ready), seen
            idle = idle + 1 if seen == before else 0
            await asyncio.sleep(0)

    async def _acknowledge(self, tags: set[int]) -> None:
        """Acknowledge all messages before the first one that stays with one frame, and the rest one by one."""
        if self._connection.channel.is_closed:
            raise self._connection.unavailable(ChannelInvalidStateError())
        together = 0
        for tag in self._held:
            if tag not in tags:
                break
            together = tag
        singly = sorted(tag for tag in tags if tag > together and tag in self._held)
        for tag in tags:
            self._held.pop(tag, None)
        if together:
            await self._connection.channel.basic_ack(together, multiple=True, wait=not singly)
        for tag in singly:
            await self._connection.channel.basic_ack(tag, wait=tag == singly[-1])


def _text(value: Any) -> str:
    """A header's value as text; on the wire it may be anything."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
