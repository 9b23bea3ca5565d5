"""Sending by AMQP: the server confirms each message, or returns it if no queue takes it."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from aiormq.exceptions import AMQPError, ChannelInvalidStateError, PublishError
from pamqp.commands import Basic

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.amqp_connection import AmqpConnection
from hipq.transports.base import KEY_HEADER, Outgoing, quoted
from hipq.transports.loop import Loop

NAME_SIZE: Final = 128
"""The longest name of a header, in bytes; the library truncates longer ones."""
RESTART_SECONDS: Final = 5.0
"""How long the queues of a restarted server may take to be back."""
AGAIN: Final = 0.1
"""Seconds between two tries to send a message that no queue took."""


class AmqpSender:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._exchange = address.options.get("exchange", "")
        self._key = address.name.rpartition("/")[2]
        self._loop = Loop("amqp-send")
        self._opening = asyncio.Lock()
        self._connection: AmqpConnection | None = None
        self._broke = False
        self._back_at = float("-inf")
        """When the sender reconnected after a connection broke."""

    def send(self, message: Outgoing, seconds: float) -> None:
        try:
            self._loop.call(self._send(message), seconds)
        except TimeoutError:
            raise TransportUnavailable(
                f"{self._address}: not confirmed within {seconds:g} s; whether the message was stored is not known"
            ) from None

    def close(self) -> None:
        with suppress(Exception):
            if self._connection:
                self._loop.call(self._connection.close(), 3)
        self._loop.close()

    # -- on the loop ------------------------------------------------------------------------------------------------
    async def _send(self, message: Outgoing) -> None:
        connection = await self._connected()
        await (
            connection.connection.ready()
        )  # a server short of memory or disk blocks the connection: then nothing is sent
        headers: dict[str, Any] = dict(message.headers)
        if any(len(name.encode(errors="replace")) > NAME_SIZE for name in headers):
            raise Invalid(f"{self._address}: the name of a header has {NAME_SIZE} bytes at most")
        short = len(message.key.encode(errors="replace")) <= 255
        if message.key and not short:
            headers.setdefault(KEY_HEADER, quoted(message.key))
        about = Basic.Properties(
            message_id=uuid4().hex, correlation_id=message.key if short else None, delivery_mode=2, headers=headers
        )
        try:
            await self._publish(connection, message.body, about)
        except (ValueError, TypeError, struct.error):
            raise Invalid(f"{self._address}: the key or a header cannot be carried by AMQP") from None
        except (OSError, AMQPError, ChannelInvalidStateError) as error:
            raise connection.unavailable(error) from None
        except asyncio.CancelledError:  # the time is up: a message still in a buffer must not be sent any more
            connection.cut()
            raise

    async def _publish(self, connection: AmqpConnection, body: bytes, about: Basic.Properties) -> None:
        """Publish, and repeat a message that no queue took for some seconds after a reconnect: a server that has
        just restarted accepts clients before all of its queues are back."""
        while True:
            try:
                await connection.channel.basic_publish(
                    body, exchange=self._exchange, routing_key=self._key, properties=about, mandatory=True, wait=False
                )
                return
            except PublishError:
                if time.monotonic() > self._back_at + RESTART_SECONDS:
                    raise
                await asyncio.sleep(AGAIN)

    async def _connected(self) -> AmqpConnection:
        async with self._opening:
            if self._connection is None or self._connection.channel.is_closed:
                if self._connection:
                    self._broke = True
                    await self._connection.close()
                self._connection = None
                connection = AmqpConnection(self._address)
                await connection.open(confirms=True)
                if self._broke:
                    self._broke, self._back_at = False, time.monotonic()
                self._connection = connection
            return self._connection
