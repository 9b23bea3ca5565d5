"""Sending by AMQP: each message is confirmed by the server, or given back if no queue would have it."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from aiormq.exceptions import AMQPError, ChannelInvalidStateError
from pamqp.commands import Basic

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.amqp_line import Line
from hipq.transports.base import KEY_HEADER, Outgoing, quoted
from hipq.transports.loop import Loop

NAME_SIZE: Final = 128
"""Of a header; what is longer the library cuts off."""


class AmqpSender:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._exchange = address.options.get("exchange", "")
        self._key = address.name.rpartition("/")[2]
        self._loop = Loop("amqp-send")
        self._opening = asyncio.Lock()
        self._line: Line | None = None

    def send(self, message: Outgoing, seconds: float) -> None:
        try:
            self._loop.call(self._send(message), seconds)
        except TimeoutError:
            raise TransportUnavailable(
                f"{self._address}: not confirmed within {seconds:g} s; whether the message was stored is not known"
            ) from None

    def close(self) -> None:
        with suppress(Exception):
            if self._line:
                self._loop.call(self._line.close(), 3)
        self._loop.close()

    # -- on the loop ------------------------------------------------------------------------------------------------
    async def _send(self, message: Outgoing) -> None:
        line = await self._connected()
        await line.connection.ready()  # it is not while the server is short of memory or disk: then nothing is sent
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
            await line.channel.basic_publish(
                message.body,
                exchange=self._exchange,
                routing_key=self._key,
                properties=about,
                mandatory=True,
                wait=False,
            )
        except (ValueError, TypeError, struct.error):
            raise Invalid(f"{self._address}: the key or a header cannot be carried by AMQP") from None
        except (OSError, AMQPError, ChannelInvalidStateError) as error:
            raise line.unavailable(error) from None
        except asyncio.CancelledError:  # too late; what is still in a buffer here must not be sent any more
            line.cut()
            raise

    async def _connected(self) -> Line:
        async with self._opening:
            if self._line is None or self._line.channel.is_closed:
                if self._line:
                    await self._line.close()
                self._line = None
                line = Line(self._address)
                await line.open(confirms=True)
                self._line = line
            return self._line
