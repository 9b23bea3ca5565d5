"""RabbitMQ and other servers of AMQP 0.9.1: `amqp://user:password@server:5672/QUEUE?prefetch=..`, `amqps://` with TLS.

`amqp://server/VHOST/QUEUE` is on another virtual host than `/`. With `?exchange=NAME` messages are sent to that
exchange, and the name in the URL is the routing key. All listeners of a queue share it, whatever their group.

Built on aiormq and not on aio-pika, which itself is built on aiormq: aio-pika's messages raise on properties that other
programs may well set.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
import time
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from aiormq.abc import DeliveredMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity, PublishError
from pamqp.commands import Basic

from hipq.transports.address import Address
from hipq.transports.amqp_connection import PORTS, AmqpConnection
from hipq.transports.base import KEY_HEADER, Checkpoints, Message, Outgoing, key_in, quoted
from hipq.transports.loop import LoopSender, LoopSource

GATHER_SECONDS: Final = 0.05
"""How long `receive` goes on collecting while messages follow each other closely."""
COUNTERS: Final = {"x-delivery-count", "x-acquired-count"}
"""Headers in which the server counts deliveries: they are not part of the message's identity."""
NAME_SIZE: Final = 128
"""The longest name of a header, in bytes; the library truncates longer ones."""
RESTART_SECONDS: Final = 5.0
"""How long the queues of a restarted server may take to be back."""
AGAIN: Final = 0.1
"""Seconds between two tries to send a message that no queue took."""


def check(address: Address) -> None:
    address.allow({"exchange", "prefetch", "group"})
    address.server(PORTS[address.scheme])
    address.number("prefetch", 1000, 1, 65_535)
    vhost, _, queue = address.name.rpartition("/")
    if not queue:
        raise address.invalid("the name of the queue is missing; it looks like amqp://server/QUEUE")
    for what, name in (("queue", queue), ("virtual host", vhost), ("exchange", address.options.get("exchange", ""))):
        if len(name.encode()) > 255:
            raise address.invalid(f"the name of the {what} has 255 bytes at most")


class AmqpSender(LoopSender):
    """The server confirms each message, or returns it if no queue takes it."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._was_connected = False
        self._back_at = float("-inf")
        """When the sender reconnected after a connection broke."""

    async def _send(self, message: Outgoing) -> None:
        connection = await self._connected()
        await connection.connection.ready()  # a server short of memory or disk blocks the connection: nothing is sent
        headers: dict[str, Any] = dict(message.headers)
        if any(len(name.encode(errors="replace")) > NAME_SIZE for name in headers):
            raise self._address.invalid(f"the name of a header has {NAME_SIZE} bytes at most")
        short = len(message.key.encode(errors="replace")) <= 255
        if not short:
            headers.setdefault(KEY_HEADER, quoted(message.key))
        about = Basic.Properties(
            message_id=uuid4().hex, correlation_id=message.key if short else None, delivery_mode=2, headers=headers
        )
        try:
            await self._publish(connection, message.body, about)
        except (ValueError, TypeError, struct.error):
            raise self._address.invalid("the key or a header cannot be carried by AMQP") from None
        except (OSError, AMQPError, ChannelInvalidStateError) as error:
            raise connection.unavailable(error) from None
        except asyncio.CancelledError:  # the time is up: a message still in a buffer must not be sent any more
            connection.cut()
            raise

    async def _publish(self, connection: AmqpConnection, body: bytes, about: Basic.Properties) -> None:
        """Publish, and repeat a message that no queue took for some seconds after a reconnect: a server that has
        just restarted accepts clients before all of its queues are back."""
        exchange, key = self._address.options.get("exchange", ""), self._address.name.rpartition("/")[2]
        while True:
            try:
                await connection.channel.basic_publish(
                    body, exchange=exchange, routing_key=key, properties=about, mandatory=True, wait=False
                )
                return
            except PublishError as refused:
                if time.monotonic() > self._back_at + RESTART_SECONDS:
                    raise
                try:
                    await asyncio.sleep(AGAIN)
                except asyncio.CancelledError:  # the time is up, and it is known that the message was not stored
                    raise refused from None

    async def _open(self) -> AmqpConnection:
        broken, self._connection = self._connection, None
        if broken:
            await broken.close()
        connection = AmqpConnection(self._address)
        await connection.open(confirms=True)
        if self._was_connected:
            self._back_at = time.monotonic()
        self._was_connected = True
        return connection


class AmqpSource(LoopSource):
    errors = (OSError, AMQPError, ChannelInvalidStateError, asyncio.CancelledError)
    _connection: AmqpConnection

    def __init__(self, address: Address, _group: str, _checkpoints: Checkpoints) -> None:
        self._queue = address.name.rpartition("/")[2]
        self._limit = address.number("prefetch", 65_535, 1, 65_535)
        self._prefetch = 0
        self._consumer: str | None = None
        self._cancelled = False
        super().__init__(address, AmqpConnection(address))

    def _message(self, found: DeliveredMessage) -> Message:
        about = found.header.properties
        headers = {str(name): _text(value) for name, value in (about.headers or {}).items()}
        key, name = about.correlation_id or key_in(headers), about.message_id or ""
        if not name or not name.isprintable():  # the delivery tag would differ at every delivery
            mark = hashlib.sha256(found.body)
            kept = sorted((name, value) for name, value in headers.items() if name not in COUNTERS)
            mark.update(repr((found.routing_key, key, about.timestamp, kept)).encode(errors="replace"))
            name = mark.hexdigest()
        if about.content_type:
            headers.setdefault("content-type", about.content_type)
        return Message(
            found.body, name, key=key, headers=headers, subject=found.routing_key or "", handle=found.delivery_tag
        )

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
        if not self._ready or len(self._held) - len(self._ready) >= most:
            self._news.clear()
            await self._wait(seconds)
            self._look()
        await self._gather(most)
        return self._taken(most)

    def _look(self) -> None:
        if self._connection.is_lost:
            raise self._connection.unavailable(ChannelInvalidStateError())
        if self._cancelled:
            raise self._address.unavailable(f"the queue {self._queue} was deleted, or moved to another node")

    async def _gather(self, most: int) -> None:
        """Collect the messages that follow closely: the library delivers them one at a time."""
        until = asyncio.get_running_loop().time() + GATHER_SECONDS
        seen = idle = 0
        while seen < most and idle < 4 and asyncio.get_running_loop().time() < until:
            seen, before = len(self._ready), seen
            idle = idle + 1 if seen == before else 0
            await asyncio.sleep(0)

    async def _acknowledge(self, handles: Sequence[int]) -> None:
        """Acknowledge all messages before the first one that stays with one frame, and the rest one by one."""
        if self._connection.is_lost:
            raise self._connection.unavailable(ChannelInvalidStateError())
        tags, together = set(handles), 0
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

    async def _lag(self) -> int:
        declared = await self._connection.channel.queue_declare(self._queue, passive=True)
        return int(declared.message_count or 0) + len(self._held)

    async def _leave(self) -> None:
        await self._connection.close()  # the server then returns unacknowledged messages to the queue


sender, source = AmqpSender, AmqpSource


def _text(value: Any) -> str:
    """A header's value as text; on the wire it may be anything."""
    if isinstance(value, bytes | bytearray):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
