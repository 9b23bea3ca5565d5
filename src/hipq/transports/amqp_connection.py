"""A connection to an AMQP server, its frames, and the meaning of its errors.

The client library drops the connection when it cannot decode a message's properties (a time stamp in the year 584,000,
text that is not UTF-8). The message would be delivered again and again, and block the queue for ever. Here such a
message loses its properties before the library sees them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from typing import Any, Final, cast

import aiormq
from aiormq import exceptions as amqp
from aiormq.connection import TransportFactory
from pamqp.commands import Basic, Connection
from pamqp.constants import FRAME_HEADER, FRAME_METHOD
from pamqp.header import ContentHeader
from yarl import URL

from hipq.errors import TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import unreachable
from hipq.transports.loop import cut

HEARTBEAT: Final = 20
PORTS: Final = {"amqp": 5672, "amqps": 5671}
CLOSE: Final = Connection.Close.index.to_bytes(4, "big")
DELIVER: Final = Basic.Deliver.index.to_bytes(4, "big")

for library in ("aiormq", "pamqp"):  # otherwise they write to stderr in programs without logging
    logging.getLogger(library).addHandler(logging.NullHandler())


class AmqpConnection:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._server = address.server(PORTS[address.scheme])
        self._transport = FrameTransport()
        self.connection: aiormq.abc.AbstractConnection
        self.channel: aiormq.Channel

    async def open(self, *, confirms: bool) -> None:
        host, port = self._server
        url = URL.build(
            scheme=self._address.scheme, host=host, port=port, user=self._address.user or "guest",
            password=self._address.password or ("" if self._address.user else "guest"),
            path=f"/{self._address.name.rpartition('/')[0].removeprefix('/')}",
            query={"heartbeat": str(HEARTBEAT), "name": "hipq"},
        )  # fmt: skip
        try:
            self.connection = await aiormq.connect(url, transport_factory=self._transport)
            await self.reopen(confirms=confirms)
        except (OSError, amqp.AMQPError, RuntimeError) as error:
            self.cut()
            raise self.unavailable(error) from None
        except BaseException:
            self.cut()
            raise

    async def reopen(self, *, confirms: bool) -> None:
        """Open a new channel. The server closes a channel when a request on it names something that does not exist."""
        self.channel = cast(aiormq.Channel, await self.connection.channel(publisher_confirms=confirms))

    @property
    def is_lost(self) -> bool:
        return self.channel.is_closed

    def cut(self) -> None:
        """Abort the connection at once: bytes that the server does not have yet are never sent."""
        cut(self._transport.writer)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(2):
                await self.connection.close()
        except (AttributeError, OSError, amqp.AMQPError, RuntimeError):
            self.cut()

    def unavailable(self, error: BaseException) -> TransportUnavailable:
        """The error in one sentence."""
        where = "{}:{}".format(*self._server)
        match error:
            case TransportUnavailable():
                return error
            case amqp.AuthenticationError() | amqp.ProbableAuthenticationError():
                why = f"{where} does not accept the user or password"
            case amqp.PublishError():
                why = (
                    "nobody would get it: no queue has this name, or is bound to it; create one, or start what listens"
                )
            case amqp.DeliveryError():
                why = "the server did not take the message (nack): its queue may be full"
            case amqp.ChannelAccessRefused() | amqp.ChannelNotFoundEntity() | amqp.ChannelLockedResource():
                why = f"the server refuses it: {error.args[-1] if error.args else ''}"
            case TimeoutError():
                why = f"{where} does not answer"
            case _ if self._transport.close_reason:
                why = f"{where} ended the connection: {self._transport.close_reason}"
            case _:
                why = unreachable(error, where) or f"the connection to {where} broke"
        return self._address.unavailable(why)


class FrameTransport(TransportFactory):
    """Opens the library's connections and reads for it."""

    writer: asyncio.StreamWriter | None = None
    close_reason = ""
    """Why the server closed the connection; the library loses the reason while connecting."""

    async def create(self, url: URL, **_: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context() if url.scheme == "amqps" else None
        reader, self.writer = await asyncio.open_connection(url.host, url.port, ssl=context)
        return cast(asyncio.StreamReader, DecodableFrames(reader, self)), self.writer


class DecodableFrames:
    """A stream of frames that the library can decode."""

    def __init__(self, reader: asyncio.StreamReader, transport: FrameTransport) -> None:
        self._reader = reader
        self._transport = transport
        self._frame = b""

    def at_eof(self) -> bool:
        return not self._frame and self._reader.at_eof()

    async def readexactly(self, size: int) -> bytes:
        if not self._frame:
            start = await self._reader.readexactly(7)
            frame = start + await self._reader.readexactly(int.from_bytes(start[3:], "big") + 1)
            if frame[0] == FRAME_HEADER:
                frame = _with_readable_properties(frame)
            elif frame[0] == FRAME_METHOD and frame[7:11] == DELIVER:
                frame = _with_readable_names(frame)
            elif frame[0] == FRAME_METHOD and frame[7:11] == CLOSE:
                self._transport.close_reason = frame[14 : 14 + frame[13]].decode(errors="replace")
            self._frame = frame
        part, self._frame = self._frame[:size], self._frame[size:]
        return part


def _with_readable_properties(frame: bytes) -> bytes:
    start, about, end = frame[:3], frame[7:-1], frame[-1:]
    try:
        ContentHeader().unmarshal(about)
        return frame
    except Exception:  # whatever the error is, the library's reader would end of it
        mark = hashlib.sha256(about).hexdigest()  # distinguishes this message from another one with the same body
        few = ContentHeader(properties=Basic.Properties(headers={"hipq-unreadable": mark}))
        plain = about[:12] + few.marshal()[12:]
        return start + len(plain).to_bytes(4, "big") + plain + end


def _with_readable_names(frame: bytes) -> bytes:
    """The frame with its exchange and routing key made readable. Both are length-prefixed and come last, after the
    consumer tag, the delivery tag and a flag."""
    at = 7 + len(DELIVER) + 1 + frame[7 + len(DELIVER)] + 8 + 1
    if frame[at:-1].isascii():
        return frame
    key = at + 1 + frame[at]
    parts = frame[at + 1 : key], frame[key + 1 : -1]
    try:
        for part in parts:
            part.decode()
        return frame
    except UnicodeDecodeError:
        plain = [bytes(byte if byte < 128 else ord("?") for byte in part) for part in parts]
        return frame[: at + 1] + plain[0] + frame[key : key + 1] + plain[1] + frame[-1:]
