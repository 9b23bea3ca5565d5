"""A connection to an AMQP server, and the meaning of its errors."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import Final, cast
from urllib.parse import urlsplit

import aiormq
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)
from yarl import URL

from hipq.errors import Invalid, TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.amqp_frames import FrameTransport
from hipq.transports.loop import cut

SECONDS: Final = 5.0
"""Seconds that the server may take to answer a request."""
HEARTBEAT: Final = 20
PORTS: Final = {"amqp": 5672, "amqps": 5671}

for library in ("aiormq", "pamqp"):  # otherwise they write to stderr in programs without logging
    logging.getLogger(library).addHandler(logging.NullHandler())


class AmqpConnection:
    """A connection that is never reconnected, so that messages in its buffers are not sent later."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._transport = FrameTransport()
        self.connection: aiormq.abc.AbstractConnection
        self.channel: aiormq.Channel

    async def open(self, *, confirms: bool) -> None:
        host, port = server_of(self._address)
        url = URL.build(
            scheme=self._address.scheme, host=host, port=port, user=self._address.user or "guest",
            password=self._address.password or ("" if self._address.user else "guest"),
            path=f"/{self._address.name.rpartition('/')[0].removeprefix('/')}",
            query={"heartbeat": str(HEARTBEAT), "name": "hipq"},
        )  # fmt: skip
        try:
            self.connection = await aiormq.connect(url, transport_factory=self._transport)
            await self.reopen(confirms=confirms)
        except (OSError, AMQPError, RuntimeError) as error:
            self.cut()
            raise self.unavailable(error) from None
        except BaseException:
            self.cut()
            raise

    async def reopen(self, *, confirms: bool) -> None:
        """Open a new channel. The server closes a channel when a request on it names something that does not exist."""
        self.channel = cast(aiormq.Channel, await self.connection.channel(publisher_confirms=confirms))

    def cut(self) -> None:
        """Abort the connection at once: bytes that the server does not have yet are never sent."""
        cut(self._transport.writer)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(2):
                await self.connection.close()
        except (AttributeError, OSError, AMQPError, RuntimeError):
            self.cut()

    def unavailable(self, error: BaseException) -> TransportUnavailable:
        """The error in one sentence."""
        where = "{}:{}".format(*server_of(self._address))
        cause = error.__cause__ or error
        said = str(error.args[-1]) if error.args else ""
        match error:
            case TransportUnavailable():
                return error
            case _ if isinstance(cause, socket.gaierror):
                why = f"there is no host {where}, or its name cannot be looked up now"
            case OSError() if f"[Errno {errno.ECONNREFUSED}]" in str(cause):
                why = f"nobody listens at {where} (connection refused)"
            case _ if isinstance(cause, ssl.SSLError):
                why = f"{where} and this program cannot agree on TLS ({cause.reason})"
            case AuthenticationError() | ProbableAuthenticationError():
                why = f"{where} does not accept the user or password"
            case PublishError():
                why = (
                    "nobody would get it: no queue has this name, or is bound to it; create one, or start what listens"
                )
            case DeliveryError():
                why = "the server did not take the message (nack): its queue may be full"
            case ChannelAccessRefused() | ChannelNotFoundEntity() | ChannelLockedResource():
                why = f"the server refuses it: {said}"
            case TimeoutError():
                why = f"{where} does not answer"
            case _ if self._transport.close_reason:
                why = f"{where} ended the connection: {self._transport.close_reason}"
            case _:
                why = f"the connection to {where} broke"
        return TransportUnavailable(f"{self._address}: {why}")


def server_of(address: Address) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address.hosts or 'localhost'}")
        host, port = parts.hostname, parts.port or PORTS[address.scheme]
    except ValueError:
        host = None
    if not host or "," in address.hosts:
        raise Invalid(f"{address}: {address.hosts!r:.60} is no server; one looks like server:5672")
    return host, port
