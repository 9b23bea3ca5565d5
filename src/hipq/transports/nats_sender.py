"""Sending to JetStream: each message is confirmed by the stream that stored it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from itertools import count

from nats.aio.msg import Msg
from nats.errors import BadHeaderError
from nats.errors import Error as NatsError
from nats.js import api

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import KEY_HEADER, Outgoing, quoted
from hipq.transports.loop import Loop
from hipq.transports.nats_connection import NatsConnection


class NatsSender:
    """Asks the stream for a receipt of each message. A header Nats-Msg-Id would let the stream drop a second copy,
    but there is none: no message is sent twice, and a job's retry sends another message on purpose."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._loop = Loop("nats-send")
        self._connection: NatsConnection | None = None
        self._opening = asyncio.Lock()
        self._inbox = ""
        self._numbers = count()
        self._receipts: dict[str, asyncio.Future[bytes]] = {}

    def send(self, message: Outgoing, seconds: float) -> None:
        headers = self._headers(message)
        try:
            self._loop.call(self._send(message.body, headers), seconds)
        except TimeoutError:
            raise TransportUnavailable(
                f"{self._address}: no receipt within {seconds:g} s; whether the message was stored is not known"
            ) from None

    def close(self) -> None:
        with suppress(Exception):
            if self._connection:
                self._loop.call(self._connection.close(), 2)
        self._loop.close()

    # -- on the loop ------------------------------------------------------------------------------------------------
    async def _send(self, body: bytes, headers: dict[str, str]) -> None:
        connection = await self._connected()
        size = len(body) + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items()) + 12
        if size > connection.client.max_payload:
            raise Invalid(
                f"{self._address}: {size} bytes with headers are too many: "
                f"the server's max_payload is {connection.client.max_payload}"
            )
        number = f"{self._inbox}.{next(self._numbers)}"
        receipt = self._receipts[number] = asyncio.get_running_loop().create_future()
        try:
            await connection.client.publish(self._address.name, body, reply=number, headers=headers or None)
            answer = await receipt
        except (BadHeaderError, UnicodeEncodeError):
            raise Invalid(f"{self._address}: a header has characters that NATS cannot carry") from None
        except NatsError as error:
            raise connection.unavailable(error) from None
        except asyncio.CancelledError:  # the time is up: a message still in a buffer must not be sent any more
            connection.cut()
            raise
        finally:
            del self._receipts[number]
        self._look(answer)

    def _look(self, answer: bytes) -> None:
        try:
            found = json.loads(answer)
            error, stored = found.get("error"), "stream" in found
        except (ValueError, AttributeError):
            error, stored = None, False
        if error:
            raise TransportUnavailable(f"{self._address}: the stream did not take it: {error.get('description')}")
        if not stored:
            raise TransportUnavailable(
                f"{self._address}: {self._address.name} was answered by something that is no stream"
            )

    async def _connected(self) -> NatsConnection:
        async with self._opening:
            if self._connection is None or self._connection.lost:
                connection = NatsConnection(self._address, self._failed)
                await connection.open()
                self._inbox = connection.client.new_inbox()
                await connection.client.subscribe(f"{self._inbox}.*", cb=self._receipt)
                self._connection = connection
            return self._connection

    async def _receipt(self, message: Msg) -> None:
        waiting = self._receipts.get(message.subject)
        if waiting is None or waiting.done():
            return
        if (message.headers or {}).get(api.Header.STATUS) == "503":
            why = f"no JetStream stream takes subject {self._address.name}: create one, or start what listens to it"
            waiting.set_exception(TransportUnavailable(f"{self._address}: {why}"))
        else:
            waiting.set_result(message.data)

    def _failed(self, error: TransportUnavailable) -> None:
        for waiting in self._receipts.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _headers(self, message: Outgoing) -> dict[str, str]:
        headers = dict(message.headers)
        if message.key:
            headers.setdefault(KEY_HEADER, quoted(message.key))
        for name, value in headers.items():
            if value != value.strip() or "\n" in value or "\r" in value:
                raise Invalid(
                    f"{self._address}: the header {name!r:.40} starts or ends with a space, or has several lines"
                )
        if "stream" in self._address.options:
            headers[api.Header.EXPECTED_STREAM.value] = self._address.options["stream"]
        return headers
