"""What a request says: its head, which is looked at before its body is read, and its body, within its bounds."""

from __future__ import annotations

import asyncio
import time
from asyncio import Task
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec

from hipq.daemon.http.reply import CLOSE, ClientGone, HttpError, later

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

SLOW: Final = 1.0
"""Seconds that a body may take before its sender's token is looked at once more."""
LARGE: Final = 256 << 10
"""Bytes of a body that is made sense of in a thread: others are not to wait for that."""


class Limits(msgspec.Struct, frozen=True):
    """What a daemon takes."""

    body: int = 32 << 20
    """Bytes that one body may have."""
    body_seconds: float = 30.0
    """Seconds that a body may take to come."""
    head_seconds: float = 15.0
    """Seconds that a head may take to come."""
    jobs: int = 100_000
    """Jobs that one request may have."""
    readers: int = 1000
    """Callers who may read events, or wait for results, at once."""
    connections: int = 4096
    """Connections that may be open at once; one address has at most a quarter of them."""
    share: int = 4
    """One tenant has at most this part, a quarter, of what is for all."""

    @property
    def held(self) -> int:
        """Bytes of all bodies that may be in memory at once: one tenant can have two of the largest."""
        return max(256 << 20, 2 * self.body * self.share)


class Shared:
    """Something of which there is so much for all, and for one tenant a part of that: so nobody has all of it."""

    def __init__(self, most: int, share: int, what: str) -> None:
        self._most, self._each, self._what = most, max(1, most // share), what
        self._by_tenant: dict[str, int] = {}
        self.now = 0

    def take(self, tenant: str, size: int) -> None:
        mine = self._by_tenant.get(tenant, 0) + size
        if self.now + size > self._most or mine > self._each:
            raise HttpError(503, f"{self._what} already; try again", later(1))
        self._by_tenant[tenant] = mine
        self.now += size

    def give(self, tenant: str, size: int) -> None:
        self.now -= size
        left = self._by_tenant.get(tenant, 0) - size
        if left > 0:
            self._by_tenant[tenant] = left
        else:
            self._by_tenant.pop(tenant, None)


class Body:
    """The body of one request. What it holds is given back by `close`."""

    __slots__ = ("_found", "_held", "_let_in", "_limits", "_receive", "_tenant", "size")

    def __init__(
        self, receive: Receive, limits: Limits, held: Shared, tenant: str, let_in: Callable[[], Awaitable[Any]]
    ) -> None:  # fmt: skip
        """`let_in` raises if who sends it is not let in any more."""
        self._let_in = let_in
        self._receive = receive
        self._limits = limits
        self._held = held
        self._tenant = tenant
        self._found: bytes | None = None
        self.size = 0

    async def read(self) -> bytes:
        """All of it; HttpError if it is too large, or takes too long."""
        if self._found is None:
            began = time.monotonic()
            self._found = await self._all()
            if time.monotonic() - began > SLOW:
                await self._let_in()
        return self._found

    async def _all(self) -> bytes:
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                parts, more = list[bytes](), True
                while more:
                    part, more = await self._part()
                    parts.append(part)
                return b"".join(parts)
        except TimeoutError:
            text = f"the body took longer than {self._limits.body_seconds:g} seconds to come"
            raise HttpError(408, text, CLOSE) from None  # what else it sends is that body

    async def _part(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        if self.size + len(part) > self._limits.body:
            raise too_large(self._limits)
        self._held.take(self._tenant, len(part))
        self.size += len(part)
        return part, message.get("more_body", False)

    def close(self) -> None:
        self._held.give(self._tenant, self.size)
        self.size = 0


def one_each(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """By name. Two tokens are refused: what stands in front of the daemon may have looked at the other one."""
    found = dict(headers)
    if len(found) < len(headers) and sum(name == b"authorization" for name, _ in headers) > 1:
        raise HttpError(400, "a request has one Authorization header, and this one has more")
    return found


def check_head(headers: Mapping[bytes, bytes], limits: Limits) -> None:
    """Refuse what is known to be wrong before the body has come."""
    length = headers.get(b"content-length")
    if length is not None and (not length.isdigit() or len(length) > 15 or int(length) > limits.body):
        raise too_large(limits)
    if headers.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
        raise HttpError(415, "send the body as it is, without a Content-Encoding")
    if headers.get(b"transfer-encoding", b"chunked").strip().lower() != b"chunked":  # compressed under way
        raise HttpError(415, "send the body as it is, with no Transfer-Encoding but chunked", CLOSE)


def too_large(limits: Limits) -> HttpError:
    return HttpError(413, f"a body may have {limits.body:,} bytes, and this one has more")


def kind_of(headers: Mapping[bytes, bytes]) -> str:
    """The Content-Type without its parameters."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def queried(text: bytes) -> dict[str, str]:
    """The URL's query. What comes twice, and what is no UTF-8, is refused: nobody can know what was meant."""
    found: dict[str, str] = {}
    for pair in filter(None, text.split(b"&")):
        name, _, value = pair.partition(b"=")
        try:
            key, said = (unquote_to_bytes(part.replace(b"+", b" ")).decode() for part in (name, value))
        except UnicodeDecodeError:
            raise HttpError(400, "the URL's query is not UTF-8 text") from None
        if key in found:
            raise HttpError(400, f"{key!r:.60} is in the URL's query twice")
        found[key] = said
    return found


async def gone(receive: Receive) -> None:
    """Returns when nobody reads any more. To be asked after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def first_of(*several: Coroutine[Any, Any, Any], seconds: float | None = None) -> AsyncIterator[list[Task[Any]]]:
    """Tasks for these, when one of them is done or the time is over. All end with the block."""
    tasks = [asyncio.ensure_future(one) for one in several]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        yield tasks
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
