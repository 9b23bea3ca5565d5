"""Server-sent events: what happens to a tenant's jobs, told while it happens.

A reader that is too slow is told so and let go: nothing that happens may wait for who watches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from hipq.daemon.http.reply import Send
from hipq.daemon.http.request import Receive, first_of, gone

BEAT: Final = 15.0
"""Seconds of silence after which a comment is sent: else whoever is between gives the connection up."""
WRITE_SECONDS: Final = 30.0
"""How long one write may take: who reads nothing at all for so long is gone."""
LOOK: Final = 1.0
"""Seconds between two looks whether its reader may still have it."""
HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-accel-buffering", b"no"),
)


class Stream(NamedTuple):
    """A reply that goes on until its reader leaves, may not have it any more, or the daemon stops."""

    events: AsyncGenerator[dict[str, Any]]
    receive: Receive
    stopping: asyncio.Event
    is_allowed: Callable[[], Awaitable[bool]]
    """Whether the token it was asked for with is still good."""

    async def write(self, send: Send) -> None:
        try:
            async with first_of(
                self._all(send), gone(self.receive), self.stopping.wait(), self._revoked()
            ) as (telling, leaving, *_):  # fmt: skip
                if telling.done():
                    telling.result()
                if not leaving.done():
                    await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            pass  # it reads nothing any more
        finally:
            with suppress(Exception):
                await self.events.aclose()

    async def _revoked(self) -> None:
        while await self.is_allowed():
            await asyncio.sleep(LOOK)

    async def _all(self, send: Send) -> None:
        coming: asyncio.Future[dict[str, Any]] | None = asyncio.ensure_future(anext(self.events))
        await asyncio.sleep(0)  # from here on nothing is missed
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self._tell(send, b": these are the events from now on\n\n")
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self.events))
                done, _ = await asyncio.wait([coming], timeout=BEAT)
                if not done:
                    await self._tell(send, b": still here\n\n")
                    continue
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                await self._tell(send, told(event))
        finally:
            if coming is not None:
                coming.cancel()

    async def _tell(self, send: Send, text: bytes) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await send({"type": "http.response.body", "body": text, "more_body": True})


def told(event: dict[str, Any]) -> bytes:
    """One event on the wire. JSON has no line breaks in it, so nothing in it can be taken for another event."""
    name = str(event.get("event", "message")).replace("\n", " ").replace("\r", " ")
    number = b"id: %s\n" % event["event_id"].encode() if "event_id" in event else b""
    return b"%sevent: %s\ndata: %s\n\n" % (number, name.encode(), msgspec.json.encode(event))
