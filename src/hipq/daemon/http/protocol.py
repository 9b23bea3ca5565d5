"""HTTP as uvicorn reads it, with bounds: on the size, the lines and the time of a head, and on connections.

What uvicorn refuses by itself is said as JSON here, like everything else.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from hipq.daemon.http.connections import Connections

HEAD_SECONDS: Final = 15.0
"""How long a head may take to come, from the first byte or from the connection on."""
HEAD_BYTES: Final = 64 << 10
HEAD_LINES: Final = 200
HALF_CLOSED_SECONDS: Final = 10.0
"""How long a client that has said all it has to say is waited on: it looks like one that has gone."""


class OneWrite:
    """A transport that writes the head of a reply with the first part of its body: one packet, where uvicorn makes two,
    and a client that is woken once."""

    __slots__ = ("_head", "_is_begun", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._is_begun = False

    def write(self, data: bytes) -> None:
        if self._is_begun:
            if self._head:
                data, self._head = self._head + data, b""
            self._transport.write(data)
        elif data.startswith(b"HTTP/1.1 100 "):
            self._transport.write(data)  # after which the client sends the body it has held back
        else:
            self._head, self._is_begun = data, True

    def close(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(HttpToolsProtocol):
    """To be given to uvicorn as `http`."""

    head_seconds: ClassVar[float] = HEAD_SECONDS
    open_now: ClassVar[Connections] = Connections()

    @classmethod
    def within(cls, seconds: float, connections: Connections | None = None) -> type[BoundedProtocol]:
        """With another time for heads, and a count of connections of its own."""
        bounds = {"head_seconds": seconds, "open_now": connections or Connections()}
        return type(cls.__name__, (cls,), bounds)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._room = HEAD_BYTES
        self._came = 0
        """Bytes of a head so far, or of what is neither head nor body (chunk sizes, trailers) since a body's last part:
        the parser tells of a header only when it is whole, and joins its parts again and again until then."""
        self._in_head = False
        self._is_body = False
        """Whether the last data had a part of a body."""
        self._heads = 0
        self._cycles: list[RequestResponseCycle] = []
        """The cycles of requests without a reply: uvicorn itself knows only the last of those that came together."""
        self._clock: asyncio.TimerHandle | None = None
        self._refused = False
        self._address = ""
        """Whose connection this is; empty where that is not known."""

    # -- time -------------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        if full := self.open_now.enter(self._address):
            self._refuse(503, full)
            return
        self._clock = self.loop.call_later(self.head_seconds, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_now.leave(self._address)
        self._stop_clock()
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True  # else it writes to nobody, which is an error
                cycle.message_event.set()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """It sends no more, and may wait for its reply: True, as long as that has not begun. A stream of events has,
        and who reads that has gone."""
        cycle = self.cycle
        if self._refused or cycle is None or cycle.more_body or not self._is_awaited(cycle):
            return False
        cycle.keep_alive = False  # of the last request: those before it are replied to first
        self._stop_clock()
        self._clock = self.loop.call_later(HALF_CLOSED_SECONDS, self._half_closed, cycle)
        return True

    def _half_closed(self, cycle: RequestResponseCycle) -> None:
        self._clock = None
        if self._is_awaited(cycle):
            self.transport.close()

    def _is_awaited(self, cycle: RequestResponseCycle) -> bool:
        return not (cycle.response_started or cycle.response_complete)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_slow(self) -> None:
        self._clock = None
        if not self.transport.is_closing():
            self._refuse(408, f"the request's head took longer than {self.head_seconds:g} seconds to come")

    # -- size -------------------------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # what else it sends is not wanted
        heads = self._heads
        was_in_head = self._in_head
        self._is_body = False
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._in_head == was_in_head and heads == self._heads and not self._is_body:  # all of it is of one kind
            self._came += len(data)
            if self._came > HEAD_BYTES:
                self._refuse(431, f"a request's head may have {HEAD_BYTES:,} bytes, and this one has more")
                return
        idle = self.cycle is None or self.cycle.response_complete
        if self._clock is None and (self._in_head or idle):
            self._clock = self.loop.call_later(self.head_seconds, self._too_slow)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._heads += 1
        self._room, self._came = HEAD_BYTES, 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._room -= len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Lines behind a body are not for us: a proxy looks at none of them, so a token there would pass unseen."""
        if not self._in_head:
            return
        self._room -= len(name) + len(value)
        if self._room >= 0 and len(self.headers) < HEAD_LINES:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_clock()
        if self._room < 0 or len(self.headers) >= HEAD_LINES:
            self._refuse(431, f"a request's head may have {HEAD_LINES} lines and {HEAD_BYTES:,} bytes")
        if self.parser.should_upgrade() and not self._refused and self._has_body():
            self._refuse(400, "a request with a body cannot ask for another protocol: send it without Upgrade")
        if not self._refused:
            self.begin()

    def _has_body(self) -> bool:
        """The parser takes what follows a head with Upgrade for another protocol's: such a body would be lost."""
        said = dict(self.headers)
        return b"transfer-encoding" in said or bool(said.get(b"content-length", b"").strip(b"0 "))

    def begin(self) -> None:
        """A head has come: its request is the application's."""
        super().on_headers_complete()
        if self.cycle is not None:
            self._cycles = [*(one for one in self._cycles if not one.response_complete), self.cycle]
            self.cycle.keep_alive = self.cycle.keep_alive and not self.open_now.leaving
        if self.cycle is not None and self.scope["method"] != "HEAD":  # whose body is never written
            self.cycle.transport = OneWrite(self.transport)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        self._has_come()
        if not self._refused:
            super().on_body(body)

    def _has_come(self) -> None:
        self._is_body, self._came = True, 0

    def on_message_complete(self) -> None:
        if not self._refused:
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Whoever asks for another protocol is served in this one, and no line in the log is wasted on it."""

    # -- refusing ---------------------------------------------------------------------------------------------------
    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it is always the same
        if not self._refused:
            self._refuse(400, "this is no HTTP request that can be read")

    def _refuse(self, status: int, text: str) -> None:
        """Say it and hang up: what follows cannot be told from what came."""
        self._refused = True
        self._stop_clock()
        if self.cycle is not None and not self.cycle.response_complete:
            if self._in_head or self.pipeline or self.cycle.response_started or not self.cycle.more_body:
                self.cycle.keep_alive = False  # replies to those before it are still to come: it ends behind them
                return
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = msgspec.json.encode({"error": text})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
